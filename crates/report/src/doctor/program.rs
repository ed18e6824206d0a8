//! A command in words: what it is, where its heap calls go, and what of them will be seen.

use std::path::Path;

use heaptape_proc::elf::{Elf, Form, Libc, Linkage, Malloc};
use heaptape_proc::{Allocator, Blind, Library, Obstacle, Program, mpi};

use super::Check;
use crate::text::counted;

/// What was found out about a command.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The command and its arguments, as they were given.
    pub command: Vec<String>,
    /// What it leads to.
    pub program: Program,
    /// The libraries that its loader would load.
    pub libraries: Vec<Library>,
    /// The allocator that its heap calls would go to.
    pub allocator: Option<Allocator>,
}

/// How much of a program's heap calls is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// All.
    All,
    /// Some.
    Part,
    /// None.
    Nothing,
}

impl Seen {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Seen::All => "all",
            Seen::Part => "part",
            Seen::Nothing => "nothing",
        }
    }
}

impl Findings {
    /// What of the executable's heap calls is not seen.
    pub fn blind(&self) -> Vec<Blind> {
        self.program.elf.as_ref().map(Blind::of).unwrap_or_default()
    }

    /// How much will be seen.
    pub fn seen(&self) -> Seen {
        let hides_all =
            |blind: &Blind| matches!(blind, Blind::Malloc { malloc: Malloc::Exported, .. });
        let blind = self.blind();
        if self.program.obstacle.is_some() || blind.iter().any(hides_all) {
            Seen::Nothing
        } else if blind.is_empty() {
            Seen::All
        } else {
            Seen::Part
        }
    }

    /// The sanitizer that comes as a library, and so runs beside ours.
    fn sanitizer(&self) -> Option<&'static str> {
        let found = &self.program.elf.as_ref()?.allocators;
        found.sanitizer.filter(|_| found.malloc.is_none() && self.program.obstacle.is_none())
    }
}

/// All checks of a command, in the order in which they are shown.
pub fn checks(f: &Findings) -> Vec<Check> {
    let mut checks = Vec::new();
    let program = &f.program;
    checks.extend(program.file.as_deref().map(|file| command(f, file)));
    checks.extend(
        program.scripts.iter().map(|path| {
            Check::ok("script", format!("{} is read by an interpreter", path.display()))
        }),
    );
    if let (Some(path), Some(elf)) = (&program.executable, &program.elf) {
        checks.push(executable(path, elf));
        checks.extend(rights(f));
        if program.obstacle.is_none() {
            checks.push(libraries(f));
            checks.extend(message_passing(f));
            checks.push(allocator(f));
            checks.extend(runtime(path));
        }
    }
    checks.extend(f.sanitizer().map(sanitizer));
    checks.extend(f.blind().iter().filter(|_| program.obstacle.is_none()).map(|b| blind(f, b)));
    checks.push(seen(f));
    checks
}

fn command(f: &Findings, file: &Path) -> Check {
    let name = f.command.first().map(String::as_str).unwrap_or_default();
    let file = file.display().to_string();
    Check::ok("command", if file == name { file } else { format!("{name} is {file}") })
}

fn executable(path: &Path, elf: &Elf) -> Check {
    let form = match (elf.form, &elf.target.linkage) {
        (Form::Executable, Linkage::Static { .. }) => "a static program",
        (Form::Pie, Linkage::Static { .. }) => "a static program that can be loaded anywhere",
        (Form::Executable, _) => "a dynamic program",
        (Form::Pie, _) => "a dynamic program that can be loaded anywhere (PIE)",
        (Form::Library, _) => "a shared library",
        (Form::Object, _) => "an object file",
        (Form::Core, _) => "a core dump",
        (Form::Other, _) => "an ELF file of an unknown kind",
    };
    let libc = match &elf.target.linkage {
        Linkage::Static { .. } => String::new(),
        Linkage::Dynamic { libc, loader } => {
            let name = match libc {
                Libc::Glibc => "glibc",
                Libc::Musl => "musl",
                Libc::Other => "another C library",
            };
            format!(", {name} (loader {})", loader.display())
        }
    };
    let go = if elf.go_build_id.is_some() { ", written in Go" } else { "" };
    let (path, target) = (path.display(), elf.target.architecture());
    Check::ok("executable", format!("{path}: {form} for {target}{libc}{go}"))
}

