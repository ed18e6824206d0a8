//! The files that tell of a module, one after the other: its own, its debug files, and what a server has.

use std::path::PathBuf;

use crate::Error;
use crate::debuginfod::Servers;
use crate::elf::Elf;
use crate::search::{Candidate, ModuleId, Search};

/// A recording keeps this many bytes of a build id, the length of the usual ones; of a longer one no more.
const KEPT: usize = 20;

/// Files that are longer are not read to the end for their checksum.
const LONGEST: u64 = 4 << 30;

/// Shows the files of a module to `is_enough` until it says so. What can't be read is as good as not there.
pub(crate) fn visit(
    search: &Search,
    servers: &mut Servers,
    module: &ModuleId,
    is_enough: &mut dyn FnMut(&Elf) -> bool,
) {
    let mut links = Vec::new();
    for candidate in search.candidates(module) {
        let Ok(Some(elf)) = right_file(&candidate, &module.build_id) else { continue };
        if is_enough(&elf) {
            return;
        }
        links.extend(link(&elf).map(|link| (elf.path().to_owned(), link)));
    }
    for (path, link) in links {
        for place in search.linked(&path, &link.name) {
            if let Some(elf) = linked_file(place, &link, &module.build_id)
                && is_enough(&elf)
            {
                return;
            }
        }
    }
    if search.asks()
        && let Some(path) = servers.find(&module.build_id)
    {
        let found = right_file(&Candidate { path, trusted: false }, &module.build_id);
        if let Ok(Some(elf)) = found {
            is_enough(&elf);
        }
    }
}

/// Opens a file, if it is the very build that was recorded.
fn right_file(candidate: &Candidate, recorded: &[u8]) -> Result<Option<Elf>, Error> {
    if recorded.is_empty() && !candidate.trusted {
        return Ok(None);
    }
    let elf = Elf::open(&candidate.path)?;
    let is_same = is_same(&elf.build_id()?, recorded);
    Ok(is_same.then_some(elf))
}

fn is_same(found: &[u8], recorded: &[u8]) -> bool {
    match recorded.len() {
        0 => found.is_empty(),
        KEPT => found.starts_with(recorded),
        _ => found == recorded,
    }
}

/// What a stripped file says of its debug file.
struct Link {
    name: String,
    checksum: u32,
}

fn link(elf: &Elf) -> Option<Link> {
    let section = elf.section(".gnu_debuglink", 1 << 16)?;
    let end = memchr::memchr(0, &section)?;
    let name = String::from_utf8(section.get(..end)?.to_vec()).ok()?;
    let checksum = section.get((end + 1).next_multiple_of(4)..)?.first_chunk()?;
    Some(Link { name, checksum: u32::from_le_bytes(*checksum) })
}

/// A debug file that is the right one by its build id, or, where none was recorded, by its checksum.
fn linked_file(path: PathBuf, link: &Link, recorded: &[u8]) -> Option<Elf> {
    let elf = Elf::open(&path).ok()?;
    let found = elf.build_id().ok()?;
    let is_right = match recorded.is_empty() || found.is_empty() {
        true => found.is_empty() == recorded.is_empty() && checksum(&elf)? == link.checksum,
        false => is_same(&found, recorded),
    };
    is_right.then_some(elf)
}

fn checksum(elf: &Elf) -> Option<u32> {
    if elf.length() > LONGEST {
        return None;
    }
    let mut checksum = crc32fast::Hasher::new();
    for piece in elf.pieces() {
        checksum.update(&piece.ok()?);
    }
    Some(checksum.finalize())
}
