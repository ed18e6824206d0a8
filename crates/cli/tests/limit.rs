//! The command line of counted jobs: what is refused, where reports go, and the exit status.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{program, static_program};
use harness::limited::{assert_documented, bounds, documented_fields, fields, written};
use harness::running::{Outcome, Running, run};
use harness::{heaptape, one_sentence, scratch, skip};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// `heaptape WORDS… -- sh -c SCRIPT`
fn shell(words: &[&str], script: &str) -> Outcome {
    run(&mut heaptape(words.iter().copied().chain(["--", "sh", "-c", script])))
}

/// Runs with `--json`; what came of it, and the document.
fn documented(folder: &Path, words: &[&str], command: &[&OsStr]) -> (Outcome, Value) {
    let file = folder.join("x.json");
    let mut counted = heaptape(words);
    counted.arg("--json").arg(&file).arg("--").args(command);
    let outcome = run(&mut counted);
    let text = fs::read_to_string(&file).expect("a document");
    (outcome, serde_json::from_str(&text).expect("JSON"))
}

#[test]
fn a_limit_that_is_none_is_refused_in_one_sentence() {
    let folder = scratch();
    let mark = folder.path().join("started");
    let script = format!("touch {}", mark.display());
    for (size, words) in [
        ("10", "too small a limit"),
        ("0", "too small a limit"),
        ("-1", "negative size"),
        ("-1GB", "negative size"),
        ("1XB", "not a size"),
        ("", "not a size"),
        ("99999999TB", "too large a limit"),
        ("128T", "too large a limit"),
    ] {
        let outcome = shell(&["limit", size], &script);
        let text = outcome.stderr_text();
        assert_eq!((outcome.code(), outcome.stdout.len()), (2, 0), "{size}: {text}");
        assert_eq!(text.lines().filter(|line| line.contains(words)).count(), 1, "{size}: {text}");
    }
    assert!(!mark.exists(), "nothing was started");
}

#[test]
fn the_smallest_limit_is_about_what_its_refusal_says() {
    for (size, status) in [("65536", 126), ("128KiB", 126), ("256KiB", 0)] {
        let outcome = run(&mut heaptape(["limit", "--quiet", size, "--", "true"]));
        assert_eq!(outcome.code(), status, "{size}: {}", outcome.stderr_text());
    }
}

/// The call by which a process joins the job has made its block by then.
#[test]
fn the_first_request_of_a_process_that_does_not_fit_is_refused() {
    let (folder, program) = (scratch(), program("news"));
    let mut askers = Vec::new();
    for kib in (72..=232).step_by(8) {
        let limit = kib << 10;
        let words = ["limit", "--quiet", &limit.to_string()];
        let (_, document) = documented(folder.path(), &words, &[program.as_os_str()]);
        assert_eq!(document["verdict"], "refused", "{limit}: {document}");
        let (_, most) = bounds(&document["peak"]["charged"]);
        assert!(most <= limit, "{limit}: {document}");
        askers.push(document["first_refusal"]["module"].to_string());
    }
    // At some of these limits it is libstdc++, which asks first.
    assert!(askers.iter().any(|module| module.contains("libstdc++")), "{askers:?}");
}

#[test]
fn streams_and_status_are_the_commands_own() {
    for words in [&["stat"][..], &["limit", "1GB"]] {
        let outcome = shell(&[words, &["--quiet"]].concat(), "cat; echo out; echo err >&2; exit 7");
        assert_eq!((outcome.code(), outcome.stdout.as_slice()), (7, &b"out\n"[..]));
        assert_eq!(outcome.stderr_text(), "err\n");
        let outcome = shell(words, "echo out; kill -TERM $$");
        assert_eq!((outcome.code(), outcome.stdout.as_slice()), (128 + 15, &b"out\n"[..]));
        assert!(outcome.stderr_text().starts_with("Memory of sh -c "), "{}", outcome.stderr_text());
    }
}

