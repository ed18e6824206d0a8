//! heaptape's capture library: preloaded into a program, it sees every allocator call, forwards it
//! unchanged to the allocator that the program would have used, and writes down what happened.
//!
//! ```text
//! program ──▶ hooks, operators ──▶ next (the real allocator)
//!             mappings, exec, marks │
//!                                   ▼
//!                  thread: a record into the thread's chunk of the shared arena ──▶ collector
//! ```
//!
//! [`lifecycle`] joins the session, follows forks and leaves when the collector is gone. [`arch`] holds
//! all that depends on the processor.
//!
//! In a hook it never allocates, locks, prints, panics, asks the loader for a symbol or calls into pthread. (In a counted job a
//! process takes a [`knell`] at its first call; and while a thread may be in `dlopen`, its requests look at the loader's
//! list, under the loader's lock: see [`loading`].) Where the environment alone asks for a limit, [`summon`] calls heaptape,
//! before the program begins.
//! On any doubt the call goes through as if this library were not there.
#![no_std]

mod announcing;
mod apart;
mod arch;
mod arena;
mod asking;
mod begin;
mod callers;
mod callstack;
mod charges;
mod children;
mod closely;
mod counted;
mod counting;
mod data;
mod doubtful;
mod early;
mod environment;
mod exec;
mod executable;
mod exported;
mod filter;
mod following;
mod forks;
mod heads;
mod heaps;
mod hooks;
mod knell;
mod lane;
mod leaving;
mod lifecycle;
mod limits;
mod loading;
mod locking;
mod mapped;
mod mappings;
mod marks;
mod modules;
mod next;
mod operators;
mod owner;
mod pages;
mod patience;
mod python;
mod reach;
mod refusing;
mod registering;
mod reserve;
mod rules;
mod sanitizers;
mod scratch;
mod shared;
mod sheets;
mod shortage;
mod sites;
mod sizes;
mod slot;
mod spending;
mod stacks;
mod starting;
mod summon;
mod supply;
mod text;
mod thread;
mod threads;
mod usable;
mod walker;
mod whole;
mod zeros;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // No code path panics; the linker needs the symbol.
    loop {
        arch::relax();
    }
}

#[link(name = "c")]
unsafe extern "C" {}
