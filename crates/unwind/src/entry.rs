//! An entry of `.eh_frame`: a function's (FDE), with the part that it shares with others (CIE).

use core::ops::Range;

use crate::arch::RETURN;
use crate::bytes::Bytes;

/// What is common to many functions.
#[derive(Clone, Copy)]
pub(crate) struct Common {
    /// What steps in the code are a multiple of.
    pub(crate) code_align: u64,
    /// What offsets on the stack are a multiple of.
    pub(crate) data_align: i64,
    /// Whether its functions are the kernel's calls of signal handlers.
    pub(crate) is_signal: bool,
    /// How the functions' addresses are encoded.
    pub(crate) encoding: u8,
    /// Whether the functions' own entries have more data.
    is_augmented: bool,
    /// What each function begins with.
    pub(crate) program: Bytes,
}

/// A function's entry.
pub(crate) struct Function {
    pub(crate) common: Common,
    /// Its code.
    pub(crate) code: Range<u64>,
    /// How its frame changes from its begin on.
    pub(crate) program: Bytes,
}

/// Takes an entry's bytes; what is behind its length.
fn body(bytes: &mut Bytes) -> Option<Bytes> {
    match bytes.u32()? {
        // The end of all, and what no linker makes: 64 bits of length.
        0 | u32::MAX => None,
        length => bytes.take(u64::from(length)),
    }
}

impl Function {
    /// The entry at `at`.
    ///
    /// # Safety
    /// As for [`Bytes::new`].
    pub(crate) unsafe fn read(at: usize, module: &Range<usize>) -> Option<Function> {
        // SAFETY: as promised.
        let mut bytes = unsafe { Bytes::new(at, module) }?;
        let mut bytes = body(&mut bytes)?;
        let place = bytes.at();
        let common = place.checked_sub(bytes.u32()? as usize)?;
        // SAFETY: as promised.
        let common = unsafe { Common::read(common, module) }?;
        let start = bytes.address(common.encoding)?;
        let length = bytes.number(common.encoding)?;
        if common.is_augmented {
            let length = bytes.unsigned()?;
            bytes.take(length)?;
        }
        Some(Function { common, code: start..start.checked_add(length)?, program: bytes })
    }
}

impl Common {
    /// # Safety
    /// As for [`Bytes::new`].
    unsafe fn read(at: usize, module: &Range<usize>) -> Option<Common> {
        // SAFETY: as promised.
        let mut bytes = unsafe { Bytes::new(at, module) }?;
        let mut bytes = body(&mut bytes)?;
        if bytes.u32()? != 0 {
            return None;
        }
        let version = bytes.u8()?;
        let mut augmentation = bytes;
        while bytes.u8()? != 0 {}
        if version == 4 {
            // The sizes of addresses and of segments.
            bytes.u16()?;
        }
        let (code_align, data_align) = (bytes.unsigned()?, bytes.signed()?);
        let return_register = match version {
            1 => u64::from(bytes.u8()?),
            3 | 4 => bytes.unsigned()?,
            _ => return None,
        };
        if return_register != RETURN {
            return None;
        }
        let mut common = Common {
            code_align,
            data_align,
            is_signal: false,
            encoding: 0,
            is_augmented: false,
            program: bytes,
        };
        common.augment(&mut augmentation, bytes)?;
        Some(common)
    }

    /// Reads what the letters of the augmentation say there is.
    fn augment(&mut self, letters: &mut Bytes, mut bytes: Bytes) -> Option<()> {
        let mut letter = letters.u8()?;
        if letter == 0 {
            return Some(());
        }
        if letter != b'z' {
            return None;
        }
        self.is_augmented = true;
        let length = bytes.unsigned()?;
        let mut data = bytes.take(length)?;
        self.program = bytes;
        loop {
            letter = letters.u8()?;
            match letter {
                0 => return Some(()),
                b'R' => self.encoding = data.u8()?,
                b'S' => self.is_signal = true,
                b'L' => drop(data.u8()?),
                b'P' => {
                    let encoding = data.u8()?;
                    data.number(encoding)?;
                }
                b'B' => {}
                _ => return None,
            }
        }
    }
}
