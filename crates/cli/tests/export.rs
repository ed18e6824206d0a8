//! The tables that `export` writes: both formats say the same, and what they say adds up to what the tape says of
//! itself.
#![forbid(unsafe_code)]

#[path = "export/agree.rs"]
mod agree;
#[path = "export/hand.rs"]
mod hand;
mod harness;
#[path = "export/table.rs"]
mod table;

use agree::checked;
use hand::Hand;
use harness::compile::program;
use harness::running::run;
use harness::{HEAPTAPE, heaptape, one_sentence, record, scratch, tape};
use heaptape_tape::{Call, Header, Origin};
use parquet::file::reader::FileReader;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use table::{HAS_PARQUET, Line, export, exported, open};

fn recorded(folder: &Path, name: &str) -> PathBuf {
    let file = folder.join(format!("{name}.tape"));
    let outcome = run(&mut record(&file, &[], &[program(name).as_os_str()]));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    file
}

#[test]
fn the_tables_add_up_to_what_the_tape_says() {
    let folder = scratch();
    for name in ["threads8", "odd", "news"] {
        let (_, blocks) = checked(&recorded(folder.path(), name));
        assert!(blocks.rows.iter().any(|b| b.text("ended") == "freed"), "{name}");
        assert!(blocks.rows.iter().any(|b| !b.text("function").is_empty()), "{name}");
    }
}

#[test]
fn children_have_their_parents_blocks_and_say_so() {
    let folder = scratch();
    let (_, blocks) = checked(&recorded(folder.path(), "children64"));
    let inherited: Vec<&Line> = blocks
        .rows
        .iter()
        .filter(|b| b.number("process") != 0 && b.maybe("birth_process") == Some(0))
        .collect();
    // Of the fifty each child frees half and resizes one.
    for (end, count) in [("freed", 25), ("resized", 1), ("left", 24)] {
        let sized = |b: &&&Line| (100..150).contains(&b.number("size")) && b.text("ended") == end;
        let in_children = inherited.iter().filter(sized).count();
        assert!(in_children >= 64 * count, "{end}: {in_children}");
    }
    assert!(
        inherited.iter().all(|b| b.text("birth_call").is_empty() && b.maybe("lifetime").is_none())
    );
    assert!(inherited.iter().any(|b| b.text("function") == "main"), "the parent's names");
}

#[test]
fn a_range_is_of_calls_or_of_births() {
    let folder = scratch();
    let file = recorded(folder.path(), "threads8");
    for table in ["calls", "blocks"] {
        let index = if table == "calls" { "index" } else { "birth" };
        let all = exported(&file, table, &[]);
        let last = all.rows.iter().map(|l| l.number(index)).max().expect("rows");
        let middle = last / 2;
        let ranges = [(0, 1), (0, 100), (middle, middle + 500), (last, last + 9), (7, 7)];
        for (from, to) in ranges {
            let some = exported(&file, table, &["--range", &format!("{from}..{to}")]);
            let wanted = all.rows.iter().filter(|l| (from..to).contains(&l.number(index)));
            assert!(some.rows.iter().eq(wanted), "{table} {from}..{to}");
        }
    }
}

/// A cut tape is said to be one, so the formats are compared here.
#[test]
fn a_cut_tape_is_exported_as_far_as_it_goes() {
    let folder = scratch();
    let whole = fs::read(recorded(folder.path(), "threads8")).expect("a tape");
    let file = folder.path().join("cut.tape");
    let mut readable = 0;
    for part in [3, 6, 9] {
        fs::write(&file, &whole[..whole.len() * part / 10]).expect("a tape");
        let info = tape::info_outcome(&file);
        if info.code() != 0 {
            continue;
        }
        readable += 1;
        let events = tape::number(&info.json(), "/events");
        for (table, left) in [("calls", false), ("blocks", true)] {
            let csv = export(&file, table, "csv", &[]);
            assert_eq!(csv.code(), 0);
            one_sentence(&csv);
            let text = String::from_utf8(csv.stdout).expect("text");
            let rows = text.lines().count() - 1;
            if left {
                let end = text.lines().filter(|l| l.contains(",left,")).count() as u64;
                assert_eq!(end, tape::number(&info.json(), "/processes/0/end/blocks"));
            } else {
                assert_eq!(rows as u64, events);
            }
            if HAS_PARQUET {
                let parquet = open(&export(&file, table, "parquet", &[]).stdout);
                assert_eq!(parquet.metadata().file_metadata().num_rows(), rows as i64);
            }
        }
    }
    assert!(readable > 0);
}

