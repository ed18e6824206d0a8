//! The files that a report goes to: opened before the command starts, so that nothing runs for a report that
//! can't be written, and written when it is over.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::output::Named;

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

impl Files {
    /// Opens both. What stands in them stays until they are written.
    pub(super) fn open(output: Option<&Path>, json: Option<&Path>) -> Result<Files, Error> {
        let open = |path: Option<&Path>| path.map(Target::open).transpose();
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
        regular.for_each(|json| drop(json.file.set_len(0)));
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
    file: File,
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
    fn open(path: &Path) -> anyhow::Result<Target> {
        let name = || format!("cannot write to {}", path.display());
        let is_new = fs::symlink_metadata(path).is_err();
        let mut options = OpenOptions::new();
        let file =
            options.write(true).create(true).truncate(false).open(path).with_context(name)?;
        let metadata = file.metadata().with_context(name)?;
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

    /// Writes it whole, in the place of what was there.
    pub(super) fn write(
        &self,
        write: impl FnOnce(&mut BufWriter<Named<&File>>) -> io::Result<()>,
    ) -> io::Result<()> {
        let name = self.path.display().to_string();
        if self.is_regular {
            let failed = |error| io::Error::other(format!("cannot write to {name}: {error}"));
            self.file.set_len(0).map_err(failed)?;
        }
        let mut out = BufWriter::new(Named::new(name, &self.file));
        write(&mut out)?;
        out.flush()
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
        let open = || Files::open(Some(&old), Some(&new)).ok().unwrap();
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
        assert!(matches!(Files::open(Some(&one), Some(&other)), Err(Error::Same(_))));
        assert!(!one.exists(), "what was made for nothing is gone");
        let device = Path::new("/dev/null");
        assert!(Files::open(Some(device), Some(device)).is_ok());
    }

    #[test]
    fn a_file_that_cannot_be_made_is_told_by_name() {
        let nowhere = Path::new("/nowhere/at/all");
        let Err(Error::Unwritable(error)) = Files::open(Some(nowhere), None) else { panic!() };
        assert!(format!("{error:#}").starts_with("cannot write to /nowhere/at/all: "), "{error:#}");
    }
}
