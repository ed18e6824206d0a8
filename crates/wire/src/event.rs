//! One heap call as a record of 64-bit words.
//!
//! The capture library writes records with the `put_*` functions straight into its chunk; the
//! collector reads them back with [`Record::decode`], which trusts nothing: a word that makes no
//! sense is a [`Malformed`] record, never a panic.
//!
//! ```text
//! word 0   bits 0..5 operation · 5 stamped · 6 wide · 7 begun · 8..64 address
//! word 1   bits 0..48 caller, an address or a [`crate::site`] · 48..64 slack (allocations)
//! word 2   bits 0..56 size · 56..64 log2 of the alignment + 1, 0 for none (allocations)
//! word 3   the old address (reallocations)
//! …        size, slack and alignment as whole words (wide)
//! last     the stamp (stamped)
//! ```

/// A heap call, by the function that the program called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Call {
    /// `malloc`
    Malloc = 1,
    /// `calloc`
    Calloc = 2,
    /// `realloc`
    Realloc = 3,
    /// `reallocarray`
    Reallocarray = 4,
    /// `free`, `cfree`, `free_sized`, `free_aligned_sized`
    Free = 5,
    /// `memalign`
    Memalign = 6,
    /// `posix_memalign`
    PosixMemalign = 7,
    /// `aligned_alloc`
    AlignedAlloc = 8,
    /// `valloc`
    Valloc = 9,
    /// `pvalloc`
    Pvalloc = 10,
    /// Every form of `operator new`.
    New = 11,
    /// Every form of `operator delete`.
    Delete = 12,
}

impl Call {
    /// All calls, in the order of their codes.
    pub const ALL: [Call; 12] = [
        Call::Malloc,
        Call::Calloc,
        Call::Realloc,
        Call::Reallocarray,
        Call::Free,
        Call::Memalign,
        Call::PosixMemalign,
        Call::AlignedAlloc,
        Call::Valloc,
        Call::Pvalloc,
        Call::New,
        Call::Delete,
    ];

    /// The call with this code, if there is one.
    pub const fn from_code(code: u8) -> Option<Call> {
        if code >= 1 && code <= 12 { Some(Call::ALL[code as usize - 1]) } else { None }
    }

    /// The code on the wire and on the tape, 1 to 12.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name in reports and JSON: the function's own, `new` and `delete` for the C++ operators.
    pub const fn name(self) -> &'static str {
        match self {
            Call::Malloc => "malloc",
            Call::Calloc => "calloc",
            Call::Realloc => "realloc",
            Call::Reallocarray => "reallocarray",
            Call::Free => "free",
            Call::Memalign => "memalign",
            Call::PosixMemalign => "posix_memalign",
            Call::AlignedAlloc => "aligned_alloc",
            Call::Valloc => "valloc",
            Call::Pvalloc => "pvalloc",
            Call::New => "new",
            Call::Delete => "delete",
        }
    }

    /// Whether the call gives a block back and makes none.
    pub const fn is_release(self) -> bool {
        matches!(self, Call::Free | Call::Delete)
    }

    /// Whether the call takes a block and makes another of it.
    pub const fn is_reallocation(self) -> bool {
        matches!(self, Call::Realloc | Call::Reallocarray)
    }
}

/// The operation of a `realloc` that has begun: the old address may be handed out again from here.
pub const OP_REALLOC_BEGIN: u8 = 20;
/// The operation of a record that moves the thread's coarse clock on.
pub const OP_TIME: u8 = 21;
/// The operation of a [`crate::note`].
pub const OP_NOTE: u8 = 22;
// 13 to 19 and 23 to 31 are free.

const OP_MASK: u64 = 0x1f;
pub(crate) const STAMPED: u64 = 1 << 5;
const WIDE: u64 = 1 << 6;
const BEGUN: u64 = 1 << 7;
pub(crate) const CALLER_MASK: u64 = (1 << 48) - 1;
pub(crate) const SIZE_LIMIT: u64 = 1 << 56;
const SLACK_LIMIT: u64 = 1 << 16;

