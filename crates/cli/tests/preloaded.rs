//! Allocators that the user preloads: the program runs on them as it does without heaptape.
#![forbid(unsafe_code)]

mod harness;

use harness::allocators::allocator;
use harness::compile::program;
use harness::running::run;
use harness::tape::number;
use harness::{record, scratch, tape};
use std::ffi::OsStr;

fn runs_as_ever(allocator: &str) {
    let Some(library) = self::allocator(allocator) else { return };
    let folder = scratch();
    let pages = program("pvallocated");
    let threads = "import threading; all = [threading.Thread(target=lambda: [bytes(n) for n in range(999)]) \
                   for _ in range(8)]; [t.start() for t in all]; [t.join() for t in all]";
    let commands: [(&[&OsStr], i32); 4] = [
        (&[pages.as_os_str()], 4),
        (&["python3".as_ref(), "-c".as_ref(), threads.as_ref()], 0),
        (&["sh".as_ref(), "-c".as_ref(), "ls / && exit 3".as_ref()], 3),
        (&["g++".as_ref(), "--version".as_ref()], 0),
    ];
    for (command, status) in commands {
        let file = folder.path().join("x.tape");
        let outcome = run(record(&file, &[], command).env("LD_PRELOAD", &library));
        assert_eq!(outcome.code(), status, "{command:?}: {}", outcome.stderr_text());
        let info = tape::info(&file);
        tape::assert_sound(&info);
        assert!(number(&info, "/events") > 0, "{command:?}");
    }
}

#[test]
fn an_allocator_that_sets_itself_up_when_asked_for_a_size() {
    runs_as_ever("libtcmalloc_minimal.so.4");
}

#[test]
fn an_allocator_that_lacks_a_function_of_libc() {
    runs_as_ever("libjemalloc.so.2");
}
