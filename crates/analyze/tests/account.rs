//! The account of tapes of random programs, held against what a plain model of the same calls says.

use std::collections::{BTreeMap, HashMap};

use heaptape_analyze::account::{Account, EIGHTHS};
use heaptape_analyze::bins::Bin;
use heaptape_analyze::callers::Callers;
use heaptape_analyze::choice::Moment;
use heaptape_analyze::gather::{Ask, Function, Namer};
use heaptape_analyze::lives::Load;
use heaptape_analyze::modules::Place;
use heaptape_analyze::profile::Profile;
use heaptape_analyze::sites::{Origin, by_module};
use heaptape_analyze::timeline::Axis;
use heaptape_tape::{
    Call, Event, FrameWriter, Header, Origin as Start, ProcessEnd, ProcessNumber, ProcessStart,
    ProcessSummary, Tape, Writer,
};

/// A generator of numbers, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[derive(Clone, Copy, Debug)]
struct Block {
    size: u64,
    slack: u64,
    caller: u64,
    thread: u32,
    ordinal: u64,
    inherited: bool,
}

/// The birth of a block; its death, if it came, and the age then; its size.
type Life = (u64, Option<(u64, u64)>, u64);

/// A process as the model sees it.
#[derive(Clone, Default)]
struct Model {
    live: BTreeMap<u64, Block>,
    events: u64,
    ordinal: u64,
    made: HashMap<u64, Load>,
    temporary: HashMap<u64, Load>,
    copied: HashMap<u64, u64>,
    newest: HashMap<u32, u64>,
    thread_made: HashMap<u32, Load>,
    freed_of_others: HashMap<u32, Load>,
    lives: Vec<Life>,
    place: HashMap<u64, usize>,
    /// What was live at the start.
    begun: u64,
    peak: (u64, u64, BTreeMap<u64, Block>),
    /// When each call was made, and what was live after it.
    history: Vec<(u64, u64)>,
    in_place: u64,
    moved: u64,
}

impl Model {
    fn requested(&self) -> u64 {
        self.live.values().map(|block| block.size).sum()
    }

    fn own(&self) -> u64 {
        self.live.values().filter(|block| !block.inherited).map(|block| block.size).sum()
    }

    fn die(&mut self, address: u64, by: Option<u32>) -> Block {
        let block = self.live.remove(&address).unwrap();
        if block.inherited {
            return block;
        }
        let age = self.ordinal - 1 - block.ordinal;
        self.lives[self.place[&block.ordinal]].1 = Some((self.events, age));
        if let Some(by) = by {
            if self.newest[&block.thread] == block.ordinal {
                self.temporary.entry(block.caller).or_default().add(block.size);
            }
            if by != block.thread {
                self.freed_of_others.entry(by).or_default().add(block.size);
            }
        }
        block
    }

    fn take(&mut self, event: &Event) {
        if event.call == Call::Free {
            self.die(event.address, Some(event.thread));
        } else {
            if event.old != 0 {
                let old = self.die(event.old, None);
                if event.old == event.address {
                    self.in_place += 1;
                } else {
                    self.moved += 1;
                    *self.copied.entry(event.caller).or_default() += old.size.min(event.size);
                }
            }
            self.born(event);
        }
        self.events += 1;
        self.history.push((event.time, self.requested()));
        if self.requested() > self.peak.0 {
            self.peak = (self.requested(), self.events, self.live.clone());
        }
    }

    fn born(&mut self, event: &Event) {
        let Event { size, slack, caller, thread, .. } = *event;
        let block = Block { size, slack, caller, thread, ordinal: self.ordinal, inherited: false };
        self.live.insert(event.address, block);
        self.made.entry(caller).or_default().add(size);
        self.thread_made.entry(thread).or_default().add(size);
        self.newest.insert(thread, self.ordinal);
        self.place.insert(self.ordinal, self.lives.len());
        self.lives.push((self.events, None, size));
        self.ordinal += 1;
    }

    fn fork(&self) -> Model {
        let mut live = self.live.clone();
        live.values_mut().for_each(|block| block.inherited = true);
        let requested = live.values().map(|block| block.size).sum();
        let peak = (requested, 0, live.clone());
        Model { live, ordinal: self.ordinal, peak, begun: requested, ..Model::default() }
    }
}

