//! What the dynamic loader can do to a program: namespaces, libraries that come and go, auditors, other preloads, odd paths.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{library, program};
use harness::running::{Outcome, run};
use harness::{heaptape, record, scratch, tape};
use serde_json::Value;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Records a command with these variables onto a tape, which must be sound; it must end as it does without us.
fn the_same(file: &Path, command: &[&OsStr], variables: &[(&str, &OsStr)]) -> (Value, Outcome) {
    let plain = run(Command::new(command[0]).args(&command[1..]).envs(variables.iter().copied()));
    let outcome = run(record(file, &[], command).envs(variables.iter().copied()));
    assert_eq!(outcome.code(), plain.code(), "{command:?}: {}", outcome.stderr_text());
    assert_eq!(outcome.stdout, plain.stdout, "{command:?}");
    assert_eq!(outcome.stderr_text(), plain.stderr_text(), "{command:?}");
    let info = tape::info(file);
    tape::assert_sound(&info);
    assert_eq!(info["uncovered"], Value::Array(Vec::new()), "{info}");
    (info, outcome)
}

/// Why the one process is named.
fn the_reason(info: &Value) -> &str {
    let uncovered = info["uncovered"].as_array().expect("a list");
    assert_eq!(uncovered.len(), 1, "{info}");
    assert_eq!(uncovered[0]["pid"], info["processes"][0]["pid"], "{info}");
    uncovered[0]["why"].as_str().expect("a reason")
}

/// Records deepbound.c; what `info` says of it, in JSON and in words.
fn deepbound(how: &str, code: i32) -> (Value, [String; 2]) {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let (program, library) = (program("deepbound"), library("plugin"));
    let command = [program.as_os_str(), library.as_os_str(), OsStr::new(how)];
    let outcome = run(&mut record(&file, &[], &command));
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (code, ""), "{how}");
    let info = tape::info(&file);
    assert_eq!((&info["complete"], &info["lost"]), (&true.into(), &0.into()), "{info}");
    let words = |command: &str| {
        let outcome = run(heaptape([command]).arg(&file));
        let text = String::from_utf8(outcome.stdout).expect("text");
        // Where its lines end does not matter.
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    (info, ["info", "report"].map(words))
}

#[test]
fn a_library_that_binds_to_itself_is_named_next_to_what_comes_of_it() {
    let library = library("plugin").to_string_lossy().into_owned();
    // How, unknown frees, whether there are order faults.
    for (how, unknown, faults) in
        [("own", 0, false), ("free", 1000, false), ("realloc", 1000, false), ("drop", 0, true)]
    {
        let (info, words) = deepbound(how, 0);
        let why = the_reason(&info);
        assert!(why.starts_with(&format!("{library} was loaded with RTLD_DEEPBIND")), "{why}");
        assert_eq!(tape::number(&info, "/unknown_frees"), unknown, "{how}: {info}");
        let found = tape::number(&info, "/order_faults");
        assert_eq!((1..1000).contains(&found), faults, "{how}: {found} faults");
        // The sentence behind the counts, and the library in the table below.
        for words in words {
            let is_told = words.contains("These are of processes with calls that were not seen");
            assert_eq!(is_told, unknown > 0 || faults, "{how}: {words}");
            assert!(words.contains("RTLD_DEEPBIND"), "{how}: {words}");
        }
    }
}

#[test]
fn what_was_not_loaded_with_rtld_deepbind_after_all_is_not_named() {
    let (info, words) = deepbound("missing", 0);
    tape::assert_sound(&info);
    assert_eq!(info["uncovered"], Value::Array(Vec::new()), "{info}");
    assert_eq!(tape::number(&info, "/unknown_frees"), 0, "{info}");
    assert!(words.iter().all(|words| !words.contains("not seen")), "{words:?}");
}

#[test]
fn a_library_that_binds_to_itself_is_named_when_its_process_is_killed() {
    let (info, _) = deepbound("killed", 137);
    let why = the_reason(&info);
    assert!(why.contains("plugin was to be loaded with RTLD_DEEPBIND: if it was"), "{why}");
}

