//! Turns columns back into events: finds the block that each age means.
//!
//! This mirrors the writer: what one does to the live set when it writes an item, the other does
//! when it reads it.

use crate::births::{Births, Held, MakerCode};
use crate::event::Event;
use crate::item::{Columns, Effect, Maker, OldBlock, Release, Resolved};
use crate::keyframe::{Keyframe, KeyframeHeader};
use crate::live::Block;
use crate::operation::{Deed, Old, Operation, Outcome};
use crate::place::PlaceModel;
use crate::unpacked::UnpackedBlock;
use hashbrown::{HashMap, HashSet};

/// The block contradicts itself; the text says how.
pub(crate) type Broken = &'static str;

const SHORT: Broken = "a column of events is too short";

/// An early release that waits for its event.
#[derive(Clone, Copy)]
struct Waiting {
    address: u64,
    block: Option<OldBlock>,
}

/// What the next item was.
pub(crate) enum Step {
    End,
    Event,
    Release(Release),
}

/// The state of a process while its items are read in order.
pub(crate) struct Resolver {
    pub(crate) births: Births,
    pending: HashMap<u32, Waiting>,
    /// The number of its first own allocation.
    base: u64,
    /// Inherited blocks that it has ended.
    pub(crate) ended: HashSet<u64>,
    /// The index of the next event.
    pub(crate) index: u64,
    /// Events and early releases read.
    pub(crate) items: u64,
    /// What is read.
    columns: Columns,
    model: PlaceModel,
}

impl Resolver {
    /// The state of a process that starts; `base` is the number of its first own allocation.
    pub(crate) fn new(base: u64, columns: Columns) -> Resolver {
        Resolver {
            births: Births::new(base),
            pending: HashMap::new(),
            base,
            ended: HashSet::new(),
            index: 0,
            items: 0,
            columns,
            model: PlaceModel::new(),
        }
    }

    /// Folds the next keyframe in.
    pub(crate) fn fold(
        &mut self,
        header: &KeyframeHeader,
        keyframe: Keyframe<impl Iterator<Item = (u64, Held)>, impl Iterator<Item = u64>>,
    ) {
        for ordinal in keyframe.ended {
            self.end(ordinal);
        }
        self.births.go_on_from(header.ordinal);
        for (ordinal, held) in keyframe.born {
            self.births.put_back(ordinal, held);
        }
        self.pending.clear();
        for (thread, address, block) in keyframe.pending {
            let block = block.map(|Block { ordinal, size, slack }| {
                let Held { birth, maker, .. } = self.births.get(ordinal).unwrap_or_default();
                self.old(ordinal, Held { address, birth, size, slack, maker }, header.ordinal)
            });
            self.pending.insert(thread, Waiting { address, block });
        }
        (self.index, self.items) = (header.events, header.items);
    }

    /// After the last keyframe is folded in: blocks that wait for their event are not at their
    /// addresses.
    pub(crate) fn folded(&mut self) {
        for waiting in self.pending.values() {
            if let Some(block) = waiting.block {
                self.births.take(block.ordinal);
            }
        }
    }

    /// Whether keyframes, folded but for [`Resolver::folded`], gave the state that reading all items
    /// gave.
    pub(crate) fn agrees_with(&self, read: &Resolver) -> bool {
        let waiting = read.waiting().filter_map(|old| Some((old.ordinal, old.held()?)));
        let mut alive = 0;
        let mut is_known = |(ordinal, held)| {
            alive += 1;
            self.births.get(ordinal) == Some(held)
        };
        self.ended == read.ended
            && self.waits_like(read)
            && read.births.iter().chain(waiting).all(&mut is_known)
            && self.births.iter().count() == alive
    }

    fn waits_like(&self, other: &Resolver) -> bool {
        // A keyframe counts the age from where it stands.
        let block = |waiting: &Waiting| waiting.block.map(|block| OldBlock { age: 0, ..block });
        let is_like = |(thread, waiting): (&u32, &Waiting)| {
            other.pending.get(thread).is_some_and(|there| {
                there.address == waiting.address && block(there) == block(waiting)
            })
        };
        self.pending.len() == other.pending.len() && self.pending.iter().all(is_like)
    }

