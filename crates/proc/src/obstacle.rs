//! What keeps the capture library out of a program, and what of a program's calls it cannot see, told
//! from the program's file.
//!
//! Each prints as one phrase about the program ("it is statically linked, …"), which stands behind the
//! program's name in reports and on tapes.

use std::fmt;
use std::path::PathBuf;

use crate::elf::{Elf, Form, Libc, Linkage, Malloc, Private, Target};
use crate::program::Rights;

/// Why a program can't be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// There is no such file.
    NotFound,
    /// It is a directory.
    Directory,
    /// It may not be executed by us.
    NotExecutable,
    /// It may not be read by us.
    Unreadable,
    /// It begins like an ELF file and is none.
    Damaged(String),
    /// It is an ELF file that no kernel starts.
    NotProgram(Form),
    /// The program that reads the script, or loads the program, is not there.
    Interpreter(PathBuf),
    /// Its interpreter is a script in its turn, and so on without an end.
    EndlessScript,
    /// It is for another machine, by this name.
    Architecture(String),
    /// There is no loader that could preload anything.
    Static {
        /// Whether it is written in Go.
        is_go: bool,
    },
    /// It uses another C library.
    Libc {
        /// Which.
        libc: Libc,
        /// Its loader.
        loader: PathBuf,
    },
    /// It gets rights that its user has not, and the loader ignores `LD_PRELOAD`.
    Privileged(Rights),
}

impl Obstacle {
    /// What the headers of an ELF file show.
    pub fn of(target: &Target) -> Option<Obstacle> {
        match &target.linkage {
            _ if !target.is_ours() => Some(Obstacle::Architecture(target.architecture())),
            Linkage::Static { is_go } => Some(Obstacle::Static { is_go: *is_go }),
            Linkage::Dynamic { libc: Libc::Glibc, .. } => None,
            Linkage::Dynamic { libc, loader } => {
                Some(Obstacle::Libc { libc: *libc, loader: loader.clone() })
            }
        }
    }

    /// What all of an ELF file shows: [`Obstacle::of`] with the reason that lies deeper.
    pub fn of_elf(elf: &Elf) -> Option<Obstacle> {
        match (elf.form, Obstacle::of(&elf.target)) {
            (Form::Executable | Form::Pie, obstacle) => obstacle,
            (_, Some(other @ Obstacle::Architecture(_))) => Some(other),
            (form, _) => Some(Obstacle::NotProgram(form)),
        }
    }

    /// Whether the program can't even be started.
    pub fn stops_the_start(&self) -> bool {
        !matches!(
            self,
            Obstacle::Static { .. }
                | Obstacle::Libc { .. }
                | Obstacle::Privileged(_)
                | Obstacle::Unreadable
        )
    }

    /// What to do about it, as a sentence.
    pub fn advice(&self) -> String {
        match self {
            Obstacle::NotFound => "Check the name, and PATH.".into(),
            Obstacle::Directory => "Name a program in it.".into(),
            Obstacle::NotExecutable => "chmod +x makes it so.".into(),
            Obstacle::Unreadable => "Run heaptape as a user who may read it.".into(),
            Obstacle::Damaged(_) => "Get or build it again.".into(),
            Obstacle::NotProgram(_) => "Name a program.".into(),
            Obstacle::Interpreter(path) => format!("Install what has {}.", path.display()),
            Obstacle::EndlessScript => "Correct its first line.".into(),
            Obstacle::Architecture(_) => "Build it for x86-64.".into(),
            Obstacle::Static { is_go: true } => {
                "Go has a profiler of its own (runtime/pprof) for its heap.".into()
            }
            Obstacle::Static { is_go: false } => "Link it dynamically (without -static).".into(),
            Obstacle::Libc { .. } => "Build it against glibc.".into(),
            Obstacle::Privileged(_) => {
                "Record a copy of it without these rights, as a user who has them.".into()
            }
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::NotFound => f.write_str("there is no such command"),
            Obstacle::Directory => f.write_str("it is a directory"),
            Obstacle::NotExecutable => {
                f.write_str("it is not executable (chmod +x would make it so)")
            }
            Obstacle::Unreadable => f.write_str("it can't be read"),
            Obstacle::Damaged(reason) => write!(f, "it is damaged ({reason})"),
            Obstacle::NotProgram(form) => write!(f, "it is {}, and no program", a(*form)),
            Obstacle::Interpreter(path) => write!(
                f,
                "its interpreter, named in its first line or in its ELF header, is missing ({})",
                path.display()
            ),
            Obstacle::EndlessScript => {
                f.write_str("it is a script whose interpreter is a script, and so on")
            }
            Obstacle::Architecture(name) => {
                write!(f, "it is built for another architecture than x86-64 ({name})")
            }
            Obstacle::Static { is_go: true } => f.write_str(
                "it is written in Go and statically linked, and nothing can be preloaded into it",
            ),
            Obstacle::Static { is_go: false } => {
                f.write_str("it is statically linked, and nothing can be preloaded into it")
            }
            Obstacle::Libc { libc: Libc::Musl, .. } => {
                f.write_str("it uses musl, and heaptape needs glibc")
            }
            Obstacle::Libc { loader, .. } => {
                write!(f, "its C library is not glibc (its loader is {})", loader.display())
            }
            Obstacle::Privileged(rights) => write!(f, "it is {rights}, which ignores LD_PRELOAD"),
        }
    }
}

