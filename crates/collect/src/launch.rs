//! Starts the command with the capture library preloaded and the session in its environment.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use heaptape_proc::elf::{self, Executable, Libc, Linkage, X86_64};
use heaptape_wire::session::SESSION_VARIABLE;

use crate::Error;
use crate::intents::find;
use crate::limits::{self, Limits};

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
        let Some(path) = find(&name) else { return Err(Error::NotFound { command: name }) };
        if path.is_dir() {
            return Err(Error::NotExecutable { command: name, why: "it is a directory".into() });
        }
        if rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_err() {
            let why = "it is not executable (chmod +x would make it so)".into();
            return Err(Error::NotExecutable { command: name, why });
        }
        Ok(())
    }

    /// Why the command itself can't be covered, as one phrase, if that shows beforehand.
    pub(crate) fn obstacle(&self) -> Option<String> {
        let path = find(&self.name())?;
        obstacle(&elf::kind(&program_of(path)?).ok()?)
    }

    /// Starts the command.
    pub(crate) fn spawn(&self, session: &Path, limits: Limits) -> Result<Child, Error> {
        let mut command = self.prepared(Some(session), move || limits.restore());
        command.spawn().map_err(|error| self.refused(error))
    }

    /// Becomes the command; with a session it is recorded. Returns only when that fails.
    pub(crate) fn become_it(&self, session: Option<&Path>) -> Error {
        let mut command = self.prepared(session, || {
            limits::close_streams();
            Ok(())
        });
        self.refused(command.exec())
    }

    /// The command with its environment; `last` runs just before it begins.
    fn prepared(
        &self,
        session: Option<&Path>,
        last: impl Fn() -> io::Result<()> + Send + Sync + 'static,
    ) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        if let Some(session) = session {
            command.env("LD_PRELOAD", self.preload()).env(SESSION_VARIABLE, session);
        }
        if self.python_malloc {
            command.env("PYTHONMALLOC", "malloc");
        }
        let no_aslr = self.no_aslr;
        let prepare = move || {
            if no_aslr {
                disable_randomisation()?;
            }
            last()
        };
        // SAFETY: before exec only system calls are made.
        unsafe { command.pre_exec(prepare) };
        command
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
        let why = match error.kind() {
            io::ErrorKind::NotFound => {
                "its interpreter, named in its first line or in its ELF header, is missing".into()
            }
            _ => error.to_string(),
        };
        Error::NotExecutable { command: self.name(), why }
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

/// The file that the kernel runs: the interpreter, where the command is a script.
fn program_of(path: PathBuf) -> Option<PathBuf> {
    match elf::kind(&path).ok()? {
        Executable::Script(script) => find(&script.interpreter.to_string_lossy()),
        _ => Some(path),
    }
}

/// Why the capture library can't get into such a file, or sees nothing there.
pub(crate) fn obstacle(kind: &Executable) -> Option<String> {
    let Executable::Elf(elf) = kind else { return None };
    let why = match &elf.linkage {
        _ if elf.bits != 64 || elf.machine != X86_64 => {
            "it is built for another architecture than x86-64"
        }
        Linkage::Static => "it is statically linked, and nothing can be preloaded into it",
        Linkage::Dynamic { libc: Libc::Musl, .. } => "it uses musl, and heaptape needs glibc",
        Linkage::Dynamic { libc: Libc::Other, .. } => "its C library is not glibc",
        Linkage::Dynamic { libc: Libc::Glibc, .. } => return None,
    };
    Some(why.into())
}

/// A command line for the tape.
pub(crate) fn texts<S: AsRef<OsStr>>(words: &[S]) -> Vec<String> {
    words.iter().map(|word| word.as_ref().to_string_lossy().into_owned()).collect()
}
