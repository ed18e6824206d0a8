//! A command as the kernel runs it: the file that PATH leads to, the interpreters of scripts, the
//! executable in the end.
//!
//! Only headers, symbols and metadata of files are read. Nothing is run.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::elf::{self, Elf, Executable};
use crate::{Error, Obstacle};

/// The most scripts that may name one another as interpreters. The kernel allows five.
const DEPTH: usize = 6;
/// What runs a text file that does not name its interpreter.
const SHELL: &str = "/bin/sh";

/// Where commands are looked for.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The value of PATH.
    pub path: &'a OsStr,
    /// What a name with a slash in it starts from.
    pub directory: &'a Path,
}

/// A command that was found, as far as it could be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The file that the name leads to.
    pub file: Option<PathBuf>,
    /// The scripts on the way, each read by the next or by the executable.
    pub scripts: Vec<PathBuf>,
    /// The file that is loaded in the end.
    pub executable: Option<PathBuf>,
    /// What its headers and symbols say.
    pub elf: Option<Elf>,
    /// The rights that it gets from its file.
    pub rights: Option<Rights>,
    /// What keeps the capture library out of it, or it from starting.
    pub obstacle: Option<Obstacle>,
}

/// Rights that a program gets from its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Those of the file's owner.
    Setuid,
    /// Those of the file's group.
    Setgid,
    /// Capabilities.
    Capabilities,
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rights::Setuid => "a setuid program",
            Rights::Setgid => "a setgid program",
            Rights::Capabilities => "a program with file capabilities (a kind of setuid program)",
        })
    }
}

impl Rights {
    /// The word for them.
    pub const fn name(self) -> &'static str {
        match self {
            Rights::Setuid => "setuid",
            Rights::Setgid => "setgid",
            Rights::Capabilities => "capabilities",
        }
    }

    /// Those that a file may give to anyone.
    pub fn of(path: &Path) -> Option<Rights> {
        let mode = path.metadata().ok()?.permissions().mode();
        if mode & 0o4000 != 0 {
            Some(Rights::Setuid)
        } else if mode & 0o2010 == 0o2010 {
            Some(Rights::Setgid)
        } else {
            let found = rustix::fs::getxattr(path, c"security.capability", &mut [0u8; 64]);
            found.is_ok().then_some(Rights::Capabilities)
        }
    }

    /// Whether they are more than this process has, so that the loader ignores `LD_PRELOAD`.
    fn are_gained(self, path: &Path) -> bool {
        let Ok(meta) = path.metadata() else { return false };
        let uid = rustix::process::getuid();
        match self {
            Rights::Setuid => meta.uid() != uid.as_raw(),
            Rights::Setgid => meta.gid() != rustix::process::getgid().as_raw(),
            Rights::Capabilities => !uid.is_root(),
        }
    }
}

/// A file by its name: in PATH where it has no slash, else as seen from the directory.
pub fn find(name: &OsStr, place: Place<'_>) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(place.directory.join(name)).filter(|path| path.exists());
    }
    let directories = std::env::split_paths(place.path);
    directories.map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// The file that the kernel loads for this one: the interpreter, where it is a script.
///
/// The symbols of an ELF file, which take time, are not looked at.
pub fn loaded(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..DEPTH {
        if elf::target(&path).ok()?.is_some() {
            return Some(path);
        }
        match elf::kind(&path).ok()? {
            Executable::Script(script) => path = script.interpreter,
            _ => return Some(path),
        }
    }
    None
}

impl Program {
    /// Follows a command by its name.
    pub fn of(name: &OsStr, place: Place<'_>) -> Program {
        let mut program = Program {
            file: find(name, place),
            scripts: Vec::new(),
            executable: None,
            elf: None,
            rights: None,
            obstacle: None,
        };
        program.obstacle = program.follow(place).err();
        program
    }

    fn follow(&mut self, place: Place<'_>) -> Result<(), Obstacle> {
        let mut file = self.file.clone().ok_or(Obstacle::NotFound)?;
        check(&file)?;
        for _ in 0..DEPTH {
            match elf::kind(&file).map_err(damage)? {
                Executable::Elf(elf) => return self.arrive(file, *elf),
                Executable::Script(script) => {
                    let env = script.through_env().map(OsString::from);
                    let through = env.and_then(|name| find(&name, place));
                    let next = through.unwrap_or(script.interpreter);
                    self.scripts.push(std::mem::replace(&mut file, next));
                }
                Executable::Other => self.scripts.push(std::mem::replace(&mut file, SHELL.into())),
            }
            check(&file).map_err(|_| Obstacle::Interpreter(file.clone()))?;
        }
        Err(Obstacle::EndlessScript)
    }

    fn arrive(&mut self, file: PathBuf, elf: Elf) -> Result<(), Obstacle> {
        let (rights, obstacle) = (Rights::of(&file), Obstacle::of_elf(&elf));
        let gained = rights.filter(|rights| rights.are_gained(&file));
        let loader = match &elf.target.linkage {
            elf::Linkage::Dynamic { loader, .. } if !loader.exists() => Some(loader.clone()),
            _ => None,
        };
        (self.executable, self.elf, self.rights) = (Some(file), Some(elf), rights);
        let missing = loader.map(Obstacle::Interpreter);
        let obstacle = match obstacle {
            Some(stops) if stops.stops_the_start() => Some(stops),
            other => missing.or(gained.map(Obstacle::Privileged)).or(other),
        };
        obstacle.map_or(Ok(()), Err)
    }
}

/// Whether a file may be executed.
fn check(path: &Path) -> Result<(), Obstacle> {
    match path.metadata() {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Obstacle::Unreadable),
        Err(_) => Err(Obstacle::NotFound),
        Ok(meta) if meta.is_dir() => Err(Obstacle::Directory),
        Ok(meta) if !meta.is_file() => Err(Obstacle::NotExecutable),
        Ok(_) => rustix::fs::access(path, rustix::fs::Access::EXEC_OK)
            .map_err(|_| Obstacle::NotExecutable),
    }
}

fn damage(error: Error) -> Obstacle {
    match error {
        Error::Elf { reason, .. } => Obstacle::Damaged(reason),
        _ => Obstacle::Unreadable,
    }
}
