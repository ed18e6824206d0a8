//! `HEAPTAPE_LIMIT`: programs that no heaptape has started are counted because variables say so.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{mpi_program, program};
use harness::limited::written;
use harness::running::{Outcome, Running, run, until, until_file_has};
use harness::{HEAPTAPE, LIMIT, heaptape, one_sentence, scratch, skip};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `heaptape capture-path` prints.
fn library() -> PathBuf {
    let outcome = run(&mut heaptape(["capture-path"]));
    let text = String::from_utf8(outcome.stdout).expect("a path");
    text.trim_end().into()
}

/// A command in whose environment there is a limit, with the library, and no job of any launcher.
fn limited<S: AsRef<OsStr>>(limit: &str, command: impl IntoIterator<Item = S>) -> Command {
    let mut words = command.into_iter();
    let mut limited = Command::new(words.next().expect("a program"));
    limited.args(words).env("LD_PRELOAD", library()).env("HEAPTAPE_LIMIT", limit);
    for variable in
        ["PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "HEAPTAPE_JOB"]
    {
        limited.env_remove(variable);
    }
    limited
}

fn commands(document: &Value) -> Vec<String> {
    let rows = document["processes"].as_array().expect("rows").iter();
    let name = |row: &Value| row["command"][0].as_str().unwrap_or_default().to_owned();
    rows.map(name).collect()
}

#[test]
fn the_ranks_of_a_job_share_what_the_variables_allow() {
    const BYTES: &str = "100000000";
    let mpis = [
        ("openmpi", &["--oversubscribe", "-x", "LD_PRELOAD", "-x", "HEAPTAPE_LIMIT"][..]),
        ("mpich", &[]),
    ];
    for (mpi, options) in mpis {
        let Some(program) = mpi_program("together", mpi) else {
            skip(&format!("{mpi} is not installed"));
            continue;
        };
        for (limit, granted, verdict) in
            [("300MB", "2 of 4", "refused"), ("800MB", "4 of 4", "within")]
        {
            let folder = scratch();
            let file = folder.path().join("x.json");
            let value = format!("{limit} --quiet --json {}", file.display());
            let mut job = limited(&value, [format!("mpirun.{mpi}")]);
            job.args(options).args(["-n", "4"]);
            // Root may use Open MPI only when it insists.
            job.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
            let outcome = run(job.arg(&program).arg(BYTES));
            let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
            assert_eq!(
                (outcome.code(), said.trim_end()),
                (0, granted),
                "{mpi}: {}",
                outcome.stderr_text()
            );
            // The launcher waits for it.
            let document: Value =
                serde_json::from_str(&fs::read_to_string(&file).expect("a document"))
                    .expect("JSON");
            assert_eq!(document["verdict"], verdict, "{mpi}: {document}");
            let ranks = document["processes"]
                .as_array()
                .expect("rows")
                .iter()
                .filter(|row| row["rank"].is_u64());
            assert_eq!(ranks.count(), 4, "{mpi}: {document}");
        }
    }
}

#[test]
fn without_a_launcher_a_program_and_all_that_it_starts_are_one_job() {
    let folder = scratch();
    let file = folder.path().join("x.json");
    // What libc itself starts does not get the session from the library, and finds the job by its parent.
    let script = "import os, subprocess; os.system('exec sort /dev/null'); subprocess.run(['ls', '/dev/null']); os.fork() or os.execv('/usr/bin/env', ['env', '-i', '/usr/bin/tr', 'a', 'b'])";
    let value = format!("1GB --quiet --json '{}'", file.display());
    let outcome =
        run(&mut limited(&value, ["sh", "-c", "/usr/bin/python3 -c \"$0\"; exit 7", script]));
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (7, ""));
    let document = written(&file);
    let found = commands(&document);
    for name in ["sh", "/usr/bin/python3", "sort", "ls", "/usr/bin/tr"] {
        assert!(found.iter().any(|command| command == name), "{name}: {found:?}");
    }
    assert_eq!((&document["verdict"], &document["command"][0]), (&"within".into(), &"sh".into()));
}

#[test]
fn a_program_finds_itself_as_it_would_without() {
    let unnoticed = program("unnoticed");
    let folder = scratch();
    let value = format!("1GB --quiet --json {}", folder.path().join("x.json").display());
    for script in [
        "exec \"$0\"",
        "exec \"$0\" <&-",
        "exec \"$0\" <&- 2>&-",
        "trap '' CHLD HUP; exec \"$0\"",
        "library=$LD_PRELOAD; unset LD_PRELOAD; exec \"$0\" \"$library\"",
        "ulimit -n 40; exec \"$0\" 3</dev/null 5</dev/null",
    ] {
        // The shell exports it, so that the program is the first that has it.
        let command = |preload: &Path| {
            let script = format!("export LD_PRELOAD='{}'; {script}", preload.display());
            let words = ["bash", "-c", &script].map(OsStr::new);
            let mut command = limited(&value, words);
            command.arg(&unnoticed).env_remove("LD_PRELOAD");
            command
        };
        let text = |outcome: Outcome| {
            (String::from_utf8_lossy(&outcome.stdout).into_owned(), outcome.code())
        };
        let plain = text(run(&mut command(Path::new(""))));
        let counted = text(run(&mut command(&library())));
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let (left, right) = (lines(&counted.0), lines(&plain.0));
        let other: Vec<_> = left.iter().zip(&right).filter(|(one, other)| one != other).collect();
        assert!(counted == plain, "{script}: {other:?} {} {}", counted.1, plain.1);
        assert_eq!(
            commands(&written(&folder.path().join("x.json"))),
            [unnoticed.to_str().expect("UTF-8")]
        );
        fs::remove_file(folder.path().join("x.json")).expect("the document");
    }
}

