//! What a module defines for others, read from its own tables: without a lock, and without the loader's knowledge, which would keep
//! a module that `dlsym` has found something in for ever.

use core::ffi::{CStr, c_char};

/// `Elf64_Sym` of <elf.h>.
#[repr(C)]
pub struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    /// 0 for a symbol that is not defined here.
    pub section: u16,
    value: u64,
    size: u64,
}

/// `Elf64_Dyn` of <elf.h>.
#[repr(C)]
pub struct Dynamic {
    tag: i64,
    value: usize,
}

/// The tables of a module.
pub struct Exported {
    bias: usize,
    symbols: *const Symbol,
    names: *const c_char,
    hashed: *const u32,
}

impl Exported {
    /// Those of a module that is loaded with this bias; `None` where it has no table by the usual hash.
    ///
    /// # Safety
    /// The module stays mapped while this is used.
    pub unsafe fn of(bias: usize, dynamic: *const Dynamic) -> Option<Exported> {
        const STRTAB: i64 = 5;
        const SYMTAB: i64 = 6;
        const GNU_HASH: i64 = 0x6fff_fef5;
        let (mut symbols, mut names, mut hashed) = (0, 0, 0);
        let mut entry = dynamic;
        // SAFETY: a table that ends with a tag of 0.
        while let Some(&Dynamic { tag, value }) = unsafe { entry.as_ref() }.filter(|e| e.tag != 0) {
            // The loader has made these addresses, but for a table that it can't write.
            let address = if value < bias { value + bias } else { value };
            match tag {
                STRTAB => names = address,
                SYMTAB => symbols = address,
                GNU_HASH => hashed = address,
                _ => {}
            }
            entry = entry.wrapping_add(1);
        }
        let is_whole = symbols != 0 && names != 0 && hashed != 0;
        is_whole.then_some(Exported {
            bias,
            symbols: symbols as *const Symbol,
            names: names as *const c_char,
            hashed: hashed as *const u32,
        })
    }

    /// The address of a function or variable; 0 where there is none of that name.
    pub fn address(&self, name: &CStr) -> usize {
        const KIND: u8 = 0xf;
        const FUNCTION: u8 = 2;
        match self.find(name) {
            Some(symbol) if (1..=FUNCTION).contains(&(symbol.info & KIND)) => {
                self.bias.wrapping_add(symbol.value as usize)
            }
            _ => 0,
        }
    }

    /// Looks up by the table `DT_GNU_HASH`: four numbers, a Bloom filter, the first symbol of each bucket, and of each symbol a
    /// hash, whose lowest bit tells the last one of a bucket.
    fn find(&self, name: &CStr) -> Option<&Symbol> {
        let hash = hash(name);
        // SAFETY: the table, as it is laid out.
        unsafe {
            let word = |at: usize| self.hashed.add(at).read();
            let [buckets, first, filters, shift] = [0, 1, 2, 3].map(word);
            if buckets == 0 || filters == 0 {
                return None;
            }
            let filter = self.hashed.add(4).cast::<u64>();
            let seen = filter.add(hash as usize / 64 % filters as usize).read();
            if seen >> (hash % 64) & seen >> ((hash >> shift) % 64) & 1 == 0 {
                return None;
            }
            let bucket = 4 + 2 * filters as usize;
            let mut number = word(bucket + (hash % buckets) as usize);
            while number >= first && number != 0 {
                let its = word(bucket + (buckets + number - first) as usize);
                let symbol = &*self.symbols.add(number as usize);
                if (its ^ hash) >> 1 == 0 && symbol.section != 0 && self.name(symbol) == name {
                    return Some(symbol);
                }
                if its & 1 != 0 {
                    break;
                }
                number += 1;
            }
        }
        None
    }

    fn name(&self, symbol: &Symbol) -> &CStr {
        // SAFETY: the table of names, of C strings.
        unsafe { CStr::from_ptr(self.names.add(symbol.name as usize)) }
    }
}

/// The hash of `DT_GNU_HASH`.
fn hash(name: &CStr) -> u32 {
    let bytes = name.to_bytes().iter();
    bytes.fold(5381u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}
