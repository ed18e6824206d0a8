//! The start of the MPI runtime: what it takes for itself stands in a row of its own, which need not be
//! held against the limit.
//!
//! It is what the thread in `MPI_Init` takes, but for calls by the program and by the libraries of the
//! language it is written in: those could be its own.

use core::sync::atomic::{AtomicU32, Ordering};

use heaptape_wire::ledger::Kind;

use crate::arch::{self, set_starting_word, starting_word};
use crate::callers::{self, Found};
use crate::counting::{self, ledger};
use crate::next::in_glibc;

/// Threads that are in `MPI_Init`.
static THREADS: AtomicU32 = AtomicU32::new(0);

/// A thread that is in `MPI_Init`.
pub struct Starting(usize);

impl Starting {
    /// It enters.
    pub fn enter() -> Starting {
        let before = starting_word();
        if counting::is_on() {
            set_starting_word(before + 1);
            THREADS.fetch_add(1, Ordering::Relaxed);
            counting::look_closely();
        }
        Starting(before)
    }
}

impl Drop for Starting {
    /// It returns.
    fn drop(&mut self) {
        if starting_word() != self.0 {
            arch::set_starting_word(self.0);
            THREADS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Whether what this caller takes is the MPI runtime's.
pub fn is_its(caller: usize) -> bool {
    THREADS.load(Ordering::Relaxed) != 0
        && starting_word() != 0
        && callers::find(caller).is_some_and(|found| !is_programs(&found))
}

/// The row of what this caller takes, which else would be `kind`.
pub fn row(kind: Kind, caller: usize) -> Kind {
    if is_its(caller) { Kind::MpiRuntime } else { kind }
}

/// Whether a module is the program, or what that could call in its place.
pub fn is_programs(found: &Found) -> bool {
    found.is_executable() || is_of_language(found)
}

/// Whether a module is a library of the language that a program is written in.
pub fn is_of_language(found: &Found) -> bool {
    const NAMES: [&[u8]; 3] = [b"libstdc++.so", b"libgfortran.so", b"libgcc_s.so"];
    (found.start..found.end).contains(&in_glibc()) || NAMES.iter().any(|name| found.has_name(name))
}

/// Whether that is held against the limit.
pub fn is_held() -> bool {
    ledger().header().wanted().mpi_runtime
}