/// A random call that the model can take, at a time.
fn call(random: &mut Random, model: &Model, time: u64, next_address: &mut u64) -> Event {
    let (thread, caller) = (random.below(4) as u32, 0x1000 + random.below(9) * 16);
    let mut event = Event {
        call: Call::Malloc,
        thread,
        time,
        caller,
        address: 0,
        size: random.below(5000),
        slack: random.below(16),
        align: 0,
        old: 0,
    };
    let some =
        model.live.keys().nth(random.below(model.live.len().max(1) as u64) as usize).copied();
    match (random.below(10), some) {
        (0..=3, Some(address)) => {
            (event.call, event.address, event.size, event.slack) = (Call::Free, address, 0, 0);
            return event;
        }
        (4, Some(old)) => (event.call, event.old, event.address) = (Call::Realloc, old, old),
        (5, Some(old)) => (event.call, event.old) = (Call::Realloc, old),
        _ => {}
    }
    if event.address == 0 {
        *next_address += 0x2000;
        event.address = *next_address;
    }
    event
}

fn start(pid: u32, parent: Option<ProcessNumber>, origin: Start, time: u64) -> ProcessStart {
    ProcessStart { pid, parent, origin, time, rank: None, command: vec!["prog".into()] }
}

/// A parent, a child that it forks, and a stranger, whose calls come in turn: one a millisecond. Gives the
/// tape, the models at their ends, and what the own blocks of all were after each call.
fn job(seed: u64, calls: u64) -> (Tape, Vec<Model>, Vec<u64>) {
    let mut random = Random(seed);
    let mut writer =
        Writer::new(FrameWriter::new(Vec::new()).unwrap(), &Header::default()).unwrap();
    writer.start_process(&start(10, None, Start::Exec, 0)).unwrap();
    writer.start_process(&start(11, None, Start::Exec, 0)).unwrap();
    let mut models = vec![Model::default(), Model::default()];
    let (mut next_address, mut sums) = (0x10_0000, Vec::new());
    for time in 0..calls {
        if time == calls / 3 {
            let point = writer.fork_point(ProcessNumber(0)).unwrap();
            let origin = Start::Fork { point };
            writer.start_process(&start(12, Some(ProcessNumber(0)), origin, time)).unwrap();
            writer.drop_fork_point(point).unwrap();
            models.push(models[0].fork());
        }
        let process = random.below(models.len() as u64) as usize;
        let event = call(&mut random, &models[process], time, &mut next_address);
        models[process].take(&event);
        writer.event(ProcessNumber(process as u32), &event).unwrap();
        sums.push(models.iter().map(Model::own).sum());
    }
    for number in 0..3 {
        let end = ProcessEnd { time: calls + 5, code: Some(0), ..ProcessEnd::default() };
        writer.end_process(ProcessNumber(number), &end).unwrap();
    }
    (Tape::from_bytes(writer.finish(None).unwrap().into_inner()).unwrap(), models, sums)
}

fn account(tape: &Tape, which: &[usize]) -> Account {
    let chosen: Vec<&ProcessSummary> =
        which.iter().map(|&n| &tape.summary().processes[n]).collect();
    let mut read = 0;
    let account = Account::of(tape, &chosen, &mut Callers::new(tape), &mut |more| read += more);
    assert_eq!(read, Account::reads(&chosen));
    account.unwrap()
}

fn address(origin: &Origin) -> u64 {
    match origin {
        Origin::Caller { address, .. } => *address,
        Origin::Inherited => 0,
    }
}

/// Blocks by their caller, the inherited ones under 0.
fn by_caller<'a>(blocks: impl Iterator<Item = &'a Block>) -> HashMap<u64, Load> {
    let mut sums: HashMap<u64, Load> = HashMap::new();
    for block in blocks {
        sums.entry(if block.inherited { 0 } else { block.caller }).or_default().add(block.size);
    }
    sums
}

/// What sites have of something, without those that have none.
fn of_sites(
    account: &Account,
    load: impl Fn(&heaptape_analyze::sites::Deeds) -> Load,
) -> HashMap<u64, Load> {
    let loads = account.sites.iter().map(|site| (address(&site.origin), load(&site.deeds)));
    loads.filter(|(_, load)| load.blocks > 0).collect()
}

