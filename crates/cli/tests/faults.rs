//! What cannot be done is said in one sentence, with the right exit status, and the program is unharmed or not started.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{program, static_program};
use harness::running::{Outcome, Running, run, until_file_has};
use harness::{
    HEAPTAPE, LIMIT, heaptape, may_mount, one_sentence, record, record_loop, scratch, skip, tape,
};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A script in a mount namespace of its own: what it mounts vanishes with it.
fn in_namespace(script: &str, args: &[&Path]) -> Outcome {
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", script, "sh"]).args(args);
    run(command.env("HEAPTAPE", HEAPTAPE).env_remove("LD_PRELOAD"))
}

/// The command ran to its end as ever, or it was never started and heaptape says why with status 125.
fn unharmed_or_not_started(outcome: &Outcome) {
    let stdout = String::from_utf8_lossy(&outcome.stdout).into_owned();
    match outcome.code() {
        125 => assert_eq!(stdout, "", "not started, so nothing was written"),
        code => {
            assert_eq!((code, stdout.as_str()), (7, "loop done\n"), "{}", outcome.stderr_text());
        }
    }
}

#[test]
fn a_missing_command_is_127() {
    let folder = scratch();
    let outcome =
        run(&mut record(&folder.path().join("x.tape"), &[], &[OsStr::new("/nonexistent/program")]));
    assert_eq!(outcome.code(), 127);
    assert!(one_sentence(&outcome).contains("/nonexistent/program"));
    let outcome = run(&mut record(
        &folder.path().join("x.tape"),
        &[],
        &[OsStr::new("no-such-program-anywhere")],
    ));
    assert_eq!(outcome.code(), 127);
    assert!(one_sentence(&outcome).contains("no-such-program-anywhere"));
}

#[test]
fn a_command_that_cannot_be_executed_is_126() {
    let folder = scratch();
    let plain = folder.path().join("plain");
    fs::write(&plain, "#!/bin/sh\nexit 0\n").expect("a file");
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).expect("its mode");
    for command in [plain.as_path(), folder.path()] {
        let outcome = run(&mut record(&folder.path().join("x.tape"), &[], &[command.as_os_str()]));
        assert_eq!(outcome.code(), 126, "{}", outcome.stderr_text());
        assert!(one_sentence(&outcome).contains(command.to_str().expect("UTF-8")));
    }
}

#[test]
fn wrong_usage_is_2() {
    for args in
        [&["record"][..], &["record", "--no-such-option", "--", "true"], &["no-such-command"], &[]]
    {
        let outcome = run(&mut heaptape(args));
        assert_eq!(outcome.code(), 2, "{args:?}: {}", outcome.stderr_text());
        assert!(!outcome.stderr.is_empty());
    }
}

#[test]
fn a_negative_range_is_told_what_a_range_is() {
    for range in ["-5", "-5..", "-5..3", "-0"] {
        let outcome = run(&mut heaptape(["events", "x.tape", range]));
        assert_eq!(outcome.code(), 2, "{range}: {}", outcome.stderr_text());
        let sentence = one_sentence(&outcome);
        assert!(sentence.contains("A..B") && !sentence.contains("-- "), "{range}: {sentence}");
    }
    let outcome = run(&mut heaptape(["events", "x.tape", "--jsn"]));
    assert!(outcome.stderr_text().contains("--json"), "{}", outcome.stderr_text());
}

#[test]
fn an_empty_range_is_told_in_one_sentence() {
    let folder = scratch();
    good_tape(folder.path());
    let file = folder.path().join("good.tape");
    for range in ["0..0", "5..5", "99999999..", "99999999"] {
        for options in [&[][..], &["--histogram"], &["--histogram", "--json"], &["--json"]] {
            let outcome = run(heaptape(["events"]).arg(&file).arg(range).args(options));
            assert_eq!(outcome.code(), 0, "{range} {options:?}: {}", outcome.stderr_text());
            let sentence = one_sentence(&outcome);
            assert!(sentence.contains("none in this range"), "{range} {options:?}: {sentence}");
            if options.first() == Some(&"--histogram") {
                let none = outcome.stdout.is_empty();
                assert!(none || outcome.json()["bins"] == serde_json::json!([]), "{range}");
                assert_eq!(none, options.len() == 1, "{range} {options:?}");
            }
        }
    }
}