#[test]
fn what_was_not_started_is_told_by_the_status() {
    let folder = scratch();
    let (text, json) = (folder.path().join("x.txt"), folder.path().join("x.json"));
    let kept = folder.path().join("kept");
    fs::write(&kept, "a report of before").expect("a file");
    let start = |output: &Path, command: &str| {
        let mut counted = heaptape(["limit", "1GB", "--output"]);
        run(counted.arg(output).arg("--json").arg(&json).args(["--", command]))
    };
    let directory = folder.path().to_str().expect("UTF-8");
    for (output, command, status) in [
        (text.as_path(), "no-such-command", 127),
        (&text, directory, 126),
        (&kept, "no-such-command", 127),
        (Path::new("/no/such/folder"), "true", 125),
    ] {
        let outcome = start(output, command);
        assert_eq!(outcome.code(), status, "{}", outcome.stderr_text());
        one_sentence(&outcome);
        assert!(!text.exists() && !json.exists(), "what was made for nothing is gone");
    }
    assert_eq!(fs::read_to_string(&kept).expect("a file"), "a report of before");
}

#[test]
fn the_text_and_the_json_are_two_files() {
    let folder = scratch();
    let (one, other) = (folder.path().join("one.md"), folder.path().join("other"));
    std::os::unix::fs::symlink(&one, &other).expect("a link");
    for json in [&one, &other] {
        let mut counted = heaptape(["stat", "--output"]);
        let outcome = run(counted.arg(&one).arg("--json").arg(json).args(["--", "true"]));
        assert_eq!(outcome.code(), 2);
        assert!(one_sentence(&outcome).contains("are the same file"));
    }
    for words in [["--output", "x.json"], ["--output", "-"], ["--json", "-"]] {
        let outcome = shell(&[&["stat"][..], &words].concat(), "true");
        assert_eq!(outcome.code(), 2, "{words:?}");
    }
    let outcome = shell(&["stat", "--brief", "--basis", "usable"], "true");
    assert_eq!(outcome.code(), 2);
    one_sentence(&outcome);
}

#[test]
fn only_libraries_may_be_exempt_and_only_so_many() {
    let long = "x".repeat(600);
    for name in ["sh", "/bin/sh", "", "/usr/lib/", &*long] {
        let outcome = shell(&["limit", "1GB", "--exempt", name], "true");
        assert_eq!((outcome.code(), outcome.stdout.len()), (2, 0), "{name}");
        one_sentence(&outcome);
    }
}

#[test]
fn a_name_that_no_library_had_is_told() {
    let folder = scratch();
    let libc = run(std::process::Command::new("ldd").arg("/bin/ls"));
    let libc = String::from_utf8_lossy(&libc.stdout).into_owned();
    let libc = libc
        .split_whitespace()
        .find(|word| word.ends_with("/libc.so.6"))
        .expect("a path")
        .to_owned();
    // One that a program only opens later, and one that asks for nothing.
    let script = "import ctypes; ctypes.CDLL('libutil.so.1')";
    let words = [
        "limit",
        "1GB",
        "--exempt",
        "libc.so.6",
        "--exempt",
        "nosuch.so",
        "--exempt",
        "libutil.so.1",
    ];
    let words = [&words[..], &["--exempt", &libc, "--exempt", "/no/such/libc.so.6"]].concat();
    let command = ["/usr/bin/python3", "-c", script].map(OsStr::new);
    let (outcome, document) = documented(folder.path(), &words, &command);
    let names = serde_json::json!(["nosuch.so", "/no/such/libc.so.6"]);
    assert_eq!(document["settings"]["exempt_unmatched"], names);
    let text = outcome.stderr_text().replace('\n', " ");
    assert!(
        text.contains("--exempt nosuch.so, /no/such/libc.so.6: no libraries of these names"),
        "{text}"
    );
    let (outcome, document) = documented(folder.path(), &words[..4], &command);
    assert_eq!(document["settings"]["exempt_unmatched"], serde_json::json!([]));
    assert!(!outcome.stderr_text().contains("--exempt"));
}

