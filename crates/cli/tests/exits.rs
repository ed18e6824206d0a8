//! How the processes of a job end, also those that nobody but a wait inside of libc asks about.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::program;
use harness::running::run;
use harness::{record, scratch, tape};
use serde_json::Value;
use std::ffi::OsStr;

/// Records a command; gives the exit of each process whose command line begins with these words.
fn exits(command: &[&OsStr], words: &[&str]) -> Vec<Value> {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let outcome = run(&mut record(&file, &[], command));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let info = tape::info(&file);
    tape::assert_sound(&info);
    let rows = info["processes"].as_array().expect("rows");
    let is_it = |row: &&Value| {
        words.iter().enumerate().all(|(i, word)| row["command"][i].as_str() == Some(word))
    };
    rows.iter().filter(is_it).map(|row| row["exit"].clone()).collect()
}

#[test]
fn how_a_child_ended_is_known_however_it_is_waited_for() {
    let waiter = program("waiters");
    for how in ["system", "popen", "spawn"] {
        let command = [waiter.as_os_str(), how.as_ref(), "60".as_ref()];
        let found = exits(&command, &["sh", "-c", "exit 3"]);
        assert_eq!(found.len(), 60, "{how}");
        for exit in found {
            assert_eq!((&exit["code"], &exit["signal"]), (&Value::from(3), &Value::Null), "{how}");
        }
    }
}

#[test]
fn a_child_between_fork_and_exec_does_not_end_its_parent() {
    // The child of a vfork leaves with 127, in its parent's memory; the parent ends by a signal.
    let waiter = program("waiters");
    let script = "\"$0\" failing 1; true";
    let command = ["sh".as_ref(), "-c".as_ref(), script.as_ref(), waiter.as_os_str()];
    let found = exits(&command, &[waiter.to_str().expect("UTF-8")]);
    let killed = found.iter().filter(|exit| exit["signal"] == 9).count();
    assert!(killed == 1 && found.iter().all(|exit| exit["code"] != 127), "{found:?}");
}