#[test]
fn what_the_variable_says_is_what_the_command_line_would() {
    let folder = scratch();
    let (json, text) = (folder.path().join("a b.json"), folder.path().join("x.md"));
    let sizes = program("sizes");
    let value =
        format!("50MB --on-limit kill --json '{}' --output {}", json.display(), text.display());
    let said = folder.path().join("said");
    let script = "exec env LD_PRELOAD=\"$2\" \"$0\" 70000000 2>\"$1\"";
    let mut command = limited(&value, ["sh", "-c", script].map(OsStr::new));
    let command = command.arg(&sizes).arg(&said).arg(library()).env_remove("LD_PRELOAD");
    let outcome = run(command);
    assert_eq!((outcome.code(), outcome.stdout.len()), (137, 0));
    // Nobody waits for it who waits for the program alone.
    assert!(until_file_has(&said, "killing the job for the request of sizes (pid ", LIMIT));
    assert_eq!(written(&json)["verdict"], "killed");
    let report = || fs::read_to_string(&text).ok().filter(|text| text.starts_with("# Memory of "));
    assert!(until(LIMIT, report).is_some());
}

#[test]
fn what_can_not_be_done_is_said_once_and_the_program_goes_on() {
    let folder = scratch();
    let elsewhere = folder.path().join("libheaptape-elsewhere.so");
    fs::copy(library(), &elsewhere).expect("a copy");
    let other = folder.path().join("another.so");
    fs::copy(library(), &other).expect("a copy");
    let script = "ls /dev/null; ls /dev/null; exit 7";
    let check = |command: &mut Command, holds: &str| {
        let outcome = run(command);
        assert_eq!(
            (outcome.code(), outcome.stdout.as_slice()),
            (7, &b"/dev/null\n/dev/null\n"[..]),
            "{holds}"
        );
        let line = one_sentence(&outcome);
        assert!(
            line.starts_with("heaptape: HEAPTAPE_LIMIT limits and counts nothing here: ")
                && line.contains(holds)
                && !line.contains("nothing was started"),
            "{line}"
        );
    };
    for (value, holds) in [
        ("", "is no size"),
        ("1XB", "is not a size"),
        ("10", "too small a limit"),
        ("1GB --strict", "look at the verdict in the JSON"),
        ("1GB --live", "--live"),
        ("1GB --basis resident", "--basis resident is for jobs that heaptape limit starts"),
        ("1GB --json /no/such/folder/x.json", "cannot write to /no/such/folder/x.json"),
        ("1GB --brief --basis usable", "--brief counts no usable bytes"),
        ("1GB --exempt ''", "--exempt"),
        ("1GB --no-such", "--no-such"),
        ("1GB ls", "more in it than a size and options"),
        ("1GB -- ls", "more in it than a size and options"),
        ("'1GB", "is no size"),
    ] {
        check(&mut limited(value, ["sh", "-c", script]), holds);
    }
    let mut lost = limited("1GB", ["sh", "-c", script]);
    check(lost.env("LD_PRELOAD", &elsewhere), "/heaptape-elsewhere can't be run (error 2)");
    let mut lost = limited("1GB", ["sh", "-c", script]);
    check(lost.env("LD_PRELOAD", &other), "none that heaptape has put there");
    let outcome = run(&mut heaptape(["summoned", "1", "999999"]));
    assert_eq!(outcome.code(), 125);
    assert!(one_sentence(&outcome).contains("not of this version"));
}

#[test]
fn who_runs_heaptape_itself_with_the_variables_gets_what_the_command_line_says() {
    let folder = scratch();
    let file = folder.path().join("x.json");
    let sizes = program("sizes");
    let mut outer = limited("1MB", [HEAPTAPE]);
    outer
        .args(["limit", "1GB", "--quiet", "--json"])
        .arg(&file)
        .arg("--")
        .arg(&sizes)
        .arg("50000000");
    let outcome = run(&mut outer);
    assert_eq!(
        (outcome.code(), outcome.stdout.as_slice()),
        (0, &b"50000000\n"[..]),
        "{}",
        outcome.stderr_text()
    );
    assert_eq!(outcome.stderr_text(), "");
    assert_eq!(written(&file)["limit"], 1u64 << 30);
}

/// A child that outlives its program belongs to its job, and the report waits for it.
#[test]
fn a_child_that_is_left_behind_is_of_the_job() {
    let folder = scratch();
    let file = folder.path().join("x.json");
    let value = format!("1GB --quiet --json {}", file.display());
    let script = "(until [ -e go ]; do sleep 0.01; done; exec sort /dev/null) & exit 0";
    let mut command = limited(&value, ["sh", "-c", script]);
    let outcome = Running::start(command.current_dir(folder.path())).finish(LIMIT);
    assert_eq!(outcome.code(), 0);
    assert_eq!(fs::read_to_string(&file).unwrap_or_default(), "");
    fs::write(folder.path().join("go"), "").expect("a file");
    assert!(commands(&written(&file)).iter().any(|command| command == "sort"));
}
