//! A control group of the job's own: made before the command starts, which enters it before it begins; limited; looked
//! at; killed as one; removed at the end.
//!
//! This process stays outside. The group's name has our pid and the time of our start in it, so that the next of us
//! removes what one that was killed has left. Where it can be made is said by [`heaptape_proc::cgroup`].

mod stale;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heaptape_proc::Cgroup;
use heaptape_proc::cgroup::{self, Ground, Memory};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How long the processes of a group may take to end that were killed, and a group to be given up by the kernel.
const PATIENCE: Duration = Duration::from_secs(10);
const MOMENT: Duration = Duration::from_millis(2);
/// Groups below the job's own that are looked into: a job may make some itself.
const DEPTH: usize = 16;

/// A job's group.
#[derive(Debug)]
pub(crate) struct Group {
    version: u8,
    directory: PathBuf,
    name: String,
    /// Open for the command, which enters by it.
    entrance: File,
    /// The path of the group in which this process was when it made this one.
    home: Option<String>,
    /// Where this process has gone aside for it: its own group.
    left: Option<PathBuf>,
}

/// A process that stays where it is.
#[derive(Debug)]
pub(crate) struct NotTaken {
    /// Why, as a sentence.
    pub(crate) why: String,
    /// The path of the group that it is in, where that is known.
    pub(crate) stays_in: Option<String>,
}

impl Group {
    /// Makes one, or says in a sentence why not and what can be done.
    pub(crate) fn make(place: &Cgroup) -> Result<Group, String> {
        let lacks = |lack: &cgroup::Lack| format!("{lack}. {}", lack.advice());
        let ground = place.ground.as_ref().map_err(lacks)?;
        let failed = |what: &Path, error: &io::Error| {
            format!("the cgroup {} can't be made: {error}.", what.display())
        };
        let name = stale::own_name();
        let version = place.version.unwrap_or(2);
        let home = cgroup::path_of(std::process::id(), version);
        stale::remove_others(ground.parent());
        let left = match ground {
            Ground::Alone(own) => Some(own.clone()),
            Ground::Below(_) | Ground::Beside(_) => None,
        };
        if let Some(own) = &left {
            go_aside(own, &name).map_err(|error| failed(own, &error))?;
        }
        let directory = ground.parent().join(&name);
        let mut group = Group::new(version, ground.parent(), name.clone()).map_err(|error| {
            left.iter().for_each(|own| come_back(own, &name));
            failed(&directory, &error)
        })?;
        (group.home, group.left) = (home, left);
        Ok(group)
    }

    /// One of this name, below a group that is ours to write.
    fn new(version: u8, parent: &Path, name: String) -> io::Result<Group> {
        if version == 2 {
            enable(parent)?;
        }
        let directory = parent.join(&name);
        fs::create_dir(&directory)?;
        Group::at(version, directory.clone(), name).inspect_err(|_| {
            let _ = fs::remove_dir(&directory);
        })
    }

    /// One whose directory is there.
    pub(crate) fn at(version: u8, directory: PathBuf, name: String) -> io::Result<Group> {
        let entrance = OpenOptions::new().write(true).open(directory.join("cgroup.procs"))?;
        Ok(Group { version, directory, name, entrance, home: None, left: None })
    }

    /// Takes in a process that stands where this one stood, or says in a sentence why it stays where it is: a
    /// group that somebody has made for it is not left.
    pub(crate) fn take_in(&self, pid: u32) -> Result<(), NotTaken> {
        if self.has(pid) != Some(false) {
            return Ok(());
        }
        let path = cgroup::path_of(pid, self.version);
        let why = if path != self.home {
            let path = path.as_deref().unwrap_or("which is not known");
            format!("process {pid} was started in another cgroup, {path}, and stays there.")
        } else if let Err(error) = self.write("cgroup.procs", &pid.to_string()) {
            let directory = self.directory.display();
            format!("process {pid} can't be put into the cgroup {directory}: {error}.")
        } else {
            return Ok(());
        };
        Err(NotTaken { why, stays_in: path })
    }

    /// Limits its memory, with swap, to so many bytes; who goes beyond is killed, where the kernel can do that with all
    /// others of the group.
    pub(crate) fn limit(&self, bytes: u64) -> io::Result<()> {
        let bytes = bytes.to_string();
        if self.version == 1 {
            // Before Linux 5.11 what a job makes below it would count for itself.
            let _ = self.write_if_there("memory.use_hierarchy", "1");
            self.write("memory.limit_in_bytes", &bytes)?;
            return self.write_if_there("memory.memsw.limit_in_bytes", &bytes);
        }
        self.write("memory.max", &bytes)?;
        self.write_if_there("memory.swap.max", "0")?;
        self.write_if_there("memory.oom.group", "1")
    }

    /// A descriptor: a process that writes `0` to it is in the group.
    pub(crate) fn entrance(&self) -> RawFd {
        self.entrance.as_raw_fd()
    }

    /// The version of its hierarchy.
    pub(crate) fn version(&self) -> u8 {
        self.version
    }

