//! A plain model of what a tape must say, and the streams to hold it against.
//!
//! The model copies live sets where the crate shares them and searches where it computes.

use heaptape_tape::*;
use heaptape_wire::site::{MAX_DEPTH, SITE_BIT, interpreted, site_of};
use std::collections::BTreeMap;

/// One thing to do to a writer.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Event(usize, Event),
    Release(usize, u32, u64, u64),
    Note(usize, Note),
    Sample(usize, Sample),
    Exec,
    Point(usize),
    Child(usize),
    Drop(usize),
    End(usize),
    Flush,
    Site(usize, u32, SiteEnd, Vec<u64>),
    Code(usize, u32, Code),
}

/// A live block of the model, and whether the process inherited it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Held {
    pub(crate) block: LiveBlock,
    pub(crate) inherited: bool,
}

impl Held {
    /// The same while it waits for the event of a reallocation.
    fn released(self) -> Held {
        Held { block: LiveBlock { released: true, ..self.block }, ..self }
    }
}

/// A process of the model.
#[derive(Clone, Default)]
pub(crate) struct Process {
    pub(crate) number: u32,
    pub(crate) live: BTreeMap<u64, Held>,
    pub(crate) pending: BTreeMap<u32, (u64, Option<Held>)>,
    /// Inherited blocks that waited for the event of a reallocation while another one stood at
    /// their address.
    pub(crate) hidden: Vec<Held>,
    pub(crate) ordinal: u64,
    callers: BTreeMap<(u64, Option<SiteNumber>), CallerNumber>,
    /// What each of the program's numbers means, on a tape with sites.
    pub(crate) site_ids: BTreeMap<u32, SiteNumber>,
    pub(crate) sites: Vec<Site>,
    pub(crate) code_ids: BTreeMap<u32, u32>,
    pub(crate) codes: Vec<Code>,
    pub(crate) index: u64,
    pub(crate) items: Vec<Item>,
    /// The live set after each event.
    pub(crate) history: Vec<Vec<LiveBlock>>,
    pub(crate) unknown_frees: u64,
    pub(crate) order_faults: u64,
    pub(crate) peak: u64,
    pub(crate) peak_at: u64,
    pub(crate) ended: bool,
}

impl Process {
    fn old(&self, held: Held) -> OldBlock {
        OldBlock {
            birth: (!held.inherited).then_some(held.block.birth),
            ordinal: held.block.ordinal,
            age: self.ordinal - 1 - held.block.ordinal,
            size: held.block.size,
            slack: held.block.slack,
            address: held.block.address,
            maker: (!held.inherited).then(|| Maker {
                caller: self.callers[&(held.block.caller, held.block.site)],
                thread: held.block.thread,
            }),
        }
    }

    /// The number of a caller: they are counted as they come.
    fn caller(&mut self, caller: (u64, Option<SiteNumber>)) -> CallerNumber {
        let next = CallerNumber(self.callers.len() as u32);
        *self.callers.entry(caller).or_insert(next)
    }

