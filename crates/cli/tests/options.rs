//! The options of `record`, each by what it changes for the program or on the tape.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::program;
use harness::running::{Running, run, until};
use harness::tape::{self, number};
use harness::{heaptape, one_sentence, record, scratch, truth};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn no_wait_ends_with_the_command_and_leaves_the_daemon_alone() {
    let folder = scratch();
    let (file, lines) = (folder.path().join("x.tape"), folder.path().join("truth"));
    let daemon = program("daemon");
    let began = Instant::now();
    let outcome = run(record(&file, &["--no-wait"], &[daemon.as_os_str()]).env("TRUTH", &lines));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    // The daemon works for 0.4 s and writes the last of three lines at its end.
    let ended = began.elapsed();
    let all =
        until(Duration::from_secs(20), || Some(truth::lines(&lines)).filter(|l| l.len() == 3));
    assert!(all.is_some(), "the daemon ends normally");
    assert!(ended < Duration::from_secs(10), "{ended:?}");
    let info = tape::info(&file);
    assert_eq!((number(&info, "/lost"), number(&info, "/order_faults")), (0, 0), "{info}");
}

#[test]
fn without_waiting_a_tape_is_complete_only_if_nobody_went_on() {
    let folder = scratch();
    let (file, go) = (folder.path().join("x.tape"), folder.path().join("go"));
    // It ends with the test, however that ends: with the folder, or after a minute.
    let waits = "(i=0; while [ $i -lt 3000 ] && [ -d \"${0%/*}\" ] && [ ! -e \"$0\" ]; do \
                 i=$((i + 1)); sleep 0.02; done) & exit 0";
    for (script, complete) in [(waits, false), ("ls /; (ls /) & wait", true), ("exit 0", true)] {
        let words = ["sh".as_ref(), "-c".as_ref(), script.as_ref(), go.as_os_str()];
        let outcome = run(&mut record(&file, &["--no-wait"], &words));
        assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
        let info = tape::info_outcome(&file).json();
        assert_eq!(info["complete"], complete, "{script}: {info}");
        assert_eq!(info["ended"].is_null(), complete, "{script}: {info}");
        assert_eq!((number(&info, "/lost"), number(&info, "/order_faults")), (0, 0), "{info}");
    }
    fs::write(&go, "").expect("a file");
}

#[test]
fn a_limit_that_leaves_no_room_is_refused_with_the_least_that_does() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let words = ["ls", "-lR", "/usr/include"].map(OsStr::new);
    let mut least = String::new();
    for limit in ["0", "1", "300", "4K", "16383"] {
        let outcome = run(&mut record(&file, &["--max-size", limit], &words));
        assert_eq!((outcome.code(), outcome.stdout.as_slice()), (125, &b""[..]), "{limit}");
        let sentence = one_sentence(&outcome);
        let told = sentence.split("needs ").nth(1).and_then(|rest| rest.split(';').next());
        least = told.expect("the least").to_owned();
        assert!(!file.exists(), "{limit}: nothing was started");
    }
    let outcome = run(&mut record(&file, &["--max-size", &least], &words));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let events = tape::assert_ended_early(&file, &"max-size".into());
    assert!(events > 100, "{events} events");
    assert_eq!(tape::info_outcome(&file).json()["command"][0], "ls");
}

#[test]
fn a_signal_ends_a_recording_that_waits_for_a_daemon_and_leaves_that_alone() {
    let folder = scratch();
    let (file, pid) = (folder.path().join("x.tape"), folder.path().join("pid"));
    let script = "cd \"$0\"; setsid sh -c 'echo $$ >new; mv new pid; exec sleep 100' & \
                  until [ -e pid ]; do sleep 0.05; done; exit 4";
    let command = ["sh".as_ref(), "-c".as_ref(), script.as_ref(), folder.path().as_os_str()];
    let running = Running::start(&mut record(&file, &[], &command));
    let daemon = until(Duration::from_secs(60), || fs::read_to_string(&pid).ok());
    let daemon = Pid::from_raw(daemon.expect("a pid").trim().parse().expect("a number"));
    // Until the command has ended a signal is for the command, and ends that as well.
    std::thread::sleep(Duration::from_secs(1));
    running.signal(Signal::TERM);
    let outcome = running.finish(Duration::from_secs(60));
    let lives = kill_process(daemon.expect("a pid"), Signal::KILL).is_ok();
    assert_eq!(outcome.code(), 4, "the command's own status: {}", outcome.stderr_text());
    assert!(lives, "the daemon goes on");
    tape::assert_ended_early(&file, &"processes-went-on".into());
}

