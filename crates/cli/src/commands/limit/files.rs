//! The files that a report goes to: opened before the command starts, so that nothing runs for a report that
//! can't be written, and written when it is over: beside their names first, so that nobody finds a part of one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::OFlags;

use crate::output::{Named, by_limit};

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As for a terminal.
    Text,
    /// As Markdown.
    Markdown,
}

/// Why there are no such files.
pub(super) enum Error {
    /// The report and the JSON would be one file.
    Same(String),
    /// One can't be made or written.
    Unwritable(anyhow::Error),
}

/// Where a report goes beside stderr.
pub(super) struct Files {
    /// The text.
    pub(super) output: Option<Target>,
    /// The JSON.
    pub(super) json: Option<Target>,
}

/// What is done about a named pipe that nobody reads yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pipes {
    /// It is waited for a reader.
    Wait,
    /// There has to be a reader when the report is written.
    Later,
}

impl Files {
    /// Opens both. What stands in them stays until they are written.
    pub(super) fn open(
        output: Option<&Path>,
        json: Option<&Path>,
        pipes: Pipes,
    ) -> Result<Files, Error> {
        let open = |path: Option<&Path>| path.map(|path| Target::open(path, pipes)).transpose();
        let mut files = Files { output: open(output).map_err(Error::Unwritable)?, json: None };
        match open(json) {
            Ok(json) => files.json = json,
            Err(error) => {
                files.discard();
                return Err(Error::Unwritable(error));
            }
        }
        if let (Some(output), Some(json)) = (&files.output, &files.json)
            && output.identity == json.identity
            && output.is_regular
        {
            let (output, json) = (output.path.display(), json.path.display());
            let sentence = format!("--output {output} and --json {json} are the same file");
            files.discard();
            return Err(Error::Same(sentence));
        }
        Ok(files)
    }

    /// The command is about to start: a JSON of an earlier job is gone, so that it is not taken for this one's
    /// where we are killed.
    pub(super) fn begin(&self) {
        // What can't be emptied can't be written either, and that is told at the end.
        let regular = self.json.iter().filter(|json| json.is_regular);
        regular.filter_map(|json| json.file.as_ref()).for_each(|file| drop(file.set_len(0)));
    }

    /// Closes them, for who becomes another process.
    pub(super) fn close(self) -> Closed {
        let new = [self.output, self.json].into_iter().flatten().filter(|target| target.is_new);
        Closed { new: new.map(|target| target.path).collect() }
    }

    /// Removes what was made for nothing.
    pub(super) fn discard(self) {
        self.close().discard();
    }
}

/// The files by their names.
pub(super) struct Closed {
    /// Those that were not there before.
    new: Vec<PathBuf>,
}

impl Closed {
    /// Removes what was made for nothing.
    pub(super) fn discard(self) {
        for path in &self.new {
            // It is empty; where it can't be removed that is all the harm.
            let _ = fs::remove_file(path);
        }
    }
}

/// A file that is open.
pub(super) struct Target {
    path: PathBuf,
    /// `None` for a pipe that is opened when there is something to write.
    file: Option<File>,
    /// How it is to be written.
    pub(super) form: Form,
    /// It was not there before.
    is_new: bool,
    /// It is no device and no pipe.
    is_regular: bool,
    /// Which one it is, whatever its name: device and inode.
    identity: (u64, u64),
}

impl Target {
    fn open(path: &Path, pipes: Pipes) -> anyhow::Result<Target> {
        let name = || format!("cannot write to {}", path.display());
        let is_new = fs::symlink_metadata(path).is_err();
        let pipe = fs::metadata(path).ok().filter(|_| pipes == Pipes::Later);
        let (file, metadata) = match pipe.filter(|pipe| pipe.file_type().is_fifo()) {
            Some(pipe) => (None, pipe),
            None => {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(false);
                let file = options.open(path).with_context(name)?;
                let metadata = file.metadata().with_context(name)?;
                (Some(file), metadata)
            }
        };
        let ending = path.extension().and_then(|ending| ending.to_str());
        Ok(Target {
            path: path.to_owned(),
            form: if ending == Some("md") { Form::Markdown } else { Form::Text },
            is_new,
            is_regular: metadata.is_file(),
            identity: (metadata.dev(), metadata.ino()),
            file,
        })
    }

    /// Writes it whole, in the place of what was there; where that fails and it is a file, that is empty.
    pub(super) fn write(
        &self,
        write: impl FnOnce(&mut BufWriter<Named<&File>>) -> io::Result<()>,
    ) -> io::Result<()> {
        let put = |file: &File| {
            let mut out = BufWriter::new(Named::new(self.path.display().to_string(), file));
            write(&mut out).and_then(|()| out.flush())
        };
        let Some(file) = &self.file else { return put(&self.pipe()?) };
        if !self.is_regular {
            return put(file);
        }
        let beside = if self.is_there() {
            Beside::of(self).map(Ok)
        } else {
            Some(Beside::again(&self.path).map_err(|error| self.failed(&error)))
        };
        let written = match beside {
            Some(Ok(beside)) => {
                put(&beside.file).and_then(|()| beside.settle().map_err(|e| self.failed(&e)))
            }
            Some(Err(error)) => Err(error),
            None => file.set_len(0).map_err(|error| self.failed(&error)).and_then(|()| put(file)),
        };
        if written.is_err() {
            // What is left of it could be taken for the whole, and an earlier job's for this one's.
            let _ = file.set_len(0);
        }
        written
    }

