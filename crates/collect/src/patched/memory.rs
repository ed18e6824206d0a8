//! The memory of a process, as far as it tells where its code goes.

use std::fs::File;
use std::os::unix::fs::FileExt;

use heaptape_proc::entries::CODE;
use heaptape_proc::{Mapping, read};

use crate::arch::{Jump, jump};

/// Jumps on end that are followed.
const HOPS: usize = 4;

/// A process's mappings, and what is in them.
pub(super) struct Memory {
    pub(super) maps: Vec<Mapping>,
    file: File,
}

impl Memory {
    /// Of a process; `None` where the kernel does not let us look.
    pub(super) fn of(pid: u32) -> Option<Memory> {
        let maps = read::maps(pid).ok().filter(|maps| !maps.is_empty())?;
        Some(Memory { maps, file: read::memory_of(pid).ok()? })
    }

    /// The mapping that an address lies in.
    pub(super) fn at(&self, address: u64) -> Option<&Mapping> {
        let after = self.maps.partition_point(|mapping| mapping.start <= address);
        self.maps.get(after.checked_sub(1)?).filter(|mapping| address < mapping.end)
    }

    pub(super) fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, address).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    fn code(&self, address: u64) -> Option<[u8; CODE]> {
        let mut bytes = [0; CODE];
        self.file.read_exact_at(&mut bytes, address).ok()?;
        Some(bytes)
    }

    /// Where code goes that should be `code`, if it is other code now: the file that it ends in, as far as jumps tell.
    pub(super) fn patcher(&self, address: u64, code: &[u8]) -> Option<Option<String>> {
        let found = self.code(address).filter(|found| !found.starts_with(code))?;
        Some(self.end(address, found))
    }

    /// The file that code jumps to, perhaps by way of memory of no file.
    fn end(&self, mut address: u64, mut code: [u8; CODE]) -> Option<String> {
        for _ in 0..HOPS {
            address = match jump(&code, address)? {
                Jump::To(address) => address,
                Jump::Through(pointer) => self.word(pointer)?,
            };
            let mapping = self.at(address)?;
            if mapping.path().is_some() {
                return Some(mapping.label().into_owned());
            }
            code = self.code(address)?;
        }
        None
    }

    /// The file that an address lies in, or that code there, in memory of no file, jumps to.
    pub(super) fn leads(&self, address: u64) -> Option<String> {
        match self.at(address)?.path() {
            Some(path) => Some(path.to_string_lossy().into_owned()),
            None => self.end(address, self.code(address)?),
        }
    }
}
