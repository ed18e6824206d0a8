//! Everything on the wire that is not a heap call: mapping calls, allocator settings, marks, modules.
//!
//! A note has a kind, up to seven arguments and a text; it stands between two events and has no
//! index of its own.

use crate::event::{Malformed, OP_NOTE, Put, Words, head};

/// What a note tells. The arguments are listed with their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum NoteKind {
    /// `mmap`: address, length, protection, flags, descriptor, offset, result.
    Mmap = 1,
    /// `munmap`: address, length, result.
    Munmap = 2,
    /// `mremap`: address, old length, new length, flags, new address, result.
    Mremap = 3,
    /// `mprotect`: address, length, protection, result.
    Mprotect = 4,
    /// `madvise`: address, length, advice, result.
    Madvise = 5,
    /// `brk`: address, result.
    Brk = 6,
    /// `sbrk`: increment, result.
    Sbrk = 7,
    /// `shmat`: id, address, flags, result.
    Shmat = 8,
    /// `shmdt`: address, result.
    Shmdt = 9,
    /// `shmget`: key, size, flags, result.
    Shmget = 10,
    /// `shm_open`: flags, mode, result; text: the name.
    ShmOpen = 11,
    /// `memfd_create`: flags, result; text: the name.
    MemfdCreate = 12,
    /// `mallopt`: parameter, value, result.
    Mallopt = 13,
    /// `malloc_trim`: pad, result.
    MallocTrim = 14,
    /// An environment variable that an allocator reads; text: `NAME=value`.
    Setting = 15,
    /// A fork is about to happen: the number of the fork in this process.
    Fork = 16,
    /// An exec is about to happen; text: the file.
    Exec = 17,
    /// `dlopen` or `dlmopen` was called: flags, and the namespace for `dlmopen`; text: the file.
    Dlopen = 18,
    /// `dlclose` has returned: handle, result.
    Dlclose = 19,
    /// A thread is about to be made.
    ThreadCreate = 20,
    /// `MPI_Init` or `MPI_Init_thread` was entered.
    MpiInitEnter = 21,
    /// `MPI_Init` or `MPI_Init_thread` has returned: result.
    MpiInitReturn = 22,
    /// `seccomp` or `prctl(PR_SET_SECCOMP)` was called: operation.
    Seccomp = 23,
    /// A module is mapped: load bias, lowest address, end address; text: 20 bytes of build id (zero-padded), one byte its length, the path.
    Module = 24,
    /// The list of modules that just came is whole; a module that is not in it is unloaded. With an
    /// argument (1) it only says what is new since the list before.
    ModulesEnd = 25,
    /// The process leaves by `exit` or one of its kind, or by the end of `main`: its exit code.
    Exit = 26,
    /// A child has ended, says `wait` or one of its kind: its process id, its wait status.
    ChildEnded = 27,
    /// A module of the list before is unloaded: lowest address.
    ModuleGone = 28,
    /// A call stack that is new: its number, how it ends ([`crate::site::SiteEnd`]); text: its frames, innermost first,
    /// 8 bytes each.
    Site = 29,
    /// Interpreted code that is new: its number, its first line; text: its file, a zero byte, its name.
    Code = 30,
}

impl NoteKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [NoteKind; 30] = [
        NoteKind::Mmap,
        NoteKind::Munmap,
        NoteKind::Mremap,
        NoteKind::Mprotect,
        NoteKind::Madvise,
        NoteKind::Brk,
        NoteKind::Sbrk,
        NoteKind::Shmat,
        NoteKind::Shmdt,
        NoteKind::Shmget,
        NoteKind::ShmOpen,
        NoteKind::MemfdCreate,
        NoteKind::Mallopt,
        NoteKind::MallocTrim,
        NoteKind::Setting,
        NoteKind::Fork,
        NoteKind::Exec,
        NoteKind::Dlopen,
        NoteKind::Dlclose,
        NoteKind::ThreadCreate,
        NoteKind::MpiInitEnter,
        NoteKind::MpiInitReturn,
        NoteKind::Seccomp,
        NoteKind::Module,
        NoteKind::ModulesEnd,
        NoteKind::Exit,
        NoteKind::ChildEnded,
        NoteKind::ModuleGone,
        NoteKind::Site,
        NoteKind::Code,
    ];

    /// The kind with this code, if there is one.
    pub const fn from_code(code: u8) -> Option<NoteKind> {
        if code >= 1 && code as usize <= NoteKind::ALL.len() {
            Some(NoteKind::ALL[code as usize - 1])
        } else {
            None
        }
    }

    /// The name in listings: the function's own where the note is a call.
    pub const fn name(self) -> &'static str {
        match self {
            NoteKind::Mmap => "mmap",
            NoteKind::Munmap => "munmap",
            NoteKind::Mremap => "mremap",
            NoteKind::Mprotect => "mprotect",
            NoteKind::Madvise => "madvise",
            NoteKind::Brk => "brk",
            NoteKind::Sbrk => "sbrk",
            NoteKind::Shmat => "shmat",
            NoteKind::Shmdt => "shmdt",
            NoteKind::Shmget => "shmget",
            NoteKind::ShmOpen => "shm_open",
            NoteKind::MemfdCreate => "memfd_create",
            NoteKind::Mallopt => "mallopt",
            NoteKind::MallocTrim => "malloc_trim",
            NoteKind::Setting => "setting",
            NoteKind::Fork => "fork",
            NoteKind::Exec => "exec",
            NoteKind::Dlopen => "dlopen",
            NoteKind::Dlclose => "dlclose",
            NoteKind::ThreadCreate => "thread_create",
            NoteKind::MpiInitEnter => "mpi_init_enter",
            NoteKind::MpiInitReturn => "mpi_init_return",
            NoteKind::Seccomp => "seccomp",
            NoteKind::Module => "module",
            NoteKind::ModulesEnd => "modules_end",
            NoteKind::Exit => "exit",
            NoteKind::ChildEnded => "child_ended",
            NoteKind::ModuleGone => "module_gone",
            NoteKind::Site => "site",
            NoteKind::Code => "code",
        }
    }
}