/// The longest record of a heap call, in words: a wide, stamped reallocation.
pub const MAX_EVENT_WORDS: usize = 8;

/// What an allocation was asked for and what it got. All sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Allocation {
    /// The new block's address; 0 when the call failed.
    pub address: u64,
    /// The size that was asked for (`calloc`: the product, saturated).
    pub size: u64,
    /// `malloc_usable_size` less the requested size.
    pub slack: u64,
    /// The alignment that was asked for; 0 for none.
    pub align: u64,
    /// The return address of the call; 0 when unknown.
    pub caller: u64,
}

impl Allocation {
    /// Whether its sizes take words of their own, as hardly any does.
    #[inline(always)]
    pub const fn is_wide(&self) -> bool {
        ((self.size / SIZE_LIMIT) | (self.slack / SLACK_LIMIT)) != 0
            || !(self.align == 0 || self.align.is_power_of_two())
    }

    /// The second and the third word, if it is not wide.
    #[inline(always)]
    fn words(&self) -> (u64, u64) {
        let align = if self.align == 0 { 0 } else { u64::from(self.align.trailing_zeros()) + 1 };
        (self.caller & CALLER_MASK | self.slack << 48, self.size | align << 56)
    }

    /// The second and the third word, if it is wide: the caller alone.
    fn wide_words(&self) -> (u64, u64) {
        (self.caller & CALLER_MASK, 0)
    }
}

/// Where the words of a record go: a cursor into a chunk that has room for them.
///
/// The capture library implements it with plain stores; tests with a `Vec`.
pub trait Put {
    /// Stores the next word.
    fn put(&mut self, word: u64);
}

/// Writes an allocation. `stamp` is given while the process has more than one thread.
#[inline(always)]
pub fn put_allocation(out: &mut impl Put, call: Call, a: &Allocation, stamp: Option<u64>) {
    let wide = a.is_wide();
    let (w1, w2) = if wide { a.wide_words() } else { a.words() };
    out.put(head(call as u8, stamp.is_some(), wide, a.address));
    out.put(w1);
    out.put(w2);
    put_rest(out, a, wide, stamp);
}

/// Writes an allocation that is not [wide](Allocation::is_wide), in fewer instructions: its caller is one
/// that the processor can return to, and has no more than 48 bits.
#[inline(always)]
pub fn put_narrow_allocation(out: &mut impl Put, call: Call, a: &Allocation, stamp: Option<u64>) {
    let (w1, w2) = (a.caller | a.slack << 48, a.words().1);
    out.put(head(call as u8, stamp.is_some(), false, a.address));
    out.put(w1);
    out.put(w2);
    if let Some(stamp) = stamp {
        out.put(stamp);
    }
}

/// Writes a finished reallocation. `old` is the address given in; `begun` says that a
/// [`put_realloc_begin`] came before.
#[inline(always)]
pub fn put_reallocation(
    out: &mut impl Put,
    call: Call,
    a: &Allocation,
    old: u64,
    begun: bool,
    stamp: Option<u64>,
) {
    let wide = a.is_wide();
    let (w1, w2) = if wide { a.wide_words() } else { a.words() };
    let begun = if begun { BEGUN } else { 0 };
    out.put(head(call as u8, stamp.is_some(), wide, a.address) | begun);
    out.put(w1);
    out.put(w2);
    out.put(old);
    put_rest(out, a, wide, stamp);
}

#[inline(always)]
fn put_rest(out: &mut impl Put, a: &Allocation, wide: bool, stamp: Option<u64>) {
    if wide {
        out.put(a.size);
        out.put(a.slack);
        out.put(a.align);
    }
    if let Some(stamp) = stamp {
        out.put(stamp);
    }
}

/// Writes a `free` or `delete` of a block.
#[inline(always)]
pub fn put_release(out: &mut impl Put, call: Call, address: u64, caller: u64, stamp: Option<u64>) {
    out.put(head(call as u8, stamp.is_some(), false, address));
    // Whoever reads it looks at no more of it than there is of a caller.
    out.put(caller);
    if let Some(stamp) = stamp {
        out.put(stamp);
    }
}

