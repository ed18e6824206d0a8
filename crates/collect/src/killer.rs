//! The kernel's killer: what it has counted and logged of kills for want of memory while a job ran.
//!
//! Its counters are read before and after, its log from the job's begin on, where it may be read. From them and from the
//! processes that ended by SIGKILL it is told whose doing that was; nothing is guessed.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use heaptape_ledger::{Felled, Job, Kernel, Kills, Line, Moment, Victim};
use heaptape_proc::cgroup::{Ceiling, Memory};
use heaptape_proc::kmsg::{self, Log};
use heaptape_proc::{Cgroup, oom};

use crate::exit::Exit;

/// Bytes of a process's name that the kernel keeps.
const NAME: usize = 15;

/// Where the kernel tells.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    /// The control group, with its version.
    group: Option<(u8, PathBuf)>,
    ceiling: Option<Ceiling>,
    vmstat: PathBuf,
    log: PathBuf,
    /// Whether pids in the log are those that are known here.
    is_numbered_as_here: bool,
}

impl Sources {
    /// Those of this process.
    pub(crate) fn here() -> Sources {
        let Cgroup { version, directory, ceiling, .. } = Cgroup::read();
        Sources {
            group: version.zip(directory),
            ceiling,
            vmstat: "/proc/vmstat".into(),
            log: kmsg::PATH.into(),
            is_numbered_as_here: oom::is_numbered_as_here(),
        }
    }

    fn counts(&self) -> Kills {
        let group = self.group.as_ref();
        Kills {
            group: group.and_then(|(version, path)| Memory::read(*version, path).oom_kills),
            machine: fs::read_to_string(&self.vmstat).ok().and_then(|text| oom::count(&text)),
        }
    }
}

/// What was there when the job began.
pub(crate) struct Killer {
    sources: Sources,
    before: Kills,
    log: Result<Log, String>,
}

impl Killer {
    pub(crate) fn watch(sources: Sources) -> Killer {
        let log = Log::open(&sources.log).map_err(|error| error.to_string());
        Killer { before: sources.counts(), log, sources }
    }

    /// Whose doing it was that processes of a job ended by SIGKILL, unless it was ours: those by their places, with
    /// the moment when the first ended. `root` is the command, once it has ended.
    pub(crate) fn testify(
        self,
        (places, moment): (Vec<usize>, Moment),
        root: Option<(u32, Exit)>,
        job: &Job,
        kernel: Option<&Kernel>,
    ) -> Option<Felled> {
        let over = kernel.and_then(|kernel| kernel.over.as_ref());
        if job.killed || over.is_some_and(|over| !over.judge.is_kernel()) {
            return None;
        }
        let enclosed = kernel.and_then(|kernel| Some(kernel.group.as_ref()?.oom_kills));
        self.tell(victims(&places, root, job), moment, enclosed)
    }

    /// What came of it. `enclosed`: the kills in the job's own group, where it had one.
    fn tell(
        mut self,
        victims: Vec<Victim>,
        moment: Moment,
        enclosed: Option<u64>,
    ) -> Option<Felled> {
        let after = self.sources.counts();
        let since = |before: Option<u64>, after: Option<u64>| Some(after?.saturating_sub(before?));
        let group = since(self.before.group, after.group);
        let kills = Kills {
            group: group.max(enclosed),
            machine: since(self.before.machine, after.machine),
        };
        if victims.is_empty() && kills.group.unwrap_or(0) == 0 {
            return None;
        }
        let log = self.lines(&victims);
        let ceiling = self
            .sources
            .ceiling
            .map(|ceiling| (ceiling.bytes, ceiling.directory.to_string_lossy().into_owned()));
        Some(Felled { victims, moment, kills, log, ceiling })
    }

    fn lines(&mut self, victims: &[Victim]) -> Result<Vec<Line>, String> {
        let news = self.log.as_mut().map_err(|why| why.clone())?.news();
        let is_numbered_as_here = self.sources.is_numbered_as_here;
        let line = |kill: oom::Kill| {
            let is_it = |victim: &Victim| match is_numbered_as_here {
                true => victim.pid == Some(kill.pid),
                false => name(victim).is_some_and(|name| name == kill.name),
            };
            Line { victim: victims.iter().position(is_it), message: kill.message }
        };
        let lines: Vec<Line> = oom::kills(&news.messages).into_iter().map(line).collect();
        let is_found = lines.iter().any(|line| line.victim.is_some());
        match news.has_gaps && !is_found {
            true => Err(format!("{} has lost messages.", self.sources.log.display())),
            false => Ok(lines),
        }
    }
}

/// Who they are; the command as well, where it was not counted.
fn victims(places: &[usize], root: Option<(u32, Exit)>, job: &Job) -> Vec<Victim> {
    let victim = |&place: &usize| {
        let process = job.processes.get(place)?;
        let (pid, command) = (process.pid, process.command.clone());
        Some(Victim { place: Some(place), pid, command })
    };
    let mut victims: Vec<Victim> = places.iter().filter_map(victim).collect();
    if let Some((pid, exit)) = root
        && exit.signal == Some(libc::SIGKILL)
        && victims.iter().all(|victim| victim.pid != Some(pid))
    {
        victims.push(Victim { place: None, pid: Some(pid), command: job.command.clone() });
    }
    victims
}

