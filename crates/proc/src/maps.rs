//! `/proc/PID/maps`: the mappings of a process.
//!
//! Source: proc_pid_maps(5). The name is the rest of the line and may hold blanks; a newline in it is
//! written `\012` by the kernel and is left so.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use crate::Error;

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// What may be done there.
    pub perms: Perms,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// The device's major and minor number; 0, 0 for none.
    pub dev: (u32, u32),
    /// The file's inode; 0 for none.
    pub inode: u64,
    /// The file's path, or a name such as `[heap]`, `[anon:name]`; empty for plain anonymous memory.
    /// The kernel's ` (deleted)` is taken off.
    pub name: OsString,
    /// Whether the file has been deleted since.
    pub deleted: bool,
}

/// The permissions of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Perms {
    /// May be read.
    pub read: bool,
    /// May be written.
    pub write: bool,
    /// May be executed.
    pub execute: bool,
    /// Writes are seen by others; else the mapping is private.
    pub shared: bool,
}

impl Perms {
    /// As bits: read 1, write 2, execute 4, shared 8.
    pub const fn bits(self) -> u8 {
        self.read as u8
            | (self.write as u8) << 1
            | (self.execute as u8) << 2
            | (self.shared as u8) << 3
    }
}

impl Mapping {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether it has no length; the kernel writes no such line.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The path, where it maps a file.
    pub fn path(&self) -> Option<&Path> {
        self.name.as_bytes().starts_with(b"/").then(|| Path::new(&self.name))
    }

    /// The name as text.
    pub fn label(&self) -> Cow<'_, str> {
        self.name.to_string_lossy()
    }

    /// What the mapping adds to *system*: its length when it is private and writable, else 0.
    pub fn system(&self) -> u64 {
        if self.perms.write && !self.perms.shared { self.len() } else { 0 }
    }
}

/// *system*: the bytes of all private writable mappings. A mapping without any permission
/// (PROT_NONE), as allocators reserve address space with, is not writable and so does not count.
pub fn system(mappings: &[Mapping]) -> u64 {
    mappings.iter().map(Mapping::system).sum()
}

/// Reads the text of the file. A line of another form is [`Error::Malformed`].
pub fn parse(text: &[u8]) -> Result<Vec<Mapping>, Error> {
    text.split(|&b| b == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            parse_line(line).ok_or_else(|| Error::malformed("a line of /proc/PID/maps", line))
        })
        .collect()
}

pub(crate) fn parse_line(line: &[u8]) -> Option<Mapping> {
    // Five fields with one blank after each; then padding, then the name.
    let mut fields = line.splitn(6, |&b| b == b' ');
    let mut next = || fields.next().and_then(|f| std::str::from_utf8(f).ok());
    let (start, end) = next()?.split_once('-')?;
    let perms = parse_perms(next()?)?;
    let offset = hex(next()?)?;
    let (major, minor) = next()?.split_once(':')?;
    let inode = next()?.parse().ok()?;
    let (name, deleted) = parse_name(fields.next().unwrap_or_default());
    let start = hex(start)?;
    let end = hex(end)?;
    (start <= end).then_some(())?;
    Some(Mapping {
        start,
        end,
        perms,
        offset,
        dev: (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?),
        inode,
        name,
        deleted,
    })
}

fn parse_name(padded: &[u8]) -> (OsString, bool) {
    let name = padded.trim_ascii_start();
    let (name, deleted) = match name.strip_suffix(b" (deleted)") {
        Some(rest) => (rest, true),
        None => (name, false),
    };
    (OsString::from_vec(name.to_vec()), deleted)
}

fn parse_perms(text: &str) -> Option<Perms> {
    let &[r, w, x, s] = text.as_bytes() else { return None };
    let flag = |byte: u8, set: u8, unset: u8| match byte {
        b if b == set => Some(true),
        b if b == unset => Some(false),
        _ => None,
    };
    Some(Perms {
        read: flag(r, b'r', b'-')?,
        write: flag(w, b'w', b'-')?,
        execute: flag(x, b'x', b'-')?,
        shared: flag(s, b's', b'p')?,
    })
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &[u8] =
        b"55f0a0000000-55f0a0002000 r--p 00000000 fe:01 1234567                    /usr/bin/cat\n\
55f0a1000000-55f0a1021000 rw-p 00000000 00:00 0                          [heap]\n\
7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n\
7f0000021000-7f0004000000 ---p 00000000 00:00 0 \n\
7f1000000000-7f1000001000 rw-s 00001000 00:01 99                         /dev/shm/a b (deleted)\n\
7f1000002000-7f1000003000 rw-p 00002000 103:0a 18446744073709551615      /tmp/two  blanks \n\
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";

    #[test]
    fn every_kind_of_line() {
        let maps = parse(SAMPLE).unwrap();
        assert_eq!(maps.len(), 7);
        assert_eq!(maps[0].path(), Some(Path::new("/usr/bin/cat")));
        assert_eq!((maps[0].len(), maps[0].perms.bits()), (0x2000, 1));
        assert_eq!((maps[0].dev, maps[0].inode), ((0xfe, 1), 1_234_567));
        assert_eq!((maps[1].label().as_ref(), maps[1].path()), ("[heap]", None));
        assert_eq!((maps[2].label().as_ref(), maps[2].deleted), ("", false));
        assert_eq!(maps[3].perms.bits(), 0);
        assert_eq!((maps[4].label().as_ref(), maps[4].deleted), ("/dev/shm/a b", true));
        assert_eq!((maps[4].perms.bits(), maps[4].offset), (0b1011, 0x1000));
        assert_eq!(maps[5].label(), "/tmp/two  blanks ");
        assert_eq!(maps[6].end, 0xffff_ffff_ff60_1000);
    }

    #[test]
    fn system_is_what_is_private_and_writable() {
        assert_eq!(system(&parse(SAMPLE).unwrap()), 0x21000 + 0x21000 + 0x1000);
    }

    #[test]
    fn other_forms_are_malformed() {
        for text in [
            "x",
            "1-2",
            "1-2 rwxp 0 0:0",
            "1-2 rw-z 0 0:0 0",
            "1-2 rw-p+ 0 0:0 0",
            "2-1 rw-p 0 0:0 0",
            "1-2 rw-p 0 0 0",
            "1-2 rw-p g 0:0 0",
        ] {
            assert!(matches!(parse(text.as_bytes()), Err(Error::Malformed { .. })), "{text:?}");
        }
        assert_eq!(parse(b"").unwrap(), []);
    }
}
