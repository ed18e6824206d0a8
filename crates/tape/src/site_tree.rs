//! The sites of a process read back, as the tree that they are on the tape.

use crate::codes::{CodesHeader, read_codes};
use crate::column::{Column, PayloadSource, Unpack, Unpacker, undelta};
use crate::index::{Located, ProcessContents};
use crate::site::{Code, Site, SiteCounts, SiteNumber};
use crate::sites::SitesHeader;
use crate::stacks::{MOST, MOST_TEXT};
use crate::{Error, Tape};
use heaptape_wire::site::{MAX_DEPTH, SiteEnd, interpreted_of};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A frame, further in than that of another node.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// The number of its frame among those that differ.
    frame: u32,
    outer: u32,
}

/// The sites of a process, and the interpreted code that their frames lie in.
///
/// They take some 10 bytes a frame that no other stack shares; a stack is put together when it is asked for. Clones are
/// the same ones, and so is what a tape gives again while it is held.
#[derive(Clone, Default)]
pub struct Sites(Arc<Tree>);

/// What is held of a process's sites as long as somebody reads them.
pub(crate) type HeldSites = Mutex<Weak<Tree>>;

#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Node 0 is the root, which is no frame.
    nodes: Vec<Node>,
    /// Frames from the root to each.
    depths: Vec<u8>,
    /// The frames that differ; the first is none.
    frames: Vec<u64>,
    sites: Vec<(u32, SiteEnd)>,
    codes: Vec<Code>,
}

impl Tree {
    fn read(tape: &Tape, contents: &ProcessContents) -> Result<Tree, Error> {
        let mut all = Tree {
            nodes: vec![Node { frame: 0, outer: 0 }],
            depths: vec![0],
            frames: vec![0],
            ..Tree::default()
        };
        let mut inside = Inside::default();
        for located in &contents.sites {
            are_few(&located.header).map_err(|why| why.at(located.frame))?;
            all.add_sites(tape, located, &mut inside).map_err(|why| why.at(located.frame))?;
        }
        let mut text = MOST_TEXT;
        for located in &contents.codes {
            all.add_codes(tape, located, &mut text).map_err(|why| why.at(located.frame))?;
        }
        Ok(all)
    }

    fn add_sites(
        &mut self,
        tape: &Tape,
        located: &Located<SitesHeader>,
        inside: &mut Inside,
    ) -> Result<(), Unpack> {
        let from = Unpacker { source: tape.payload(located), streams: &located.streams };
        self.unpack(&from, &located.header, inside).map_err(|why| match why {
            Wrong::Unpack(why) => why,
            Wrong::Broken => Unpack::Damaged("call stacks are not as many as their header says"),
        })
    }

    fn unpack<P: PayloadSource>(
        &mut self,
        from: &Unpacker<'_, P>,
        header: &SitesHeader,
        inside: &mut Inside,
    ) -> Result<(), Wrong> {
        let mut last = 0;
        let mut new = SiteCounts::default();
        let nodes = self.nodes.len() as u64;
        has_lengths(from, &header.new)?;
        let mut frames = FrameReader {
            places: from.numbers(Column::Place)?.into_iter(),
            frames: from.numbers(Column::Frame)?.into_iter(),
            addresses: from.numbers(Column::FrameAddress)?.into_iter(),
            last: 0,
            inside,
        };
        let ends = from.bytes(Column::SiteEnd)?;
        let branches = from.numbers(Column::Branch)?;
        let mut added = from.numbers(Column::Added)?.into_iter();
        for (end, branch) in ends.iter().zip(&branches) {
            let mut node = u32::try_from(undelta(last, *branch)).map_err(|_| Wrong::Broken)?;
            self.node(node)?;
            for _ in 0..added.next().ok_or(Wrong::Broken)? {
                let frame = frames.next(self.node(node)?.frame, &mut self.frames)?;
                node = self.grow(node, frame)?;
            }
            let end = SiteEnd::from_code(u64::from(*end)).ok_or(Wrong::Broken)?;
            self.sites.push((node, end));
            new.count(end);
            last = u64::from(node);
        }
        new.frames = self.nodes.len() as u64 - nodes;
        let is_whole = ends.len() == branches.len() && new == header.new;
        if is_whole { Ok(()) } else { Err(Wrong::Broken) }
    }

    fn node(&self, node: u32) -> Result<&Node, Wrong> {
        self.nodes.get(node as usize).ok_or(Wrong::Broken)
    }

    fn grow(&mut self, outer: u32, frame: u32) -> Result<u32, Wrong> {
        let depth = self.depths.get(outer as usize).ok_or(Wrong::Broken)? + 1;
        let next = u32::try_from(self.nodes.len()).map_err(|_| Wrong::Broken)?;
        if usize::from(depth) > MAX_DEPTH {
            return Err(Wrong::Broken);
        }
        self.nodes.push(Node { frame, outer });
        self.depths.push(depth);
        Ok(next)
    }

    /// Adds the code of a frame, for which there is so much room in bytes.
    fn add_codes(
        &mut self,
        tape: &Tape,
        located: &Located<CodesHeader>,
        room: &mut usize,
    ) -> Result<(), Unpack> {
        let CodesHeader { before, new } = located.header;
        let from = Unpacker { source: tape.payload(located), streams: &located.streams };
        let text = usize::try_from(from.length(Column::Code)).ok();
        let left = text.and_then(|text| room.checked_sub(text));
        let is_few = before.saturating_add(new) <= MOST as u64;
        *room = left.filter(|_| is_few).ok_or(TOO_MANY)?;
        let codes = read_codes(&located.header, &from.bytes(Column::Code)?);
        self.codes.extend(codes.map_err(|_| Unpack::Damaged("a list of code is too short"))?);
        Ok(())
    }