fn a(form: Form) -> &'static str {
    match form {
        Form::Executable | Form::Pie => "an executable",
        Form::Library => "a shared library",
        Form::Object => "an object file",
        Form::Core => "a core dump",
        Form::Other => "an ELF file of an unknown kind",
    }
}

/// What is not seen of the heap calls in a program that the capture library gets into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blind {
    /// The executable defines `malloc`.
    Malloc {
        /// Where that is used.
        malloc: Malloc,
        /// Whose it is, where that shows.
        allocator: Option<&'static str>,
    },
    /// An allocator is linked in under private names.
    Private(Private),
    /// It calls an allocator in a library by this name, which nothing stands in front of.
    Calls(String),
    /// It is written in Go.
    Go,
}

impl Blind {
    /// All that shows in an executable; empty when its heap calls are seen.
    pub fn of(elf: &Elf) -> Vec<Blind> {
        let found = &elf.allocators;
        let mut blind = Vec::new();
        if let Some(malloc) = found.malloc {
            let private = found.private.as_ref().map(|private| private.allocator);
            blind.push(Blind::Malloc { malloc, allocator: found.sanitizer.or(private) });
        } else if let Some(private) = &found.private {
            blind.push(Blind::Private(private.clone()));
        }
        blind.extend(found.calls.clone().map(Blind::Calls));
        if elf.go_build_id.is_some() {
            blind.push(Blind::Go);
        }
        blind
    }
}

impl fmt::Display for Blind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blind::Malloc { malloc, allocator } => {
                let of = allocator.map(|name| format!(" ({name}'s)")).unwrap_or_default();
                match malloc {
                    Malloc::Exported => write!(
                        f,
                        "it defines malloc itself{of}: its heap calls and those of its libraries are not seen"
                    ),
                    Malloc::Hidden => write!(
                        f,
                        "it has a malloc of its own{of}: its heap calls are not seen, those of its libraries are"
                    ),
                }
            }
            Blind::Private(Private { allocator, symbol: Some(symbol) }) => write!(
                f,
                "it has {allocator} linked in under private names ({symbol}): calls of these are not seen"
            ),
            Blind::Private(Private { allocator, symbol: None }) => write!(
                f,
                "it seems to have {allocator} linked in, whose messages it holds: calls of it are not seen"
            ),
            Blind::Calls(name) => {
                write!(f, "it calls {name} in a library by that name: such calls are not seen")
            }
            Blind::Go => f.write_str(
                "it is written in Go, whose runtime maps its memory itself: only the heap calls of C code in it are seen",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::{Allocators, Dynamic};

    fn elf() -> Elf {
        let linkage =
            Linkage::Dynamic { loader: "/lib64/ld-linux-x86-64.so.2".into(), libc: Libc::Glibc };
        Elf {
            target: Target { bits: 64, machine: crate::elf::X86_64, linkage },
            form: Form::Pie,
            allocators: Allocators::default(),
            dynamic: Dynamic::default(),
            build_id: Vec::new(),
            go_build_id: None,
        }
    }

    #[test]
    fn a_plain_program_has_nothing_in_the_way() {
        assert_eq!((Obstacle::of_elf(&elf()), Blind::of(&elf())), (None, Vec::new()));
    }

    #[test]
    fn each_obstacle_is_told_apart() {
        let mut changed = elf();
        changed.target.bits = 32;
        changed.target.machine = 3;
        let phrase = |elf: &Elf| Obstacle::of_elf(elf).map(|o| o.to_string()).unwrap_or_default();
        assert!(phrase(&changed).contains("another architecture than x86-64 (i386)"));
        changed = elf();
        changed.target.linkage = Linkage::Static { is_go: false };
        assert!(phrase(&changed).contains("statically linked"));
        changed.target.linkage = Linkage::Static { is_go: true };
        assert!(phrase(&changed).contains("Go"));
        changed.form = Form::Library;
        assert!(phrase(&changed).contains("a shared library, and no program"));
        changed = elf();
        let loader = "/lib/ld-musl-x86_64.so.1".into();
        changed.target.linkage = Linkage::Dynamic { loader, libc: Libc::Musl };
        assert!(phrase(&changed).contains("musl"));
    }

    #[test]
    fn what_is_not_seen_is_named_once() {
        let mut one = elf();
        one.allocators.private =
            Some(Private { allocator: "jemalloc", symbol: Some("_rjem_malloc".into()) });
        assert!(Blind::of(&one)[0].to_string().contains("private names (_rjem_malloc)"));
        one.allocators.malloc = Some(Malloc::Exported);
        let both = Blind::of(&one);
        assert_eq!(both.len(), 1);
        assert!(both[0].to_string().contains("defines malloc itself (jemalloc's)"), "{}", both[0]);
        one.allocators.calls = Some("mi_malloc".into());
        one.go_build_id = Some("id".into());
        assert_eq!(Blind::of(&one).len(), 3);
    }
}