#[test]
fn without_randomised_addresses_two_runs_are_alike() {
    let folder = scratch();
    let mixes: Vec<u64> = ["a", "b"]
        .iter()
        .map(|name| {
            let lines = folder.path().join(name);
            let file = folder.path().join("x.tape");
            let outcome =
                run(record(&file, &["--no-aslr"], &[program("peak").as_os_str()])
                    .env("TRUTH", &lines));
            assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
            truth::lines(&lines)[0].mix
        })
        .collect();
    assert_eq!(mixes[0], mixes[1], "the hash of all addresses");
}

#[test]
fn a_chosen_name_is_new_and_a_given_one_is_replaced() {
    let folder = scratch();
    for _ in 0..2 {
        let mut command = heaptape(["record", "--", "true"]);
        let outcome = run(command.current_dir(folder.path()));
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        let sentence = one_sentence(&outcome);
        let name = names(folder.path()).into_iter().find(|n| sentence.contains(n.as_str()));
        assert!(name.is_some(), "the tape is named: {sentence}");
    }
    let names = names(folder.path());
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.iter().all(|n| n.starts_with("true.") && n.ends_with(".tape")), "{names:?}");
    let given = folder.path().join(&names[0]);
    let before = fs::read(&given).expect("a tape");
    let outcome = run(&mut record(&given, &[], &[OsStr::new("ls"), OsStr::new("/")]));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    assert_ne!(fs::read(&given).expect("a tape"), before);
    tape::assert_sound(&tape::info(&given));
}

#[test]
fn a_small_limit_is_filled_and_never_passed() {
    let folder = scratch();
    let (file, program) = (folder.path().join("x.tape"), program("loop"));
    // Processes that fill their blocks at the same time, and one alone.
    let script = "for k in $3; do \"$0\" \"$1.$k\" 4 0 50 $2 & done; wait";
    let shared = folder.path().join("progress");
    for (calls, processes) in [("1000000", "1"), ("300000", "1 2 3 4")] {
        for kib in [64, 300, 600] {
            let limit = format!("{kib}K");
            let words = ["sh".as_ref(), "-c".as_ref(), script.as_ref(), program.as_os_str()];
            let words =
                [&words[..], &[shared.as_os_str(), calls.as_ref(), processes.as_ref()]].concat();
            let outcome = run(&mut record(&file, &["--max-size", &limit], &words));
            assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
            let outcome = run(heaptape(["info", "--json", "--verify"]).arg(&file));
            assert_eq!(outcome.code(), 0, "{limit}: {}", outcome.stderr_text());
            let events = tape::assert_ended_early(&file, &"max-size".into());
            assert!(events > 2000, "{limit}: {events} events");
            let bytes = fs::metadata(&file).expect("the tape").len();
            assert!(bytes <= kib << 10, "{limit}: {bytes} bytes");
            assert!(bytes >= kib << 9, "{limit}: {bytes} bytes of it are used");
        }
    }
}

#[test]
fn settings_of_the_allocator_are_on_the_tape() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let mut command = record(&file, &[], &[program("peak").as_os_str()]);
    let outcome = run(command
        .env("MALLOC_ARENA_MAX", "3")
        .env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=9"));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let settings = tape::info(&file)["settings"].to_string();
    assert!(
        settings.contains("MALLOC_ARENA_MAX") && settings.contains("tcache_count=9"),
        "{settings}"
    );
}

#[test]
fn info_in_words_names_what_was_recorded() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    run(&mut record(&file, &[], &[program("peak").as_os_str()]));
    let outcome = run(heaptape(["info"]).arg(&file));
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(text.contains("peak") && text.contains("malloc"), "{text}");
}

#[test]
fn a_rank_is_on_the_tape_however_short_the_program() {
    let folder = scratch();
    let file = folder.path().join("x-%r.tape");
    let variables = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];
    for (rank, variable) in variables.iter().cycle().take(20).enumerate() {
        let mut command = record(&file, &[], &["true"].map(OsStr::new));
        for variable in variables {
            command.env_remove(variable);
        }
        let outcome = run(command.env(variable, rank.to_string()));
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        let info = tape::info(&folder.path().join(format!("x-{rank}.tape")));
        assert_eq!(info["processes"][0]["rank"], rank, "{variable}: {info}");
    }
}