#[test]
fn a_damaged_tape_gives_blocks_or_one_sentence() {
    let folder = scratch();
    let whole = fs::read(recorded(folder.path(), "children64")).expect("a tape");
    let file = folder.path().join("damaged.tape");
    let mut refused = 0;
    for part in 1..20 {
        let mut copy = whole.clone();
        copy[whole.len() * part / 20] ^= 0x55;
        fs::write(&file, &copy).expect("a tape");
        for format in formats() {
            let outcome = export(&file, "blocks", format, &[]);
            assert!(matches!(outcome.code(), 0 | 1), "{part}: {}", outcome.stderr_text());
            assert!(!outcome.stderr_text().contains("panicked"), "{part}");
            refused += outcome.code();
        }
    }
    assert!(refused > 0, "no damage was noticed");
}

#[test]
fn a_tape_without_events_gives_an_empty_table() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    Hand::begin(&file, &Header::default()).finish();
    for (table, columns) in [("calls", 21), ("blocks", 27)] {
        let empty = exported(&file, table, &[]);
        assert_eq!((empty.names.len(), empty.rows.len()), (columns, 0), "{table}");
    }
    let mut hand = Hand::begin(&file, &Header::default());
    hand.start(77, None, Origin::Exec);
    hand.finish();
    checked(&file);
}

#[test]
fn one_event_is_one_row() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let mut hand = Hand::begin(&file, &Header::default());
    hand.start(77, None, Origin::Exec);
    hand.call(0, Call::Malloc, 0x1000, 24, 0);
    hand.finish();
    let (calls, blocks) = checked(&file);
    assert_eq!((calls.rows.len(), blocks.rows.len()), (1, 1));
    let block = &blocks.rows[0];
    assert_eq!((block.text("ended"), block.number("pid"), block.number("size")), ("left", 77, 24));
}

/// The blocks of a tape, with how each ended.
fn ends(file: &Path) -> Vec<(u64, String)> {
    let rows = exported(file, "blocks", &[]).rows;
    rows.iter().map(|b| (b.number("size"), b.text("ended").to_owned())).collect()
}

#[test]
fn every_way_to_end_has_its_name() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let mut hand = Hand::begin(&file, &Header::default());
    let process = hand.start(77, None, Origin::Exec);
    hand.call(0, Call::Malloc, 0x1000, 1, 0);
    hand.call(0, Call::Malloc, 0x1000, 2, 0); // displaces 1
    hand.call(0, Call::Realloc, 0x1000, 3, 0x1000); // resizes 2 in place
    hand.call(0, Call::Realloc, 0x2000, 4, 0x1000); // moves 3
    hand.call(0, Call::Realloc, 0, 0, 0x2000); // frees 4
    hand.call(0, Call::Malloc, 0x3000, 5, 0);
    hand.call(0, Call::Realloc, 0, 1 << 60, 0x3000); // fails
    hand.call(0, Call::Malloc, 0x4000, 6, 0);
    hand.tape.release(process, 0, 50, 0x3000).expect("a release");
    hand.tape.release(process, 0, 50, 0x4000).expect("a release"); // 5 is lost
    hand.call(0, Call::Realloc, 0x5000, 7, 0x4000); // moves 6
    hand.call(0, Call::Free, 0x9999, 0, 0); // nothing
    hand.call(0, Call::Free, 0x5000, 0, 0); // frees 7
    hand.call(0, Call::Malloc, 0x6000, 8, 0);
    hand.tape.release(process, 0, 50, 0x6000).expect("a release"); // and 8 is left
    hand.finish();
    let wanted = [
        (1, "displaced"),
        (2, "resized"),
        (3, "resized"),
        (4, "freed"),
        (5, "lost"),
        (6, "resized"),
        (7, "freed"),
        (8, "left"),
    ];
    let found = ends(&file);
    assert!(found.iter().map(|(size, end)| (*size, end.as_str())).eq(wanted), "{found:?}");
    let lost = &exported(&file, "blocks", &[]).rows[4];
    assert_eq!((lost.number("death"), lost.text("death_call")), (8, ""));
}

