//! Standard streams that were closed before heaptape was started.
#![forbid(unsafe_code)]

mod harness;

use harness::running::run;
use harness::{one_sentence, record, scratch, tape};

#[test]
fn what_is_printed_to_a_closed_stdout_is_an_error() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    assert_eq!(run(&mut record(&file, &[], &["ls".as_ref(), "/".as_ref()])).code(), 0);
    let tape = file.to_str().expect("a path in UTF-8");
    let all: [&[&str]; 12] = [
        &["--help"],
        &["--version"],
        &["help", "live"],
        &["capture-path"],
        &["completions", "bash"],
        &["doctor"],
        &["doctor", "true"],
        &["info", tape],
        &["info", "--json", tape],
        &["events", tape],
        &["live", tape],
        &["export", "--to", "csv", tape],
    ];
    for words in all {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" >&-", harness::HEAPTAPE]).args(words);
        let outcome = run(&mut command);
        assert_eq!(outcome.code(), 1, "{words:?}");
        let why = one_sentence(&outcome);
        assert!(why.contains("stdout: it was closed"), "{words:?}: {why}");
    }
}

#[test]
fn a_recorded_command_finds_closed_streams_closed() {
    for fd in [0, 1, 2] {
        let folder = scratch();
        let file = folder.path().join("x.tape");
        // The inner shell leaves with the number of streams that are open.
        let count = "n=0; for i in 0 1 2; do [ -e /proc/$$/fd/$i ] && n=$((n + 1)); done; exit $n";
        let script = format!("exec \"$0\" record -o \"$1\" -- sh -c '{count}' {fd}>&-");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script, harness::HEAPTAPE]).arg(&file);
        assert_eq!(run(&mut command).code(), 2, "without {fd}");
        tape::assert_sound(&tape::info(&file));
    }
}
