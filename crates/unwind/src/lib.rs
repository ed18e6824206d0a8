//! How to get from a stack frame to the next one out.
//!
//! [`rule`] reads what a module says of an address in its code, from the tables in `.eh_frame` that the compiler
//! has made for exceptions and that are mapped with the code (the Linux Standard Base, "Exception Frames";
//! DWARF 5, section 6.4). A [`Rule`] fits in a part of a word, so that it can be
//! remembered beside its address, and shared without a lock. To follow it is
//! the caller's part, who knows what of the stack can be read.
//!
//! This runs inside programs, in the midst of a `malloc`: it allocates nothing, makes no system call, takes little stack,
//! and never panics. Tables may be damaged: nothing is read outside of the module, and what makes no sense has
//! the rule [`Rule::Unknown`]. Of the registers only those of x86-64 that lead from frame to frame are followed (`arch`).
#![no_std]

mod arch;
mod bytes;
mod entry;
mod program;
mod rule;
mod table;

pub use rule::{Bp, Cfa, Rule};
pub use table::rule;
