//! The contents of a section, unpacked where it is packed: as ELF does it, or by the older way of GNU.

use std::io::{self, Read};

use flate2::read::ZlibDecoder;

/// What stands before packed contents: the kind, four bytes of nothing, the size and the alignment.
const HEADER: usize = 24;
const ZLIB: u32 = 1;
const ZSTD: u32 = 2;

/// Unpacks what ELF's header says is packed. `None` where that is damaged, in no known way, or larger than `most`.
pub(crate) fn unpacked(packed: &[u8], most: u64) -> Option<Vec<u8>> {
    let (header, data) = packed.split_at_checked(HEADER)?;
    let kind = u32::from_le_bytes(*header.first_chunk()?);
    let size = u64::from_le_bytes(*header.get(8..)?.first_chunk()?);
    if size > most {
        return None;
    }
    match kind {
        ZLIB => all_of(ZlibDecoder::new(data), size),
        ZSTD => all_of(zstd::stream::read::Decoder::with_buffer(data).ok()?, size),
        _ => None,
    }
}

/// The same for a `.zdebug_` section.
pub(crate) fn unpacked_gnu(packed: &[u8], most: u64) -> Option<Vec<u8>> {
    let rest = packed.strip_prefix(b"ZLIB")?;
    let (size, data) = rest.split_first_chunk::<8>()?;
    let size = u64::from_be_bytes(*size);
    if size > most {
        return None;
    }
    all_of(ZlibDecoder::new(data), size)
}

/// All that a reader gives, if it is `size` bytes: room comes as it does.
fn all_of(reader: impl Read, size: u64) -> Option<Vec<u8>> {
    let bytes = up_to(reader, size).ok()?;
    (bytes.len() as u64 == size).then_some(bytes)
}

/// All that a reader gives; an error where that is more than `most`.
pub(crate) fn up_to(reader: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}
