//! tests/programs compiled with the system's C and C++ compilers, once, and again when a source is newer.

use super::root;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// Sources are found here.
pub(crate) fn sources() -> PathBuf {
    root().join("tests/programs")
}

/// The compiled program of this name.
pub(crate) fn program(name: &str) -> PathBuf {
    let c = sources().join(format!("{name}.c"));
    if c.exists() {
        return built(name, "cc", &["-std=gnu17"], &c);
    }
    built(name, "c++", &["-std=c++20"], &sources().join(format!("{name}.cpp")))
}

/// `NAME.cpp` as an executable that is compiled so.
pub(crate) fn program_with(name: &str, flags: &[&str]) -> PathBuf {
    let source = sources().join(format!("{name}.cpp"));
    built_with(name, "c++", &[&["-std=c++20", "-pthread"], flags].concat(), &source)
}

/// `NAME.c` as a shared library.
pub(crate) fn library(name: &str) -> PathBuf {
    built(name, "cc", &["-std=gnu17", "-shared", "-fPIC"], &sources().join(format!("{name}.c")))
}

/// `NAME.rs` as an executable.
pub(crate) fn rust_program(name: &str) -> PathBuf {
    let source = sources().join(format!("{name}.rs"));
    built_with(&format!("{name}.rust"), "rustc", &["--edition=2024", "-O"], &source)
}

/// `NAME.cpp` as an executable that is always loaded at the same place.
pub(crate) fn fixed_program(name: &str) -> PathBuf {
    let source = sources().join(format!("{name}.cpp"));
    built(name, "c++", &["-std=c++20", "-no-pie", "-fno-pie"], &source)
}

/// `NAME.c` without a dynamic loader.
pub(crate) fn static_program(name: &str) -> PathBuf {
    built(name, "cc", &["-std=gnu17", "-static"], &sources().join(format!("{name}.c")))
}

/// `NAME.c` with a sanitizer; none where the compiler has no runtime for it.
pub(crate) fn sanitized_program(name: &str, sanitizer: &str) -> Option<PathBuf> {
    let flag = format!("-fsanitize={sanitizer}");
    let probe = Command::new("cc")
        .args([&flag, "-x", "c", "-o", "/dev/null", "-"])
        .stdin(empty_program())
        .output();
    let has_runtime = probe.is_ok_and(|outcome| outcome.status.success());
    let source = sources().join(format!("{name}.c"));
    has_runtime.then(|| built(name, "cc", &["-std=gnu17", &flag], &source))
}

/// The source of a program that does nothing.
fn empty_program() -> Stdio {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("empty.c");
    fs::write(&path, "int main(void) { return 0; }").expect("a source");
    File::open(path).expect("a source").into()
}

/// `NAME.f90` as an executable whose data may be large; `None` where there is no compiler for it.
pub(crate) fn fortran_program(name: &str) -> Option<PathBuf> {
    fortran_program_with(name, &["-g", "-mcmodel=medium"])
}

/// The same, compiled so.
pub(crate) fn fortran_program_with(name: &str, flags: &[&str]) -> Option<PathBuf> {
    let has_compiler = Command::new("gfortran").arg("--version").output().is_ok();
    let source = sources().join(format!("{name}.f90"));
    // Modules are described in files, which go nowhere but beside the program.
    let modules = format!("-J{}", env!("CARGO_TARGET_TMPDIR"));
    let flags = [flags, &[&modules]].concat();
    has_compiler.then(|| built_with(name, "gfortran", &flags, &source))
}

/// The program of this name, in C or Fortran, built by a compiler of an MPI: `openmpi` or `mpich`, as
/// Debian names them. `None` where it is not installed.
pub(crate) fn mpi_program(name: &str, mpi: &str) -> Option<PathBuf> {
    let fortran = sources().join(format!("{name}.f90"));
    let has = |compiler: &str| Command::new(compiler).arg("--version").output().is_ok();
    let target = format!("{name}.{mpi}");
    if fortran.exists() {
        let compiler = format!("mpif90.{mpi}");
        // FLAGS are for C.
        return has(&compiler).then(|| built_with(&target, &compiler, &["-g"], &fortran));
    }
    let compiler = format!("mpicc.{mpi}");
    let source = sources().join(format!("{name}.c"));
    has(&compiler).then(|| built(&target, &compiler, &["-std=gnu17"], &source))
}

// The calls must stay calls: no removed pairs, no jump in place of a call (it would change the caller).
const FLAGS: [&str; 9] = [
    "-O1",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-use-after-free",
    "-fno-builtin",
    "-fno-optimize-sibling-calls",
    "-pthread",
];

/// The program keeps its name; what it is compiled with names its folder.
fn built(name: &str, compiler: &str, flags: &[&str], source: &Path) -> PathBuf {
    built_with(name, compiler, &[flags, &FLAGS].concat(), source)
}

fn built_with(name: &str, compiler: &str, flags: &[&str], source: &Path) -> PathBuf {
    let with = [&[compiler], flags].concat().join(" ");
    let key = format!("programs/{:08x}", crc32fast::hash(with.as_bytes()));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(key);
    fs::create_dir_all(&folder).expect("the folder of compiled programs");
    // Tests run in parallel, in threads and in processes.
    let lock = File::create(folder.join("lock")).expect("the lock file");
    flock(&lock, FlockOperation::LockExclusive).expect("the lock");
    let program = folder.join(name);
    let headers = ["truth.h", "room.h", "charged.h", "taken.h"]
        .map(|header| changed(&sources().join(header)));
    let newest = headers.into_iter().fold(changed(source), SystemTime::max);
    if !program.exists() || changed(&program) < newest {
        let fresh = folder.join(format!("{name}.new"));
        let output = Command::new(compiler)
            .args(flags)
            .arg(source)
            .arg("-o")
            .arg(&fresh)
            .args(if compiler == "rustc" { &[][..] } else { &["-ldl"] })
            .output()
            .unwrap_or_else(|e| panic!("{compiler} does not start: {e}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::rename(&fresh, &program).expect("the program in its place");
    }
    program.canonicalize().expect("the program's path")
}

fn changed(path: &Path) -> SystemTime {
    path.metadata().and_then(|m| m.modified()).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
