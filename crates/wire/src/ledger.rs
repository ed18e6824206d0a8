//! The ledger: what every process and thread of a counted job holds, in memory that outlives them.
//!
//! ```text
//! page 0     the header: what is wanted, the first refusal
//! page 1     the budget of the job
//! …          the accounts, one a process slot
//! …          the purses, one a sheet
//! …          the objects that processes share
//! …          the knells, one a process slot
//! …          the sheets: one a thread, its counters by size class and module
//! ```
//!
//! It lies behind the [arena](crate::session) in the same file and is mapped by a counted session only.
//! A thread takes a sheet and a purse when it first allocates and keeps both; a later thread with the
//! same number takes them over, with what is in them, so the sheets of a process add up to all that it
//! ever did. Every counter has one writer, its thread; a process that is killed loses none of them.
//! The collector gives an account or a sheet memory before it offers it.

mod account;
mod header;
mod sheet;
mod whole;

use crate::budget::Budget;
#[cfg(not(loom))]
use crate::knell::Knell;
use crate::objects::{Door, OBJECT_BYTES, OBJECTS, Object};
use crate::process::SLOTS;
use crate::purse::Purse;
use crate::session::ARENA_BYTES;

pub use account::{Account, Kind, ModuleName};
pub use header::{Header, OnLimit, Refused, Wanted};
pub use sheet::{Sheet, Traffic};
pub use whole::WholeStacks;

/// Where the ledger begins in the session's file.
pub const LEDGER_AT: usize = ARENA_BYTES;
/// Threads of a job that can be counted at the same time.
pub const SHEETS: usize = 4096;
/// Bytes of a thread's counters.
pub const SHEET_BYTES: usize = 20 << 10;
/// Bytes of a process's account.
pub const ACCOUNT_BYTES: usize = 14 << 10;
/// Modules that are told apart in a process; callers in others count for the last.
pub const MODULES: usize = 64;
/// The module that stands for all others.
pub const OTHER_MODULES: usize = MODULES - 1;
/// What stands for the MPI runtime in its start, whatever module of its calls.
pub const STARTING_MODULES: usize = MODULES - 2;
/// What stands for the libraries that were served from the reserve.
pub const RESERVED_MODULES: usize = MODULES - 3;
/// Stacks are charged in steps of so many bytes, the first one by the process when it begins.
pub const STACK_STEP: u64 = 64 << 10;
/// Bytes of a module's path that an account holds.
pub const MODULE_TEXT: usize = 128;

const BUDGET_AT: usize = 4096;
/// Where the accounts begin, behind the start of the ledger.
pub const ACCOUNTS_AT: usize = 2 * 4096;
/// Where the purses begin.
pub const PURSES_AT: usize = ACCOUNTS_AT + SLOTS * ACCOUNT_BYTES;
const PURSE_BYTES: usize = 64;
/// Where the objects begin that processes share.
const OBJECTS_AT: usize = PURSES_AT + SHEETS * PURSE_BYTES;
const DOOR_AT: usize = OBJECTS_AT + OBJECTS * OBJECT_BYTES;
const KNELLS_AT: usize = (DOOR_AT + OBJECT_BYTES).next_multiple_of(KNELL_BYTES);
const KNELL_BYTES: usize = 64;
/// Where the sheets begin.
pub const SHEETS_AT: usize = (KNELLS_AT + SLOTS * KNELL_BYTES).next_multiple_of(SHEET_BYTES);
/// Bytes of the whole ledger.
pub const LEDGER_BYTES: usize = SHEETS_AT + SHEETS * SHEET_BYTES;

#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Sheet>() <= SHEET_BYTES);
#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Account>() <= ACCOUNT_BYTES);
#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Header>() <= BUDGET_AT);
#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Purse>() <= PURSE_BYTES);
#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Object>() <= OBJECT_BYTES);
#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Door>() <= OBJECT_BYTES);
#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Knell>() <= KNELL_BYTES);
#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Budget>() <= ACCOUNTS_AT - BUDGET_AT);

/// The ledger as it is mapped: turns its base address into the tables that lie in it.
#[cfg(not(loom))]
#[derive(Clone, Copy)]
pub struct Ledger(*mut u8);

#[cfg(not(loom))]
// SAFETY: a ledger is shared memory, and all that is reached through it is atomic.
unsafe impl Send for Ledger {}
#[cfg(not(loom))]
// SAFETY: as above.
unsafe impl Sync for Ledger {}

#[cfg(not(loom))]
impl Ledger {
    /// # Safety
    /// `base` is page-aligned and points to [`LEDGER_BYTES`] of readable and writable shared memory
    /// that stays mapped for `'static`.
    pub const unsafe fn new(base: *mut u8) -> Ledger {
        Ledger(base)
    }

    /// Where it is mapped.
    pub const fn base(self) -> *mut u8 {
        self.0
    }

    fn at<T>(self, offset: usize) -> &'static T {
        // SAFETY: every offset used below lies in the ledger and is aligned for what lies there; the
        // types consist of atomics, for which any bytes are valid.
        unsafe { &*self.0.add(offset).cast::<T>() }
    }

    /// What is wanted, and the first refusal.
    #[inline(always)]
    pub fn header(self) -> &'static Header {
        self.at(0)
    }

    /// The job's budget.
    #[inline(always)]
    pub fn budget(self) -> &'static Budget {
        self.at(BUDGET_AT)
    }

    /// The account of the process in this slot.
    pub fn account(self, slot: usize) -> &'static Account {
        self.at(ACCOUNTS_AT + slot % SLOTS * ACCOUNT_BYTES)
    }

    /// The purse that goes with a sheet.
    #[inline(always)]
    pub fn purse(self, sheet: usize) -> &'static Purse {
        self.at(PURSES_AT + sheet % SHEETS * PURSE_BYTES)
    }

    /// The knell of the process in this slot.
    pub fn knell(self, slot: usize) -> &'static Knell {
        self.at(KNELLS_AT + slot % SLOTS * KNELL_BYTES)
    }

    /// Where objects are added.
    pub(crate) fn door(self) -> &'static Door {
        self.at(DOOR_AT)
    }

    pub(crate) fn object_at(self, index: usize) -> &'static Object {
        self.at(OBJECTS_AT + index * OBJECT_BYTES)
    }

    /// A sheet.
    #[inline(always)]
    pub fn sheet(self, index: usize) -> &'static Sheet {
        self.at(SHEETS_AT + index % SHEETS * SHEET_BYTES)
    }
}