#[test]
fn an_output_that_cannot_be_written_starts_nothing() {
    let folder = scratch();
    let marker = folder.path().join("marker");
    for output in
        [Path::new("/nonexistent/folder/x.tape"), folder.path(), Path::new("/proc/x.tape")]
    {
        let outcome = run(&mut record(output, &[], &[OsStr::new("touch"), marker.as_os_str()]));
        assert_eq!(outcome.code(), 125, "{}", outcome.stderr_text());
        assert!(one_sentence(&outcome).contains(output.to_str().expect("UTF-8")));
        assert!(!marker.exists(), "the command was not started");
    }
}

#[test]
fn a_disk_that_is_full_at_the_start() {
    if !may_mount() {
        return skip("a full disk needs the right to mount");
    }
    let folder = scratch();
    let script = "mount -t tmpfs -o size=64k tmpfs \"$1\" && cat /dev/zero 2>/dev/null >\"$1/fill\"; \
                  exec \"$HEAPTAPE\" record -o \"$1/x.tape\" -- \"$2\" \"$1/../progress\" 2 300 50";
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).expect("a folder");
    let outcome = in_namespace(script, &[&disk, &program("loop")]);
    unharmed_or_not_started(&outcome);
    assert!(outcome.stderr_text().contains("heaptape"), "it is said: {}", outcome.stderr_text());
    let said = outcome.stderr_text().to_lowercase();
    assert!(said.contains("disk") || said.contains("space"), "{said}");
}

#[test]
fn a_disk_that_fills_up_in_mid_run() {
    if !may_mount() {
        return skip("a full disk needs the right to mount");
    }
    let folder = scratch();
    let script = "mount -t tmpfs -o size=1m tmpfs \"$1\" || exit 99; \
                  \"$HEAPTAPE\" record --quiet -o \"$1/x.tape\" -- \"$2\" \"$3/progress\" 4 0 100 1500000; status=$?; \
                  cp \"$1/x.tape\" \"$3/\"; exit $status";
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).expect("a folder");
    let outcome = in_namespace(script, &[&disk, &program("loop"), folder.path()]);
    assert_eq!(outcome.code(), 7, "{}", outcome.stderr_text());
    assert_eq!(outcome.stdout, b"loop done\n");
    one_sentence(&outcome);
    let events = tape::assert_ended_early(&folder.path().join("x.tape"), &"disk-full".into());
    assert!(events > 1000, "{events} events");
}

#[test]
fn a_small_disk_keeps_what_fits() {
    if !may_mount() {
        return skip("a small disk needs the right to mount");
    }
    let folder = scratch();
    let script = "mount -t tmpfs -o size=$4 tmpfs \"$1\" || exit 99; \
                  \"$HEAPTAPE\" record --quiet -o \"$1/x.tape\" -- \"$2\" \"$3/progress\" 4 0 50 300000; status=$?; \
                  cp \"$1/x.tape\" \"$3/\"; exit $status";
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).expect("a folder");
    for kib in [64u64, 128, 256] {
        let size = format!("{kib}k");
        let outcome =
            in_namespace(script, &[&disk, &program("loop"), folder.path(), Path::new(&size)]);
        assert_eq!(outcome.code(), 7, "{}", outcome.stderr_text());
        one_sentence(&outcome);
        let file = folder.path().join("x.tape");
        let events = tape::assert_ended_early(&file, &"disk-full".into());
        let bytes = fs::metadata(&file).expect("the tape").len();
        assert!(bytes >= kib << 9, "{size}: {bytes} bytes of it are used");
        assert!(events > 2000, "{size}: {events} events");
    }
}

