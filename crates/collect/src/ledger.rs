//! The ledger from the collector's side: maps it behind the arena, and gives memory to its parts before
//! they are offered.
//!
//! As with the arena, a full file system shows here and never as a SIGBUS in the program: an account gets
//! its memory together with the process slot that it belongs to, sheets get it in steps ahead of those
//! that are taken.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use heaptape_wire::atomic::Ordering;
use heaptape_wire::ledger::{
    ACCOUNT_BYTES, ACCOUNTS_AT, LEDGER_AT, LEDGER_BYTES, Ledger, PURSES_AT, SHEET_BYTES, SHEETS,
    SHEETS_AT,
};
use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// Sheets to keep ready beyond those that are taken.
const SPARE_SHEETS: usize = 64;
/// Sheets that get memory together.
const SHEETS_AT_ONCE: usize = 64;

/// The mapped ledger of a session.
pub(crate) struct SharedLedger {
    ledger: Ledger,
    /// Sheets that have memory.
    sheets: usize,
}

impl SharedLedger {
    /// Gives memory to all that is there from the start, in the file behind the arena: the header, the
    /// budget, all purses, and the first accounts and sheets.
    pub(crate) fn provision(file: &File, accounts: usize) -> io::Result<()> {
        allocate(file, 0, ACCOUNTS_AT + accounts * ACCOUNT_BYTES)?;
        allocate(file, PURSES_AT, SHEETS_AT - PURSES_AT)?;
        allocate(file, SHEETS_AT, SPARE_SHEETS * SHEET_BYTES)
    }

    /// Maps the ledger of a file that was provisioned.
    pub(crate) fn map(file: &File) -> io::Result<SharedLedger> {
        // SAFETY: a new mapping of a file that nobody truncates; it stays for the process's life.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                LEDGER_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file.as_fd(),
                LEDGER_AT as u64,
            )
        }?;
        // SAFETY: just mapped, of that size, never unmapped.
        let ledger = unsafe { Ledger::new(base.cast()) };
        ledger.header().sheets_ready.store(SPARE_SHEETS as u32, Ordering::Release);
        Ok(SharedLedger { ledger, sheets: SPARE_SHEETS })
    }

    pub(crate) fn ledger(&self) -> Ledger {
        self.ledger
    }

    /// Gives memory to the accounts of these slots, which are about to be offered, and opens them for the
    /// first generation.
    pub(crate) fn open_accounts(&self, file: &File, slots: std::ops::Range<usize>) -> bool {
        let at = ACCOUNTS_AT + slots.start * ACCOUNT_BYTES;
        let done = allocate(file, at, slots.len() * ACCOUNT_BYTES).is_ok();
        if done {
            slots.for_each(|slot| self.ledger.account(slot).open(1));
        }
        done
    }

    /// Keeps sheets ready beyond those that are taken: as many again, since many come where many are. Where there
    /// is no memory for more, threads find none and say so.
    pub(crate) fn replenish(&mut self, file: &File) {
        let header = self.ledger.header();
        let taken = (header.sheets_taken.load(Ordering::Relaxed) as usize).min(SHEETS);
        let wanted = (taken + taken.max(SPARE_SHEETS)).min(SHEETS);
        if wanted <= self.sheets {
            return;
        }
        let end = wanted.next_multiple_of(SHEETS_AT_ONCE).min(SHEETS);
        let bytes = (end - self.sheets) * SHEET_BYTES;
        if allocate(file, SHEETS_AT + self.sheets * SHEET_BYTES, bytes).is_ok() {
            self.sheets = end;
            self.restate();
        }
    }

    /// Says how many sheets are ready; also once more where a program has written over it.
    pub(crate) fn restate(&self) {
        let (word, value) = (&self.ledger.header().sheets_ready, self.sheets as u32);
        if word.load(Ordering::Relaxed) != value {
            word.store(value, Ordering::Release);
        }
    }

    /// Sheets that somebody may have: those that were ever taken.
    pub(crate) fn taken(&self) -> usize {
        (self.ledger.header().sheets_taken.load(Ordering::Acquire) as usize).min(self.sheets)
    }
}

/// Gives memory to a part of the ledger, which lies behind the arena in the file.
fn allocate(file: &File, at: usize, bytes: usize) -> io::Result<()> {
    let offset = (LEDGER_AT + at) as u64;
    Ok(rustix::fs::fallocate(file, FallocateFlags::empty(), offset, bytes as u64)?)
}

/// A ledger in memory of its own, all of it ready.
#[cfg(test)]
pub(crate) fn in_memory() -> Ledger {
    let (access, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // Of a file, so that a machine that counts what is only reserved lets us have it.
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = File::from(rustix::fs::memfd_create("heaptape-ledger", flags).unwrap());
    file.set_len(LEDGER_BYTES as u64).unwrap();
    // SAFETY: new memory, which stays for the process's life.
    unsafe {
        let base = rustix::mm::mmap(std::ptr::null_mut(), LEDGER_BYTES, access, shared, &file, 0);
        Ledger::new(base.unwrap().cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn file() -> File {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = File::from(rustix::fs::memfd_create("heaptape-ledger", flags).unwrap());
        file.set_len((LEDGER_AT + LEDGER_BYTES) as u64).unwrap();
        file
    }

    #[test]
    fn a_sheet_whose_process_was_killed_while_it_took_it_comes_back() {
        let ledger = in_memory();
        let sheet = ledger.sheet(5);
        assert!(sheet.claim(3) && !sheet.claim(4) && sheet.owner().is_none());
        sheet.let_go(4);
        assert!(!sheet.claim(4));
        sheet.let_go(3);
        assert!(sheet.claim(4));
        sheet.open(4, 1, 0, 100);
        sheet.let_go(4);
        assert_eq!((sheet.owner(), sheet.claim(3)), (Some((4, 1)), false));
    }

    #[test]
    fn what_is_offered_has_memory_and_what_is_not_has_none() {
        let file = file();
        SharedLedger::provision(&file, 8).unwrap();
        let before = file.metadata().unwrap().blocks() * 512;
        assert!(before < 3 << 20, "{before}");
        let mut shared = SharedLedger::map(&file).unwrap();
        let header = shared.ledger().header();
        assert!(shared.open_accounts(&file, 0..16));
        assert!((0..16).all(|slot| shared.ledger().account(slot).generation() == 1));
        for (taken, ready) in [(0, 64), (1, 128), (64, 128), (65, 192), (9999, SHEETS)] {
            header.sheets_taken.store(taken, Ordering::Relaxed);
            shared.replenish(&file);
            assert_eq!(header.sheets_ready.load(Ordering::Relaxed), ready as u32);
            assert!(shared.taken() <= ready);
        }
        // All sheets have theirs now: nothing is left for a write to ask for.
        let offered = file.metadata().unwrap().blocks();
        for sheet in 0..SHEETS {
            shared.ledger().sheet(sheet).clear();
            shared.ledger().sheet(sheet).open(1, 1, 1, 1);
        }
        assert_eq!(file.metadata().unwrap().blocks(), offered);
    }
}
