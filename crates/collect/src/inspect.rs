//! What of a covered program's heap calls is not seen: an allocator in its executable that nothing can
//! stand in front of. Such a process is named on the tape, whatever else is recorded of it.
//!
//! The symbols of a large executable take longer to read than the collector may stand still, so a
//! thread of its own reads them, each file once.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use heaptape_proc::elf::{self, Executable};
use heaptape_proc::{Blind, read};
use heaptape_tape::{Error, Uncovered};

use crate::obstacle::find;
use crate::recorder::Recorder;

/// A file, as long as nobody changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Key {
    fn of(meta: &Metadata) -> Key {
        let changed = (meta.ctime(), meta.ctime_nsec());
        Key { device: meta.dev(), inode: meta.ino(), bytes: meta.len(), changed }
    }
}

/// What is known of a file.
enum Knowledge {
    /// These processes wait for it, by their places among all.
    Asked(Vec<usize>),
    /// What is not seen, as one phrase; `None` when all is.
    Known(Option<String>),
}

/// The executables of a job.
pub(crate) struct Inspector {
    files: HashMap<Key, Knowledge>,
    questions: Option<Sender<(Key, File)>>,
    answers: Receiver<(Key, Option<String>)>,
    thread: Option<JoinHandle<()>>,
}

impl Inspector {
    /// Starts the thread.
    pub(crate) fn start() -> Result<Inspector, crate::Error> {
        let (questions, asked) = channel::<(Key, File)>();
        let (answer, answers) = channel();
        let thread = crate::thread::start(move || {
            for (key, file) in asked {
                if answer.send((key, inspect(file))).is_err() {
                    break;
                }
            }
        })?;
        let (questions, thread) = (Some(questions), Some(thread));
        Ok(Inspector { files: HashMap::new(), questions, answers, thread })
    }

    /// Asks about a process that has just become a new program. What is known already is said at once.
    fn ask(&mut self, place: usize, pid: u32, command: &[String]) -> Option<String> {
        let file = open(pid, command)?;
        let key = Key::of(&file.metadata().ok()?);
        match self.files.get_mut(&key) {
            Some(Knowledge::Known(why)) => return why.clone(),
            Some(Knowledge::Asked(waiting)) => waiting.push(place),
            None => {
                self.questions.as_ref()?.send((key, file)).ok()?;
                self.files.insert(key, Knowledge::Asked(vec![place]));
            }
        }
        None
    }

    /// What has been found out since the last call, by process.
    fn answers(&mut self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        while let Ok((key, why)) = self.answers.try_recv() {
            let known = Knowledge::Known(why.clone());
            if let (Some(why), Some(Knowledge::Asked(waiting))) =
                (why, self.files.insert(key, known))
            {
                found.extend(waiting.into_iter().map(|place| (place, why.clone())));
            }
        }
        found
    }

    /// Waits for the answers that are still to come.
    fn finish(&mut self) {
        self.questions = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Recorder {
    /// Begins to look at the executable of a process that has just become a new program.
    pub(crate) fn inspect(&mut self, place: usize) {
        let process = &mut self.processes[place];
        process.gap = self.inspector.ask(place, process.start.pid, &process.start.command);
    }

    /// Takes in what was found out; a process that has ended meanwhile is named at once.
    pub(crate) fn take_in_gaps(&mut self) -> Result<(), Error> {
        for (place, why) in self.inspector.answers() {
            self.processes[place].gap = Some(why);
            if self.processes[place].ended.is_some() {
                self.name_gap(place)?;
            }
        }
        Ok(())
    }

    /// The same at the end, for all that is still open.
    pub(crate) fn finish_gaps(&mut self) -> Result<(), Error> {
        self.inspector.finish();
        self.take_in_gaps()
    }

    /// Names a process that has ended, if calls of it were not seen.
    pub(crate) fn name_gap(&mut self, place: usize) -> Result<(), Error> {
        let process = &mut self.processes[place];
        let Some(why) = process.gap.take() else { return Ok(()) };
        let (pid, command) = (process.start.pid, process.start.command.clone());
        self.name_uncovered(&Uncovered { pid, command, why })
    }
}

/// The executable of a process: the kernel's own link, which also leads to a file that is gone or in
/// another root; for a process that is gone, the file by its name.
fn open(pid: u32, command: &[String]) -> Option<File> {
    read::executable(pid).ok().or_else(|| {
        let path = find(OsStr::new(command.first()?), Path::new(""))?;
        File::open(path).ok()
    })
}

fn inspect(file: File) -> Option<String> {
    let Ok(Executable::Elf(elf)) = elf::kind_of(file, Path::new("")) else { return None };
    let blind: Vec<String> = Blind::of(&elf).iter().map(Blind::to_string).collect();
    (!blind.is_empty()).then(|| blind.join("; "))
}