    /// All that counts as live, by address.
    pub(crate) fn all(&self) -> Vec<LiveBlock> {
        let waiting = self.pending.values().filter_map(|(_, held)| held.map(Held::released));
        let all = self.live.values().chain(&self.hidden).copied().chain(waiting);
        let all = all.map(|held| held.block);
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|block| (block.address, block.ordinal));
        all
    }

    pub(crate) fn requested(&self) -> u64 {
        self.all().iter().fold(0, |sum, block| sum.wrapping_add(block.size))
    }

    fn place(&mut self, resolved: &mut Resolved, event: &Event) {
        let block = LiveBlock {
            address: event.address,
            size: event.size,
            slack: event.slack,
            align: event.align,
            birth: self.index,
            ordinal: self.ordinal,
            process: ProcessNumber(self.number),
            thread: event.thread,
            caller: event.caller,
            site: resolved.site,
            time: event.time,
            released: false,
        };
        self.put(resolved, event.address, Held { block, inherited: false });
        resolved.ordinal = Some(self.ordinal);
        self.ordinal += 1;
    }

    fn put(&mut self, resolved: &mut Resolved, address: u64, held: Held) {
        if let Some(displaced) = self.live.insert(address, held) {
            resolved.displaced = Some(self.old(displaced));
            self.order_faults += 1;
        }
    }

    /// The address and the site that a caller's word means.
    fn meaning(&self, word: u64, has_sites: bool) -> (u64, Option<SiteNumber>) {
        if !has_sites || word < SITE_BIT {
            return (word, None);
        }
        let site = site_of(word).and_then(|id| self.site_ids.get(&id)).copied();
        (site.map_or(0, |site| self.sites[site.0 as usize].caller()), site)
    }

    fn site(&mut self, id: u32, end: SiteEnd, frames: &[u64]) {
        let is_cut = frames.len() > MAX_DEPTH;
        let coded = frames.iter().take(MAX_DEPTH).map(|&frame| match interpreted_of(frame) {
            Some((code, line)) => {
                interpreted(self.code_ids.get(&code).copied().unwrap_or(UNKNOWN_CODE), line)
            }
            None => frame,
        });
        let site = Site { frames: coded.collect(), end: if is_cut { SiteEnd::Depth } else { end } };
        if self.site_ids.contains_key(&id) {
            return;
        }
        let known = self.sites.iter().position(|known| *known == site);
        let number = known.unwrap_or_else(|| {
            self.sites.push(site);
            self.sites.len() - 1
        });
        self.site_ids.insert(id, SiteNumber(number as u32));
    }

    fn code(&mut self, id: u32, code: &Code) {
        if self.code_ids.contains_key(&id) {
            return;
        }
        let known = self.codes.iter().position(|known| known == code);
        let number = known.unwrap_or_else(|| {
            self.codes.push(code.clone());
            self.codes.len() - 1
        });
        self.code_ids.insert(id, number as u32);
    }

    fn event(&mut self, event: &Event, has_sites: bool) {
        let (caller, site) = self.meaning(event.caller, has_sites);
        let event = &Event { caller, ..*event };
        let mut resolved = Resolved {
            index: self.index,
            event: *event,
            effect: Effect::Unknown,
            caller: Some(self.caller((caller, site))),
            site,
            ordinal: None,
            block: None,
            early: false,
            displaced: None,
        };
        if event.call.is_release() {
            resolved.block = self.live.remove(&event.address).map(|held| self.old(held));
            self.unknown_frees += u64::from(resolved.block.is_none());
        } else {
            if event.old != 0 {
                self.reallocate(&mut resolved, event);
            }
            if event.address != 0 {
                self.place(&mut resolved, event);
            }
        }
        resolved.effect = effect(&resolved);
        self.index += 1;
        self.items.push(Item::Event(resolved));
        self.history.push(self.all());
        if self.requested() > self.peak {
            (self.peak, self.peak_at) = (self.requested(), self.index - 1);
        }
    }

    fn reallocate(&mut self, resolved: &mut Resolved, event: &Event) {
        let failed = event.failed();
        let early = self.pending.get(&event.thread).filter(|(address, _)| *address == event.old);
        let held = match early.copied() {
            Some((_, held)) => {
                resolved.early = true;
                let (_, at_release) = self.pending.remove(&event.thread).unwrap();
                assert_eq!(held, at_release);
                if failed && let Some(held) = held {
                    self.put(resolved, event.old, held);
                }
                held
            }
            None if failed => self.live.get(&event.old).copied(),
            None => self.live.remove(&event.old),
        };
        resolved.block = held.map(|held| self.old(held));
        self.unknown_frees += u64::from(held.is_none() && !failed);
    }

    fn release(&mut self, thread: u32, time: u64, address: u64) {
        let held = self.live.remove(&address);
        let block = held.map(|held| self.old(held));
        let lost = self.pending.insert(thread, (address, held)).and_then(|(_, held)| held);
        let (index, lost) = (self.index, lost.map(|held| self.old(held)));
        self.items.push(Item::Release(Release { index, thread, time, address, block, lost }));
    }
}

fn effect(resolved: &Resolved) -> Effect {
    let event = &resolved.event;
    if event.failed() {
        return Effect::Failed;
    }
    if event.call.is_release() || event.frees_by_realloc() {
        return if resolved.block.is_some() { Effect::Freed } else { Effect::Unknown };
    }
    match event.old {
        0 => Effect::Made,
        old if old == event.address => Effect::InPlace,
        _ => Effect::Moved,
    }
}

/// Writes the steps to a tape; gives its bytes and what the model says.
pub(crate) fn play(steps: &[Step], keyframes: u64) -> (Vec<u8>, Vec<Process>) {
    play_with(steps, keyframes, false)
}

