//! The capture library as a file: what it exports, and that it loads with an old glibc.
#![forbid(unsafe_code)]

use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, SectionHeader, Sym};
use object::{Endianness, StringTable};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// What design section 5 lists; `seccomp` has no function of its own, programs come by `prctl` or `syscall`.
const EXPORTS: &str = "
    malloc calloc realloc reallocarray free cfree posix_memalign aligned_alloc memalign valloc pvalloc malloc_usable_size
    free_sized free_aligned_sized
    _Znwm _Znam _ZnwmRKSt9nothrow_t _ZnamRKSt9nothrow_t _ZnwmSt11align_val_t _ZnamSt11align_val_t
    _ZnwmSt11align_val_tRKSt9nothrow_t _ZnamSt11align_val_tRKSt9nothrow_t
    _ZdlPv _ZdaPv _ZdlPvm _ZdaPvm _ZdlPvRKSt9nothrow_t _ZdaPvRKSt9nothrow_t _ZdlPvSt11align_val_t _ZdaPvSt11align_val_t
    _ZdlPvmSt11align_val_t _ZdaPvmSt11align_val_t _ZdlPvSt11align_val_tRKSt9nothrow_t _ZdaPvSt11align_val_tRKSt9nothrow_t
    mmap mmap64 munmap mremap mprotect madvise brk sbrk shmat shmdt shmget shm_open memfd_create mallopt malloc_trim
    dlopen dlclose pthread_create prctl syscall
    execve execv execvp execvpe execl execlp execle fexecve posix_spawn posix_spawnp
    MPI_Init MPI_Init_thread";
/// Allowed beside them: other ways to the same ends, and what tells how a child ended.
const ALSO: &str = "wait wait3 wait4 waitid waitpid dlmopen thrd_create execveat _exit _Exit quick_exit fork vfork _Fork mpi_init_ mpi_init_thread_ mpi_init_f08_ mpi_init_thread_f08_
    getrlimit getrlimit64 setrlimit setrlimit64 prlimit prlimit64 mlockall __asan_default_options";

struct Library {
    exports: BTreeSet<String>,
    needed: BTreeSet<String>,
    versions: BTreeSet<String>,
    flags: u64,
}

fn text(strings: &StringTable<'_>, at: u32) -> String {
    String::from_utf8_lossy(strings.get(at).expect("a string")).into_owned()
}

fn library() -> Library {
    let output = Command::new(env!("CARGO_BIN_EXE_heaptape"))
        .arg("capture-path")
        .output()
        .expect("heaptape");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = String::from_utf8(output.stdout).expect("UTF-8");
    let data = fs::read(path.trim_end()).unwrap_or_else(|e| panic!("{path}: {e}"));
    read(&data).expect("an ELF library")
}

fn read(data: &[u8]) -> object::Result<Library> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM)?;
    let exports = symbols
        .iter()
        .filter(|s| s.st_shndx(endian) != elf::SHN_UNDEF && s.st_bind() != elf::STB_LOCAL)
        .map(|s| text(&symbols.strings(), s.st_name(endian)))
        .collect();
    let mut library =
        Library { exports, needed: BTreeSet::new(), versions: BTreeSet::new(), flags: 0 };
    if let Some((mut needs, link)) = sections.gnu_verneed(endian, data)? {
        let strings = sections.strings(endian, data, link)?;
        while let Some((_, mut auxes)) = needs.next()? {
            while let Some(aux) = auxes.next()? {
                library.versions.insert(text(&strings, aux.vna_name.get(endian)));
            }
        }
    }
    for section in sections.iter() {
        let Some((entries, link)) = section.dynamic(endian, data)? else { continue };
        let strings = sections.strings(endian, data, link)?;
        for entry in entries {
            match entry.tag32(endian) {
                Some(elf::DT_NEEDED) => {
                    library.needed.insert(text(&strings, entry.val32(endian).expect("an offset")));
                }
                Some(elf::DT_FLAGS) => library.flags = entry.d_val(endian),
                _ => {}
            }
        }
    }
    Ok(library)
}

#[test]
fn it_exports_what_it_must_and_nothing_else() {
    let exports = library().exports;
    let names = |list: &str| list.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
    let (expected, also) = (names(EXPORTS), names(ALSO));
    let missing: Vec<_> = expected.difference(&exports).collect();
    assert!(missing.is_empty(), "missing: {missing:?}");
    // A name of ours is harmless; any other would stand in the way of the program's own.
    let strange: Vec<_> = exports
        .difference(&expected)
        .filter(|n| !also.contains(*n) && !n.starts_with("heaptape"))
        .collect();
    assert!(strange.is_empty(), "exported too: {strange:?}");
}

#[test]
fn it_needs_no_glibc_newer_than_2_17() {
    for version in library().versions {
        let number =
            version.strip_prefix("GLIBC_").unwrap_or_else(|| panic!("not glibc's: {version}"));
        let parts: Vec<u32> = number.split('.').map(|p| p.parse().expect("a number")).collect();
        assert!(parts <= vec![2, 17], "needs {version}");
    }
}

#[test]
fn it_needs_libc_alone_and_static_thread_storage() {
    let library = library();
    let strange: Vec<_> = library
        .needed
        .iter()
        .filter(|n| {
            !["libc.so.6", "ld-linux-x86-64.so.2", "libdl.so.2", "libpthread.so.0"]
                .contains(&n.as_str())
        })
        .collect();
    assert!(strange.is_empty(), "needs {strange:?}");
    assert_ne!(
        library.flags & u64::from(elf::DF_STATIC_TLS),
        0,
        "thread-local words must be of the initial-exec model"
    );
}