#[test]
fn a_library_in_a_namespace_of_its_own_calls_its_own_libc() {
    let (folder, program, library) = (scratch(), program("namespaced"), library("plugin"));
    let file = folder.path().join("x.tape");
    let outcome = run(&mut record(&file, &[], &[program.as_os_str(), library.as_os_str()]));
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
    let info = tape::info(&file);
    tape::assert_sound(&info);
    assert_eq!(tape::number(&info, "/unknown_frees"), 0, "{info}");
    let why = the_reason(&info);
    assert!(why.contains(&*library.to_string_lossy()) && why.contains("dlmopen"), "{why}");
    let (mut own, mut theirs) = (0, 0);
    tape::rows(&file, |row| {
        own += u64::from((5000..5150).contains(&row.size) && !row.is_release());
        theirs += u64::from((3000..3150).contains(&row.size) && !row.is_release());
    });
    assert_eq!((own, theirs), (150, 0));
}

#[test]
fn blocks_of_a_library_that_is_gone_keep_its_name() {
    let (folder, program, library) = (scratch(), program("closed"), library("plugin"));
    let file = folder.path().join("x.tape");
    let (info, _) = the_same(&file, &[program.as_os_str(), library.as_os_str()], &[]);
    assert_eq!(tape::number(&info, "/unknown_frees"), 0, "{info}");
    let mut makers: HashMap<String, u64> = HashMap::new();
    tape::rows(&file, |row| {
        if (7000..7200).contains(&row.size) && !row.is_release() {
            *makers.entry(row.module.clone()).or_default() += 1;
        }
    });
    let name = library.to_str().expect("a path in UTF-8").to_owned();
    assert_eq!(makers, HashMap::from([(name, 600)]));
}

#[test]
fn an_auditor_of_the_loader() {
    let (folder, program, auditor) = (scratch(), program("shimmed"), library("auditor"));
    let file = folder.path().join("x.tape");
    let script = OsStr::new("LD_AUDIT=\"$1\" exec \"$0\"");
    let command = ["sh".as_ref(), "-c".as_ref(), script, program.as_os_str(), auditor.as_os_str()];
    let (info, _) = the_same(&file, &command, &[]);
    // The loader itself keeps a block more with an auditor.
    let events = tape::number(&info, "/processes/1/events");
    assert!((900..905).contains(&events), "{info}");
}

#[test]
fn what_the_user_preloads_is_kept_in_every_child() {
    let (folder, program, witness) = (scratch(), program("shimmed"), library("witness"));
    // A second library under another name, behind the first.
    let second = folder.path().join("second.so");
    fs::copy(&witness, &second).expect("a copy");
    let script = "\"$0\"; (\"$0\"); env \"$0\"; env -i \"$0\"; LD_PRELOAD= \"$0\"; LD_PRELOAD=\"$1:$LD_PRELOAD\" \"$0\"; exec \"$0\"";
    let command = [
        OsStr::new("sh"),
        OsStr::new("-c"),
        OsStr::new(script),
        program.as_os_str(),
        second.as_os_str(),
    ];
    for separator in [":", " ", " :: "] {
        let preload: OsString =
            [witness.as_os_str(), second.as_os_str()].join(OsStr::new(separator));
        let seen = |name: &str| folder.path().join(name);
        let variables = |path: &Path| {
            [("LD_PRELOAD", preload.clone()), ("WITNESS", path.as_os_str().to_owned())]
        };
        let plain =
            run(Command::new(command[0]).args(&command[1..]).envs(variables(&seen("plain"))));
        assert_eq!(plain.code(), 0);
        let file = folder.path().join("x.tape");
        // heaptape itself is a program with these libraries, too.
        let outcome = run(record(&file, &[], &command).envs(variables(&seen("recorded"))));
        assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""), "{separator:?}");
        let loads = |name: &str| fs::read(seen(name)).map_or(0, |bytes| bytes.len());
        assert_eq!(loads("recorded"), loads("plain") + 2, "{separator:?}");
        let info = tape::info(&file);
        tape::assert_sound(&info);
        assert_eq!(info["uncovered"], Value::Array(Vec::new()), "{info}");
        let name = program.to_string_lossy();
        let rows = info["processes"].as_array().expect("rows");
        let runs: Vec<_> = rows.iter().filter(|row| row["command"][0] == name.as_ref()).collect();
        assert_eq!(runs.len(), 7, "{info}");
        assert!(runs.iter().all(|row| row["events"] == 900), "{info}");
        let _ = (fs::remove_file(seen("plain")), fs::remove_file(seen("recorded")));
    }
}

