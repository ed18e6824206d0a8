//! Holds the calls of a tape against its sites: a block of events names only those that stand before it, so that it can be read
//! wherever the tape is cut.

use crate::column::Unpacker;
use crate::index::ProcessContents;
use crate::site_tree::Sites;
use crate::unpacked::sites_named;
use crate::{Error, Tape};

/// Reads all sites of a process, and what its events name of them.
pub(crate) fn verify_sites(tape: &Tape, contents: &ProcessContents) -> Result<(), Error> {
    Sites::read(tape, contents)?;
    if !tape.has_sites() {
        return Ok(());
    }
    let mut frames = contents.sites.iter().peekable();
    let mut told = 0;
    for block in &contents.blocks {
        while let Some(frame) = frames.next_if(|frame| frame.frame < block.frame) {
            told += frame.header.new.sites;
        }
        let from = Unpacker { source: tape.payload(block), streams: &block.streams };
        let named = sites_named(&from).map_err(|why| why.at(block.frame))?;
        if named > told {
            let what = "a call has a site that does not stand before it";
            return Err(Error::Damaged { offset: block.frame, what });
        }
    }
    Ok(())
}