#[test]
fn a_block_of_a_grandparent_is_followed_through_the_line() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let mut hand = Hand::begin(&file, &Header::default());
    let first = hand.start(1, None, Origin::Exec);
    (1..=3).for_each(|n| hand.call(0, Call::Malloc, n << 12, n, 0));
    let point = hand.tape.fork_point(first).expect("a point");
    let second = hand.start(2, Some(first), Origin::Fork { point });
    hand.call(0, Call::Free, 1 << 12, 0, 0);
    hand.call(1, Call::Free, 2 << 12, 0, 0);
    let point = hand.tape.fork_point(second).expect("a point");
    hand.start(3, Some(second), Origin::Fork { point });
    hand.call(2, Call::Free, 3 << 12, 0, 0);
    hand.finish();
    let rows = exported(&file, "blocks", &[]).rows;
    let told: Vec<_> = rows
        .iter()
        .map(|b| (b.number("process"), b.number("size"), b.text("ended"), b.maybe("birth_process")))
        .collect();
    let wanted = [
        (0, 1, "freed"),
        (0, 2, "left"),
        (0, 3, "left"),
        (1, 2, "freed"),
        (1, 1, "left"),
        (1, 3, "left"),
        (2, 3, "freed"),
        (2, 1, "left"),
    ];
    assert!(told.iter().copied().eq(wanted.map(|(p, s, e)| (p, s, e, Some(0)))), "{told:?}");
    checked(&file);
}

#[test]
fn strange_names_are_kept_whole_in_both_formats() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let names: [&[u8]; 4] = [
        b"/a\x1b[2J\r\n\t\",;'b",
        b"/bad\xff\xfeutf",
        &[b'x'; 10_000],
        "/\u{202e}é\u{0}".as_bytes(),
    ];
    for name in names {
        let command = vec![String::from_utf8_lossy(name).into_owned(), "\u{1b}]0;x\u{7}".into()];
        let header = Header { command, host: "h\n\u{1b}".into(), ..Header::default() };
        let mut hand = Hand::begin(&file, &header);
        hand.start(77, None, Origin::Exec);
        hand.module(name);
        hand.call(0, Call::Malloc, 0x1000, 24, 0);
        hand.call(0, Call::Free, 0x1000, 0, 0);
        hand.finish();
        let (calls, blocks) = checked(&file);
        let name = String::from_utf8_lossy(name);
        assert!(calls.rows.iter().all(|c| c.text("module") == name), "{name:?}");
        assert_eq!(blocks.rows[0].text("module"), name);
        assert_eq!(blocks.rows[0].text("death_module"), name);
    }
}

