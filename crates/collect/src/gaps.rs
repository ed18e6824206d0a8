//! Processes that are recorded, but not with all their calls: what passes the capture library by, as
//! the library itself has found, or as the executable's file shows. Each is named with the reason.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use heaptape_proc::elf::{self, Executable};
use heaptape_proc::read;
use heaptape_tape::{Error, Uncovered};
use heaptape_wire::process::Gap;

use crate::obstacle;
use crate::recorder::Recorder;

/// What the executables' files show, each looked at once.
#[derive(Default)]
pub(crate) struct Files {
    known: HashMap<(PathBuf, Stamp), Option<String>>,
}

/// Tells two contents of one file apart: device, inode, seconds and nanoseconds of the last change.
type Stamp = (u64, u64, i64, i64);

fn stamp(meta: &Metadata) -> Stamp {
    (meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec())
}

impl Files {
    /// What of a new program passes the library by, if its file shows that.
    pub(crate) fn gap_of(&mut self, pid: u32, command: &[String]) -> Option<String> {
        let path = read::exe(pid).ok().or_else(|| {
            let directory = read::cwd(pid).unwrap_or_default();
            obstacle::find(command.first()?.as_ref(), &directory)
        })?;
        let stamp = stamp(&path.metadata().ok()?);
        let shown = self.known.entry((path.clone(), stamp)).or_insert_with(|| shown(&path));
        shown.clone()
    }
}

/// An allocator that the executable calls directly.
fn shown(path: &Path) -> Option<String> {
    let Executable::Elf(elf) = elf::kind(path).ok()? else { return None };
    if elf.go_build_id.is_some() {
        return Some(
            "it is written in Go, whose runtime maps its memory itself: only the calls of C code in it are seen".into(),
        );
    }
    if let Some(name) = elf.private_malloc {
        return Some(format!(
            "its executable holds an allocator under the name {name}: calls of that are not seen"
        ));
    }
    elf.defines_malloc.then(|| {
        "its executable defines malloc for itself alone: its own calls are not seen".into()
    })
}

/// What the library has found, as one phrase.
fn phrase(gap: Gap, module: &str) -> String {
    let who = if module.is_empty() { "its executable" } else { module };
    match gap {
        Gap::OtherFirst => format!(
            "{who} defines malloc and comes before heaptape's library: only what it hands on is seen"
        ),
        Gap::Replaced => format!(
            "valgrind runs it and puts functions of its own in the place of every malloc ({who}): no heap call is seen"
        ),
        Gap::SizeUnknown => format!(
            "{who} defines malloc and no malloc_usable_size: its calls are seen, and the slack of its blocks counts as 0"
        ),
    }
}

impl Recorder {
    /// Names a process that has ended, if calls of it passed the library by.
    pub(crate) fn name_gap(&mut self, place: usize) -> Result<(), Error> {
        let process = &mut self.processes[place];
        let of_file = process.gap.take();
        let found = self.arena.arena().slot(process.slot as usize).gap().map(|(gap, module)| {
            let module: Vec<u8> = module.collect();
            phrase(gap, &String::from_utf8_lossy(&module))
        });
        let Some(why) = found.or(of_file) else { return Ok(()) };
        let start = &self.processes[place].start;
        let uncovered = Uncovered { pid: start.pid, command: start.command.clone(), why };
        self.name_uncovered(&uncovered)
    }
}
