//! `/proc/PID/smaps`: the mappings of a process, with what is resident in each.
//!
//! Source: proc_pid_smaps(5). Behind each line as in `maps` stand lines of a name and a value. Few of them are kept.

use crate::field::bytes;
use crate::maps::{self, Mapping};

/// A mapping, and what is resident in it, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The mapping.
    pub mapping: Mapping,
    /// Resident pages.
    pub rss: u64,
    /// Resident pages, each divided by the number of processes that map it.
    pub pss: u64,
    /// Pages that belong to no file, shared ones whole.
    pub anonymous: u64,
    /// Mapped without reserve.
    pub is_unreserved: bool,
    /// Left out of core dumps.
    pub is_undumped: bool,
    /// Wiped in a fork's child.
    pub is_wiped: bool,
}

/// Reads the text of the file. A mapping of another form, with what is told of it, is left out.
pub fn parse(text: &[u8]) -> Vec<Region> {
    let mut regions = Vec::new();
    let mut region = None;
    for line in text.split(|&b| b == b'\n') {
        // Names begin with a capital, addresses with a small hexadecimal digit.
        if line.first().is_some_and(|&first| !first.is_ascii_uppercase()) {
            regions.extend(region.take());
            region = maps::parse_line(line).map(|mapping| Region {
                mapping,
                rss: 0,
                pss: 0,
                anonymous: 0,
                is_unreserved: false,
                is_undumped: false,
                is_wiped: false,
            });
        } else if let Some(region) = &mut region {
            region.read(line);
        }
    }
    regions.extend(region);
    regions
}

impl Region {
    fn read(&mut self, line: &[u8]) {
        let Some((name, value)) = std::str::from_utf8(line).ok().and_then(|l| l.split_once(':'))
        else {
            return;
        };
        let figure = match name {
            "Rss" => &mut self.rss,
            "Pss" => &mut self.pss,
            "Anonymous" => &mut self.anonymous,
            "VmFlags" => {
                let has = |flag| value.split_whitespace().any(|found| found == flag);
                (self.is_unreserved, self.is_undumped) = (has("nr"), has("dd"));
                self.is_wiped = has("wf");
                return;
            }
            _ => return,
        };
        *figure = bytes(value.trim()).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] =
        b"55d0c0000000-55d0c0021000 rw-p 00000000 00:00 0                    [heap]\n\
        Size:                132 kB\nRss:                  20 kB\nPss:                  10 kB\n\
        Pss_Dirty:             4 kB\nAnonymous:            16 kB\nTHPeligible:           0\n\
        VmFlags: rd wr mr mw me ac sd \nnonsense\nRss: 8 kB\n\
        7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \nRss: 4 kB\nVmFlags: rd wr nr dd \n";

    #[test]
    fn each_mapping_has_its_own_figures() {
        let [heap, other] = parse(TEXT).try_into().unwrap();
        assert_eq!(
            (heap.mapping.name.as_os_str(), heap.mapping.len()),
            ("[heap]".as_ref(), 132 << 10)
        );
        assert_eq!((heap.rss, heap.pss, heap.anonymous), (20 << 10, 10 << 10, 16 << 10));
        assert!(!heap.is_unreserved && !heap.is_undumped);
        assert_eq!((other.rss, other.is_unreserved, other.is_undumped), (4096, true, true));
        assert!(parse(b"").is_empty());
    }
}