#[test]
fn two_recordings_onto_one_file_do_not_spoil_it() {
    let folder = scratch();
    let (file, go) = (folder.path().join("x.tape"), folder.path().join("go"));
    let script = "echo started; while [ ! -e \"$0\" ]; do sleep 0.02; done; exit 3";
    let words = ["sh".as_ref(), "-c".as_ref(), script.as_ref(), go.as_os_str()];
    let first = Running::start(&mut record(&file, &[], &words));
    assert!(until_file_has(&first.stdout_path(), "started", LIMIT));
    for _ in 0..3 {
        let outcome = run(&mut record(&file, &[], &["echo", "second"].map(OsStr::new)));
        assert_eq!((outcome.code(), outcome.stdout.as_slice()), (125, &b""[..]));
        let sentence = one_sentence(&outcome);
        assert!(
            sentence.contains("another recording") && sentence.contains("x.tape"),
            "{sentence}"
        );
    }
    fs::write(&go, "").expect("a file");
    assert_eq!(first.finish(LIMIT).code(), 3);
    let outcome = run(heaptape(["info", "--json", "--verify"]).arg(&file));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    tape::assert_sound(&outcome.json());
    let outcome = run(&mut record(&file, &[], &["true"].map(OsStr::new)));
    assert_eq!(outcome.code(), 0, "its lock is gone: {}", outcome.stderr_text());
}

#[test]
fn a_limit_that_is_too_low_is_named_and_nothing_is_started() {
    // Root may lift any limit, so another user has to try.
    let folder = scratch();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("its mode");
    let as_another = |script: &str| {
        let mut command = Command::new("bash");
        if rustix::process::geteuid().is_root() {
            command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "bash"]);
        }
        let library = run(&mut heaptape(["capture-path"])).stdout;
        let library = String::from_utf8(library).expect("a path");
        command.args(["-c", script, HEAPTAPE]).arg(folder.path().join("x.tape"));
        command.env_remove("LD_PRELOAD").env("HEAPTAPE_CAPTURE", library.trim_end());
        run(&mut command)
    };
    if as_another("\"$0\" --version && : >\"$1\"").code() != 0 {
        return skip("another user can't reach the folder of the tests");
    }
    for limit in ["ulimit -f", "ulimit -n", "ulimit -u"] {
        let least = if limit.ends_with('u') { 1 } else { 6 };
        let script = format!("{limit} {least} && exec \"$0\" record -o \"$1\" -- echo started");
        let outcome = as_another(&script);
        assert_eq!(outcome.code(), 125, "{limit}: {}", outcome.stderr_text());
        assert_eq!(outcome.stdout, b"", "{limit}");
        let sentence = one_sentence(&outcome);
        let both = sentence.contains(limit) && sentence.contains("nothing was started");
        assert!(both, "{limit}: {sentence}");
    }
}

#[test]
fn what_stops_a_recording_from_starting_is_told_in_one_line() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let outcome = run(&mut record(&file, &[], &[OsStr::new("")]));
    assert_eq!(outcome.code(), 127);
    assert!(one_sentence(&outcome).contains("empty"), "{}", outcome.stderr_text());
    let outcome = run(&mut record(&file, &[], &[OsStr::new("no\nsuch")]));
    assert_eq!(outcome.code(), 127);
    assert!(one_sentence(&outcome).contains("no\\nsuch"), "{}", outcome.stderr_text());

    let mut command = record(&folder.path().join("%r.tape"), &[], &[OsStr::new("true")]);
    for variable in ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"] {
        command.env_remove(variable);
    }
    let outcome = run(&mut command);
    assert_eq!(outcome.code(), 125);
    assert!(one_sentence(&outcome).contains("nothing was started"), "{}", outcome.stderr_text());

    for library in ["/etc/passwd", "/bin/true", "/nonexistent"] {
        let mut command = record(&file, &[], &["echo", "started"].map(OsStr::new));
        let outcome = run(command.env("HEAPTAPE_CAPTURE", library));
        assert_eq!((outcome.code(), outcome.stdout.as_slice()), (125, &b""[..]), "{library}");
        assert!(one_sentence(&outcome).contains(library), "{}", outcome.stderr_text());
    }
    assert!(!file.exists());
}