/// Which of its calls has met the limit is nothing to the user.
#[test]
fn a_limit_of_the_shell_that_leaves_no_room_is_named() {
    let folder = scratch();
    let job = folder.path().file_name().expect("a name").to_owned();
    let started = |limit: &str, words: &str| {
        // What it says goes to no file, which would be too long.
        let script = format!(
            "(ulimit {limit} && exec \"$0\" {words} -- echo started) 2>&1 | cat >&2; exit ${{PIPESTATUS[0]}}"
        );
        let mut command = std::process::Command::new("bash");
        command.args(["-c", &script, harness::HEAPTAPE]).env_remove("LD_PRELOAD");
        command.env("HEAPTAPE_JOB", &job).current_dir(folder.path());
        run(&mut command)
    };
    for words in [
        "limit 1GB --quiet --json x.json",
        "stat --quiet",
        "limit 1GB --quiet --join --json y.json",
    ] {
        let mut tried = vec![("-f 0".to_owned(), "ulimit -f"), ("-f 1".to_owned(), "ulimit -f")];
        tried.extend((4..9).map(|files| (format!("-n {files}"), "ulimit -n")));
        for (limit, named) in tried {
            let outcome = started(&limit, words);
            if outcome.code() == 0 {
                // Who may lift it, or needs no more, goes on.
                assert_eq!(outcome.stderr_text(), "started\n", "{words}, {limit}");
                continue;
            }
            assert_eq!(outcome.code(), 125, "{words}, {limit}: {}", outcome.stderr_text());
            let sentence = one_sentence(&outcome);
            assert!(sentence.contains(named), "{words}, {limit}: {sentence}");
            for call in ["sigaction", "urandom", "memfd", "socket"] {
                assert!(!sentence.contains(call), "{words}, {limit}: {sentence}");
            }
        }
    }
}

/// The program's own signal of too long a file is its user's.
#[test]
fn the_signal_of_a_file_that_is_too_long_is_as_the_user_has_it() {
    let ask = "grep ^SigIgn: /proc/self/status";
    for (begin, is_ignored) in [("", false), ("trap '' XFSZ; ", true)] {
        for counted in [
            "limit 1GB --quiet",
            "stat --quiet",
            "limit 1GB --quiet --join",
            "limit 1GB --quiet --join --strict",
        ] {
            let script = format!("{begin}exec \"$0\" {counted} -- {ask}");
            let mut command = std::process::Command::new("bash");
            command.args(["-c", &script, harness::HEAPTAPE]).env_remove("LD_PRELOAD");
            let folder = scratch();
            let outcome = run(command.env("HEAPTAPE_JOB", folder.path()));
            let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
            let signals = text
                .split_whitespace()
                .next_back()
                .and_then(|word| u64::from_str_radix(word, 16).ok());
            let signals = signals.expect("signals");
            assert_eq!(signals & 1 << (25 - 1) != 0, is_ignored, "{counted}");
        }
    }
}

#[test]
fn a_full_disk_leaves_no_part_of_a_report_and_no_good_status() {
    if !harness::may_mount() {
        return skip("only root may mount a small disk");
    }
    let folder = scratch();
    // The command fills the disk.
    let script = "mount -t tmpfs -o size=64k none \"$1\" && cd \"$1\" && shift && echo before >x.txt && \"$@\"
        echo $?; cat x.json x.txt | wc -c; ls -A | grep -v fill";
    let fill = "head -c 1000000 /dev/zero >fill 2>/dev/null; exit 0";
    for (strict, status) in [(None, "125"), (Some("--strict"), "3")] {
        let mut command = std::process::Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh"]).arg(folder.path()).arg(harness::HEAPTAPE);
        command.args(["limit", "1GB", "--quiet", "--json", "x.json", "-o", "x.txt"]).args(strict);
        command.args(["--", "sh", "-c", fill]).env_remove("LD_PRELOAD");
        let outcome = run(&mut command);
        let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
        assert_eq!(said.split_whitespace().collect::<Vec<_>>(), [status, "0", "x.json", "x.txt"]);
        let text = outcome.stderr_text();
        for name in ["x.json", "x.txt"] {
            let told = |line: &&str| line.contains(name) && line.contains("space");
            assert_eq!(text.lines().filter(told).count(), 1, "{text}");
        }
    }
}

