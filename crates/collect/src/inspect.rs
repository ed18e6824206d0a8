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
use heaptape_tape::Uncovered;

use crate::obstacle::find;

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
    /// These processes wait for it.
    Asked(Vec<(u32, Vec<String>)>),
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

    /// Asks about a process that has just become a new program.
    pub(crate) fn ask(&mut self, pid: u32, command: &[String]) -> Option<Uncovered> {
        let file = open(pid, command)?;
        let key = Key::of(&file.metadata().ok()?);
        match self.files.get_mut(&key) {
            Some(Knowledge::Known(why)) => {
                why.clone().map(|why| Uncovered { pid, command: command.to_vec(), why })
            }
            Some(Knowledge::Asked(waiting)) => {
                waiting.push((pid, command.to_vec()));
                None
            }
            None => {
                self.questions.as_ref()?.send((key, file)).ok()?;
                self.files.insert(key, Knowledge::Asked(vec![(pid, command.to_vec())]));
                None
            }
        }
    }

    /// What has been found out since the last call.
    pub(crate) fn answers(&mut self) -> Vec<Uncovered> {
        let mut found = Vec::new();
        while let Ok((key, why)) = self.answers.try_recv() {
            let known = Knowledge::Known(why.clone());
            let (Some(why), Some(Knowledge::Asked(waiting))) = (why, self.files.insert(key, known))
            else {
                continue;
            };
            let named = |(pid, command)| Uncovered { pid, command, why: why.clone() };
            found.extend(waiting.into_iter().map(named));
        }
        found
    }

    /// Waits for the answers that are still to come.
    pub(crate) fn finish(&mut self) -> Vec<Uncovered> {
        self.questions = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.answers()
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