/// Writes that a reallocation of `old` has begun.
#[inline(always)]
pub fn put_realloc_begin(out: &mut impl Put, old: u64, stamp: u64) {
    out.put(head(OP_REALLOC_BEGIN, true, false, old));
    out.put(stamp);
}

/// Writes that the records after this one happened at `time` of the session clock.
#[inline(always)]
pub fn put_time(out: &mut impl Put, time: u64) {
    out.put(head(OP_TIME, false, false, time));
}

#[inline(always)]
pub(crate) const fn head(op: u8, stamped: bool, wide: bool, address: u64) -> u64 {
    op as u64 | (stamped as u64) << 5 | (wide as u64) << 6 | address << 8
}

/// A record read back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Record<'a> {
    /// An allocating call.
    Allocation {
        /// Which.
        call: Call,
        /// What was asked and given.
        allocation: Allocation,
        /// The order stamp.
        stamp: Option<u64>,
    },
    /// A finished reallocation.
    Reallocation {
        /// `realloc` or `reallocarray`.
        call: Call,
        /// What was asked and given; address 0 when nothing was returned.
        allocation: Allocation,
        /// The address that went in; 0 for none.
        old: u64,
        /// Whether a [`Record::ReallocBegin`] of the same thread came before.
        begun: bool,
        /// The order stamp.
        stamp: Option<u64>,
    },
    /// A block given back.
    Release {
        /// `free` or `delete`.
        call: Call,
        /// The block.
        address: u64,
        /// The return address of the call.
        caller: u64,
        /// The order stamp.
        stamp: Option<u64>,
    },
    /// A reallocation begins.
    ReallocBegin {
        /// The address that goes in.
        old: u64,
        /// The order stamp.
        stamp: u64,
    },
    /// The thread's coarse clock moves on.
    Time(u64),
    /// Anything else.
    Note(crate::note::NoteRecord<'a>),
}

/// The words are no record: the chunk was overwritten by somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl<'a> Record<'a> {
    /// Reads the record at the start of `words`; also returns its length in words.
    #[inline(always)]
    pub fn decode(words: &'a [u64]) -> Result<(Record<'a>, usize), Malformed> {
        let w0 = *words.first().ok_or(Malformed)?;
        let op = (w0 & OP_MASK) as u8;
        let stamped = w0 & STAMPED != 0;
        let address = w0 >> 8;
        let mut at = Words { words, next: 1 };
        let record = match op {
            OP_TIME => Record::Time(address),
            OP_REALLOC_BEGIN => Record::ReallocBegin { old: address, stamp: at.take()? },
            OP_NOTE => Record::Note(crate::note::NoteRecord::decode(w0, &mut at)?),
            _ => {
                let call = Call::from_code(op).ok_or(Malformed)?;
                let w1 = at.take()?;
                let caller = w1 & CALLER_MASK;
                if call.is_release() {
                    let stamp = at.take_if(stamped)?;
                    Record::Release { call, address, caller, stamp }
                } else {
                    let w2 = at.take()?;
                    let old = at.take_if(call.is_reallocation())?;
                    let mut allocation = Allocation {
                        address,
                        caller,
                        size: w2 & (SIZE_LIMIT - 1),
                        slack: w1 >> 48,
                        align: match w2 >> 56 {
                            0 => 0,
                            n @ 1..=64 => 1 << (n - 1),
                            _ => return Err(Malformed),
                        },
                    };
                    if w0 & WIDE != 0 {
                        allocation.size = at.take()?;
                        allocation.slack = at.take()?;
                        allocation.align = at.take()?;
                    }
                    let stamp = at.take_if(stamped)?;
                    match old {
                        Some(old) => Record::Reallocation {
                            call,
                            allocation,
                            old,
                            begun: w0 & BEGUN != 0,
                            stamp,
                        },
                        None => Record::Allocation { call, allocation, stamp },
                    }
                }
            }
        };
        Ok((record, at.next))
    }

    /// The order stamp, where the record has one.
    pub fn stamp(&self) -> Option<u64> {
        match *self {
            Record::Allocation { stamp, .. }
            | Record::Reallocation { stamp, .. }
            | Record::Release { stamp, .. } => stamp,
            Record::ReallocBegin { stamp, .. } => Some(stamp),
            Record::Note(note) => note.stamp,
            Record::Time(_) => None,
        }
    }
}

