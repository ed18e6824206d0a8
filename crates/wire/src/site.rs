//! Call stacks on the wire: a site's number in the place of a caller's address, and what its frames are.
//!
//! The capture library numbers the stacks of a process from 0 and tells each once, by a note, before it uses the number. A frame
//! is the address behind its call, so that the byte before it always lies in the right instruction; or, with its
//! highest bit set, a line of interpreted code.

/// The bit of a caller's word that makes it a site: no address of a program has it.
pub const SITE_BIT: u64 = 1 << 47;
/// The most frames of a stack.
pub const MAX_DEPTH: usize = 128;
/// The bit of a frame that makes it a line of interpreted code.
pub const INTERPRETED_BIT: u64 = 1 << 63;
const LINE_BITS: u32 = 24;

/// The word for a site, in the place of a caller's address.
#[inline(always)]
pub const fn site_word(number: u32) -> u64 {
    SITE_BIT | number as u64
}

/// The site that a caller's word means; `None` for an address.
#[inline(always)]
pub const fn site_of(word: u64) -> Option<u32> {
    if word >> 47 == 1 && word & !(SITE_BIT | u32::MAX as u64) == 0 {
        Some(word as u32)
    } else {
        None
    }
}

/// The frame of a line of interpreted code; line 0 is none.
pub const fn interpreted(code: u32, line: u32) -> u64 {
    let most = (1 << LINE_BITS) - 1;
    INTERPRETED_BIT | (code as u64) << LINE_BITS | (if line > most { 0 } else { line }) as u64
}

/// The number of the code, and the line, of an interpreted frame; `None` for an address.
pub const fn interpreted_of(frame: u64) -> Option<(u32, u32)> {
    if frame & INTERPRETED_BIT == 0 {
        return None;
    }
    Some(((frame >> LINE_BITS) as u32, frame as u32 & ((1 << LINE_BITS) - 1)))
}

/// How a stack ends behind its last frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SiteEnd {
    /// That is the outermost frame.
    #[default]
    Outermost = 0,
    /// It is cut: no more frames were wanted.
    Depth = 1,
    /// What comes next has no unwinding rules: code made at run time, or written by hand.
    Foreign = 2,
    /// What comes next can't be read.
    Unreadable = 3,
}

impl SiteEnd {
    /// The end with this code, if there is one.
    pub const fn from_code(code: u64) -> Option<SiteEnd> {
        Some(match code {
            0 => SiteEnd::Outermost,
            1 => SiteEnd::Depth,
            2 => SiteEnd::Foreign,
            3 => SiteEnd::Unreadable,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_and_interpreted_frames_read_back_and_addresses_are_neither() {
        for number in [0, 1, u32::MAX] {
            assert_eq!(site_of(site_word(number)), Some(number));
            assert_eq!(interpreted_of(interpreted(number, 7)), Some((number, 7)));
        }
        for address in [0, 0x40_1136, (1 << 47) - 1, SITE_BIT | 1 << 40, u64::MAX] {
            assert_eq!(site_of(address), None);
        }
        assert_eq!(interpreted_of(0x40_1136), None);
        assert_eq!(interpreted_of(interpreted(3, 1 << 24)), Some((3, 0)));
    }
}
