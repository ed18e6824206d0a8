//! Starts the command with the capture library preloaded and the session in its environment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use heaptape_proc::{Obstacle, elf};
use heaptape_wire::session::SESSION_VARIABLE;

use crate::Error;
use crate::image::Image;
use crate::limits::{self, Limits};
use crate::obstacle::{self, find};
use crate::signals::Signals;

/// What to start and how.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// The capture library's file; its path must hold no blank and no colon.
    pub library: PathBuf,
    /// Starts the command without address space randomisation, so that two runs give the same
    /// addresses.
    pub no_aslr: bool,
    /// Sets `PYTHONMALLOC=malloc`, so that each Python object is a heap call of its own.
    pub python_malloc: bool,
}

impl Launch {
    /// The command as one line, for messages.
    pub(crate) fn name(&self) -> String {
        self.command.first().map(|c| c.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Says what is in the way before anything is made: no such command, not executable.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let name = self.name();
        let Some(path) = self.file() else { return Err(Error::NotFound { command: name }) };
        if path.is_dir() {
            return Err(Error::NotExecutable {
                command: name,
                why: Obstacle::Directory.to_string(),
            });
        }
        if rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_err() {
            let why = Obstacle::NotExecutable.to_string();
            return Err(Error::NotExecutable { command: name, why });
        }
        Ok(())
    }

    /// Why the command itself can't be covered, as one phrase, if that shows beforehand.
    pub fn obstacle(&self) -> Option<String> {
        obstacle::shown(&self.file()?)
    }

    /// Starts the command. `entrance`: of the control group that it enters before it begins.
    pub(crate) fn spawn(
        &self,
        session: &Path,
        limits: Limits,
        entrance: Option<RawFd>,
    ) -> Result<Child, Error> {
        let last = move || {
            entrance.map_or(Ok(()), enter)?;
            limits.restore()?;
            Signals::hand_over();
            Ok(())
        };
        let mut command =
            self.prepared(Some(session), last).map_err(|error| self.refused(error))?;
        command.spawn().map_err(|error| self.refused(error))
    }

    /// Becomes the command; with a session it is recorded. Returns only when that fails.
    pub(crate) fn become_it(&self, session: Option<&Path>) -> Error {
        let prepared = self.prepared(session, || {
            limits::as_found();
            Ok(())
        });
        match prepared {
            Ok(mut command) => self.refused(command.exec()),
            Err(error) => self.refused(error),
        }
    }

    /// The command with its environment; `last` runs just before it begins.
    fn prepared(
        &self,
        session: Option<&Path>,
        last: impl Fn() -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<Command> {
        let environment = self.environment(session);
        let image = self.image(&environment)?;
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).env_clear().envs(environment);
        let no_aslr = self.no_aslr;
        let prepare = move || {
            if no_aslr {
                disable_randomisation()?;
            }
            last()?;
            image.as_ref().map_or(Ok(()), |image| Err(image.exec()))
        };
        // SAFETY: before exec only system calls are made.
        unsafe { command.pre_exec(prepare) };
        Ok(command)
    }

    /// The command's file, where there is one.
    pub fn file(&self) -> Option<PathBuf> {
        find(self.command.first()?, Path::new(""))
    }

    /// The command as an image if it is one for the kernel, and never for a shell.
    fn image(&self, environment: &BTreeMap<OsString, OsString>) -> io::Result<Option<Image>> {
        let is_elf = |path: &PathBuf| {
            matches!(elf::target(path), Ok(Some(_)) | Err(heaptape_proc::Error::Elf { .. }))
        };
        let path = self.file().filter(is_elf);
        path.map(|path| Image::new(&path, &self.command, environment)).transpose()
    }

    /// Ours, with what the command needs to be recorded.
    fn environment(&self, session: Option<&Path>) -> BTreeMap<OsString, OsString> {
        let mut all: BTreeMap<_, _> = std::env::vars_os().collect();
        if let Some(session) = session {
            all.insert("LD_PRELOAD".into(), self.preload());
            all.insert(SESSION_VARIABLE.into(), session.into());
        }
        if self.python_malloc {
            all.insert("PYTHONMALLOC".into(), "malloc".into());
        }
        all
    }

    /// Ours first, then what the user preloads.
    fn preload(&self) -> OsString {
        let mut value = self.library.clone().into_os_string();
        if let Some(theirs) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
            value.push(":");
            value.push(theirs);
        }
        value
    }

    fn refused(&self, error: io::Error) -> Error {
        if error.raw_os_error() == Some(NOT_LET_IN) {
            return Error::Outside;
        }
        // That is what we need for starting it, and says nothing of the command.
        if let Some(libc::EMFILE | libc::ENFILE | libc::EAGAIN | libc::ENOMEM) =
            error.raw_os_error()
        {
            return Error::System { what: "starting the command", source: error };
        }
        let why = match error.raw_os_error() {
            Some(libc::ENOENT) => {
                "its interpreter, named in its first line or in its ELF header, is missing".into()
            }
            Some(libc::ENOEXEC) => {
                let shown = self.file().and_then(|path| obstacle::shown(&path));
                shown.unwrap_or_else(|| "it is damaged, or not a program of this system".into())
            }
            _ => error.to_string(),
        };
        Error::NotExecutable { command: self.name(), why }
    }
}

/// Stands for the refusal of a control group: no exec fails so.
const NOT_LET_IN: i32 = libc::ECANCELED;

/// Enters the control group with this entrance.
fn enter(entrance: RawFd) -> io::Result<()> {
    // SAFETY: writes one byte of a constant.
    match unsafe { libc::write(entrance, c"0".as_ptr().cast(), 1) } {
        1 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(NOT_LET_IN)),
    }
}

fn disable_randomisation() -> io::Result<()> {
    const ADDR_NO_RANDOMIZE: libc::c_ulong = 0x0040000;
    // SAFETY: changes a flag of this process alone.
    match unsafe { libc::personality(ADDR_NO_RANDOMIZE) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A command line for the tape.
pub(crate) fn texts<S: AsRef<OsStr>>(words: &[S]) -> Vec<String> {
    words.iter().map(|word| word.as_ref().to_string_lossy().into_owned()).collect()
}