/// Who goes by the status alone would take a report that nobody got for a good one.
/// What a program puts in the place of a report, or takes away, is not what is read in the end.
#[test]
fn a_report_that_the_program_replaces_or_removes_is_written_all_the_same() {
    let forge = "echo '{\"verdict\":\"within\"}' > z && mv z x.json";
    for script in [forge, "rm x.json", "rm x.json && cp z x.json", "rm x.json && ln -s z x.json"] {
        let folder = scratch();
        fs::write(folder.path().join("z"), "{\"verdict\":\"within\"}").expect("a file");
        let script = format!("{script}; head -c 300000000 /dev/zero | tail -n 1");
        let mut counted = heaptape(["limit", "--quiet", "--json", "x.json", "100MB", "--"]);
        run(counted.args(["sh", "-c", &script]).current_dir(folder.path()));
        let text = fs::read_to_string(folder.path().join("x.json")).expect("a document");
        let document: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(document["verdict"], "refused", "{script}: {text}");
    }
    // Where it can't be written, the status says so.
    for script in ["rm x.json && mkdir x.json", "cd .. && rm -r inner"] {
        let folder = scratch();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).expect("a folder");
        let file = inner.join("x.json");
        let mut counted = heaptape(["limit", "--quiet", "100MB", "--json"]);
        counted.arg(&file).args(["--", "sh", "-c", &format!("cd {} && {script}", inner.display())]);
        let outcome = run(&mut counted);
        assert_eq!(outcome.code(), 125, "{script}: {}", outcome.stderr_text());
        assert!(one_sentence(&outcome).contains("cannot write to"), "{}", outcome.stderr_text());
    }
}

#[test]
fn a_report_that_stderr_does_not_take_is_no_good_verdict() {
    for (words, to, status) in [
        ("--strict", "2>/dev/full", 3),
        ("--strict", "2>&-", 3),
        ("--strict --quiet", "2>&-", 0),
        ("--strict --output /dev/null", "2>/dev/full", 0),
        ("--strict", "2>/dev/null", 0),
        ("", "2>/dev/full", 0),
    ] {
        let script = format!("\"$0\" limit 1GB {words} -- true {to}");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script, harness::HEAPTAPE]).env_remove("LD_PRELOAD");
        assert_eq!(run(&mut command).code(), status, "{words} {to}");
    }
}

#[test]
fn a_report_is_text_or_markdown_by_its_name() {
    let folder = scratch();
    for (name, start) in [("x.md", "# Memory of sh "), ("x.txt", "Memory of sh ")] {
        let file = folder.path().join(name);
        fs::write(&file, "x".repeat(100_000)).expect("a file");
        let outcome = shell(&["stat", "-o", file.to_str().expect("UTF-8")], "true");
        assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
        let text = fs::read_to_string(&file).expect("a report");
        assert!(text.starts_with(start) && !text.contains("xxx"), "{text}");
    }
}

#[test]
fn what_is_counted_is_in_the_document() {
    let folder = scratch();
    let (outcome, document) =
        documented(folder.path(), &["limit", "1GB", "--strict"], &["ls".as_ref(), "/".as_ref()]);
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    assert_eq!(document["schema"], "heaptape.limit/1");
    assert_eq!(document["command"], serde_json::json!(["ls", "/"]));
    assert_eq!(
        (&document["verdict"], &document["limit"]),
        (&"within".into(), &(1u64 << 30).into())
    );
    assert_eq!(document["exit"], serde_json::json!({"code": 0, "signal": null}));
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let allocations = number(&document["allocations"]);
    assert!(allocations > 10, "{document}");
    for list in ["bins", "groups", "modules"] {
        let rows = document[list].as_array().expect("rows").iter();
        let (mut count, mut total) = (0, 0);
        rows.for_each(|row| {
            (count, total) = (count + number(&row["count"]), total + number(&row["total"]))
        });
        assert_eq!((count, total), (allocations, number(&document["all"]["total"])), "{list}");
    }
    let (_, brief) = documented(folder.path(), &["stat", "--brief"], &["ls".as_ref()]);
    assert_eq!((&brief["limit"], &brief["bins"]), (&Value::Null, &Value::Null));
}

