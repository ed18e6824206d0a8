//! What the capture library (inside the program) and the collector agree on.
//!
//! One shared arena connects the two. [`session`] says where everything lies in it, [`chunk`] how a
//! thread takes a stretch of it and publishes what it wrote, [`process`] how a process makes itself
//! known, [`event`] what one heap call looks like ([`plain`]: nearly all of them), [`note`] everything that is not a heap call. Where a
//! job is counted and not recorded, a [`ledger`] stands beside it, and a [`budget`] holds all its
//! processes together to one limit, with a [`purse`] for each thread; [`ahead`], [`blocks`], [`legacy`], [`exempt`] and [`knell`] are parts of
//! the ledger.
//!
//! Nothing here allocates, makes a system call or touches memory that it was not handed.
#![no_std]

pub mod ahead;
pub mod arch;
pub mod atomic;
pub mod bin;
pub mod blocks;
pub mod budget;
pub mod chunk;
mod doubt;
pub mod event;
pub mod exempt;
pub mod heaps;
#[cfg(not(loom))]
pub mod knell;
pub mod ledger;
pub mod legacy;
mod mend;
pub mod note;
pub mod objects;
pub mod plain;
pub mod process;
pub mod purse;
pub mod session;
pub mod site;
mod steal;