/// A process's name as the kernel has it, unless the process has changed it.
fn name(victim: &Victim) -> Option<String> {
    let file = Path::new(victim.command.first()?).file_name()?.as_bytes();
    Some(String::from_utf8_lossy(&file[..file.len().min(NAME)]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptape_ledger::Cause;
    use std::io::Write;

    /// Plain files in place of the kernel's.
    struct Stand(PathBuf);

    impl Stand {
        fn new(name: &str) -> Stand {
            let name = format!("heaptape-killer.{}.{name}", std::process::id());
            let stand = Stand(std::env::temp_dir().join(name));
            fs::create_dir_all(&stand.0).unwrap();
            stand.count(4, 20);
            stand.write(
                "kmsg",
                "3,1,1,-;Memory cgroup out of memory: Killed process 9 (old) total-vm:1kB\n",
            );
            stand
        }

        fn write(&self, file: &str, text: &str) {
            fs::write(self.0.join(file), text).unwrap();
        }

        fn count(&self, group: u64, machine: u64) {
            self.write("memory.events", &format!("oom 9\noom_kill {group}\n"));
            self.write("vmstat", &format!("pgfault 1\noom_kill {machine}\n"));
        }

        fn log(&self, text: &str) {
            let file = fs::OpenOptions::new().append(true).open(self.0.join("kmsg"));
            writeln!(file.unwrap(), "3,2,2,-;{text}").unwrap();
        }

        fn sources(&self) -> Sources {
            Sources {
                group: Some((2, self.0.clone())),
                ceiling: Some(Ceiling { bytes: 1 << 30, directory: "/job".into() }),
                vmstat: self.0.join("vmstat"),
                log: self.0.join("kmsg"),
                is_numbered_as_here: true,
            }
        }
    }

    impl Drop for Stand {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn fallen() -> Vec<Victim> {
        let victim = |pid, command: &str| Victim {
            place: None,
            pid: Some(pid),
            command: vec![command.to_owned()],
        };
        vec![victim(77, "/opt/solver"), victim(78, "./a_name_that_is_rather_long")]
    }

    fn told(killer: Killer) -> Felled {
        killer.tell(fallen(), Moment::default(), None).unwrap()
    }

    const KILL: &str =
        "Memory cgroup out of memory: Killed process 78 (a_name_that_is_) total-vm:9kB";

    #[test]
    fn what_was_counted_and_logged_meanwhile_is_told() {
        let stand = Stand::new("kill");
        let killer = Killer::watch(stand.sources());
        stand.count(5, 22);
        stand.log(KILL);
        stand.log("Out of memory: Killed process 5 (other) total-vm:9kB");
        let felled = told(killer);
        assert_eq!(
            (felled.kills, felled.cause()),
            (Kills { group: Some(1), machine: Some(2) }, Cause::Logged)
        );
        let victims: Vec<_> = felled.log.unwrap().iter().map(|line| line.victim).collect();
        assert_eq!(victims, [Some(1), None]);
        assert_eq!(felled.ceiling, Some((1 << 30, "/job".into())));
    }

    #[test]
    fn in_a_pid_namespace_names_are_compared() {
        let stand = Stand::new("names");
        let killer = Killer::watch(Sources { is_numbered_as_here: false, ..stand.sources() });
        stand.log(&KILL.replace("78", "4711"));
        assert_eq!(told(killer).cause(), Cause::Logged);
    }

    #[test]
    fn a_signal_that_somebody_sent_is_no_kill_of_the_kernels() {
        let stand = Stand::new("sent");
        let felled = told(Killer::watch(stand.sources()));
        assert_eq!((felled.kills.group, felled.cause()), (Some(0), Cause::Sent));
        let killer = Killer::watch(Sources { log: "/no/such/log".into(), ..stand.sources() });
        let felled = told(killer);
        assert_eq!(felled.cause(), Cause::Sent);
        assert!(felled.log.unwrap_err().contains("/no/such/log"));
    }

    #[test]
    fn what_nobody_tells_is_not_known() {
        let stand = Stand::new("unknown");
        let nowhere = PathBuf::from("/no/such/file");
        let sources = Sources {
            group: None,
            ceiling: None,
            vmstat: nowhere.clone(),
            log: nowhere,
            is_numbered_as_here: true,
        };
        let felled = told(Killer::watch(sources.clone()));
        assert_eq!((felled.kills, felled.cause()), (Kills::default(), Cause::Unknown));
        assert_eq!(Killer::watch(sources).tell(Vec::new(), Moment::default(), None), None);
        // A kill in the group that was none of those that were counted.
        let killer = Killer::watch(stand.sources());
        stand.count(6, 22);
        let felled = killer.tell(Vec::new(), Moment::default(), None).unwrap();
        assert_eq!((felled.kills.group, felled.is_by_kernel()), (Some(2), false));
    }
}
