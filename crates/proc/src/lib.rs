//! What the kernel says of processes, and what kind of executable a file is.
//!
//! [`read`] is the only place that opens files below `/proc`; it hands their text to the parsers,
//! which are pure: [`status`], [`stat`], [`statm`], [`maps`] and [`smaps`]. [`job`] finds a process's
//! place in an MPI or Slurm job from its environment, and [`launcher`] the process that started it. [`elf`] looks at the headers of executables.
//!
//! Sizes are bytes. A figure that this kernel does not give is `None`, never zero. Nothing here
//! starts, stops or changes a process, and nothing prints.
#![forbid(unsafe_code)]

pub mod elf;
mod error;
mod field;
pub mod job;
pub mod launcher;
pub mod maps;
pub mod read;
pub mod smaps;
pub mod stat;
pub mod statm;
pub mod status;

pub use elf::{Executable, kind};
pub use error::Error;
pub use job::{Job, Launcher};
pub use maps::Mapping;
pub use smaps::Smaps;
pub use stat::Stat;
pub use statm::Statm;
pub use status::Status;