fn rights(f: &Findings) -> Option<Check> {
    let rights = f.program.rights?;
    if matches!(f.program.obstacle, Some(Obstacle::Privileged(_))) {
        return None;
    }
    let finding = format!("{rights}, but it gives you no rights that you have not");
    Some(Check::note("rights", finding).advise("For other users the loader ignores LD_PRELOAD."))
}

fn libraries(f: &Findings) -> Check {
    let missing: Vec<&str> = f
        .libraries
        .iter()
        .filter(|library| library.path.is_none() && !library.preloaded)
        .map(|library| library.name.as_str())
        .collect();
    let count = counted(f.libraries.len() as u64, "library", "libraries");
    if missing.is_empty() {
        return Check::ok("libraries", format!("{count} found"));
    }
    let finding = format!("{count}, of which not found: {}", missing.join(", "));
    Check::note("libraries", finding).advise("Set LD_LIBRARY_PATH as for a run of the program.")
}

fn message_passing(f: &Findings) -> Option<Check> {
    let mut paths = f.libraries.iter().filter_map(|library| library.path.as_deref());
    let (name, path) = paths.find_map(|path| Some((mpi::name_of(path)?, path)))?;
    Some(Check::ok("MPI", format!("{name} ({})", path.display())))
}

fn allocator(f: &Findings) -> Check {
    let own = f.program.elf.as_ref().and_then(|elf| elf.allocators.malloc);
    let finding = match (&f.allocator, own) {
        (_, Some(Malloc::Exported)) => "the executable's own".to_owned(),
        (Some(allocator), _) => {
            let how = if allocator.preloaded { "preloaded by LD_PRELOAD" } else { "its library" };
            format!("{} ({how}: {})", allocator.name, allocator.file.display())
        }
        (None, _) => "n/a: no library of it was found to define malloc".to_owned(),
    };
    Check::ok("allocator", finding)
}

/// Runtimes that hand most of their memory out by themselves, by the beginnings of their names.
fn runtime(path: &Path) -> Option<Check> {
    let name = path.file_name()?.to_str()?;
    let is = |start: &str| name.starts_with(start);
    let (finding, advice) = if is("python") || is("pypy") {
        (
            "Python hands small objects out from blocks of 256 KiB or more",
            Some("record --python-malloc makes each of them a heap call."),
        )
    } else if name == "java" {
        ("the Java heap is mapped by the JVM itself: its objects are no heap calls", None)
    } else if name == "node" || is("chrom") {
        ("JavaScript objects live in memory that V8 maps itself: they are no heap calls", None)
    } else if name == "dotnet" || name == "mono" {
        (
            "managed objects live in memory that the runtime maps itself: they are no heap calls",
            None,
        )
    } else {
        return None;
    };
    let check = Check::note("runtime", finding);
    Some(match advice {
        Some(advice) => check.advise(advice),
        None => check,
    })
}

fn sanitizer(name: &'static str) -> Check {
    // The runtimes of these stand behind a preloaded library, and with gcc were tried there.
    const TRIED: [&str; 3] = ["AddressSanitizer", "LeakSanitizer", "ThreadSanitizer"];
    if TRIED.contains(&name) {
        let finding = format!(
            "it is built with {name}, which finds what it finds; its calls are seen, and the slack of its blocks counts as 0"
        );
        return Check::note("sanitizer", finding);
    }
    let finding = format!(
        "it is built with {name}, of which it is not known whether it starts behind a preloaded library"
    );
    Check::note("sanitizer", finding).advise("If it does not, record a build without -fsanitize.")
}

fn blind(f: &Findings, blind: &Blind) -> Check {
    let is_sanitized = f.program.elf.as_ref().is_some_and(|elf| elf.allocators.sanitizer.is_some());
    let advice = match blind {
        Blind::Malloc { .. } if is_sanitized => "Record a build without -fsanitize.",
        Blind::Malloc { .. } | Blind::Private(_) => {
            "Build it without an allocator of its own, and preload that allocator instead."
        }
        Blind::Calls(_) => "Let it call malloc, and preload that allocator instead.",
        Blind::Go => "Go has a profiler of its own (runtime/pprof) for its heap.",
    };
    let check = Check::problem("not seen", blind.to_string(), advice);
    if f.seen() == Seen::Nothing { check.fatal() } else { check }
}

