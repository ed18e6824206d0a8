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
//! In a hook it never allocates, locks, prints, panics, looks up a symbol or calls into pthread.
//! On any doubt the call goes through as if this library were not there.
#![no_std]

mod arch;
mod children;
mod exec;
mod filter;
mod hooks;
mod leaving;
mod lifecycle;
mod limits;
mod locking;
mod mappings;
mod marks;
mod modules;
mod next;
mod operators;
mod owner;
mod sanitizers;
mod thread;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // No code path panics; the linker needs the symbol.
    loop {
        arch::relax();
    }
}

#[link(name = "c")]
unsafe extern "C" {}