#[test]
fn a_parquet_file_says_where_it_comes_from() {
    if !HAS_PARQUET {
        return;
    }
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let command = vec!["a b".into(), "c".into()];
    let header =
        Header { command, host: "here".into(), started: 1_000_000_007, ..Header::default() };
    Hand::begin(&file, &header).finish();
    for table in ["calls", "blocks"] {
        let parquet = open(&export(&file, table, "parquet", &[]).stdout);
        let list =
            parquet.metadata().file_metadata().key_value_metadata().expect("metadata").clone();
        let about: HashMap<_, _> =
            list.into_iter().map(|kv| (kv.key, kv.value.unwrap_or_default())).collect();
        assert_eq!(about["heaptape.schema"], format!("heaptape.{table}/1"));
        assert_eq!(about["heaptape.version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(about["heaptape.command"], "'a b' c");
        assert_eq!(about["heaptape.host"], "here");
        assert_eq!(about["heaptape.started"], "1970-01-01T00:00:01.000000007Z");
    }
}

/// More rows than one row group holds.
#[test]
fn a_long_table_is_written_in_several_groups() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let mut hand = Hand::begin(&file, &Header::default());
    hand.start(77, None, Origin::Exec);
    for n in 0..150_000 {
        hand.call(0, Call::Malloc, 0x10_0000 + n * 64, n % 50, 0);
        hand.call(0, Call::Free, 0x10_0000 + n * 64, 0, 0);
    }
    hand.finish();
    let calls = exported(&file, "calls", &[]);
    assert_eq!(calls.rows.len(), 300_000);
    if HAS_PARQUET {
        let parquet = open(&export(&file, "calls", "parquet", &[]).stdout);
        assert_eq!(parquet.num_row_groups(), 3);
    }
}

#[test]
fn the_tape_itself_is_not_overwritten() {
    let folder = scratch();
    let file = recorded(folder.path(), "odd");
    let (hard, soft) = (folder.path().join("hard"), folder.path().join("soft"));
    fs::hard_link(&file, &hard).expect("a link");
    std::os::unix::fs::symlink(&file, &soft).expect("a link");
    let before = fs::read(&file).expect("a tape");
    for output in [&file, &hard, &soft] {
        for format in formats() {
            let output = output.to_str().expect("UTF-8");
            let outcome = export(&file, "blocks", format, &["-o", output]);
            assert_eq!(outcome.code(), 1);
            assert!(one_sentence(&outcome).contains("is the tape itself"));
            assert!(fs::read(&file).expect("a tape") == before);
        }
    }
}

fn formats() -> &'static [&'static str] {
    if HAS_PARQUET { &["csv", "parquet"] } else { &["csv"] }
}

#[test]
fn a_full_disk_is_one_sentence_and_a_reader_that_leaves_is_none() {
    let folder = scratch();
    let file = recorded(folder.path(), "threads8");
    for table in ["calls", "blocks"] {
        for format in formats() {
            let outcome = export(&file, table, format, &["-o", "/dev/full"]);
            assert_eq!(outcome.code(), 1, "{table} {format}");
            let sentence = one_sentence(&outcome);
            assert!(sentence.contains("cannot write to /dev/full: No space left"), "{sentence}");
            let mut shell = Command::new("bash");
            let script = "set -o pipefail; \"$0\" export \"$1\" --table \"$2\" --to \"$3\" | head -c 3 >/dev/null";
            let left = run(shell.args(["-c", script, HEAPTAPE]).arg(&file).args([table, format]));
            assert_eq!((left.code(), left.stderr_text().as_str()), (0, ""), "{table} {format}");
        }
    }
}

#[test]
fn without_the_feature_parquet_is_refused_in_one_sentence() {
    if HAS_PARQUET {
        return;
    }
    let folder = scratch();
    let file = recorded(folder.path(), "odd");
    let output = folder.path().join("x.parquet");
    let path = output.to_str().expect("UTF-8");
    let outcome = export(&file, "calls", "parquet", &["-o", path]);
    assert_eq!(outcome.code(), 1);
    assert!(one_sentence(&outcome).contains("built without the feature parquet"));
    assert!(!output.exists());
}

#[test]
fn a_table_that_there_is_not_is_refused() {
    let outcome = run(&mut heaptape(["export", "x.tape", "--to", "csv", "--table", "sites"]));
    assert_eq!(outcome.code(), 2);
    assert!(outcome.stderr_text().contains("calls, blocks"), "{}", outcome.stderr_text());
}