    /// Its directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// What it holds.
    pub(crate) fn memory(&self) -> Memory {
        Memory::read(self.version, &self.directory)
    }

    /// Its processes, and those of groups below it.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let mut pids = Vec::new();
        for directory in below(&self.directory, DEPTH) {
            let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            // Those of another pid namespace are told as 0.
            let all = text.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok());
            pids.extend(all.filter(|&pid| pid != 0));
        }
        pids
    }

    /// Whether a process is in it; `None` where it has ended.
    pub(crate) fn has(&self, pid: u32) -> Option<bool> {
        cgroup::is_in(pid, self.version, &self.name)
    }

    /// Whether a process is in one of these groups of its hierarchy, or below one.
    pub(crate) fn is_within(&self, pid: u32, paths: &[String]) -> bool {
        let Some(path) = cgroup::path_of(pid, self.version) else { return false };
        let is_below = |above: &String| {
            let rest = path.strip_prefix(above.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        paths.iter().any(is_below)
    }

    /// Lets none of its processes run while `work` is done, where the kernel can do that.
    pub(crate) fn frozen<T>(&self, work: impl FnOnce() -> T) -> T {
        let is_frozen = self.write_if_there("cgroup.freeze", "1").is_ok();
        let done = work();
        if is_frozen {
            let _ = self.write_if_there("cgroup.freeze", "0");
        }
        done
    }

    /// Kills all its processes, and waits until none is left; false where some do not end.
    pub(crate) fn kill(&self, beat: &dyn Fn()) -> bool {
        let until = Instant::now() + PATIENCE;
        // Since Linux 5.14 the kernel does it at once, and none escapes by a fork.
        let _ = self.write_if_there("cgroup.kill", "1");
        loop {
            let pids = self.pids();
            if pids.is_empty() || Instant::now() >= until {
                return pids.is_empty();
            }
            pids.into_iter().for_each(|pid| self.kill_one(pid));
            beat();
            std::thread::sleep(MOMENT);
        }
    }

    fn kill_one(&self, pid: u32) {
        let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
        let Ok(watch) = pidfd_open(raw, PidfdFlags::empty()) else { return };
        // The descriptor is of the one that has the number now.
        if self.has(pid) == Some(true) {
            let _ = pidfd_send_signal(&watch, Signal::KILL);
        }
    }

    /// Removes it, with groups below it, once it has no process left; one that has stays.
    pub(crate) fn remove(&self) {
        let until = Instant::now() + PATIENCE;
        while self.pids().is_empty() {
            // The group itself is the last.
            let mut last = Ok(());
            for directory in below(&self.directory, DEPTH).iter().rev() {
                last = fs::remove_dir(directory);
            }
            // Those that have just ended may still be on their way out; nothing else passes by itself.
            let is_busy = last.is_err_and(|error| error.kind() == ErrorKind::ResourceBusy);
            if !is_busy || Instant::now() >= until {
                return;
            }
            std::thread::sleep(MOMENT);
        }
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.directory.join(file), text)
    }

    /// The same, and nothing where this kernel has no such file.
    fn write_if_there(&self, file: &str, text: &str) -> io::Result<()> {
        match OpenOptions::new().write(true).open(self.directory.join(file)) {
            Ok(mut file) => io::Write::write_all(&mut file, text.as_bytes()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.remove();
        if !self.directory.exists() {
            self.left.iter().for_each(|own| come_back(own, &self.name));
        }
    }
}

/// A group and those below it, each before its own children.
fn below(directory: &Path, depth: usize) -> Vec<PathBuf> {
    let mut all = vec![directory.to_owned()];
    if depth > 0 {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            all.extend(below(&entry.path(), depth - 1));
        }
    }
    all
}

/// Lets the children of a group of version 2 be limited, unless they can be.
fn enable(parent: &Path) -> io::Result<()> {
    let file = parent.join("cgroup.subtree_control");
    let enabled = fs::read_to_string(&file).unwrap_or_default();
    if enabled.split_whitespace().any(|name| name == "memory") {
        return Ok(());
    }
    fs::write(file, "+memory")
}

/// Takes this process, the only one of its group, into a child of it, and lets the children of the group be limited.
fn go_aside(own: &Path, name: &str) -> io::Result<()> {
    let aside = aside(own, name);
    fs::create_dir(&aside)?;
    fs::write(aside.join("cgroup.procs"), std::process::id().to_string())
        .and_then(|()| enable(own))
        .inspect_err(|_| come_back(own, name))
}

/// Takes this process back to where it was, once no child of that is limited any more.
fn come_back(own: &Path, name: &str) {
    // Nobody is let in before. (It was not enabled when we came: else nobody could have been there.)
    let _ = fs::write(own.join("cgroup.subtree_control"), "-memory");
    let _ = fs::write(own.join("cgroup.procs"), std::process::id().to_string());
    let _ = fs::remove_dir(aside(own, name));
}

fn aside(own: &Path, name: &str) -> PathBuf {
    own.join(format!("{name}{}", stale::ASIDE))
}

#[cfg(test)]
mod tests;
