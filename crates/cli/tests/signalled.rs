//! A signal reaches the command exactly once: sent to heaptape, to the group of both, or first to the one and then to the
//! other, as `timeout` does.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::program;
use harness::running::{Running, state, until, until_file_has};
use harness::{HEAPTAPE, LIMIT, heaptape, scratch, skip};
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Longer than a signal waits for the same one to the group.
const PAUSE: Duration = Duration::from_millis(400);

/// `heaptape HOW -- tally`, with the file that ends it.
struct Tally {
    running: Running,
    end: tempfile::TempDir,
    signals: usize,
}

impl Tally {
    fn start(how: &[&str], before: &[&str]) -> Tally {
        let end = scratch();
        let mut command = heaptape(how.iter().copied());
        if how[0] == "record" {
            command.arg("-o").arg(end.path().join("x.tape"));
        }
        // Commands of one job would meet.
        command.env("HEAPTAPE_JOB", end.path().file_name().expect("a name"));
        command.arg("--").args(before).arg(program("tally")).arg(end.path().join("end"));
        let running = Running::start(&mut command);
        assert!(until_file_has(&running.stdout_path(), "begun\n", LIMIT), "{how:?}");
        Tally { running, end, signals: 0 }
    }

    fn to_heaptape(&self) {
        self.running.signal(Signal::TERM);
    }

    fn to_group(&self) {
        kill_process_group(self.running.pid(), Signal::TERM).expect("our own group");
    }

    fn count(&self) -> usize {
        let text = fs::read_to_string(self.running.stdout_path()).unwrap_or_default();
        text.lines().filter(|&line| line == "TERM").count()
    }

    /// Waits for one more signal, and for any that is too much.
    fn gets_one(&mut self, what: &str) {
        self.signals += 1;
        let has_come = || (self.count() >= self.signals).then_some(());
        assert!(until(LIMIT, has_come).is_some(), "{what} does not reach the command");
        sleep(PAUSE);
        assert_eq!(self.count(), self.signals, "{what}");
    }

    fn finish(self) {
        let group = self.running.pid();
        fs::write(self.end.path().join("end"), "").expect("a file");
        let outcome = self.running.finish(LIMIT);
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        assert!(test_kill_process_group(group).is_err(), "heaptape leaves a process behind");
    }
}

/// All that pass signals on.
const WAYS: [&[&str]; 4] = [
    &["record", "--quiet"],
    &["limit", "1GB", "--quiet"],
    &["limit", "1GB", "--quiet", "--strict"],
    &["limit", "1GB", "--quiet", "--join", "--strict"],
];

#[test]
fn a_signal_reaches_the_command_once_whoever_else_was_sent_it() {
    for how in WAYS {
        let mut tally = Tally::start(how, &[]);
        tally.to_heaptape();
        tally.gets_one("one to heaptape");
        tally.to_group();
        tally.gets_one("one to the group");
        tally.to_heaptape();
        tally.to_group();
        tally.gets_one("one to heaptape, then to the group");
        for _ in 0..3 {
            tally.to_group();
            tally.gets_one("one of three to the group");
        }
        tally.to_heaptape();
        tally.gets_one("one to heaptape, after all of those");
        tally.finish();
    }
}

/// What is sent to the group of heaptape is nothing that such a command has got.
#[test]
fn a_command_in_a_session_of_its_own_is_sent_what_the_group_gets() {
    for how in WAYS {
        let mut tally = Tally::start(how, &["setsid"]);
        tally.to_heaptape();
        tally.gets_one("one to heaptape");
        tally.to_group();
        tally.gets_one("one to the group");
        tally.finish();
    }
}

/// The children of a process, with the words of their command lines.
fn children(pid: Pid) -> Vec<(Pid, String)> {
    let pid = pid.as_raw_nonzero();
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let pids = list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
    let read = |pid: &Pid, file: &str| {
        fs::read_to_string(format!("/proc/{}/{file}", pid.as_raw_nonzero())).unwrap_or_default()
    };
    pids.map(|pid| (pid, read(&pid, "comm") + &read(&pid, "cmdline"))).collect()
}

/// As `killall heaptape` and `pkill -f heaptape` do: what helps heaptape is not to be taken for it.
#[test]
fn a_signal_to_all_of_heaptapes_name_reaches_the_command() {
    let is_tally = |words: &str| words.starts_with("tally\n");
    for how in WAYS {
        let mut tally = Tally::start(how, &[]);
        let named = |(_, words): &(Pid, String)| {
            !is_tally(words) && (words.contains("heaptape") || words.contains(HEAPTAPE))
        };
        let children = children(tally.running.pid());
        assert!(children.iter().any(|(_, words)| is_tally(words)), "{children:?}");
        tally.to_heaptape();
        for (pid, _) in children.into_iter().filter(named) {
            kill_process(pid, Signal::TERM).expect("a child of our own");
        }
        tally.gets_one("one to all of that name");
        tally.finish();
    }
}

/// Those who end the children of a process have not ended the group.
#[test]
fn a_signal_to_heaptapes_children_does_not_stand_for_a_later_one_to_heaptape() {
    for how in WAYS {
        let mut tally = Tally::start(how, &[]);
        for (pid, _) in children(tally.running.pid()) {
            kill_process(pid, Signal::TERM).expect("a child of our own");
        }
        tally.gets_one("one to the children");
        tally.to_heaptape();
        tally.gets_one("one to heaptape");
        tally.finish();
    }
}

#[test]
fn nothing_but_the_command_outlives_heaptape() {
    for how in WAYS {
        let tally = Tally::start(how, &[]);
        let children = children(tally.running.pid());
        tally.running.signal(Signal::KILL);
        let others = children.iter().filter(|(_, words)| !words.starts_with("tally\n"));
        for (pid, words) in others {
            let is_gone =
                || matches!(state(pid.as_raw_nonzero()), None | Some('Z' | 'X')).then_some(());
            assert!(until(LIMIT, is_gone).is_some(), "{words}");
        }
        fs::write(tally.end.path().join("end"), "").expect("a file");
        assert_eq!(tally.running.finish(LIMIT).code(), 137);
    }
}

/// `timeout 3 heaptape limit … -- mpirun …`, of ranks that would go on for long.
fn timed(mpi: &str, options: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["3", HEAPTAPE, "limit", "1GB", "--quiet", "--"]);
    command.arg(format!("mpirun.{mpi}")).args(options).args(["-n", "2", "sleep", "60"]);
    // Root may use Open MPI only when it insists.
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    command.env_remove("LD_PRELOAD");
    command
}

/// An `mpirun` that gets a second signal leaves its ranks alone, and heaptape would wait for them.
#[test]
fn a_timeout_ends_the_ranks_of_an_mpirun() {
    for (mpi, options) in [("openmpi", &["--oversubscribe"][..]), ("mpich", &[])] {
        if Command::new(format!("mpirun.{mpi}")).arg("--version").output().is_err() {
            skip(&format!("there is no mpirun.{mpi}"));
            continue;
        }
        let outcome = Running::start(&mut timed(mpi, options)).finish(Duration::from_secs(40));
        assert_eq!(outcome.code(), 124, "{mpi}: {}", outcome.stderr_text());
    }
}