#[test]
fn a_directory_that_may_not_be_written_is_named_with_the_way_out() {
    if !may_mount() {
        return skip("a read-only directory, for root, needs the right to mount");
    }
    let folder = scratch();
    let script = "mount -t tmpfs -o ro tmpfs \"$1\" && cd \"$1\" && exec \"$HEAPTAPE\" record -- echo started";
    let outcome = in_namespace(script, &[folder.path()]);
    assert_eq!((outcome.code(), outcome.stdout.as_slice()), (125, &b""[..]));
    let sentence = one_sentence(&outcome);
    assert!(sentence.contains("-o FILE") && !sentence.contains(".heaptape"), "{sentence}");
}

#[test]
fn a_tape_that_reaches_its_greatest_size() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let outcome = run(&mut record_loop(folder.path(), &["--max-size", "512K"], "0", "1000000"));
    assert_eq!((outcome.code(), outcome.stdout.as_slice()), (7, &b"loop done\n"[..]));
    one_sentence(&outcome);
    let size = fs::metadata(&file).expect("the tape").len();
    let events = tape::assert_ended_early(&file, &"max-size".into());
    assert!(size <= 512 << 10, "{size} bytes");
    assert!(size > 256 << 10 && events > 100_000, "{size} bytes: {events} events");
}

#[test]
fn a_full_dev_shm() {
    if !may_mount() {
        return skip("a full /dev/shm needs the right to mount");
    }
    let folder = scratch();
    for size in ["64k", "1m", "8m"] {
        let script = format!(
            "mount -t tmpfs -o size={size} tmpfs /dev/shm && \
             exec \"$HEAPTAPE\" record -o \"$1/{size}.tape\" -- \"$2\" \"$1/progress\" 4 500 50"
        );
        let outcome = in_namespace(&script, &[folder.path(), &program("loop")]);
        unharmed_or_not_started(&outcome);
        if outcome.code() == 125 {
            assert!(one_sentence(&outcome).contains("/dev/shm"));
        }
    }
}

#[test]
fn a_dev_shm_that_fills_up_in_mid_run() {
    if !may_mount() {
        return skip("a full /dev/shm needs the right to mount");
    }
    let folder = scratch();
    let script = "mount -t tmpfs -o size=24m tmpfs /dev/shm || exit 99; \
                  (sleep 0.5; cat /dev/zero 2>/dev/null >/dev/shm/fill) & \
                  exec \"$HEAPTAPE\" record -o \"$1/x.tape\" -- \"$2\" \"$1/progress\" 8 2000 50";
    let outcome = in_namespace(script, &[folder.path(), &program("loop")]);
    unharmed_or_not_started(&outcome);
}

#[test]
fn what_a_killed_heaptape_leaves_is_swept_by_the_next() {
    if !may_mount() {
        return skip("a /dev/shm of our own needs the right to mount");
    }
    let folder = scratch();
    let script = "mount -t tmpfs tmpfs /dev/shm || exit 99; cd \"$1\"; \
                  \"$HEAPTAPE\" record --quiet -o x.tape -- \"$2\" progress 2 1000 50 & \
                  sleep 0.5; kill -9 $!; ls -A /dev/shm >left; wait $! 2>/dev/null; sleep 1.5; \
                  \"$HEAPTAPE\" record --quiet -o y.tape -- true; echo $? >status; ls -A /dev/shm >swept";
    in_namespace(script, &[folder.path(), &program("loop")]);
    let read =
        |name: &str| fs::read_to_string(folder.path().join(name)).expect("a file of the script");
    assert_eq!(read("status"), "0\n");
    assert_ne!(read("left"), "", "without a leftover this test means nothing");
    assert_eq!(read("swept"), "", "left behind at first: {}", read("left"));
}

/// A good tape, and the bytes of it.
fn good_tape(folder: &Path) -> Vec<u8> {
    let file = folder.join("good.tape");
    let outcome = run(&mut record(&file, &[], &[program("peak").as_os_str()]));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    fs::read(file).expect("the tape")
}

/// A tape of several hundred thousand events, so that it has more than one block.
fn long_tape(folder: &Path) -> Vec<u8> {
    let outcome = run(&mut record_loop(folder, &[], "0", "200000"));
    assert_eq!(outcome.code(), 7, "{}", outcome.stderr_text());
    fs::read(folder.join("x.tape")).expect("the tape")
}