#[test]
fn strictness_does_not_start_what_cannot_be_counted() {
    let folder = scratch();
    let fixed = static_program("static");
    let (outcome, document) =
        documented(folder.path(), &["limit", "1GB", "--strict", "--quiet"], &[fixed.as_os_str()]);
    assert_eq!((outcome.code(), outcome.stdout.len()), (3, 0));
    assert!(one_sentence(&outcome).ends_with("with --strict it is not started"));
    assert_eq!(document["verdict"], "uncovered");
    assert_eq!(document["uncovered"][0]["command"][0], fixed.to_str().expect("UTF-8"));
    assert_eq!(document["exit"], serde_json::json!({"code": null, "signal": null}));
}

/// Two commands of one job, each started by itself, may hold the limit together.
#[test]
fn commands_that_join_are_counted_together() {
    let folder = scratch();
    let file = folder.path().join("x.json");
    let join = |script: &str| {
        let mut counted = heaptape(["limit", "1GB", "--quiet", "--join", "--json"]);
        counted.arg(&file).args(["--", "sh", "-c", script]);
        let name = folder.path().file_name().expect("a name");
        counted.env("HEAPTAPE_JOB", name).current_dir(folder.path());
        counted
    };
    let one = Running::start(&mut join("touch one; until [ -e two ]; do sleep 0.01; done; exit 4"));
    let two = run(&mut join("until [ -e one ]; do sleep 0.01; done; touch two"));
    let one = one.finish(harness::LIMIT);
    assert_eq!((one.code(), two.code()), (4, 0), "{}", one.stderr_text());
    assert_eq!((one.stderr_text(), two.stderr_text()), (String::new(), String::new()));
    let document = written(&file);
    let rows = document["processes"].as_array().expect("rows");
    let shells = rows.iter().filter(|row| row["command"][0] == "sh").count();
    assert!(shells >= 2, "{document}");
}

#[test]
fn nobody_joins_a_job_that_has_no_name() {
    let outcome = shell(&["limit", "1GB", "--join"], "true");
    assert_eq!(outcome.code(), 125);
    assert!(one_sentence(&outcome).contains("HEAPTAPE_JOB=NAME"));
    assert_eq!(shell(&["limit", "1GB", "--join", "--strict"], "true").code(), 125);
    assert_eq!(shell(&["limit", "1GB", "--join", "--live"], "true").code(), 2);
}

#[test]
fn a_refusal_is_told_at_once_and_in_the_report_by_who_asked() {
    let folder = scratch();
    let sizes = program("sizes");
    let command = [sizes.as_os_str(), "1000000".as_ref(), "70000000".as_ref()];
    let (outcome, document) = documented(folder.path(), &["limit", "50MB"], &command);
    let stderr = outcome.stderr_text();
    assert_eq!(
        (outcome.code(), outcome.stdout.as_slice()),
        (5, &b"1000000\nrefused 70000000\n"[..])
    );
    let first = &document["first_refusal"];
    assert_eq!((&document["verdict"], &document["refused"]), (&"refused".into(), &1.into()));
    assert_eq!((&first["bytes"], &first["module"]), (&70_000_000.into(), &"sizes".into()));
    let caller = first["caller"].as_str().expect("a caller");
    assert!(caller.contains("(sizes+0x"), "{caller}");
    let lines: Vec<&str> = stderr.lines().filter(|line| line.starts_with("heaptape: ")).collect();
    assert_eq!(lines.len(), 1, "{stderr}");
    let told = format!("66.8 MiB asked by {caller} when the job held");
    assert!(lines[0].contains("refused sizes (pid ") && lines[0].contains(&told), "{stderr}");
    let report = stderr.split_once("Memory of").expect("a report").1.replace('\n', " ");
    assert!(
        report.contains("Refused 1 request; it came at ") && report.contains(&told),
        "{stderr}"
    );
}

