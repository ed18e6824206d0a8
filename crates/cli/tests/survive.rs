//! Sudden deaths: of the program, and of heaptape itself. The program is never harmed; what happened before is on the tape.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::program;
use harness::running::{Running, run, until, until_file_has};
use harness::tape::{self, number};
use harness::{LIMIT, record, record_loop, scratch};
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};
use serde_json::Value;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

const THREADS: usize = 4;

/// What tests/programs/loop.c left in its shared file: its pid, and per thread the calls begun and done.
struct Progress {
    pid: u64,
    threads: Vec<(u64, u64)>,
}

fn progress(path: &Path) -> Option<Progress> {
    let bytes = fs::read(path).ok()?;
    let word = |i: usize| {
        let bytes: [u8; 8] = bytes.get(8 * i..8 * i + 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    let pid = word(0).filter(|&pid| pid != 0)?;
    let thread = |k: usize| Some((word(8 * (k + 1))?, word(8 * (k + 1) + 1)?));
    Some(Progress { pid, threads: (0..THREADS).map(thread).collect::<Option<_>>()? })
}

fn started(path: &Path) -> Progress {
    until(Duration::from_secs(30), || progress(path)).expect("the program starts within 30 s")
}

/// Events of the program's threads on the tape. Thread k asks for sizes that are k modulo 16.
fn events_by_thread(tape: &Path, module: &Path) -> [u64; THREADS] {
    let (mut counts, mut who) = (HashMap::<u64, u64>::new(), HashMap::<u64, usize>::new());
    tape::rows(tape, |row| {
        if Path::new(&row.module) == module {
            *counts.entry(row.thread).or_default() += 1;
            if !row.is_release() {
                let k = who.entry(row.thread).or_insert((row.size % 16) as usize);
                assert_eq!(*k, (row.size % 16) as usize, "thread {} mixes two threads", row.thread);
            }
        }
    });
    let mut by_thread = [0; THREADS];
    for (thread, count) in counts {
        by_thread[who[&thread]] += count;
    }
    by_thread
}

#[test]
fn sigkill_of_the_program_at_fifty_random_moments() {
    let program = program("loop");
    // Any sequence will do; a failure names its moment.
    let mut random = 0x5DEE_CE66_D1CE_4E5Bu64;
    for round in 0..50 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let folder = scratch();
        let (file, shared) = (folder.path().join("x.tape"), folder.path().join("progress"));
        let running = Running::start(&mut record_loop(folder.path(), &[], "60000", "0"));
        let before = started(&shared);
        let moment = Duration::from_micros(random % 60_000);
        sleep(moment);
        kill_process(Pid::from_raw(before.pid as i32).expect("a pid"), Signal::KILL)
            .expect("it runs");
        let outcome = running.finish(LIMIT);
        assert_eq!(outcome.code(), 137, "round {round}: {}", outcome.stderr_text());
        let after = progress(&shared).expect("the file survives");
        let info = tape::info(&file);
        assert_eq!(info["complete"], true, "{info}");
        assert_eq!(number(&info, "/order_faults"), 0, "round {round}, {moment:?}: {info}");
        assert!(number(&info, "/lost") <= THREADS as u64, "round {round}, {moment:?}: {info}");
        assert_eq!(info["processes"][0]["exit"]["signal"], 9, "{info}");
        let events = events_by_thread(&file, &program);
        for (k, &(begun, _)) in after.threads.iter().enumerate() {
            assert!(
                events[k] <= begun && events[k] + 1 >= begun,
                "round {round}, {moment:?}: thread {k} began {begun} calls, the tape has {}",
                events[k]
            );
        }
    }
}

/// Starts a shell that runs the loop for `milliseconds` and then prints its status; returns once it is well under way.
fn under_way(folder: &Path, milliseconds: &str) -> (Running, Progress) {
    let (file, shared) = (folder.join("x.tape"), folder.join("progress"));
    let program = program("loop");
    let script = OsStr::new("\"$0\" \"$1\" 4 \"$2\" 50; echo status $?");
    let command = [
        OsStr::new("sh"),
        OsStr::new("-c"),
        script,
        program.as_os_str(),
        shared.as_os_str(),
        OsStr::new(milliseconds),
    ];
    let running = Running::start(&mut record(&file, &[], &command));
    let progress = started(&shared);
    sleep(Duration::from_millis(500));
    (running, progress)
}

/// The program's own end, seen by its shell.
fn ends_normally(stdout: &Path, within: Duration) {
    assert!(
        until_file_has(stdout, "loop done\nstatus 7\n", within),
        "the program should end by itself with status 7; its output is {:?}",
        fs::read_to_string(stdout)
    );
}

/// How many calls the program began.
fn begun(folder: &Path) -> u64 {
    progress(&folder.join("progress")).expect("the file").threads.iter().map(|t| t.0).sum()
}

/// Ends heaptape by `stop`; the program then ends by itself, and the tape holds what came before.
fn stopped(stop: Signal, milliseconds: &str) {
    let folder = scratch();
    let (running, _) = under_way(folder.path(), milliseconds);
    running.signal(stop);
    ends_normally(&running.stdout_path(), Duration::from_secs(25));
    if stop != Signal::KILL {
        running.signal(Signal::KILL);
    }
    assert_eq!(running.finish(LIMIT).code(), 137);
    let events = tape::assert_ended_early(&folder.path().join("x.tape"), &Value::Null);
    assert!(events > 1000, "half a second of four busy threads is more than {events} events");
    // The shell and libc make some calls of their own.
    let begun = begun(folder.path());
    assert!(events <= begun + 10_000, "{events} events, {begun} calls");
}

#[test]
fn sigkill_of_heaptape_leaves_the_program_running() {
    stopped(Signal::KILL, "2500");
}

#[test]
fn sigstop_of_heaptape_leaves_the_program_running() {
    stopped(Signal::STOP, "3500");
}

#[test]
fn a_stopped_heaptape_that_goes_on_ends_its_tape() {
    let folder = scratch();
    let (running, _) = under_way(folder.path(), "3500");
    running.signal(Signal::STOP);
    let stdout = running.stdout_path();
    ends_normally(&stdout, Duration::from_secs(25));
    running.signal(Signal::CONT);
    let outcome = running.finish(LIMIT);
    // The shell's status; what came after the stop was not recorded, so the tape must not claim to be complete.
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let info = tape::info_outcome(&folder.path().join("x.tape")).json();
    let missing = begun(folder.path()).saturating_sub(number(&info, "/events"));
    assert!(missing == 0 || info["complete"] == false, "{missing} calls missing: {info}");
    assert_eq!(number(&info, "/order_faults"), 0, "{info}");
}

#[test]
fn a_short_stop_of_heaptape_loses_nothing() {
    let folder = scratch();
    let (running, _) = under_way(folder.path(), "1500");
    running.signal(Signal::STOP);
    sleep(Duration::from_millis(300));
    running.signal(Signal::CONT);
    let stdout = running.stdout_path();
    let outcome = running.finish(LIMIT);
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    assert!(!stdout.exists());
    let file = folder.path().join("x.tape");
    let info = tape::info(&file);
    tape::assert_sound(&info);
    let events = events_by_thread(&file, &program("loop"));
    let after = progress(&folder.path().join("progress")).expect("the file");
    for (k, &(begun, done)) in after.threads.iter().enumerate() {
        assert_eq!((events[k], begun), (done, done), "thread {k}");
    }
}

#[test]
fn a_signal_to_heaptape_reaches_the_command() {
    let folder = scratch();
    let (file, shared) = (folder.path().join("x.tape"), folder.path().join("progress"));
    let running = Running::start(&mut record_loop(folder.path(), &[], "60000", "0"));
    let before = started(&shared);
    running.signal(Signal::TERM);
    let outcome = running.finish(LIMIT);
    assert_eq!(outcome.code(), 143, "{}", outcome.stderr_text());
    assert!(
        test_kill_process(Pid::from_raw(before.pid as i32).expect("a pid")).is_err(),
        "it is gone"
    );
    let info = tape::info(&file);
    assert_eq!(info["complete"], true, "{info}");
    assert_eq!(info["processes"][0]["exit"]["signal"], 15, "{info}");
}

#[test]
fn a_signal_to_the_group_at_any_moment_of_the_start_leaves_nothing_behind() {
    let folder = scratch();
    let marker = folder.path().join("marker");
    let script = "sh -c 'sleep 0.6; touch \"$0\"' \"$0\"; true";
    let words = ["sh".as_ref(), "-c".as_ref(), script.as_ref(), marker.as_os_str()];
    for step in 0..60 {
        let running = Running::start(&mut record(&folder.path().join("x.tape"), &[], &words));
        sleep(Duration::from_micros(250 * step));
        // One that nobody ignores for us, as nohup does SIGHUP.
        kill_process_group(running.pid(), Signal::TERM).expect("our own group");
        let outcome = running.finish(LIMIT);
        assert_eq!(outcome.code(), 143, "{step}: {}", outcome.stderr_text());
        assert!(!marker.exists(), "after {} us a process went on", 250 * step);
    }
}

#[test]
fn a_signal_that_is_ignored_from_the_start_stays_so() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let script = "trap '' HUP; exec \"$0\" record --quiet -o \"$1\" -- sh -c 'kill -HUP $$; kill -HUP $PPID; echo alive'";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, harness::HEAPTAPE]).arg(&file).env_remove("LD_PRELOAD");
    let outcome = run(&mut command);
    assert_eq!((outcome.code(), outcome.stdout.as_slice()), (0, &b"alive\n"[..]));
}

#[test]
fn the_tape_grows_while_the_program_runs() {
    let folder = scratch();
    let (running, _) = under_way(folder.path(), "2500");
    let while_running = tape::info_outcome(&folder.path().join("x.tape"));
    assert_eq!(while_running.code(), 0, "{}", while_running.stderr_text());
    assert_eq!(while_running.json()["complete"], false);
    let outcome = running.finish(LIMIT);
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    assert_eq!(run(harness::heaptape(["info"]).arg(folder.path().join("x.tape"))).code(), 0);
}