/// The same to a tape with sites, or to one without.
pub(crate) fn play_with(
    steps: &[Step],
    keyframes: u64,
    has_sites: bool,
) -> (Vec<u8>, Vec<Process>) {
    let settings = has_sites.then(|| (Header::STACKS.to_owned(), "64".to_owned()));
    let header = Header {
        command: vec!["model".into()],
        page_size: 4096,
        settings: settings.into_iter().collect(),
        ..Header::default()
    };
    let sink = FrameWriter::new(Vec::new()).unwrap();
    let mut writer = Writer::new(sink, &header).unwrap().keyframe_every(keyframes);
    let mut all: Vec<Process> = Vec::new();
    let mut points: Vec<Option<(ForkPoint, u32, Process)>> = Vec::new();
    let start = |writer: &mut Writer<_>,
                 all: &mut Vec<Process>,
                 from: Option<&(ForkPoint, u32, Process)>| {
        let number = writer
            .start_process(&ProcessStart {
                pid: 100 + all.len() as u32,
                parent: from.map(|from| ProcessNumber(from.1)),
                origin: from.map_or(Origin::Exec, |from| Origin::Fork { point: from.0 }),
                time: 0,
                rank: None,
                command: vec!["model".into()],
            })
            .unwrap();
        assert_eq!(number.0 as usize, all.len());
        let mut process = Process { number: number.0, ..Process::default() };
        if let Some((_, _, parent)) = from {
            process.ordinal = parent.ordinal;
            let waiting = parent.pending.values().filter_map(|(_, held)| held.map(Held::released));
            let mut waiting: Vec<_> = waiting.collect();
            waiting.sort_by_key(|held| held.block.ordinal);
            // A waiting block is found at its address unless another one stands there.
            process.hidden = parent.hidden.clone();
            for held in waiting.into_iter().chain(parent.live.values().copied()) {
                let held = Held { inherited: true, ..held };
                process.hidden.extend(process.live.insert(held.block.address, held));
            }
            process.peak = process.requested();
        }
        all.push(process);
    };
    start(&mut writer, &mut all, None);
    for step in steps {
        let running = |p: &usize| {
            let p = p % all.len();
            (!all[p].ended).then_some(p)
        };
        match step {
            Step::Event(p, event) => {
                let Some(p) = running(p) else { continue };
                let index = writer.event(ProcessNumber(p as u32), event).unwrap();
                assert_eq!(index, all[p].index);
                all[p].event(event, has_sites);
            }
            Step::Release(p, thread, time, address) => {
                let Some(p) = running(p) else { continue };
                writer.release(ProcessNumber(p as u32), *thread, *time, *address).unwrap();
                all[p].release(*thread, *time, *address);
            }
            Step::Note(p, note) => {
                let Some(p) = running(p) else { continue };
                writer.note(ProcessNumber(p as u32), note).unwrap();
                let index = all[p].index;
                all[p].items.push(Item::Note { index, note: note.clone() });
            }
            Step::Sample(p, sample) => {
                let Some(p) = running(p) else { continue };
                writer.sample(ProcessNumber(p as u32), sample).unwrap();
                let index = all[p].index;
                all[p].items.push(Item::Sample(Sample { index, ..sample.clone() }));
            }
            Step::Exec => start(&mut writer, &mut all, None),
            Step::Point(p) => {
                let Some(p) = running(p) else { continue };
                let point = writer.fork_point(ProcessNumber(p as u32)).unwrap();
                points.push(Some((point, p as u32, all[p].clone())));
            }
            Step::Child(n) => {
                let Some(Some(from)) = points.iter().rev().nth(*n) else { continue };
                start(&mut writer, &mut all, Some(from));
            }
            Step::Drop(n) => {
                let Some(slot) = points.iter_mut().rev().nth(*n) else { continue };
                if let Some((point, ..)) = slot.take() {
                    writer.drop_fork_point(point).unwrap();
                }
            }
            Step::End(p) => {
                let Some(p) = running(p) else { continue };
                let end = ProcessEnd { time: 9, code: Some(-1), lost: 3, ..ProcessEnd::default() };
                writer.end_process(ProcessNumber(p as u32), &end).unwrap();
                all[p].ended = true;
            }
            Step::Flush => writer.flush().unwrap(),
            Step::Site(p, id, end, frames) => {
                let Some(p) = running(p) else { continue };
                writer.site(ProcessNumber(p as u32), *id, *end, frames).unwrap();
                if has_sites {
                    all[p].site(*id, *end, frames);
                }
            }
            Step::Code(p, id, code) => {
                let Some(p) = running(p) else { continue };
                writer.code(ProcessNumber(p as u32), *id, code.clone()).unwrap();
                if has_sites {
                    all[p].code(*id, code);
                }
            }
        }
    }
    (writer.finish(None).unwrap().into_inner(), all)
}