#[test]
fn a_killed_job_has_a_status_of_its_own() {
    let folder = scratch();
    let sizes = program("sizes");
    let command = [sizes.as_os_str(), "70000000".as_ref()];
    for (words, status) in [(&["--quiet"][..], 137), (&["--quiet", "--strict"], 3)] {
        let words = [&["limit", "50MB", "--on-limit", "kill"], words].concat();
        let (outcome, document) = documented(folder.path(), &words, &command);
        assert_eq!((outcome.code(), outcome.stdout.len()), (status, 0));
        assert_eq!(document["verdict"], "killed");
        assert!(one_sentence(&outcome).contains("killing the job for the request of sizes (pid "));
    }
    let (outcome, document) =
        documented(folder.path(), &["limit", "50MB", "--strict", "--quiet"], &command);
    assert_eq!((outcome.code(), outcome.stderr_text()), (3, String::new()));
    assert_eq!(document["exit"]["code"], 5);
}

/// A parent that waits for what is killed would go on, take its failure for an end like others, and hide it.
#[test]
fn nothing_of_a_killed_job_goes_on_after_the_kill() {
    let folder = scratch();
    let sizes = program("sizes");
    let script = "\"$0\" 70000000; echo after; exit 5";
    let nested = "sh -c '\"$0\" 70000000; echo between' \"$0\"; echo after; exit 0";
    let aside = "(\"$0\" 70000000; echo aside) & wait; echo after; exit 0";
    for script in [script, nested, aside] {
        let command = ["sh", "-c", script].map(OsStr::new);
        let command = [&command[..], &[sizes.as_os_str()]].concat();
        for (words, status) in [(&[][..], 137), (&["--strict"], 3)] {
            let words = [&["limit", "50MB", "--on-limit", "kill", "--quiet"], words].concat();
            let (outcome, document) = documented(folder.path(), &words, &command);
            let text = outcome.stderr_text();
            assert_eq!((outcome.code(), outcome.stdout.as_slice()), (status, &b""[..]), "{text}");
            assert_eq!(
                (&document["verdict"], &document["exit"]["code"]),
                (&"killed".into(), &Value::Null)
            );
        }
    }
    // One whose command has left what is killed behind it.
    let script = "(sleep 0.3; exec \"$0\" 70000000) & exit 0";
    let command = ["sh", "-c", script].map(OsStr::new);
    let command = [&command[..], &[sizes.as_os_str()]].concat();
    let words = ["limit", "50MB", "--on-limit", "kill", "--quiet"];
    let (outcome, document) = documented(folder.path(), &words, &command);
    assert_eq!((outcome.code(), &document["exit"]["code"]), (137, &Value::Null));
}

/// What reads the documents relies on each field; the documentation has them all, and no other.
#[test]
fn every_field_of_the_document_is_documented() {
    let folder = scratch();
    let script = "for i in $(seq 30); do /bin/true; done; \"$0\" 70000000; \"$1\"; sleep 0.6";
    let command = ["bash", "-c", script].map(OsStr::new);
    let (sizes, fixed) = (program("sizes"), static_program("static"));
    let command = [&command[..], &[sizes.as_os_str(), fixed.as_os_str()]].concat();
    let (_, document) = documented(folder.path(), &["limit", "50MB"], &command);
    assert_documented(&document);
    let mut unseen = documented_fields();
    let seen = fields(&document);
    // tests/stopped.rs, tests/enclosed.rs, tests/given.rs and tests/patched.rs have those.
    let elsewhere = ["stopped[]", "cgroup.", "resident.", "killed.", "felled.", "patches[]"];
    let is_elsewhere = |name: &str| elsewhere.iter().any(|begin| name.starts_with(begin));
    unseen.retain(|name| !seen.contains(name) && !is_elsewhere(name));
    assert!(unseen.is_empty(), "there is no {unseen:?}");
}