fn sums_agree(account: &Account) {
    let mut sites = (Load::default(), Load::default());
    for site in &account.sites {
        sites.0.join(site.deeds.made);
        sites.1.join(site.deeds.left);
    }
    let mut modules = (Load::default(), Load::default());
    for (_, deeds) in by_module(&account.sites) {
        modules.0.join(deeds.made);
        modules.1.join(deeds.left);
    }
    let all = account.bins.all();
    assert_eq!(sites, modules);
    assert_eq!((sites.0.bytes, sites.0.blocks), (all.total, all.count));
    assert_eq!((sites.1.bytes, sites.1.blocks), (account.end.requested, account.end.blocks));
    assert_eq!(sites.0, account.lives.all);
    assert_eq!(all.current, account.end.requested);
    let bins = account.bins.bins().fold((0, 0, 0, 0), |s, (_, t)| {
        (s.0 + t.total, s.1 + t.freed, s.2 + t.current, s.3 + t.count)
    });
    assert_eq!(bins, (all.total, all.freed, all.current, all.count));
    let threads = account.threads.iter().fold(Load::default(), |mut sum, thread| {
        sum.join(thread.deeds.made);
        sum
    });
    assert_eq!(threads, sites.0);
}

#[test]
fn every_figure_of_one_process_is_what_a_model_says() {
    for seed in 0..30 {
        let (tape, models, _) = job(seed, 600);
        for (n, model) in models.iter().enumerate() {
            let account = account(&tape, &[n]);
            sums_agree(&account);
            let live = model.live.values();
            assert_eq!(account.end.requested, model.requested());
            assert_eq!(account.end.usable, live.clone().map(|b| b.size + b.slack).sum::<u64>());
            assert_eq!(account.end.blocks, live.len() as u64);
            assert_eq!(account.peak.requested.known(), Some(model.peak.0));
            assert_eq!(account.peak.at.map_or(0, |at| at + 1), model.peak.1);
            assert_eq!(account.peak.blocks.known(), Some(model.peak.2.len() as u64));
            assert_eq!(of_sites(&account, |d| d.made), model.made);
            assert_eq!(of_sites(&account, |d| d.left), by_caller(model.live.values()));
            assert_eq!(of_sites(&account, |d| d.at_peak), by_caller(model.peak.2.values()));
            assert_eq!(of_sites(&account, |d| d.temporary), model.temporary);
            assert_eq!(account.reallocs.in_place, model.in_place);
            assert_eq!(account.reallocs.moved, model.moved);
            assert_eq!(account.reallocs.copied, model.copied.values().sum::<u64>());
            evens_agree(&account, model);
            lives_agree(&account, model);
            threads_agree(&account, model);
            profile_agrees(&tape, &[n], &account);
            thread_rows_agree(&tape, n, model);
            let highest = account.over_index.as_ref().unwrap().highest().unwrap();
            assert_eq!(highest.requested.most, model.peak.0);
            for size in model.live.values().map(|block| block.size) {
                assert!(account.bins.bins().any(|(bin, _)| bin == Bin::of_bytes(size)));
            }
        }
    }
}

/// The calls came one a millisecond for more than half a second, so the moments are even in time.
fn evens_agree(account: &Account, model: &Model) {
    assert_eq!(account.axis, Axis::Time);
    let (start, length) = (account.time.start, account.time.end - 1 - account.time.start);
    for n in 1..=EIGHTHS {
        let moment = start + length * n as u64 / EIGHTHS as u64;
        let before = model.history.iter().rev().find(|(time, _)| *time <= moment);
        let live = before.map_or(model.begun, |(_, live)| *live);
        let at = account.sites.iter().map(|site| site.deeds.at[n - 1].bytes).sum::<u64>();
        assert_eq!(at, live);
    }
}

fn lives_agree(account: &Account, model: &Model) {
    let half = model.events.div_ceil(2);
    let mut long = Load::default();
    let mut ages = vec![Load::default(); account.lives.by_age.len()];
    for &(birth, death, size) in &model.lives {
        if death.map_or(model.events, |(index, _)| index) - birth >= half {
            long.add(size);
        }
        if let Some((_, age)) = death {
            let class =
                (0..ages.len()).rev().find(|&c| age >= heaptape_analyze::lives::least_age(c));
            ages[class.unwrap()].add(size);
        }
    }
    assert_eq!(account.lives.long, long);
    assert_eq!(account.lives.by_age.to_vec(), ages);
}