/// The kernel knows the loader as the executable then.
#[test]
fn a_program_that_the_loader_was_told_to_run_has_its_own_name() {
    let (folder, program) = (scratch(), program("planted"));
    let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
    let file = folder.path().join("x.tape");
    let (info, _) = the_same(&file, &[loader.as_os_str(), program.as_os_str()], &[]);
    assert!(tape::number(&info, "/events") > 0);
    let text = run(heaptape(["events"]).arg(&file)).stdout;
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("(planted+0x"), "{text}");
    assert!(!text.contains("ld-linux-x86-64.so.2+0x"), "{text}");
}

#[test]
fn a_long_list_of_preloads_is_kept() {
    let (folder, program, witness) = (scratch(), program("shimmed"), library("witness"));
    let mut list = Vec::new();
    for i in 0..40 {
        let copy = folder.path().join(format!("{i:060}.so"));
        fs::copy(&witness, &copy).expect("a copy");
        list.push(copy.into_os_string());
    }
    let preload = list.join(OsStr::new(":"));
    let (file, seen) = (folder.path().join("x.tape"), folder.path().join("seen"));
    let script = OsStr::new("WITNESS=\"$1\" \"$0\"");
    let command = ["sh".as_ref(), "-c".as_ref(), script, program.as_os_str(), seen.as_os_str()];
    let (info, _) = the_same(&file, &command, &[("LD_PRELOAD", &preload)]);
    assert_eq!(fs::read(&seen).map_or(0, |bytes| bytes.len()), 80, "once plain, once recorded");
    assert_eq!(tape::number(&info, "/processes/1/events"), 900, "{info}");
}

#[test]
fn paths_with_blanks_and_colons() {
    let folder = scratch();
    let odd = folder.path().join("a folder: with blanks");
    fs::create_dir(&odd).expect("a folder");
    let copy = odd.join("a program");
    fs::copy(program("shimmed"), &copy).expect("a copy");
    let file = odd.join("a tape");
    let home = odd.as_os_str();
    let variables = [("HOME", home), ("XDG_CACHE_HOME", home), ("TMPDIR", home)];
    let (info, _) = the_same(&file, &[copy.as_os_str()], &variables);
    assert_eq!(tape::number(&info, "/events"), 900, "{info}");
    // By a name without a slash, in a folder of PATH that has blanks.
    let path = [odd.parent().expect("a folder").as_os_str(), OsStr::new("/usr/bin:/bin")];
    let link = folder.path().join("program with blanks");
    std::os::unix::fs::symlink(&copy, &link).expect("a link");
    let script = OsStr::new("exec 'program with blanks'");
    let command = ["sh".as_ref(), "-c".as_ref(), script];
    let (info, _) = the_same(&file, &command, &[("PATH", &path.join(OsStr::new(":")))]);
    assert_eq!(tape::number(&info, "/processes/1/events"), 900, "{info}");
    assert!(run(&mut heaptape(["capture-path"])).code() == 0);
}

#[test]
fn a_first_call_while_another_thread_loads_a_library_does_not_wait_for_it() {
    let (folder, program, library) = (scratch(), program("gated"), library("gate"));
    let file = folder.path().join("x.tape");
    let (_, outcome) = the_same(&file, &[program.as_os_str(), library.as_os_str()], &[]);
    assert_eq!(outcome.code(), 7);
}

#[test]
fn each_library_is_listed_once_however_many_are_loaded_and_unloaded() {
    const COUNT: usize = 60;
    let (folder, program, library) = (scratch(), program("loads"), library("gate"));
    let file = folder.path().join("x.tape");
    for i in 0..COUNT {
        fs::copy(&library, folder.path().join(format!("{i}.so"))).expect("a copy");
    }
    let count = COUNT.to_string();
    let command = [program.as_os_str(), folder.path().as_os_str(), OsStr::new(&count)];
    the_same(&file, &command, &[]);
    let listing = run(heaptape(["events", "--notes", "--json"]).arg(&file)).json();
    let notes = |kind: &str| {
        let items = listing["events"].as_array().expect("a list").iter();
        items.filter(|item| item["note"] == kind).count()
    };
    assert!((COUNT..COUNT + 20).contains(&notes("module")), "{}", notes("module"));
    assert_eq!(notes("module_gone"), COUNT);
}