/// The most arguments a note has.
pub const MAX_ARGS: usize = 7;
/// The longest text of a note, in bytes; longer ones are cut.
pub const MAX_TEXT: usize = 1024;
/// The longest note, in words.
pub const MAX_NOTE_WORDS: usize = 2 + MAX_ARGS + MAX_TEXT / 8 + 1;

/// The words a note takes, stamp included.
pub const fn note_words(args: usize, text: usize, stamped: bool) -> usize {
    2 + args + text.div_ceil(8) + stamped as usize
}

/// Writes a note. Arguments beyond [`MAX_ARGS`] and text beyond [`MAX_TEXT`] are left out.
///
/// ```text
/// word 0   bits 0..8 operation and flags · 8..16 kind · 16..24 arguments · 32..64 bytes of text
/// word 1   caller
/// …        the arguments, the text (zero-padded to words), the stamp
/// ```
pub fn put_note(
    out: &mut impl Put,
    kind: NoteKind,
    caller: u64,
    args: &[u64],
    text: &[u8],
    stamp: Option<u64>,
) {
    let args = &args[..if args.len() > MAX_ARGS { MAX_ARGS } else { args.len() }];
    let text = &text[..if text.len() > MAX_TEXT { MAX_TEXT } else { text.len() }];
    let shape = kind as u64 | (args.len() as u64) << 8 | (text.len() as u64) << 24;
    out.put(head(OP_NOTE, stamp.is_some(), false, shape));
    out.put(caller);
    for &arg in args {
        out.put(arg);
    }
    for piece in text.chunks(8) {
        let mut word = 0u64;
        for (i, &byte) in piece.iter().enumerate() {
            word |= (byte as u64) << (8 * i);
        }
        out.put(word);
    }
    if let Some(stamp) = stamp {
        out.put(stamp);
    }
}

/// A note read back; the text is still packed in words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoteRecord<'a> {
    /// What it tells.
    pub kind: NoteKind,
    /// The return address of the call; 0 for none.
    pub caller: u64,
    /// The arguments, as the kind lists them.
    pub args: &'a [u64],
    text_words: &'a [u64],
    text_len: usize,
    /// The order stamp.
    pub stamp: Option<u64>,
}

impl<'a> NoteRecord<'a> {
    pub(crate) fn decode(w0: u64, at: &mut Words<'a>) -> Result<NoteRecord<'a>, Malformed> {
        let shape = w0 >> 8;
        let kind = NoteKind::from_code(shape as u8).ok_or(Malformed)?;
        let args = (shape >> 8 & 0xff) as usize;
        let text_len = (shape >> 24) as usize;
        if args > MAX_ARGS || text_len > MAX_TEXT {
            return Err(Malformed);
        }
        let caller = at.take()?;
        let args = at.take_slice(args)?;
        let text_words = at.take_slice(text_len.div_ceil(8))?;
        let stamp = at.take_if(w0 & (1 << 5) != 0)?;
        Ok(NoteRecord { kind, caller, args, text_words, text_len, stamp })
    }

    /// The words that the text fills, where it is one of numbers.
    pub fn words(&self) -> &'a [u64] {
        self.text_words.get(..self.text_len / 8).unwrap_or_default()
    }

    /// The bytes of the text, in order.
    pub fn text(&self) -> impl Iterator<Item = u8> + 'a {
        let (words, len) = (self.text_words, self.text_len);
        (0..len).map(move |i| (words[i / 8] >> (8 * (i % 8))) as u8)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::event::Record;
    use std::vec::Vec;

    #[test]
    fn notes_of_every_kind_and_length_read_back() {
        for kind in NoteKind::ALL {
            for text in [&b""[..], b"x", b"12345678", b"/usr/lib/libfoo.so.1", &[0xff; MAX_TEXT]] {
                for args in [&[][..], &[1], &[u64::MAX; MAX_ARGS]] {
                    for stamp in [None, Some(3)] {
                        let mut out = Vec::new();
                        put_note(&mut out, kind, 42, args, text, stamp);
                        assert_eq!(out.len(), note_words(args.len(), text.len(), stamp.is_some()));
                        let (record, n) = Record::decode(&out).unwrap();
                        assert_eq!(n, out.len());
                        let Record::Note(note) = record else { panic!("not a note") };
                        assert_eq!((note.kind, note.caller, note.args), (kind, 42, args));
                        assert_eq!(note.text().collect::<Vec<_>>(), text);
                        let words = text.chunks_exact(8).map(|word| word.try_into().unwrap());
                        assert!(words.map(u64::from_le_bytes).eq(note.words().iter().copied()));
                        assert_eq!(record.stamp(), stamp);
                    }
                }
            }
        }
    }

    #[test]
    fn overlong_text_is_cut_and_still_reads() {
        let mut out = Vec::new();
        put_note(&mut out, NoteKind::Dlopen, 0, &[0; 9], &[b'a'; MAX_TEXT + 5], None);
        let (Record::Note(note), _) = Record::decode(&out).unwrap() else { panic!("not a note") };
        assert_eq!((note.args.len(), note.text().count()), (MAX_ARGS, MAX_TEXT));
    }
}