    /// The blocks of early releases that wait for their event; they still count.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = OldBlock> + '_ {
        self.pending.values().filter_map(|waiting| waiting.block)
    }

    /// A new block of events begins; the models start afresh.
    pub(crate) fn begin_block(&mut self) {
        self.model.reset();
    }

    fn old(&self, ordinal: u64, held: Held, next: u64) -> OldBlock {
        OldBlock {
            birth: (ordinal >= self.base).then_some(held.birth),
            ordinal,
            age: 0,
            size: held.size,
            slack: held.slack,
            address: held.address,
            maker: held.maker.maker(),
        }
        .at(next)
    }

    fn end(&mut self, ordinal: u64) {
        if ordinal < self.base {
            self.ended.insert(ordinal);
        } else {
            self.births.take(ordinal);
        }
    }

    /// The block that the next age means; `take` ends it.
    #[inline]
    fn refer(&mut self, block: &mut UnpackedBlock, take: bool) -> Result<OldBlock, Broken> {
        let ordinal = block.ages.next(&block.operations, &self.births).ok_or(SHORT)?;
        let old = self.refer_to(ordinal, block, take)?;
        if take && self.columns.address {
            self.model.freed(old.address, old.size.wrapping_add(old.slack));
        }
        Ok(old)
    }

    #[inline]
    fn refer_to(
        &mut self,
        ordinal: u64,
        block: &mut UnpackedBlock,
        take: bool,
    ) -> Result<OldBlock, Broken> {
        let held = if ordinal < self.base {
            inherited(block)?
        } else {
            let held = if take { self.births.take(ordinal) } else { self.births.get(ordinal) };
            held.ok_or("an age means a block that is not alive")?
        };
        Ok(self.old(ordinal, held, self.births.next()))
    }

    /// Marks an inherited block as ended for good; own ones are gone when they are taken.
    #[inline]
    fn finish(&mut self, old: &OldBlock) {
        if old.birth.is_none() {
            self.ended.insert(old.ordinal);
        }
    }

    /// If an order fault lies in the current item: ends the displaced block.
    #[inline]
    fn displace(&mut self, block: &mut UnpackedBlock) -> Result<Option<OldBlock>, Broken> {
        match block.fault {
            Some((item, age)) if item == block.item as u64 => {
                block.next_fault();
                let ordinal = self.births.next().wrapping_sub(1).wrapping_sub(age);
                let displaced = self.refer_to(ordinal, block, true)?;
                self.finish(&displaced);
                Ok(Some(displaced))
            }
            _ => Ok(None),
        }
    }

    /// Reads the next item of `block`; an event goes to `out`.
    #[inline]
    pub(crate) fn step(
        &mut self,
        block: &mut UnpackedBlock,
        out: &mut Resolved,
    ) -> Result<Step, Broken> {
        let Some(&operation) = block.operations.get(block.item) else { return Ok(Step::End) };
        let deed = Operation(operation).deed().ok_or("an operation does not exist")?;
        let thread = block.threads.next() as u32;
        let time = block.times.next();
        let step = match deed {
            Deed::EarlyRelease { known } => {
                Step::Release(self.release(block, known, thread, time)?)
            }
            _ => {
                out.clear(self.index);
                (out.event.thread, out.event.time) = (thread, time);
                if let Some(caller) = block.callers.next() {
                    (out.event.caller, out.site) = (caller.address, caller.site);
                    out.caller = Some(caller.number);
                }
                self.event(block, deed, out)?;
                self.index = self.index.wrapping_add(1);
                Step::Event
            }
        };
        block.item += 1;
        self.items = self.items.wrapping_add(1);
        Ok(step)
    }

    #[inline]
    fn event(
        &mut self,
        block: &mut UnpackedBlock,
        deed: Deed,
        resolved: &mut Resolved,
    ) -> Result<(), Broken> {
        match deed {
            Deed::EarlyRelease { .. } => Ok(()),
            Deed::Release { call, known } => {
                resolved.event.call = call;
                if known {
                    resolved.effect = Effect::Freed;
                    let old = self.refer(block, true)?;
                    self.finish(&old);
                    resolved.event.address = old.address;
                    resolved.block = Some(old);
                } else {
                    resolved.event.address = block.unknown.next().ok_or(SHORT)?;
                }
                Ok(())
            }
            Deed::Allocate { call, failed, aligned } => {
                resolved.event.call = call;
                resolved.event.size = block.sizes.next().ok_or(SHORT)?;
                if aligned {
                    resolved.event.align = block.aligns.next().ok_or(SHORT)?;
                }
                resolved.effect = if failed { Effect::Failed } else { Effect::Made };
                if !failed {
                    self.place(block, &mut resolved.event)?;
                    self.born(block, resolved)?;
                }
                Ok(())
            }
            Deed::Reallocate { call, old, outcome } => {
                resolved.event.call = call;
                resolved.effect = effect(old, outcome);
                self.old_of(block, old, outcome, resolved)?;
                self.new_of(block, outcome, resolved)
            }
        }
    }

    /// The slack of a new block of `size` bytes.
    #[inline]
    fn slack(&mut self, block: &mut UnpackedBlock, size: u64) -> Result<u64, Broken> {
        if !self.columns.slack && !self.columns.address {
            return Ok(0);
        }
        Ok(self.model.slack(size, block.slacks.next().ok_or(SHORT)?))
    }

    /// The slack and the address of a new block.
    #[inline]
    fn place(&mut self, block: &mut UnpackedBlock, event: &mut Event) -> Result<(), Broken> {
        event.slack = self.slack(block, event.size)?;
        event.address = self.address(block, event.size.wrapping_add(event.slack))?;
        Ok(())
    }

    /// The address of a new block.
    #[inline]
    fn address(&mut self, block: &mut UnpackedBlock, usable: u64) -> Result<u64, Broken> {
        if !self.columns.address {
            return Ok(0);
        }
        self.model.place(usable, &mut block.addresses).ok_or(SHORT)
    }

    #[inline]
    fn born(&mut self, block: &mut UnpackedBlock, resolved: &mut Resolved) -> Result<(), Broken> {
        resolved.displaced = self.displace(block)?;
        let Event { size, slack, address, .. } = resolved.event;
        let maker = resolved.caller.map(|caller| Maker { caller, thread: resolved.event.thread });
        let maker = MakerCode::of(maker);
        let held = Held { birth: resolved.index, size, slack, address, maker };
        resolved.ordinal = Some(self.births.born(held));
        Ok(())
    }

    fn release(
        &mut self,
        block: &mut UnpackedBlock,
        known: bool,
        thread: u32,
        time: u64,
    ) -> Result<Release, Broken> {
        let old = if known { Some(self.refer(block, true)?) } else { None };
        let address = match &old {
            Some(old) => old.address,
            None => block.unknown.next().ok_or(SHORT)?,
        };
        let before = self.pending.insert(thread, Waiting { address, block: old });
        let next = self.births.next();
        let lost = before.and_then(|waiting| waiting.block).map(|lost| lost.at(next));
        if let Some(lost) = &lost {
            self.finish(lost);
        }
        Ok(Release { index: self.index, thread, time, address, block: old, lost })
    }

    /// Makes the block that a reallocation gave, if it gave one.
    fn new_of(
        &mut self,
        block: &mut UnpackedBlock,
        outcome: Outcome,
        resolved: &mut Resolved,
    ) -> Result<(), Broken> {
        if outcome != Outcome::Freed {
            resolved.event.size = block.sizes.next().ok_or(SHORT)?;
        }
        match outcome {
            Outcome::Failed | Outcome::Freed => return Ok(()),
            Outcome::InPlace => {
                resolved.event.slack = self.slack(block, resolved.event.size)?;
                resolved.event.address = resolved.event.old;
            }
            Outcome::Moved => self.place(block, &mut resolved.event)?,
        }
        self.born(block, resolved)
    }

    /// Finds the block that a reallocation was given, and ends it unless the call failed.
    fn old_of(
        &mut self,
        block: &mut UnpackedBlock,
        old: Old,
        outcome: Outcome,
        resolved: &mut Resolved,
    ) -> Result<(), Broken> {
        let failed = outcome == Outcome::Failed;
        match old {
            Old::None => {}
            Old::Unknown => resolved.event.old = block.unknown.next().ok_or(SHORT)?,
            Old::Known => {
                let known = self.refer(block, !failed)?;
                if !failed {
                    self.finish(&known);
                }
                resolved.event.old = known.address;
                resolved.block = Some(known);
            }
            Old::Released => {
                let waiting = self.pending.remove(&resolved.event.thread);
                let waiting = waiting.ok_or("a reallocation has no early release")?;
                resolved.event.old = waiting.address;
                resolved.early = true;
                // Its age is that at the event; others were allocated since it was given up.
                let next = self.births.next();
                resolved.block = waiting.block.map(|old| old.at(next));
                match waiting.block {
                    Some(old) if failed => {
                        resolved.displaced = self.displace(block)?;
                        self.restore(&old);
                    }
                    Some(old) => self.finish(&old),
                    None if outcome == Outcome::Freed => resolved.effect = Effect::Unknown,
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// A reallocation failed after its early release: its block is alive again.
    fn restore(&mut self, old: &OldBlock) {
        if let Some(held) = old.held() {
            self.births.put_back(old.ordinal, held);
        }
    }
}

/// The inherited block that comes next.
fn inherited(block: &mut UnpackedBlock) -> Result<Held, Broken> {
    let mut next = || block.inherited.next().ok_or(SHORT);
    let (size, slack, address) = (next()?, next()?, next()?);
    Ok(Held { birth: 0, size, slack, address, maker: MakerCode::default() })
}

/// What a reallocation did.
fn effect(old: Old, outcome: Outcome) -> Effect {
    match (outcome, old) {
        (Outcome::Failed, _) => Effect::Failed,
        (Outcome::Freed, Old::Unknown) => Effect::Unknown,
        (Outcome::Freed, _) => Effect::Freed,
        (_, Old::None) => Effect::Made,
        (Outcome::InPlace, _) => Effect::InPlace,
        (Outcome::Moved, _) => Effect::Moved,
    }
}
