//! Real programs, recorded: nothing lost, no order fault, and the same output and exit status as without heaptape.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::sources;
use harness::running::{Outcome, Running};
use harness::{LIMIT, heaptape, scratch, skip, tape};
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

/// A command, and what it needs.
struct Case<'a> {
    command: Vec<&'a str>,
    stdin: Option<&'a Path>,
    options: &'a [&'a str],
    /// Runs in a fresh folder each time.
    setup: fn(&Path),
}

impl<'a> Case<'a> {
    fn new(command: &[&'a str]) -> Case<'a> {
        Case { command: command.to_vec(), stdin: None, options: &[], setup: |_| {} }
    }

    fn run(&self, mut command: Command, folder: &Path) -> Outcome {
        (self.setup)(folder);
        let stdin =
            self.stdin.map_or_else(Stdio::null, |p| File::open(p).expect("the input").into());
        command.current_dir(folder).env_remove("LD_PRELOAD");
        Running::start_reading(&mut command, stdin).finish(LIMIT)
    }

    /// Runs it plainly and recorded; returns `info --json`.
    fn same_as_without(&self) -> Value {
        let (plain, recorded, tapes) = (scratch(), scratch(), scratch());
        let mut command = Command::new(self.command[0]);
        command.args(&self.command[1..]);
        let without = self.run(command, plain.path());
        let file = tapes.path().join("x.tape");
        let mut command = heaptape(["record", "--quiet", "-o"]);
        command.arg(&file).args(self.options).arg("--").args(&self.command);
        let with = self.run(command, recorded.path());
        assert_eq!(with.code(), without.code(), "exit status; stderr:\n{}", with.stderr_text());
        assert_eq!(text(&with.stdout), text(&without.stdout), "stdout");
        assert_eq!(with.stderr_text(), without.stderr_text(), "stderr");
        let info = tape::info(&file);
        tape::assert_sound(&info);
        info
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_here(program: &str) -> bool {
    let here = Command::new("sh")
        .args(["-c", "command -v \"$0\"", program])
        .output()
        .is_ok_and(|o| o.status.success());
    if !here {
        skip(&format!("{program} is not installed"));
    }
    here
}

/// The system's own Python; one in PATH may be a wrapper script.
fn python() -> &'static str {
    if Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" }
}

fn commands(info: &Value) -> String {
    info["processes"]
        .as_array()
        .expect("processes")
        .iter()
        .map(|p| p["command"].to_string())
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn a_cpp_compilation() {
    if !is_here("g++") {
        return;
    }
    let source = sources().join("heavy.cpp");
    let source = source.to_str().expect("UTF-8");
    let info = Case::new(&["g++", "-O2", "-std=c++20", "-Wall", "-c", source, "-o", "heavy.o"])
        .same_as_without();
    assert!(tape::number(&info, "/events") > 1_000_000, "{}", info["events"]);
    assert!(commands(&info).contains("cc1plus"), "{}", commands(&info));
}

#[test]
fn a_compilation_that_fails() {
    if is_here("g++") {
        Case {
            setup: |f| {
                fs::write(
                    f.join("bad.cpp"),
                    "#include <vector>\nint main() { return std::vector<int>{}.nothing; }\n",
                )
                .expect("a file")
            },
            ..Case::new(&["g++", "-c", "bad.cpp"])
        }
        .same_as_without();
    }
}

#[test]
fn python_with_its_own_allocator_and_without() {
    if !is_here(python()) {
        return;
    }
    let script = sources().join("objects.py");
    let command = [python(), script.to_str().expect("UTF-8"), "20000"];
    let few = Case::new(&command).same_as_without();
    let many = Case { options: &["--python-malloc"], ..Case::new(&command) }.same_as_without();
    let (few, many) = (tape::number(&few, "/events"), tape::number(&many, "/events"));
    assert!(many > 5 * few && many > 500_000, "{few} events with pymalloc, {many} without");
}

#[test]
fn python_threads_and_processes() {
    if !is_here(python()) {
        return;
    }
    let script = sources().join("workers.py");
    let case = Case {
        options: &["--python-malloc"],
        ..Case::new(&[python(), script.to_str().expect("UTF-8")])
    };
    let info = case.same_as_without();
    // The first process, 3 forked workers, 3 spawned ones and the helper process of spawn.
    assert!(info["processes"].as_array().is_some_and(|p| p.len() >= 8), "{}", commands(&info));
}

#[test]
fn sqlite() {
    if is_here("sqlite3") {
        let rows = sources().join("rows.sql");
        let info =
            Case { stdin: Some(&rows), ..Case::new(&["sqlite3", ":memory:"]) }.same_as_without();
        assert!(tape::number(&info, "/events") > 10_000, "{}", info["events"]);
    }
}

#[test]
fn a_git_clone() {
    if !is_here("git") {
        return;
    }
    fn repository(folder: &Path) {
        for i in 0..200 {
            fs::create_dir_all(folder.join(format!("from/d{}", i % 7))).expect("a folder");
            fs::write(
                folder.join(format!("from/d{}/f{i}", i % 7)),
                format!("{i}\n").repeat(50 + i),
            )
            .expect("a file");
        }
        let made = Command::new("sh")
            .args(["-c", "cd from && git init -q && git add . && git -c user.name=n -c user.email=e commit -q -m all"])
            .current_dir(folder)
            .output()
            .expect("git");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    let clone = "git clone --no-local --no-progress from to && git -C to fsck --no-progress && ls -R to | wc -l";
    let info = Case { setup: repository, ..Case::new(&["sh", "-c", clone]) }.same_as_without();
    assert!(commands(&info).contains("upload-pack"), "{}", commands(&info));
}

#[test]
fn perl() {
    if is_here("perl") {
        let script = "my %h; for my $i (1..60000) { $h{\"k$i\"} = [$i, \"v\" x ($i % 50)]; delete $h{\"k\" . ($i - 900)} } \
                      print scalar(keys %h), \"\\n\"; warn \"warned\\n\"; exit 3";
        Case::new(&["perl", "-e", script]).same_as_without();
    }
}

#[test]
fn node() {
    if is_here("node") {
        let script = "const {Worker} = require('worker_threads'); const zlib = require('zlib'); \
                      console.log(JSON.stringify([...Array(50000).keys()].map(i => ({i, s: 'x' + i}))).length); \
                      console.log(zlib.gunzipSync(zlib.gzipSync(Buffer.alloc(3000000, 'abc'))).length); \
                      const w = new Worker('require(\"worker_threads\").parentPort.postMessage(6 * 7)', {eval: true}); \
                      w.on('message', m => { console.error(m); process.exitCode = 5; });";
        Case::new(&["node", "-e", script]).same_as_without();
    }
}

#[test]
fn a_shell_pipeline() {
    let script = "seq 1 60000 | sort -r | tr 1 2 | sort -n | uniq -c | sort -k1,1nr -k2,2n | head -n 5; ls /nonexistent; exit 9";
    let info = Case::new(&["sh", "-c", script]).same_as_without();
    let ran = commands(&info);
    assert!(["seq", "sort", "tr", "uniq", "head", "ls"].iter().all(|p| ran.contains(p)), "{ran}");
}

#[test]
fn a_listing_of_many_files() {
    Case::new(&["ls", "-lR", "/usr/share/doc"]).same_as_without();
}

#[test]
fn stdin_and_descriptors_pass_through() {
    let input = sources().join("rows.sql");
    Case {
        stdin: Some(&input),
        ..Case::new(&["sh", "-c", "cat; ls -l /proc/self/fd | wc -l; ulimit -n; umask"])
    }
    .same_as_without();
}
