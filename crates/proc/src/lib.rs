//! What the kernel says of processes and of itself, and what executables and their libraries are.
//!
//! [`read`] is the only place that opens files below `/proc`; it hands their text to the parsers,
//! which are pure: [`status`], [`stat`], [`statm`], [`maps`] and [`smaps`]. [`job`] finds a process's
//! place in an MPI or Slurm job from its environment, and [`launcher`] the process that started it.
//!
//! [`elf`] looks at the headers and symbols of executables, [`program`] follows a command to one,
//! [`libraries`] finds what its loader would load, and [`obstacle`] says what of it can't be recorded.
//! [`system`], [`cgroup`], [`counters`] and [`mpi`] say what this machine is, [`allotment`] what of its memory a batch
//! system gives. [`kmsg`] and [`oom`] tell whom the kernel has killed for want of memory, and [`entries`] where calls enter a
//! library.
//!
//! Sizes are bytes. A figure that this kernel does not give is `None`, never zero. Nothing here
//! starts, stops or changes a process, and nothing prints.
#![forbid(unsafe_code)]

pub mod allotment;
pub mod cgroup;
pub mod counters;
pub mod elf;
pub mod entries;
mod error;
mod field;
pub mod job;
pub mod kmsg;
pub mod launcher;
pub mod libraries;
mod lineage;
pub mod maps;
pub mod mpi;
pub mod obstacle;
pub mod oom;
pub mod program;
pub mod read;
pub mod regions;
pub mod smaps;
pub mod stat;
pub mod statm;
pub mod status;
pub mod system;

pub use allotment::{Allotment, Allotments, Batch};
pub use cgroup::Cgroup;
pub use counters::Lag;
pub use elf::{Executable, kind};
pub use entries::Entries;
pub use error::Error;
pub use job::{Job, Launcher};
pub use libraries::{Allocator, Library, Loader};
pub use lineage::lineage;
pub use maps::Mapping;
pub use mpi::{Mpi, Ucx};
pub use obstacle::{Blind, Obstacle};
pub use program::{Program, Rights};
pub use regions::Region;
pub use smaps::Smaps;
pub use stat::Stat;
pub use statm::Statm;
pub use status::Status;
pub use system::System;