    /// Whether its name still leads to it: a process of the job may have removed it, or put another file in its place.
    fn is_there(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == self.identity)
    }

    fn failed(&self, error: &io::Error) -> io::Error {
        let (name, why) = (self.path.display(), by_limit(error));
        io::Error::other(format!("cannot write to {name}: {error}{why}"))
    }

    /// The pipe that was not opened yet, if somebody reads it.
    fn pipe(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let open = options.write(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
        let file = open.open(&self.path).map_err(|error| match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::NXIO.raw_os_error() => io::Error::other(
                format!("cannot write to {}: nobody reads this pipe", self.path.display()),
            ),
            _ => self.failed(&error),
        })?;
        rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
        Ok(file)
    }
}

/// A file beside the one that is to be written, to take its place when it is whole.
struct Beside {
    file: File,
    path: PathBuf,
    target: PathBuf,
    is_settled: bool,
}

impl Beside {
    /// `None` where that can't be, or the file that is there would not be replaced by one of its kind: it has
    /// other names, is another user's, or was named by a descriptor.
    fn of(target: &Target) -> Option<Beside> {
        let whole = fs::canonicalize(&target.path).ok().filter(|_| target.is_regular)?;
        let given = fs::canonicalize(target.path.parent()?.join(".")).ok()?;
        if given == Path::new("/dev") || given.starts_with("/proc") {
            return None;
        }
        let old = fs::metadata(&whole).ok()?;
        let own = rustix::process::geteuid().as_raw();
        if old.nlink() != 1 || old.uid() != own {
            return None;
        }
        let name = whole.file_name()?.to_str()?;
        let path = whole.with_file_name(format!(".{name}.{}", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).open(&path).ok()?;
        let beside = Beside { file, path, target: whole, is_settled: false };
        beside.file.set_permissions(old.permissions()).ok()?;
        let is_alike = beside.file.metadata().is_ok_and(|new| new.gid() == old.gid());
        is_alike.then_some(beside)
    }

    /// One that takes its name back from whatever is there now.
    fn again(target: &Path) -> io::Result<Beside> {
        let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
        let path = target.with_file_name(format!(".{name}.{}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok(Beside { file, path, target: target.to_owned(), is_settled: false })
    }

    /// It is whole.
    fn settle(mut self) -> io::Result<()> {
        fs::rename(&self.path, &self.target)?;
        self.is_settled = true;
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.is_settled {
            // Where it can't be removed, its name says whose it was.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_stays_until_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old.md"), folder.path().join("new"));
        fs::write(&old, "a long text that was there before").unwrap();
        let open = || Files::open(Some(&old), Some(&new), Pipes::Wait).ok().unwrap();
        open().discard();
        assert!(!new.exists());
        let files = open();
        assert_eq!(fs::read_to_string(&old).unwrap().len(), 33);
        let output = files.output.unwrap();
        assert_eq!(output.form, Form::Markdown);
        output.write(|out| writeln!(out, "new")).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "new\n");
    }

    #[test]
    fn one_file_is_not_two_whatever_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        std::os::unix::fs::symlink(&one, &other).unwrap();
        assert!(matches!(Files::open(Some(&one), Some(&other), Pipes::Wait), Err(Error::Same(_))));
        assert!(!one.exists(), "what was made for nothing is gone");
        let device = Path::new("/dev/null");
        assert!(Files::open(Some(device), Some(device), Pipes::Wait).is_ok());
    }

    #[test]
    fn a_file_that_cannot_be_made_is_told_by_name() {
        let nowhere = Path::new("/nowhere/at/all");
        let Err(Error::Unwritable(error)) = Files::open(Some(nowhere), None, Pipes::Wait) else {
            panic!()
        };
        assert!(format!("{error:#}").starts_with("cannot write to /nowhere/at/all: "), "{error:#}");
    }

    #[test]
    fn a_report_that_fails_leaves_nothing_of_itself() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, twice) = (folder.path().join("plain"), folder.path().join("twice"));
        for path in [&plain, &twice] {
            fs::write(path, "before").unwrap();
        }
        fs::hard_link(&twice, folder.path().join("other")).unwrap();
        for path in [&plain, &twice] {
            let files = Files::open(Some(path), None, Pipes::Wait).ok().unwrap();
            let fail = |out: &mut BufWriter<Named<&File>>| {
                out.write_all(&[b'x'; 100_000])?;
                Err(io::Error::other("the disk is full"))
            };
            assert!(files.output.unwrap().write(fail).is_err());
            assert_eq!(fs::read_to_string(path).unwrap(), "", "nor what was there before");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing stays beside them");
    }

    #[test]
    fn what_takes_a_files_place_is_like_it_and_stands_at_the_end_of_its_links() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "before").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let files = Files::open(None, Some(&link), Pipes::Wait).ok().unwrap();
        files.json.unwrap().write(|out| writeln!(out, "new")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new\n");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o604);
    }

    #[test]
    fn a_pipe_that_nobody_reads_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        let json = || Files::open(None, Some(&pipe), Pipes::Later).ok().unwrap().json.unwrap();
        let error = json().write(|out| writeln!(out, "lost")).unwrap_err();
        assert!(error.to_string().ends_with("nobody reads this pipe"), "{error}");
        let mut reader = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(&pipe)
            .unwrap();
        json().write(|out| writeln!(out, "read")).unwrap();
        let mut text = String::new();
        io::Read::read_to_string(&mut reader, &mut text).unwrap();
        assert_eq!(text, "read\n");
    }
}
