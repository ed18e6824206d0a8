//! Services and runtimes, recorded: they do what they do without heaptape, nothing is lost, and every process is there.
//!
//! `bench/services.py` does the same at length, also with those that are too large for here.
#![forbid(unsafe_code)]

mod harness;

use harness::running::{Outcome, Running, run, until};
use harness::tape::{self, number};
use harness::{LIMIT, heaptape, record, scratch, skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const READY: Duration = Duration::from_secs(60);

/// Where a program is, also one that is for root only.
fn find(name: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    let found = places.map(|place| place.join(name)).find(|path| path.is_file());
    if found.is_none() {
        skip(&format!("{name} is not installed (Debian: {package})"));
    }
    found
}

/// What `info` says of a tape after reading the whole of it: nothing lost, no fault, nothing uncovered.
fn whole(tape: &Path) -> Value {
    let info = run(heaptape(["info", "--json", "--verify"]).arg(tape));
    assert_eq!(info.code(), 0, "{}", info.stderr_text());
    let info = info.json();
    tape::assert_sound(&info);
    assert_eq!(number(&info, "/unknown_frees"), 0, "{info}");
    assert_eq!(info["uncovered"], Value::Array(Vec::new()));
    info
}

fn rows(info: &Value) -> &Vec<Value> {
    info["processes"].as_array().expect("rows")
}

/// A command plainly and recorded; with the same output comes what `info` says.
fn same(command: &[&OsStr], folder: &Path) -> (Outcome, Value) {
    let plain = run(Command::new(command[0]).args(&command[1..]));
    let tape = folder.join("x.tape");
    let recorded = run(&mut record(&tape, &[], command));
    assert_eq!(recorded.code(), plain.code(), "{}", recorded.stderr_text());
    assert_eq!(String::from_utf8_lossy(&recorded.stdout), String::from_utf8_lossy(&plain.stdout));
    assert_eq!(recorded.stderr_text(), plain.stderr_text());
    (recorded, whole(&tape))
}

fn asked(command: &mut Command) -> String {
    String::from_utf8_lossy(&run(command).stdout).trim().to_owned()
}

#[test]
fn redis_and_the_copies_that_write_its_snapshots() {
    let Some(server) = find("redis-server", "redis-server") else { return };
    let Some(client) = find("redis-cli", "redis-tools") else { return };
    let script = "for i = 1, 3000 do redis.call('set', 'k' .. i, string.rep('x', i % 700)) end \
                  for i = 1, 500 do redis.call('rpush', 'list', i) redis.call('del', 'k' .. i * 3) end \
                  return redis.call('dbsize')";
    let answers = [false, true].map(|is_recorded| {
        let folder = scratch();
        let (place, tape) = (folder.path().join("socket"), folder.path().join("x.tape"));
        let mut command = vec![server.as_os_str()];
        command.extend(["--port", "0", "--save", "", "--dir"].map(OsStr::new));
        command.extend([folder.path().as_os_str(), "--unixsocket".as_ref(), place.as_os_str()]);
        command.extend(["--io-threads", "2"].map(OsStr::new));
        let mut command = match is_recorded {
            true => record(&tape, &[], &command),
            false => {
                let mut plain = Command::new(command[0]);
                plain.args(&command[1..]);
                plain
            }
        };
        let running = Running::start(&mut command);
        let ask = |words: &[&str]| asked(Command::new(&client).arg("-s").arg(&place).args(words));
        let is_ready = || (place.exists() && ask(&["ping"]) == "PONG").then_some(());
        until(READY, is_ready).expect("a server");
        let mut answers = vec![ask(&["eval", script, "0"]), ask(&["llen", "list"])];
        ask(&["bgsave"]);
        let is_saved =
            || ask(&["info", "persistence"]).contains("bgsave_in_progress:0").then_some(());
        until(READY, is_saved).expect("a snapshot");
        answers.push(ask(&["get", "k2999"]));
        ask(&["shutdown", "save"]);
        let outcome = running.finish(LIMIT);
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        answers.push(fs::metadata(folder.path().join("dump.rdb")).is_ok().to_string());
        if is_recorded {
            let info = whole(&tape);
            let [server, copy] = &rows(&info)[..] else { panic!("two processes: {info}") };
            assert_eq!(copy["parent"], server["pid"]);
            assert!(number(server, "/events") > 5000, "{info}");
            assert!(number(copy, "/inherited/blocks") > 3000, "{info}");
        }
        answers
    });
    assert_eq!(answers[0], answers[1]);
}

/// A page over HTTP, without its header.
fn page(port: u16, name: &str) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(READY)).ok()?;
    write!(stream, "GET /{name} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let header = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    Some(answer.split_off(header + 4))
}

