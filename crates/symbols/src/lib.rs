//! From addresses to frames: which function of an ELF file an address lies in.
//!
//! [`Names`] is asked with a file's path, its build id and an address of the file's own; it looks for the
//! file, or its debug file, where [`Search`] says, and in its symbol table. A name that is given is right:
//! a file that is another build, an address behind a function's end, and a table that contradicts itself
//! give none. Nothing here knows tapes or reports, and nothing is written or run.
//!
//! Files are foreign: they may be damaged, huge, or change while they are read. They are read piece by
//! piece and never mapped, as a mapped file that another program shortens ends the reader. Demangling is
//! the work of libraries; the lookup is not, as those at hand map files, believe sizes, and give an address
//! behind the last symbol that symbol's name.
#![forbid(unsafe_code)]

mod debug;
mod debuginfod;
mod dlang;
mod elf;
mod error;
mod files;
mod fortran;
mod frame;
mod mini;
mod name;
mod names;
mod perf_map;
mod piece;
mod scope;
mod search;
mod section;
mod source;
mod split;
mod strings;
mod table;
mod texts;

pub use error::Error;
pub use frame::Frame;
pub use name::Name;
pub use names::Names;
pub use perf_map::PerfMap;
pub use search::{ModuleId, Search};