#[test]
fn a_tape_cut_anywhere_is_readable() {
    const PARTS: usize = 10;
    let folder = scratch();
    let bytes = long_tape(folder.path());
    let cut = folder.path().join("cut.tape");
    let mut events = 0;
    for part in 1..=PARTS {
        // Without its last bytes a tape does not say that it is whole.
        let length = (bytes.len() * part / PARTS).min(bytes.len() - 1);
        fs::write(&cut, &bytes[..length]).expect("a cut tape");
        let before = std::mem::replace(&mut events, tape::assert_ended_early(&cut, &Value::Null));
        assert!(events >= before, "{length} of {} bytes: more of them, fewer events", bytes.len());
    }
    assert!(events > 50_000, "{events} events of a tape that lacks its last byte");
}

#[test]
fn a_foreign_or_missing_file_is_refused() {
    let folder = scratch();
    let foreign = folder.path().join("foreign");
    let contents: [&[u8]; 4] =
        [b"", b"x", &[0; 5000], b"\x7fELF not a tape at all, but some other file that is longer"];
    for content in contents {
        fs::write(&foreign, content).expect("a foreign file");
        refused(&foreign);
    }
    refused(&folder.path().join("missing"));
    refused(folder.path());
}

#[test]
fn a_future_tape_is_refused() {
    let folder = scratch();
    let mut bytes = good_tape(folder.path());
    let future = folder.path().join("future.tape");
    // Magic, version (2 bytes), 2 bytes, and the checksum of these twelve.
    bytes[8..10].copy_from_slice(&1000u16.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..12]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&future, &bytes).expect("a future tape");
    let sentence = refused(&future);
    assert!(sentence.contains("version 1000"), "{sentence}");
}

fn refused(file: &Path) -> String {
    let mut last = String::new();
    for command in
        [&["info"][..], &["events"], &["live", "--at", "peak"], &["export", "--to", "csv"]]
    {
        let mut args: Vec<&OsStr> = command.iter().map(OsStr::new).collect();
        args.insert(1, file.as_os_str());
        let outcome = run(&mut heaptape(args));
        assert_eq!(
            outcome.code(),
            1,
            "{command:?} of {}: {}",
            file.display(),
            outcome.stderr_text()
        );
        last = one_sentence(&outcome);
        assert!(last.contains(file.to_str().expect("UTF-8")), "{last}");
        assert_eq!(outcome.stdout, b"");
    }
    last
}

#[test]
fn damaged_bytes_never_panic() {
    let folder = scratch();
    let bytes = good_tape(folder.path());
    let damaged = folder.path().join("damaged.tape");
    for k in 1..40 {
        let mut copy = bytes.clone();
        let at = bytes.len() * k / 40;
        copy[at] ^= 0x55;
        fs::write(&damaged, &copy).expect("a damaged tape");
        let outcome = tape::info_outcome(&damaged);
        assert!(matches!(outcome.code(), 0 | 1), "byte {at}: {}", outcome.stderr_text());
        let outcome = run(heaptape(["export", "--to", "csv", "--process", "all"]).arg(&damaged));
        assert!(matches!(outcome.code(), 0 | 1), "byte {at}: {}", outcome.stderr_text());
        assert!(
            !outcome.stderr_text().contains("panicked"),
            "byte {at}: {}",
            outcome.stderr_text()
        );
    }
}

#[test]
fn a_static_child_is_named_every_time() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let script = "\"$0\"; \"$0\"; exit 0";
    let program = static_program("static");
    let command = ["sh".as_ref(), "-c".as_ref(), script.as_ref(), program.as_os_str()];
    for _ in 0..100 {
        let outcome = run(&mut record(&file, &[], &command));
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        let info = tape::info(&file);
        let uncovered = info["uncovered"].as_array().expect("a list");
        assert_eq!(uncovered.len(), 2, "{info}");
        for process in uncovered {
            let why = process["why"].as_str().expect("a reason");
            assert!(why.contains("statically linked"), "{why}");
        }
    }
}