#[test]
fn nginx_with_workers_that_drop_their_rights_and_are_replaced() {
    let Some(server) = find("nginx", "nginx-light") else { return };
    let folder = scratch();
    let place = folder.path();
    let port = {
        let held = TcpListener::bind("127.0.0.1:0").expect("a port");
        held.local_addr().expect("its number").port()
    };
    let body: Vec<u8> = (0..200_000u32).map(|i| (33 + i.wrapping_mul(i) % 90) as u8).collect();
    fs::write(place.join("page"), &body).expect("a page");
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let temporary = ["client_body", "proxy", "fastcgi", "scgi", "uwsgi"]
        .map(|kind| format!("{kind}_temp_path {}/{kind};", place.display()));
    let settings = format!(
        "{user} worker_processes 2; daemon off; pid {0}/pid; events {{ }} \
         http {{ access_log off; {1} server {{ listen 127.0.0.1:{port}; root {0}; }} }}",
        place.display(),
        temporary.concat()
    );
    fs::write(place.join("settings"), settings).expect("settings");
    let tape = place.join("x.tape");
    let (errors, conf) = (place.join("errors"), place.join("settings"));
    let command = [server.as_os_str(), "-p".as_ref(), place.as_os_str(), "-e".as_ref()];
    let command = [&command[..], &[errors.as_os_str(), "-c".as_ref(), conf.as_os_str()]].concat();
    let running = Running::start(&mut record(&tape, &[], &command));
    let got = until(READY, || page(port, "page")).expect("a server");
    assert_eq!(got, body);
    for round in 0..2 {
        for _ in 0..100 {
            assert_eq!(page(port, "page").as_deref(), Some(&body[..]));
        }
        let pid = fs::read_to_string(place.join("pid")).expect("a pid");
        let master = Pid::from_raw(pid.trim().parse().expect("a number")).expect("a pid");
        let signal = if round == 0 { Signal::HUP } else { Signal::QUIT };
        kill_process(master, signal).expect("our own server");
        std::thread::sleep(Duration::from_millis(300));
    }
    let outcome = running.finish(LIMIT);
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let info = whole(&tape);
    // The master, two workers, and the two that replaced them.
    assert_eq!(rows(&info).len(), 5, "{info}");
    assert!(rows(&info)[1..].iter().all(|row| row["parent"] == rows(&info)[0]["pid"]), "{info}");
    assert!(rows(&info).iter().all(|row| row["exit"]["code"] == 0), "{info}");
}

#[test]
fn node_with_worker_threads_and_a_cluster() {
    let Some(node) = find("node", "nodejs") else { return };
    let folder = scratch();
    let script = folder.path().join("main.js");
    let text = "const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');\n\
        const cluster = require('cluster'), zlib = require('zlib');\n\
        if (cluster.isWorker) { process.send(zlib.gzipSync('x'.repeat(50000)).length); process.disconnect(); }\n\
        else if (!isMainThread) { const rows = []; for (let i = 0; i < 5000; i++) rows.push({ i, s: 'x'.repeat(i % 60) });\n\
            parentPort.postMessage(zlib.deflateSync(JSON.stringify(rows) + workerData).length); }\n\
        else { const work = n => new Promise((good, bad) => { const w = new Worker(__filename, { workerData: n });\n\
                w.on('message', good); w.on('error', bad); });\n\
            const fork = () => new Promise(good => cluster.fork().on('message', good));\n\
            (async () => { for (let round = 0; round < 2; round++)\n\
                console.log((await Promise.all([0, 1, 2, 3, 4].map(work))).join(' '));\n\
                console.log((await Promise.all([fork(), fork()])).join(' ')); process.exitCode = 5; })(); }\n";
    fs::write(&script, text).expect("a script");
    let (outcome, info) = same(&[node.as_os_str(), script.as_os_str()], folder.path());
    assert_eq!(outcome.code(), 5);
    // Each of the two has a row before its exec, too.
    let stayed = rows(&info).iter().filter(|row| row["replaced"] == false).count();
    assert_eq!((stayed, rows(&info).len()), (3, 5), "{info}");
    assert!(number(&rows(&info)[0], "/threads") >= 15, "{info}");
}

#[test]
fn javac() {
    let Some(javac) = find("javac", "default-jdk-headless") else { return };
    let folder = scratch();
    let sources: Vec<PathBuf> = (0..8)
        .map(|i| {
            let file = folder.path().join(format!("C{i}.java"));
            let methods: String =
                (0..30).map(|j| format!("int m{j}(int x) {{ return x * {j}; }}\n")).collect();
            fs::write(&file, format!("public class C{i} {{\n{methods}}}\n")).expect("a source");
            file
        })
        .collect();
    let classes = folder.path().join("classes");
    let mut command = vec![javac.as_os_str(), "-d".as_ref(), classes.as_os_str()];
    command.extend(sources.iter().map(|file| file.as_os_str()));
    let read = || (0..8).map(|i| fs::read(classes.join(format!("C{i}.class"))).expect("a class"));
    let plain = run(Command::new(command[0]).args(&command[1..]));
    assert_eq!(plain.code(), 0, "{}", plain.stderr_text());
    let expected: Vec<_> = read().collect();
    fs::remove_dir_all(&classes).expect("our own folder");
    let tape = folder.path().join("x.tape");
    let outcome = run(&mut record(&tape, &[], &command));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    assert!(read().eq(expected));
    assert!(number(&rows(&whole(&tape))[0], "/threads") > 5);
}