fn threads_agree(account: &Account, model: &Model) {
    for thread in &account.threads {
        let of = |map: &HashMap<u32, Load>| map.get(&thread.number).copied().unwrap_or_default();
        assert_eq!(thread.deeds.made, of(&model.thread_made));
        assert_eq!(thread.deeds.freed_of_others, of(&model.freed_of_others));
        let mut left = Load::default();
        let own = model.live.values().filter(|b| !b.inherited && b.thread == thread.number);
        own.for_each(|block| left.add(block.size));
        assert_eq!(thread.deeds.left, left);
    }
}

/// Knows no function.
struct Nameless;

impl Namer for Nameless {
    fn functions(&mut self, _: &Place) -> Vec<Function> {
        Vec::new()
    }

    fn made(&mut self, _: &ProcessSummary, _: u64) -> Vec<Function> {
        Vec::new()
    }
}

fn profile(tape: &Tape, which: &[usize], ask: Ask) -> Profile {
    let chosen: Vec<&ProcessSummary> =
        which.iter().map(|&n| &tape.summary().processes[n]).collect();
    let mut read = 0;
    let mut progress = |more| read += more;
    let mut callers = Callers::new(tape);
    let profile = Profile::of_tape(tape, &chosen, &mut callers, &ask, &mut Nameless, &mut progress);
    assert_eq!(read, Profile::reads(&chosen));
    profile.unwrap()
}

/// Stacks, whichever way they are kept apart, come to what the account says.
fn profile_agrees(tape: &Tape, which: &[usize], account: &Account) {
    let sum = heaptape_analyze::sites::Deeds::of(&account.sites);
    let ends: u64 = account.parts.iter().map(|part| part.process.ended.unwrap_or(0)).max().unwrap();
    let at = Some(Moment::Millis(ends));
    for (processes, threads) in [(false, false), (true, false), (false, true)] {
        let profile = profile(tape, which, Ask { moment: at, processes, threads, raw: false });
        let deeds = profile.deeds();
        assert_eq!(deeds.made, sum.made);
        assert_eq!(deeds.left, sum.left);
        assert_eq!(deeds.at_peak, sum.at_peak);
        assert_eq!(deeds.temporary, sum.temporary);
        assert_eq!((deeds.short, deeds.copied), (sum.short, sum.copied));
        assert_eq!(deeds.at, [sum.left]);
        assert_eq!(profile.duration, account.duration());
        if !processes && !threads {
            let callers = account.sites.iter().filter(|site| site.origin != Origin::Inherited);
            let made = profile.stacks.iter().filter(|stack| stack.deeds.made.blocks > 0);
            assert_eq!(made.count(), callers.count());
        }
    }
}

fn thread_rows_agree(tape: &Tape, process: usize, model: &Model) {
    let profile = profile(tape, &[process], Ask { threads: true, ..Ask::default() });
    let mut made: HashMap<u32, Load> = HashMap::new();
    for stack in profile.stacks.iter().filter(|stack| stack.deeds.made.blocks > 0) {
        made.entry(stack.thread).or_default().join(stack.deeds.made);
    }
    assert_eq!(made, model.thread_made);
}

#[test]
fn the_sum_of_a_job_counts_each_block_once_and_its_peak_lies_within_its_bounds() {
    for seed in 0..30 {
        // More calls than a curve has steps, so that a step holds calls of several processes.
        let (tape, models, sums) = job(seed, 3000);
        let most = *sums.iter().max().unwrap();
        let account = account(&tape, &[0, 1, 2]);
        sums_agree(&account);
        profile_agrees(&tape, &[0, 1, 2], &account);
        assert_eq!(account.end.requested, models.iter().map(Model::own).sum::<u64>());
        let peak = account.peak.requested;
        assert!(peak.lower <= most && most <= peak.upper, "{most} is not in {peak:?}");
        let at_peak = of_sites(&account, |d| d.at_peak).values().map(|l| l.bytes).sum::<u64>();
        assert_eq!(at_peak, peak.upper);
        for n in 0..EIGHTHS {
            let length = account.time.end - account.time.start;
            let moment = length * (2 * n as u64 + 1) / (2 * EIGHTHS as u64);
            let at = account.sites.iter().map(|site| site.deeds.at[n].bytes).sum::<u64>();
            assert_eq!(at, sums[moment as usize]);
        }
    }
}
