//! A frame of sites: new call stacks of a process as branches of a tree.
//!
//! The tree's nodes are frames, the outermost ones nearest to the root, which is node 0. Each site says at which node it
//! leaves the tree that is known so far, and adds the frames further in. A frame is told by its place among those that were met
//! directly inside of the outer one, since a call is nearly always followed by one of few. The reader's mirror is
//! [`Tree`](crate::site_tree::Tree).

use crate::column::{Column, Packer, delta};
use crate::field::{FieldReader, FieldWriter, Truncated};
use crate::numbers::Numbers;
use crate::site::SiteCounts;
use heaptape_wire::site::SiteEnd;
use std::io;

/// New sites as the writer gathers them.
#[derive(Debug, Default)]
pub(crate) struct RawSites {
    /// Sites and nodes before.
    before: SiteCounts,
    new: SiteCounts,
    /// The node of the site before.
    last: u32,
    branches: Numbers,
    added: Numbers,
    places: Numbers,
    frames: Numbers,
    addresses: Numbers,
    last_address: u64,
    ends: Vec<u8>,
}

impl RawSites {
    pub(crate) fn is_empty(&self) -> bool {
        self.new.sites == 0
    }

    /// An empty one that goes on behind this one.
    pub(crate) fn follower(&self) -> RawSites {
        let mut before = self.before;
        before.join(&self.new);
        RawSites { before, ..RawSites::default() }
    }

    /// A site whose frames leave the tree at `branch`; so many new ones follow, down to its `node`.
    pub(crate) fn site(&mut self, branch: u32, added: usize, node: u32, end: SiteEnd) {
        self.branches.push(delta(self.last.into(), branch.into()));
        self.added.push(added as u64);
        self.ends.push(end as u8);
        self.last = node;
        self.new.count(end);
    }

    /// A new node has the frame at this place among those inside of its outer frame.
    pub(crate) fn node(&mut self, place: u32) {
        self.places.push(place.into());
        self.new.frames += 1;
    }

    /// The place is a new one, of the frame with this number, which no node had before if it is given.
    pub(crate) fn inside(&mut self, number: u32, new: Option<u64>) {
        match new {
            Some(frame) => {
                self.frames.push(0);
                self.addresses.push(delta(std::mem::replace(&mut self.last_address, frame), frame));
            }
            None => self.frames.push(number.into()),
        }
    }

    /// Writes the header and packs the columns.
    pub(crate) fn pack(&self, packer: &mut Packer, header: &mut FieldWriter) -> io::Result<()> {
        let SiteCounts { sites, cut, foreign, unreadable, frames, .. } = self.new;
        header.numbers(&[self.before.sites, self.before.frames]);
        header.numbers(&[sites, frames, cut, foreign, unreadable]);
        packer.numbers(Column::Branch, &self.branches)?;
        packer.numbers(Column::Added, &self.added)?;
        packer.numbers(Column::Place, &self.places)?;
        packer.numbers(Column::Frame, &self.frames)?;
        packer.numbers(Column::FrameAddress, &self.addresses)?;
        packer.bytes(Column::SiteEnd, &self.ends)
    }
}

/// The header of a frame of sites.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SitesHeader {
    /// Sites and nodes before.
    pub(crate) sites: u64,
    pub(crate) frames: u64,
    /// What is new.
    pub(crate) new: SiteCounts,
}

impl SitesHeader {
    pub(crate) fn read(fields: &mut FieldReader<'_>) -> Result<SitesHeader, Truncated> {
        let (sites, frames) = (fields.number()?, fields.number()?);
        let new = SiteCounts {
            sites: fields.number()?,
            frames: fields.number()?,
            cut: fields.number()?,
            foreign: fields.number()?,
            unreadable: fields.number()?,
            codes: 0,
        };
        Ok(SitesHeader { sites, frames, new })
    }
}
