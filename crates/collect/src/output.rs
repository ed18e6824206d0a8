//! The tape's file: opened before anything is started, named for good once the command's pid is known.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::Error;

/// Where the tape goes.
#[derive(Clone, Debug)]
pub enum Output {
    /// To this file, which it replaces. `%p` stands for the command's pid.
    Named(PathBuf),
    /// To `STEM.PID.tape` in this directory; a file that is there stays, and the tape becomes
    /// `STEM.PID-2.tape`.
    Chosen {
        /// The directory.
        directory: PathBuf,
        /// The command's name.
        stem: String,
    },
    /// To `STEM.tape` in this directory; a file that is there stays, and the tape becomes
    /// `STEM-2.tape`.
    Aside {
        /// The directory.
        directory: PathBuf,
        /// What the tape is of.
        stem: String,
    },
}

/// The open file under its present name.
pub(crate) struct OpenOutput {
    pub(crate) file: File,
    path: PathBuf,
    plan: Output,
}

impl Output {
    /// Opens the file, under a name for the time being where the pid belongs into the name.
    pub(crate) fn open(&self) -> Result<OpenOutput, Error> {
        let path = match self {
            Output::Named(path) if !has_pid(path) => path.clone(),
            Output::Named(path) => temporary(path.parent().unwrap_or(Path::new(""))),
            Output::Chosen { directory, .. } | Output::Aside { directory, .. } => {
                temporary(directory)
            }
        };
        if fs::metadata(&path).is_ok_and(|meta| !meta.is_file()) {
            // A pipe nobody reads would stop the recording for ever, and a tape is read from its end.
            return Err(Error::NoFile { path: self.shown(&path) });
        }
        let file = match open_alone(&path) {
            Ok(Some(file)) => file,
            Ok(None) => return Err(Error::Taken { path: self.shown(&path) }),
            Err(source) => return Err(self.refused(&path, source)),
        };
        if let Err(full) = take_room(&file) {
            let refused = self.refused(&path, full);
            OpenOutput { file, path, plan: self.clone() }.discard();
            return Err(refused);
        }
        Ok(OpenOutput { file, path, plan: self.clone() })
    }

    /// The tape can't be made at `path`. A name that nobody has asked for is not shown.
    fn refused(&self, path: &Path, source: io::Error) -> Error {
        match self {
            Output::Chosen { directory, .. } => {
                Error::Directory { directory: directory.clone(), source }
            }
            _ => Error::Output { path: self.shown(path), source },
        }
    }

    /// The name to show when it can't be opened.
    fn shown(&self, path: &Path) -> PathBuf {
        match self {
            Output::Named(named) => named.clone(),
            Output::Chosen { .. } => path.to_owned(),
            Output::Aside { directory, stem } => directory.join(format!("{stem}.tape")),
        }
    }
}

/// Opens a file that no other recording writes, empty; `None` when one does.
fn open_alone(path: &Path) -> io::Result<Option<File>> {
    loop {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        // Held as long as somebody has the file open; file systems without locks take their chance.
        if let Err(Errno::WOULDBLOCK) =
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
        {
            return Ok(None);
        }
        // Who had it before us may have removed it meanwhile.
        let is_same = |meta: fs::Metadata| {
            file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (meta.dev(), meta.ino()))
        };
        if fs::metadata(path).is_ok_and(is_same) {
            file.set_len(0)?;
            return Ok(Some(file));
        }
    }
}

/// Room for the shortest tape; a disk that is full already shows here.
pub(crate) const LEAST_BYTES: u64 = 16 << 10;

fn take_room(file: &File) -> io::Result<()> {
    let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, keep, 0, LEAST_BYTES) {
        Err(error @ (Errno::NOSPC | Errno::DQUOT)) => Err(error.into()),
        // Pipes, devices and some file systems have no such call.
        _ => Ok(()),
    }
}

fn has_pid(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains("%p"))
}

fn temporary(directory: &Path) -> PathBuf {
    directory.join(format!(".heaptape.{}.tape", std::process::id()))
}

impl OpenOutput {
    /// Gives the file its final name.
    pub(crate) fn settle(&mut self, pid: u32) -> io::Result<()> {
        let target = match &self.plan {
            Output::Named(path) if !has_pid(path) => return Ok(()),
            Output::Named(path) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let target = path.with_file_name(name.replace("%p", &pid.to_string()));
                fs::rename(&self.path, &target)?;
                target
            }
            Output::Chosen { directory, stem } => {
                rename_aside(&self.path, directory, &format!("{stem}.{pid}"))?
            }
            Output::Aside { directory, stem } => rename_aside(&self.path, directory, stem)?,
        };
        self.path = target;
        Ok(())
    }

    /// The present name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes a tape that was never begun.
    pub(crate) fn discard(self) {
        let is_regular = self.file.metadata().is_ok_and(|meta| meta.is_file());
        if is_regular {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Renames to the first free of `BASE.tape`, `BASE-2.tape`, `BASE-3.tape`, …
fn rename_aside(from: &Path, directory: &Path, base: &str) -> io::Result<PathBuf> {
    for number in 1u32.. {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let target = directory.join(format!("{base}{suffix}.tape"));
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, &target, flags) {
            Ok(()) => return Ok(target),
            Err(Errno::EXIST) => continue,
            Err(Errno::INVAL | Errno::NOSYS) if !target.exists() => {
                return fs::rename(from, &target).map(|()| target);
            }
            Err(Errno::INVAL | Errno::NOSYS) => continue,
            Err(error) => return Err(error.into()),
        }
    }
    unreachable!("there are fewer files than numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_name_never_replaces_a_file_and_a_given_one_does() {
        let directory =
            std::env::temp_dir().join(format!("heaptape-output-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let chosen = Output::Chosen { directory: directory.clone(), stem: "ls".into() };
        for expected in ["ls.7.tape", "ls.7-2.tape", "ls.7-3.tape"] {
            let mut output = chosen.open().unwrap();
            output.settle(7).unwrap();
            assert_eq!(output.path(), directory.join(expected));
        }
        let named = Output::Named(directory.join("run-%p.tape"));
        for _ in 0..2 {
            let mut output = named.open().unwrap();
            output.settle(8).unwrap();
            assert_eq!(output.path(), directory.join("run-8.tape"));
        }
        let missing = Output::Named(directory.join("no/such/directory.tape"));
        let error = missing.open().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("no/such/directory.tape"), "{error}");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 4);
        fs::remove_dir_all(&directory).unwrap();
    }
}
