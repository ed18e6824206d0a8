//! Tables that are damaged, or cut off: no rule, but no read outside of the module, no panic, and an end.

use std::ops::Range;
use std::ptr::null_mut;

use heaptape_unwind::{Bp, Cfa, Rule, rule};
use proptest::prelude::*;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

const PAGE: usize = 4096;

/// A page of memory between two that cannot be read.
struct Room(usize);

impl Room {
    fn new() -> Room {
        let (read, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, and pages of it.
        unsafe {
            let start = mmap_anonymous(null_mut(), 3 * PAGE, read, private).expect("memory");
            for guard in [start, start.byte_add(2 * PAGE)] {
                mprotect(guard, PAGE, MprotectFlags::empty())
                    .expect("a page that is out of bounds");
            }
            Room(start as usize + PAGE)
        }
    }

    /// Puts a module right before the end of the page, or at its begin.
    fn put(&mut self, module: &[u8], at_end: bool) -> Range<usize> {
        let start = if at_end { self.0 + PAGE - module.len() } else { self.0 };
        // SAFETY: the page is ours alone, and the module fits.
        unsafe { (start as *mut u8).copy_from(module.as_ptr(), module.len()) };
        start..start + module.len()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and of use to nobody else.
        unsafe { munmap((self.0 - PAGE) as *mut _, 3 * PAGE) }.expect("memory");
    }
}

/// An entry with its length before it.
fn entry(body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let mut entry = (padded as u32).to_le_bytes().to_vec();
    entry.extend(body);
    entry.resize(4 + padded, 0);
    entry
}

/// Where the code begins that the modules here have a rule for, from their first byte.
const CODE: usize = 0x1000;
const CODE_BYTES: usize = 0x100;

/// A module of its tables alone: the header, a common entry, and a function's, which has the steps.
fn module(common: &[u8], steps: &[u8]) -> Vec<u8> {
    let (common, header_bytes) = (entry(common), 20);
    let function = header_bytes + common.len();
    let mut module = vec![1, 0x1b, 0x03, 0x3b];
    for number in [header_bytes - 4, 1, CODE, function] {
        module.extend((number as u32).to_le_bytes());
    }
    module.extend(&common);
    let (place, code) = (function + 8, CODE.wrapping_sub(function + 8));
    let mut body = ((place - 4 - header_bytes) as u32).to_le_bytes().to_vec();
    body.extend((code as u32).to_le_bytes());
    body.extend((CODE_BYTES as u32).to_le_bytes());
    body.push(0);
    body.extend(steps);
    module.extend(entry(&body));
    module
}

/// What compilers write: version 1, `zR`, relative addresses, rsp + 8, the return address at -8.
const USUAL: [u8; 17] = [0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90];

fn usual() -> Vec<u8> {
    [&USUAL[..], &[1]].concat()
}

/// The rule that a module has for its code's byte at `offset`.
fn rule_of(module: &[u8], offset: usize) -> Rule {
    let range = module.as_ptr_range();
    let range = range.start as usize..range.end as usize;
    // SAFETY: the module is ours and can be read.
    unsafe { rule(range.start, range.clone(), (range.start + CODE).wrapping_add(offset)) }
}

fn frame(cfa: Cfa, bp: Bp) -> Rule {
    Rule::Frame { cfa, bp }
}

const PUSHED: [u8; 8] = [0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6];

#[test]
fn versions_and_augmentations_are_read() {
    let pushed = frame(Cfa::Bp(16), Bp::At(-16));
    assert_eq!(rule_of(&module(&usual(), &PUSHED), 0), frame(Cfa::Sp(8), Bp::Same));
    assert_eq!(rule_of(&module(&usual(), &PUSHED), 3), frame(Cfa::Sp(16), Bp::At(-16)));
    assert_eq!(rule_of(&module(&usual(), &PUSHED), 4), pushed);
    let begin = [0x0c, 7, 8, 0x90, 1];
    let with = |head: &[u8]| module(&[&[0; 4], head, &begin].concat(), &PUSHED);
    let third = with(&[3, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b]);
    let fourth = with(&[4, b'z', b'R', 0, 8, 0, 1, 0x78, 16, 1, 0x1b]);
    let personal =
        with(&[1, b'z', b'P', b'L', b'R', 0, 1, 0x78, 16, 7, 0x9b, 0, 0, 0, 0, 0x1b, 0x1b]);
    let signed = with(&[1, b'z', b'R', b'B', 0, 1, 0x78, 16, 1, 0x1b]);
    for module in [third, fourth, personal, signed] {
        assert_eq!(rule_of(&module, 4), pushed);
    }
    let signal = with(&[1, b'z', b'R', b'S', 0, 1, 0x78, 16, 1, 0x1b]);
    assert_eq!(rule_of(&signal, 4), Rule::Signal);
    let fifth = with(&[5, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b]);
    let strange = with(&[1, b'z', b'R', b'?', 0, 1, 0x78, 16, 1, 0x1b]);
    let returned_in_another = with(&[1, b'z', b'R', 0, 1, 0x78, 15, 1, 0x1b]);
    for module in [fifth, strange, returned_in_another] {
        assert_eq!(rule_of(&module, 4), Rule::Unknown);
    }
}

/// What `tests/gimli.rs` cannot compare.
#[test]
fn seldom_instructions_are_followed() {
    let negative = module(&usual(), &[0x2f, 6, 3]);
    assert_eq!(rule_of(&negative, 0), frame(Cfa::Sp(8), Bp::At(24)));
    let unknown = module(&usual(), &[0x41, 0x3f]);
    assert_eq!(rule_of(&unknown, 0), frame(Cfa::Sp(8), Bp::Same));
    assert_eq!(rule_of(&unknown, 1), Rule::Unknown);
}

/// `set_loc` names an address, which is relative to itself as those of functions are.
#[test]
fn places_in_the_code_may_be_named() {
    const MARK: [u8; 4] = [0xfe, 0xff, 0xfe, 0xff];
    let steps = [&[0x01][..], &MARK, &[0x0e, 16]].concat();
    let mut module = module(&usual(), &steps);
    let place = module.windows(4).position(|bytes| bytes == MARK).expect("the address");
    module[place..place + 4].copy_from_slice(&((CODE + 32 - place) as u32).to_le_bytes());
    assert_eq!(rule_of(&module, 31), frame(Cfa::Sp(8), Bp::Same));
    assert_eq!(rule_of(&module, 32), frame(Cfa::Sp(16), Bp::Same));
}

#[test]
fn states_are_remembered_no_deeper_than_there_is_room_for() {
    let nested = |depth: usize| {
        let mut steps = Vec::new();
        for level in 1..=depth {
            steps.extend([0x0a, 0x0e, 8 + 8 * level as u8]);
        }
        steps.extend(vec![0x0b; depth]);
        rule_of(&module(&usual(), &steps), 9)
    };
    assert_eq!(nested(4), frame(Cfa::Sp(8), Bp::Same));
    assert_eq!(nested(5), Rule::Unknown);
    assert_eq!(rule_of(&module(&usual(), &[0x0b]), 0), Rule::Unknown);
}

/// Outside of a function, and where the tables say nothing, there is no rule.
#[test]
fn code_without_an_entry_has_no_rule() {
    let module = module(&usual(), &PUSHED);
    assert_ne!(rule_of(&module, CODE_BYTES - 1), Rule::Unknown);
    assert_eq!(rule_of(&module, CODE_BYTES), Rule::Unknown);
    assert_eq!(rule_of(&module, usize::MAX), Rule::Unknown);
}

#[test]
fn tables_that_are_cut_off_anywhere_are_read_to_their_end_only() {
    let (whole, mut room) = (module(&usual(), &PUSHED), Room::new());
    for length in 1..=whole.len() {
        let module = room.put(&whole[..length], true);
        // SAFETY: the module can be read, and nothing around it.
        let found = unsafe { rule(module.start, module.clone(), module.start + CODE + 4) };
        assert_eq!(found == Rule::Unknown, length < whole.len(), "{length} bytes");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn damaged_tables_are_never_read_beyond_their_end(
        steps in prop::collection::vec(any::<u8>(), 0..40),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        length in any::<prop::sample::Index>(),
        is_cut in prop::bool::weighted(0.2),
        at_end: bool,
        offset in 0..CODE_BYTES,
    ) {
        let mut bytes = module(&usual(), &steps);
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if is_cut {
            bytes.truncate(1 + length.index(bytes.len()));
        }
        let mut room = Room::new();
        let module = room.put(&bytes, at_end);
        // SAFETY: the module can be read, and nothing around it.
        let found = unsafe { rule(module.start, module.clone(), module.start + CODE + offset) };
        let kept = found.pack().map_or(found, Rule::unpack);
        prop_assert_eq!(kept, found);
    }
}
