//! Where the executable lies, as the kernel has told the program.

use core::ops::Range;

use heaptape_wire::note::MAX_TEXT;

use crate::arch::{self, syscall};
use crate::lifecycle;
use crate::modules::{self, Header};
use crate::pages::PAGE;

const PT_PHDR: u32 = 6;
const AT_PHDR: usize = 3;
const AT_PHNUM: usize = 5;

unsafe extern "C" {
    /// libc's, which looks into what it has kept: no lock, no memory.
    fn getauxval(kind: usize) -> usize;
}

/// From the first byte of its first segment to behind the last of its last; empty where that is not known.
#[cold]
pub fn extent() -> Range<usize> {
    // SAFETY: the kernel's table of the executable's segments, which stays mapped.
    let headers = unsafe {
        let (table, count) = (getauxval(AT_PHDR), getauxval(AT_PHNUM));
        if table == 0 {
            return 0..0;
        }
        core::slice::from_raw_parts(table as *const Header, count)
    };
    let Some(own) = headers.iter().find(|header| header.kind == PT_PHDR) else { return 0..0 };
    let bias = (headers.as_ptr() as usize).wrapping_sub(own.address as usize);
    let Some((low, high)) = modules::extent(headers) else { return 0..0 };
    bias.wrapping_add(low as usize)..bias.wrapping_add(high as usize)
}

/// The executable's path, as the kernel knows it; empty where it can't be told. `start`: where it begins in memory.
pub fn path(start: usize, room: &mut [u8; MAX_TEXT]) -> &[u8] {
    if lifecycle::is_sandboxed() {
        return &[];
    }
    let link = c"/proc/self/exe".as_ptr() as usize;
    let place = room.as_mut_ptr() as usize;
    // SAFETY: writes at most the room's length into it.
    let length = unsafe { syscall(arch::SYS_READLINK, [link, place, room.len(), 0, 0, 0]) };
    let mut length = usize::try_from(length).unwrap_or(0).min(room.len());
    let name = room[..length].rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    // The loader can be started as a program, with the name of that which it is to load.
    if name.starts_with(b"ld-") || name.starts_with(b"ld.so") {
        length = mapped_file(start / PAGE * PAGE, room).unwrap_or(length);
    }
    &room[..length]
}

/// The path of the file that is mapped at an address, by the kernel's list; how long it is.
fn mapped_file(start: usize, room: &mut [u8; MAX_TEXT]) -> Option<usize> {
    const AT_FDCWD: usize = -100i32 as usize;
    const O_CLOEXEC: usize = 0o2_000_000;
    let name = c"/proc/self/maps".as_ptr() as usize;
    // SAFETY: reads a C string.
    let file = unsafe { syscall(arch::SYS_OPENAT, [AT_FDCWD, name, O_CLOEXEC, 0, 0, 0]) };
    let file = usize::try_from(file).ok()?;
    let mut line = Line::NEW;
    let mut part = [0u8; 1024];
    let found = loop {
        let (place, most) = (part.as_mut_ptr() as usize, part.len());
        // SAFETY: writes at most the part's length into it.
        let length = unsafe { syscall(arch::SYS_READ, [file, place, most, 0, 0, 0]) };
        let Some(bytes) = usize::try_from(length).ok().and_then(|n| part.get(..n)) else {
            break None;
        };
        if bytes.is_empty() {
            break None;
        }
        if bytes.iter().any(|&byte| line.is_over(byte, start, room)) {
            break Some(line.length);
        }
    };
    // SAFETY: the descriptor is our own.
    unsafe { syscall(arch::SYS_CLOSE, [file, 0, 0, 0, 0, 0]) };
    found
}

/// What has been read of a line of the kernel's list, `START-END ... PATH`.
struct Line {
    start: usize,
    is_start: bool,
    is_wanted: bool,
    length: usize,
}

impl Line {
    const NEW: Line = Line { start: 0, is_start: true, is_wanted: false, length: 0 };

    /// Takes one byte more, the path into the room; whether that was the end of the line that is wanted.
    fn is_over(&mut self, byte: u8, wanted: usize, room: &mut [u8; MAX_TEXT]) -> bool {
        match byte {
            b'\n' if self.is_wanted => return true,
            b'\n' => *self = Line::NEW,
            b'-' if self.is_start => {
                (self.is_start, self.is_wanted) = (false, self.start == wanted)
            }
            _ if self.is_start => {
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                self.start = self.start << 4 | digit as usize;
            }
            _ if self.is_wanted && (byte == b'/' || self.length > 0) => {
                if let Some(place) = room.get_mut(self.length) {
                    *place = byte;
                    self.length += 1;
                }
            }
            _ => {}
        }
        false
    }
}
