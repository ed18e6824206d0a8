//! Commands run to their end within a time limit, output in files (a daemon may keep a pipe open for ever).

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How a command ended and what it wrote.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Outcome {
    /// The exit code; a signal counts as 128+n, as a shell has it.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(127))
    }

    /// What was printed, as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|e| panic!("no JSON: {e}; stderr:\n{}", self.stderr_text()))
    }

    pub(crate) fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

/// A command that runs, in a process group of its own.
pub(crate) struct Running {
    child: Child,
    folder: TempDir,
    what: String,
}

impl Running {
    /// Starts `command`; stdin is empty unless the caller set something else with [`Running::start_reading`].
    pub(crate) fn start(command: &mut Command) -> Running {
        Running::start_reading(command, Stdio::null())
    }

    pub(crate) fn start_reading(command: &mut Command, stdin: Stdio) -> Running {
        let folder = super::scratch();
        let file = |name: &str| File::create(folder.path().join(name)).expect("an output file");
        command.stdin(stdin).stdout(file("stdout")).stderr(file("stderr")).process_group(0);
        let what = format!("{command:?}");
        let child = command.spawn().unwrap_or_else(|e| panic!("{what} does not start: {e}"));
        Running { child, folder, what }
    }

    /// Starts `command`, whose stderr goes to a file of the caller's.
    pub(crate) fn start_telling(command: &mut Command, stderr: File) -> Running {
        let folder = super::scratch();
        let stdout = File::create(folder.path().join("stdout")).expect("an output file");
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).process_group(0);
        let what = format!("{command:?}");
        let child = command.spawn().unwrap_or_else(|e| panic!("{what} does not start: {e}"));
        Running { child, folder, what }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal to the command itself, not to what it started.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a signal to our own child");
    }

    /// Where stdout goes, to be read while the command runs.
    pub(crate) fn stdout_path(&self) -> PathBuf {
        self.folder.path().join("stdout")
    }

    /// Waits for the end. After `limit` the whole group is killed and the test fails.
    pub(crate) fn finish(mut self, limit: Duration) -> Outcome {
        let status = until(limit, || self.child.try_wait().expect("our own child"));
        let Some(status) = status else {
            let err = self.read("stderr");
            let _ = kill_process_group(self.pid(), Signal::KILL);
            let _ = self.child.wait();
            panic!("{} took over {limit:?}; stderr:\n{}", self.what, String::from_utf8_lossy(&err));
        };
        Outcome { status, stdout: self.read("stdout"), stderr: self.read("stderr") }
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.path().join(name)).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nothing that a failed test started may go on; a finished child has no group left or is only a zombie's number,
        // which stays ours until it is reaped.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process_group(self.pid(), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Runs `command` to its end.
pub(crate) fn run(command: &mut Command) -> Outcome {
    Running::start(command).finish(super::LIMIT)
}

/// Asks until there is an answer or the time is over.
pub(crate) fn until<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() > end {
            return None;
        }
        sleep(Duration::from_millis(2));
    }
}

/// What a process does, as the kernel's letter has it; none where there is no such process.
pub(crate) fn state(pid: impl std::fmt::Display) -> Option<char> {
    stat(pid)?.first()?.chars().next()
}

/// The fields of a process's `stat` behind its name, its state first.
pub(crate) fn stat(pid: impl std::fmt::Display) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.split_whitespace().map(str::to_owned).collect())
}

/// Waits until the file holds `text`.
pub(crate) fn until_file_has(path: &Path, text: &str, limit: Duration) -> bool {
    until(limit, || fs::read_to_string(path).ok().filter(|t| t.contains(text))).is_some()
}