pub(crate) struct Words<'a> {
    pub(crate) words: &'a [u64],
    pub(crate) next: usize,
}

impl<'a> Words<'a> {
    pub(crate) fn take(&mut self) -> Result<u64, Malformed> {
        let word = *self.words.get(self.next).ok_or(Malformed)?;
        self.next += 1;
        Ok(word)
    }

    pub(crate) fn take_if(&mut self, present: bool) -> Result<Option<u64>, Malformed> {
        if present { self.take().map(Some) } else { Ok(None) }
    }

    pub(crate) fn take_slice(&mut self, n: usize) -> Result<&'a [u64], Malformed> {
        let end = self.next.checked_add(n).ok_or(Malformed)?;
        let slice = self.words.get(self.next..end).ok_or(Malformed)?;
        self.next = end;
        Ok(slice)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    impl Put for Vec<u64> {
        fn put(&mut self, word: u64) {
            self.push(word);
        }
    }

    fn allocations() -> Vec<Allocation> {
        let mut all = Vec::new();
        for size in [0, 1, SIZE_LIMIT - 1, SIZE_LIMIT, u64::MAX] {
            for slack in [0, 8, SLACK_LIMIT - 1, SLACK_LIMIT, 1 << 40] {
                for align in [0, 1, 16, 4096, 3, 1 << 63] {
                    for address in [0, 8, 0x7fff_ffff_fff8] {
                        all.push(Allocation {
                            address,
                            size,
                            slack,
                            align,
                            caller: 0x7f00_1234_5678,
                        });
                    }
                }
            }
        }
        all
    }

    #[test]
    fn every_record_reads_back_as_written() {
        for a in allocations() {
            for stamp in [None, Some(0), Some(u64::MAX)] {
                for call in Call::ALL.into_iter().filter(|c| !c.is_release()) {
                    let mut out = Vec::new();
                    let expected = if call.is_reallocation() {
                        put_reallocation(&mut out, call, &a, 0x5555_0000, stamp.is_some(), stamp);
                        Record::Reallocation {
                            call,
                            allocation: a,
                            old: 0x5555_0000,
                            begun: stamp.is_some(),
                            stamp,
                        }
                    } else {
                        put_allocation(&mut out, call, &a, stamp);
                        Record::Allocation { call, allocation: a, stamp }
                    };
                    assert!(out.len() <= MAX_EVENT_WORDS);
                    assert_eq!(Record::decode(&out), Ok((expected, out.len())));
                }
            }
        }
    }

    #[test]
    fn releases_times_and_begins_read_back() {
        let mut out = Vec::new();
        put_release(&mut out, Call::Delete, 0x1000, 0x2000, Some(7));
        put_realloc_begin(&mut out, 0x3000, 8);
        put_time(&mut out, 9);
        let (first, n) = Record::decode(&out).unwrap();
        assert_eq!(
            first,
            Record::Release { call: Call::Delete, address: 0x1000, caller: 0x2000, stamp: Some(7) }
        );
        let (second, m) = Record::decode(&out[n..]).unwrap();
        assert_eq!(second, Record::ReallocBegin { old: 0x3000, stamp: 8 });
        assert_eq!(Record::decode(&out[n + m..]), Ok((Record::Time(9), 1)));
    }

    #[test]
    fn cut_or_foreign_words_are_malformed() {
        let mut out = Vec::new();
        let a = Allocation { size: u64::MAX, ..Allocation::default() };
        put_reallocation(&mut out, Call::Realloc, &a, 1, true, Some(1));
        for n in 0..out.len() {
            assert_eq!(Record::decode(&out[..n]), Err(Malformed));
        }
        assert_eq!(Record::decode(&[0]), Err(Malformed));
        assert_eq!(Record::decode(&[31, 0, 0]), Err(Malformed));
    }
}