fn seen(f: &Findings) -> Check {
    const NAME: &str = "seen";
    match (&f.program.obstacle, f.seen()) {
        (Some(obstacle), _) => {
            let children = if obstacle.stops_the_start() {
                ""
            } else {
                "; programs that it starts are recorded if they can be"
            };
            let finding = format!("nothing: {obstacle}{children}");
            Check::problem(NAME, finding, obstacle.advice()).fatal()
        }
        (None, Seen::All) => Check::ok(
            NAME,
            "every heap call of the program and its libraries, and of the programs that it starts",
        ),
        (None, Seen::Part) => Check::note(
            NAME,
            "the heap calls that go through malloc, free, new and so on, and the programs that it starts",
        ),
        (None, Seen::Nothing) => Check::note(
            NAME,
            "its mapping calls, and the programs that it starts; none of its own heap calls",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;
    use heaptape_proc::elf::{Allocators, Dynamic, Private, Target, X86_64};

    fn findings() -> Findings {
        let loader = "/lib64/ld-linux-x86-64.so.2".into();
        let linkage = Linkage::Dynamic { loader, libc: Libc::Glibc };
        let elf = Elf {
            target: Target { bits: 64, machine: X86_64, linkage },
            form: Form::Pie,
            allocators: Allocators::default(),
            dynamic: Dynamic::default(),
            build_id: Vec::new(),
            go_build_id: None,
        };
        let program = Program {
            file: Some("/bin/a".into()),
            scripts: Vec::new(),
            executable: Some("/bin/a".into()),
            elf: Some(elf),
            rights: None,
            obstacle: None,
        };
        let file = "/lib/libc.so.6".into();
        let allocator = Some(Allocator { name: "glibc".into(), file, preloaded: false });
        Findings { command: vec!["a".into()], program, libraries: Vec::new(), allocator }
    }

    fn elf(f: &mut Findings) -> &mut Elf {
        f.program.elf.as_mut().unwrap()
    }

    fn found<'a>(checks: &'a [Check], name: &str) -> &'a Check {
        checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("{checks:?}"))
    }

    #[test]
    fn a_plain_program_is_seen_whole() {
        let f = findings();
        let checks = checks(&f);
        assert_eq!(f.seen(), Seen::All);
        assert!(checks.iter().all(|check| check.verdict == Verdict::Ok), "{checks:?}");
        assert!(found(&checks, "command").finding.contains("a is /bin/a"));
        assert!(found(&checks, "allocator").finding.contains("glibc (its library"));
    }

    #[test]
    fn an_allocator_of_its_own_hides_part_or_all() {
        let mut f = findings();
        let symbol = Some("_rjem_malloc".into());
        elf(&mut f).allocators.private = Some(Private { allocator: "jemalloc", symbol });
        assert_eq!(f.seen(), Seen::Part);
        assert!(checks(&f).iter().all(|check| !check.is_fatal));
        assert!(found(&checks(&f), "not seen").finding.contains("_rjem_malloc"));
        elf(&mut f).allocators.malloc = Some(Malloc::Exported);
        assert_eq!(f.seen(), Seen::Nothing);
        assert!(found(&checks(&f), "not seen").is_fatal);
        assert_eq!(found(&checks(&f), "allocator").finding, "the executable's own");
    }

    #[test]
    fn an_obstacle_is_told_once_with_what_to_do() {
        let mut f = findings();
        f.program.obstacle = Some(Obstacle::Static { is_go: false });
        let checks = checks(&f);
        let problems = checks.iter().filter(|check| check.verdict == Verdict::Problem);
        assert_eq!(problems.count(), 1, "{checks:?}");
        let seen = found(&checks, "seen");
        assert!(seen.is_fatal && seen.finding.contains("statically linked"));
        assert_eq!(seen.advice.as_deref(), Some("Link it dynamically (without -static)."));
    }

    #[test]
    fn a_command_that_is_not_there() {
        let mut f = findings();
        (f.program.file, f.program.executable, f.program.elf) = (None, None, None);
        f.program.obstacle = Some(Obstacle::NotFound);
        let checks = checks(&f);
        assert_eq!(checks.len(), 1);
        assert_eq!(checks[0].finding, "nothing: there is no such command");
    }

    #[test]
    fn runtimes_and_sanitizers_are_noted() {
        let mut f = findings();
        f.program.executable = Some("/usr/bin/python3.11".into());
        assert!(found(&checks(&f), "runtime").finding.contains("Python"));
        for name in ["AddressSanitizer", "HWAddressSanitizer"] {
            elf(&mut f).allocators.sanitizer = Some(name);
            let checks = checks(&f);
            let check = found(&checks, "sanitizer");
            assert!(check.finding.contains(name), "{check:?}");
            assert_eq!(check.verdict, Verdict::Note, "such programs are recorded: {check:?}");
        }
    }
}