    /// The frames from a node to the outermost.
    fn frames(&self, node: u32) -> impl Iterator<Item = u64> + '_ {
        let outer = |node: &u32| self.nodes.get(*node as usize).map(|node| node.outer);
        let path = std::iter::successors(Some(node), outer).take_while(|&node| node > 0);
        path.filter_map(|node| {
            let node = self.nodes.get(node as usize)?;
            self.frames.get(node.frame as usize).copied()
        })
    }
}

impl Sites {
    /// Those of a process, read if nobody holds them.
    pub(crate) fn read(tape: &Tape, contents: &ProcessContents) -> Result<Sites, Error> {
        // Whoever waits here would read the same; one that has failed leaves nothing half done.
        let mut held = contents.held_sites.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tree) = held.upgrade() {
            return Ok(Sites(tree));
        }
        let tree = Arc::new(Tree::read(tape, contents)?);
        *held = Arc::downgrade(&tree);
        Ok(Sites(tree))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.sites.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.sites.is_empty()
    }

    /// A site.
    pub fn get(&self, number: SiteNumber) -> Option<Site> {
        let &(node, end) = self.0.sites.get(number.0 as usize)?;
        Some(Site { frames: self.0.frames(node).collect(), end })
    }

    /// All of them, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (SiteNumber, Site)> + '_ {
        (0..).zip(&self.0.sites).map(|(number, &(node, end))| {
            (SiteNumber(number), Site { frames: self.0.frames(node).collect(), end })
        })
    }

    /// The frames of a site, innermost first; none if there is no such site.
    pub fn frames_of(&self, number: SiteNumber) -> impl Iterator<Item = u64> + '_ {
        let node = self.0.sites.get(number.0 as usize).map_or(0, |site| site.0);
        self.0.frames(node)
    }

    /// The first frame of a site that is an address; 0 for none.
    pub fn caller(&self, number: SiteNumber) -> u64 {
        self.frames_of(number).find(|&frame| interpreted_of(frame).is_none()).unwrap_or(0)
    }

    /// The code with a number that stands in an interpreted frame.
    pub fn code(&self, number: u32) -> Option<&Code> {
        self.0.codes.get(number as usize)
    }

    /// All code, in the order of its numbers.
    pub fn codes(&self) -> &[Code] {
        &self.0.codes
    }
}

const TOO_MANY: Unpack =
    Unpack::Damaged("a process has more call stacks, or code of scripts, than are ever recorded");

/// Whether a process has no more sites and nodes than are ever written of one.
fn are_few(header: &SitesHeader) -> Result<(), Unpack> {
    let SitesHeader { sites, frames, new } = header;
    let most = sites.saturating_add(new.sites).max(frames.saturating_add(new.frames));
    if most <= MOST as u64 { Ok(()) } else { Err(TOO_MANY) }
}

/// Whether the columns are as long as the header says, before they are unpacked.
fn has_lengths<P: PayloadSource>(from: &Unpacker<'_, P>, new: &SiteCounts) -> Result<(), Wrong> {
    let equal = [Column::Branch, Column::Added, Column::SiteEnd].map(|column| (column, new.sites));
    let is_equal = |(column, count)| from.length(column) == count;
    let no_more = [Column::Frame, Column::FrameAddress];
    let is_right = equal.into_iter().chain([(Column::Place, new.frames)]).all(is_equal)
        && no_more.into_iter().all(|column| from.length(column) <= new.frames);
    if is_right { Ok(()) } else { Err(Wrong::Broken) }
}

/// What can be wrong with a frame of sites.
enum Wrong {
    Unpack(Unpack),
    /// It contradicts itself.
    Broken,
}

impl From<Unpack> for Wrong {
    fn from(why: Unpack) -> Wrong {
        Wrong::Unpack(why)
    }
}

/// The frames that were met directly inside of each, by their numbers.
#[derive(Default)]
struct Inside(Vec<Vec<u32>>);

impl Inside {
    fn of(&mut self, outer: u32) -> &mut Vec<u32> {
        let outer = outer as usize;
        if outer >= self.0.len() {
            self.0.resize_with(outer + 1, Vec::new);
        }
        &mut self.0[outer]
    }
}

/// The frames of new nodes, being read.
struct FrameReader<'a> {
    places: std::vec::IntoIter<u64>,
    frames: std::vec::IntoIter<u64>,
    addresses: std::vec::IntoIter<u64>,
    last: u64,
    inside: &'a mut Inside,
}

impl FrameReader<'_> {
    /// The number of the next frame, directly inside of that with the number `outer`. `known` are those that
    /// differ, so far.
    fn next(&mut self, outer: u32, known: &mut Vec<u64>) -> Result<u32, Wrong> {
        let place = self.places.next().ok_or(Wrong::Broken)? as usize;
        let met = self.inside.of(outer).len();
        if place < met {
            return self.inside.of(outer).get(place).copied().ok_or(Wrong::Broken);
        }
        if place > met {
            return Err(Wrong::Broken);
        }
        let number = match self.frames.next().ok_or(Wrong::Broken)? {
            0 => {
                self.last = undelta(self.last, self.addresses.next().ok_or(Wrong::Broken)?);
                known.push(self.last);
                known.len() as u64 - 1
            }
            number if number < known.len() as u64 => number,
            _ => return Err(Wrong::Broken),
        };
        let number = u32::try_from(number).map_err(|_| Wrong::Broken)?;
        self.inside.of(outer).push(number);
        Ok(number)
    }
}
