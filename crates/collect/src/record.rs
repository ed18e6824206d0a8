//! The recording itself: one loop that drains, merges, watches and samples until the job has ended.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use heaptape_proc::{job, read};
use heaptape_tape::{
    Ended, ForkPoint, Header, Origin, ProcessNumber, ProcessStart, Uncovered, Writer,
};
use heaptape_wire::atomic::Ordering;
use heaptape_wire::chunk::{FREE, Owner};
use heaptape_wire::process::{self as wire, Registration, SlotState};
use rustix::event::{PollFd, PollFlags};

use crate::arena::{Chunk, FreeChunks, SharedArena};
use crate::clock::Clock;
use crate::exit::{self, Exit};
use crate::intents::Intents;
use crate::launch::{Launch, texts};
use crate::output::{OpenOutput, Output};
use crate::process::{Arrival, Process};
use crate::sink::Sink;
use crate::{Error, sample};

/// How often each process is sampled, unless that would cost too much.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
/// The share of the time that samples may take: one part in this many.
const SAMPLE_SHARE: u32 = 20;
/// How often threads that have ended are looked for.
const THREADS_EVERY: Duration = Duration::from_millis(250);
/// How often what is known so far goes to the file, so that a killed collector leaves a tape.
const FLUSH_EVERY: Duration = Duration::from_secs(2);
/// How long a forked child may take until it registers.
const FORK_GRACE: Duration = Duration::from_secs(5);
/// How long the kernel may take to say how a process ended.
const EXIT_GRACE: Duration = Duration::from_millis(100);

/// What to record and how.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The command.
    pub launch: Launch,
    /// Where the tape goes.
    pub output: Output,
    /// Ends with the command, also while other processes of the job still run.
    pub no_wait: bool,
    /// Ends the tape at about this many bytes.
    pub max_size: Option<u64>,
}

/// What the caller may tell the user while it goes on.
pub trait Watch {
    /// Something that the user should know, as a whole sentence.
    fn notice(&mut self, sentence: &str);
    /// The command has ended, and these processes of the job have not.
    fn waiting(&mut self, pids: &[u32]);
}

/// What came of a recording.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The tape.
    pub path: PathBuf,
    /// How the command ended.
    pub exit: Exit,
    /// Why the tape ended before the job did.
    pub ended: Option<Ended>,
    /// Events on the tape.
    pub events: u64,
    /// Events that are known to have happened and are not on the tape.
    pub lost: u64,
    /// Allocations at live addresses.
    pub order_faults: u64,
    /// Length of the tape in bytes.
    pub bytes: u64,
    /// Processes on the tape.
    pub processes: usize,
    /// Processes that could not be recorded.
    pub uncovered: usize,
}

/// Records a job.
///
/// # Errors
/// Only before the command has started; afterwards the outcome says what went wrong.
pub fn record(recording: &Recording, watch: &mut dyn Watch) -> Result<Outcome, Error> {
    recording.launch.check()?;
    let mut output = recording.output.open()?;
    let started = start(recording, &mut output);
    let (child, mut recorder) = match started {
        Ok(started) => started,
        Err(error) => {
            output.discard();
            return Err(error);
        }
    };
    if let Err(error) = output.settle(child.id()) {
        watch.notice(&format!(
            "the tape stays at {} because it can't be renamed: {error}",
            output.path().display()
        ));
    }
    if let Some(why) = recording.launch.obstacle() {
        watch.notice(&format!("{} can't be recorded: {why}", recording.launch.name()));
    }
    let exit = recorder.run(child, recording, watch);
    Ok(recorder.finish(exit, output.path().to_owned()))
}

fn start(recording: &Recording, output: &mut OpenOutput) -> Result<(Child, Recorder), Error> {
    let arena = SharedArena::create()?;
    let file = output.file.try_clone().map_err(|source| Error::System { what: "dup", source })?;
    let sink = Sink::start(file, recording.max_size, arena.arena());
    let tape = Writer::new(sink, &header(recording))?;
    let signals = signals()?;
    let child = recording.launch.spawn(arena.session_path())?;
    let mut intents = Intents::new();
    intents.expect(child.id(), &recording.launch.name());
    Ok((child, Recorder::new(arena, tape, intents, signals)))
}

fn header(recording: &Recording) -> Header {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut settings = Vec::new();
    if recording.launch.no_aslr {
        settings.push(("no-aslr".to_owned(), "true".to_owned()));
    }
    if recording.launch.python_malloc {
        settings.push(("python-malloc".to_owned(), "true".to_owned()));
    }
    Header {
        started: started.as_nanos() as u64,
        command: texts(&recording.launch.command),
        host: read::hostname().unwrap_or_default(),
        page_size: rustix::param::page_size() as u32,
        settings,
    }
}

/// Signals sent to heaptape itself; one that the terminal sends reaches the whole group anyway.
fn signals() -> Result<Receiver<i32>, Error> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    use signal_hook::iterator::SignalsInfo;
    use signal_hook::iterator::exfiltrator::origin::WithOrigin;
    let wanted = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
    let mut signals = SignalsInfo::<WithOrigin>::new(wanted)
        .map_err(|source| Error::System { what: "sigaction", source })?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for origin in &mut signals {
            if origin.process.is_some() && sender.send(origin.signal).is_err() {
                break;
            }
        }
    });
    Ok(receiver)
}

struct Recorder {
    arena: SharedArena,
    tape: Writer<Sink>,
    clock: Clock,
    intents: Intents,
    signals: Receiver<i32>,
    processes: Vec<Process>,
    /// Places in `processes` of those that run.
    live: Vec<usize>,
    /// Every process by its slot and generation.
    by_slot: HashMap<(u16, u32), usize>,
    /// How often each pid has registered.
    registrations: HashMap<u32, u64>,
    /// Chunks that a lane reads.
    attached: HashMap<Chunk, ()>,
    done: Vec<Chunk>,
    round: u64,
    free: FreeChunks,
    waited: u64,
    uncovered: usize,
    turned_away: u32,
    ended: Option<Ended>,
    next_sample: Instant,
    next_threads: Instant,
    next_flush: Instant,
}

impl Recorder {
    fn new(
        arena: SharedArena,
        tape: Writer<Sink>,
        intents: Intents,
        signals: Receiver<i32>,
    ) -> Recorder {
        let now = Instant::now();
        Recorder {
            clock: Clock::start(arena.arena()),
            arena,
            tape,
            intents,
            signals,
            processes: Vec::new(),
            live: Vec::new(),
            by_slot: HashMap::new(),
            registrations: HashMap::new(),
            attached: HashMap::new(),
            done: Vec::new(),
            round: 0,
            free: FreeChunks::default(),
            waited: 0,
            uncovered: 0,
            turned_away: 0,
            ended: None,
            next_sample: now,
            next_threads: now + THREADS_EVERY,
            next_flush: now + FLUSH_EVERY,
        }
    }

    /// Goes on until the job has ended; how the command did.
    fn run(&mut self, mut child: Child, recording: &Recording, watch: &mut dyn Watch) -> Exit {
        let root = child.id();
        let mut exit = None;
        let mut told = false;
        let mut idle = 0u32;
        loop {
            self.arena.arena().session().beat();
            self.forward_signals(root);
            if exit.is_none() {
                exit = child.try_wait().ok().flatten().map(Exit::from);
            }
            let busy = match self.round(exit.map(|exit| (root, exit))) {
                Ok(busy) => busy,
                Err(error) => {
                    self.end(Ended::Other(error.to_string()), watch);
                    false
                }
            };
            if let Some(why) = self.tape_ended() {
                self.end(why, watch);
            }
            if exit.is_some() && self.is_over(recording.no_wait) {
                break;
            }
            if self.ended.is_some() && exit.is_none() {
                // Nothing is recorded any more; what is left is the command's exit status.
                exit = child.wait().ok().map(Exit::from);
                continue;
            }
            if exit.is_some() && !told && !self.live.is_empty() {
                told = true;
                let pids: Vec<u32> = self.live.iter().map(|&i| self.processes[i].pid).collect();
                watch.waiting(&pids);
            }
            idle = if busy { 0 } else { idle + 1 };
            if !busy {
                self.rest(idle);
            }
        }
        exit.unwrap_or_default()
    }

    fn is_over(&self, no_wait: bool) -> bool {
        self.ended.is_some() || no_wait || (self.live.is_empty() && !self.intents.is_any_open())
    }

    fn forward_signals(&self, root: u32) {
        for signal in self.signals.try_iter() {
            // SAFETY: sends a signal to the command that we started and have not waited for.
            unsafe { libc::kill(root as i32, signal) };
        }
    }

    /// Sleeps until something may have happened: a millisecond, or until a process ends.
    fn rest(&self, idle: u32) {
        let milliseconds = if idle < 200 { 1 } else { 4 };
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
        let mut ends: Vec<PollFd<'_>> = self
            .live
            .iter()
            .filter_map(|&i| self.processes[i].watch.as_ref())
            .map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN))
            .collect();
        let _ = rustix::event::poll(&mut ends, Some(&timeout));
    }

    /// One round: drain, merge, admit, end, sample. True when there was anything to do.
    fn round(&mut self, root: Option<(u32, Exit)>) -> Result<bool, heaptape_tape::Error> {
        self.round += 1;
        // Seen before draining: all that an arrival's parent wrote before is then merged first.
        self.intents.notice_gone();
        let arrivals = self.arrivals();
        let registrations = &self.registrations;
        self.intents.observe(self.arena.arena(), |pid| count(registrations, pid));
        let mut busy = self.drain()?;
        busy |= self.admit(&arrivals)?;
        busy |= self.reap(root)?;
        self.supply();
        self.judge_intents()?;
        let now = Instant::now();
        if now >= self.next_sample {
            self.sample()?;
        }
        if now >= self.next_threads || self.waited > 0 {
            self.close_threads();
            self.next_threads = now + THREADS_EVERY;
        }
        if now >= self.next_flush {
            self.flush()?;
            self.next_flush = now + FLUSH_EVERY;
        }
        Ok(busy)
    }

    /// Two looks at what was published, then a merge of what the first has seen.
    fn drain(&mut self) -> Result<bool, heaptape_tape::Error> {
        let mut busy = self.look();
        for &i in &self.live {
            self.processes[i].settle();
        }
        if busy {
            busy |= self.look();
            for &i in &self.live {
                self.processes[i].merge(&mut self.tape, false)?;
            }
        }
        Ok(busy)
    }

    /// Finds new chunks and copies what is new in all.
    fn look(&mut self) -> bool {
        let mut found = Vec::new();
        self.free = FreeChunks::default();
        for (chunk, word) in self.arena.owners() {
            match (word, chunk) {
                (FREE, Chunk::Large(_)) => self.free.large += 1,
                (FREE, Chunk::Small(_)) => self.free.small += 1,
                _ if self.attached.contains_key(&chunk) => {}
                _ => found.extend(self.describe(chunk, word)),
            }
        }
        found.sort_by_key(|&(_, _, _, _, first)| first);
        for (place, owner, chunk, tid, first) in found {
            if self.processes[place].attach(owner, chunk, tid, first) {
                self.attached.insert(chunk, ());
            }
        }
        let mut any = false;
        for &i in &self.live {
            any |= self.processes[i].copy(&self.arena, &mut self.done);
        }
        self.forget_done();
        any
    }

    /// Whose a claimed chunk is, once its thread has opened it and its process is known.
    fn describe(&self, chunk: Chunk, word: u64) -> Option<(usize, Owner, Chunk, u32, u64)> {
        let owner = Owner::from_word(word)?;
        let place = *self.by_slot.get(&(owner.slot, owner.generation))?;
        let view = self.arena.header(chunk).view(SharedArena::capacity(chunk))?;
        self.processes[place].ended.is_none().then_some((place, owner, chunk, view.tid, view.first))
    }

    fn forget_done(&mut self) {
        for chunk in self.done.drain(..) {
            self.attached.remove(&chunk);
        }
    }

    /// Slots whose process has registered and is not known yet.
    fn arrivals(&self) -> Vec<(u16, u32, Registration)> {
        let mut arrivals: Vec<_> = (0..self.arena.slots())
            .filter_map(|index| {
                let slot = self.arena.arena().slot(index);
                let SlotState::Live(_) = slot.state() else { return None };
                let generation = slot.generation();
                let known = self.by_slot.contains_key(&(index as u16, generation));
                if known { None } else { Some((index as u16, generation, slot.registration()?)) }
            })
            .collect();
        arrivals.sort_by_key(|(_, _, registration)| registration.order);
        arrivals
    }

    fn admit(
        &mut self,
        arrivals: &[(u16, u32, Registration)],
    ) -> Result<bool, heaptape_tape::Error> {
        let mut any = false;
        let mut later: Vec<u32> = Vec::new();
        for &(slot, generation, registration) in arrivals {
            if later.contains(&registration.pid) {
                // The same process as another program: first comes first.
                continue;
            }
            let admitted = match registration.origin {
                wire::Origin::Exec => self.admit_program(slot, generation, &registration)?,
                wire::Origin::Fork => self.admit_fork(slot, generation, &registration)?,
            };
            any |= admitted;
            if !admitted {
                later.push(registration.pid);
            }
        }
        Ok(any)
    }

    /// A new program: it ends the row that its pid had before.
    fn admit_program(
        &mut self,
        slot: u16,
        generation: u32,
        registration: &Registration,
    ) -> Result<bool, heaptape_tape::Error> {
        let pid = registration.pid;
        let Some(command) = self.command_of(slot, pid) else { return Ok(false) };
        let before = self.live.iter().copied().find(|&i| self.processes[i].pid == pid);
        let parent = match before {
            Some(place) => {
                let parent = self.processes[place].parent;
                self.finish_process(place)?;
                parent
            }
            None => self.number_of(registration.ppid),
        };
        let rank = read::environ(pid).ok().and_then(|environment| {
            let lookup = |name: &str| {
                environment.iter().find_map(|entry| {
                    let (key, value) = entry.to_str()?.split_once('=')?;
                    (key == name).then(|| value.to_owned())
                })
            };
            job::find(lookup).map(|job| job.rank)
        });
        self.start_process(slot, generation, pid, parent, Origin::Exec, command, rank)?;
        Ok(true)
    }

    /// A copy of a process that is known, unless that one is itself so new that it was not drained
    /// before: then in the next round.
    fn admit_fork(
        &mut self,
        slot: u16,
        generation: u32,
        registration: &Registration,
    ) -> Result<bool, heaptape_tape::Error> {
        let key = (registration.parent_slot as u16, registration.parent_generation);
        let Some(&place) = self.by_slot.get(&key) else {
            // The parent is on its way itself, or was never recorded.
            let parent = self.arena.arena().slot(key.0 as usize);
            let comes =
                matches!(parent.state(), SlotState::Live(_)) && parent.generation() == key.1;
            if comes {
                return Ok(false);
            }
            return self.admit_program(slot, generation, registration);
        };
        if self.processes[place].since == self.round {
            return Ok(false);
        }
        let parent = &mut self.processes[place];
        let (number, command, rank) = (parent.number, parent.command.clone(), parent.rank);
        let point = match parent.take_fork(u64::from(registration.fork)) {
            Some(point) => Some(point),
            None => self.tape.fork_point(number).ok(),
        };
        let origin = point.map_or(Origin::Exec, |point| Origin::Fork { point });
        self.start_process(
            slot,
            generation,
            registration.pid,
            Some(number),
            origin,
            command,
            rank,
        )?;
        self.drop_points(point)?;
        Ok(true)
    }

    fn drop_points(
        &mut self,
        points: impl IntoIterator<Item = ForkPoint>,
    ) -> Result<(), heaptape_tape::Error> {
        for point in points {
            self.tape.drop_fork_point(point)?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)] // one row of the process table
    fn start_process(
        &mut self,
        slot: u16,
        generation: u32,
        pid: u32,
        parent: Option<ProcessNumber>,
        origin: Origin,
        command: Vec<String>,
        rank: Option<u32>,
    ) -> Result<(), heaptape_tape::Error> {
        let start = ProcessStart {
            pid,
            parent,
            origin,
            time: self.clock.now(),
            rank,
            command: command.clone(),
        };
        let number = self.tape.start_process(&start)?;
        let place = self.processes.len();
        self.by_slot.insert((slot, generation), place);
        *self.registrations.entry(pid).or_default() += 1;
        let since = self.round;
        self.processes.push(Process::new(Arrival {
            number,
            pid,
            parent,
            command,
            rank,
            slot,
            generation,
            since,
        }));
        self.live.push(place);
        if let Some(sample) = sample::take(pid, self.clock.now()) {
            self.tape.sample(number, &sample)?;
        }
        Ok(())
    }

    /// The command line: what the library has left in the slot, else what the kernel says; `None`
    /// while neither is there and the process lives.
    fn command_of(&self, slot: u16, pid: u32) -> Option<Vec<String>> {
        let bytes: Vec<u8> = self.arena.arena().slot(slot as usize).command().collect();
        if !bytes.is_empty() && bytes.len() < wire::COMMAND_BYTES {
            let words = bytes.split(|&b| b == 0).map(|w| String::from_utf8_lossy(w).into_owned());
            let mut words: Vec<String> = words.collect();
            words.pop();
            return Some(words);
        }
        match read::cmdline(pid) {
            Ok(words) if !words.is_empty() => Some(texts(&words)),
            _ => Some(Vec::new()),
        }
    }

    fn number_of(&self, pid: u32) -> Option<ProcessNumber> {
        let of_pid = |&&i: &&usize| self.processes[i].pid == pid;
        self.live.iter().rev().find(of_pid).map(|&i| self.processes[i].number)
    }

    /// Ends the processes that are gone.
    fn reap(&mut self, root: Option<(u32, Exit)>) -> Result<bool, heaptape_tape::Error> {
        let gone: Vec<usize> =
            self.live.iter().copied().filter(|&i| is_gone(&self.processes[i])).collect();
        let mut any = false;
        for place in gone {
            let process = &mut self.processes[place];
            let exit = match root {
                Some((pid, exit)) if pid == process.pid => Some(exit),
                _ => exit::status(process.pid, process.watch.as_ref()),
            };
            let gone_at = *process.gone.get_or_insert_with(Instant::now);
            if exit.is_none() && gone_at.elapsed() < EXIT_GRACE && self.ended.is_none() {
                // Dead and drained at the end; the kernel tells its status when it is reaped.
                continue;
            }
            process.exit = exit.unwrap_or_default();
            // One more look: a chunk that was claimed last may not have been found yet.
            self.look();
            self.finish_process(place)?;
            any = true;
        }
        Ok(any)
    }

    fn finish_process(&mut self, place: usize) -> Result<(), heaptape_tape::Error> {
        // All that the process wrote is published; two looks find every chunk of it.
        self.look();
        self.look();
        let time = self.clock.now();
        let process = &mut self.processes[place];
        process.finish(&mut self.tape, &self.arena, &mut self.done, time)?;
        let points = process.stale_forks(Duration::ZERO);
        let (slot, generation) = (process.slot, process.generation);
        self.live.retain(|&i| i != place);
        self.forget_done();
        self.drop_points(points)?;
        self.reclaim(slot, generation);
        Ok(())
    }

    /// Takes back what a process held: chunks that it claimed and never opened, and its slot.
    fn reclaim(&mut self, slot: u16, generation: u32) {
        let held: Vec<Chunk> = self
            .arena
            .owners()
            .filter(|(chunk, word)| {
                !self.attached.contains_key(chunk)
                    && Owner::from_word(*word)
                        .is_some_and(|o| o.slot == slot && o.generation == generation)
            })
            .map(|(chunk, _)| chunk)
            .collect();
        for chunk in held {
            self.arena.release(chunk);
        }
        self.arena.arena().slot(slot as usize).offer(generation + 1);
    }

    /// Keeps chunks and slots at hand.
    fn supply(&mut self) {
        let session = self.arena.arena().session();
        self.waited = u64::from(session.waiting.load(Ordering::Relaxed));
        let starved = self.waited > 0 && self.free.total() == 0;
        if !self.arena.replenish(self.free, starved) && self.arena.is_full() {
            self.ended.get_or_insert(Ended::Other("shared-memory-full".into()));
        }
        if self.live.len() + 16 > self.arena.slots() {
            self.arena.offer_slots(32);
        }
    }

    fn judge_intents(&mut self) -> Result<(), heaptape_tape::Error> {
        let mut found: Vec<Uncovered> = Vec::new();
        let registrations = &self.registrations;
        self.intents.judge(
            self.arena.arena(),
            |pid| count(registrations, pid),
            |uncovered| found.push(uncovered),
        );
        for uncovered in found {
            self.uncovered += 1;
            self.tape.uncovered(&uncovered)?;
            // Its row before the exec, if it had one, ends here.
            let before =
                self.live.iter().copied().find(|&i| self.processes[i].pid == uncovered.pid);
            if let Some(place) = before {
                self.finish_process(place)?;
            }
        }
        let turned_away = self.arena.arena().session().turned_away.load(Ordering::Relaxed);
        for _ in self.turned_away..turned_away {
            self.uncovered += 1;
            self.tape.uncovered(&Uncovered {
                pid: 0,
                command: Vec::new(),
                why: format!("more than {} processes ran at once", wire::SLOTS),
            })?;
        }
        self.turned_away = turned_away;
        Ok(())
    }

    fn sample(&mut self) -> Result<(), heaptape_tape::Error> {
        let started = Instant::now();
        for place in self.live.clone() {
            let process = &self.processes[place];
            if process.gone.is_some() {
                continue;
            }
            let number = process.number;
            if let Some(sample) = sample::take(process.pid, self.clock.now()) {
                self.tape.sample(number, &sample)?;
            }
        }
        let cost = started.elapsed();
        self.next_sample = Instant::now() + SAMPLE_EVERY.max(cost * SAMPLE_SHARE);
        Ok(())
    }

    fn close_threads(&mut self) {
        for &i in &self.live {
            let process = &mut self.processes[i];
            if !process.holds_chunks() {
                continue;
            }
            let Ok(tasks) = read::tasks(process.pid) else { continue };
            if tasks.is_empty() {
                continue;
            }
            let slot = self.arena.arena().slot(process.slot as usize);
            for number in process.close_gone(&tasks, &self.arena, &mut self.done) {
                slot.recycle_thread(number);
            }
        }
        self.forget_done();
    }

    fn flush(&mut self) -> Result<(), heaptape_tape::Error> {
        for place in self.live.clone() {
            let points = self.processes[place].stale_forks(FORK_GRACE);
            self.drop_points(points)?;
        }
        self.tape.flush()
    }

    fn tape_ended(&self) -> Option<Ended> {
        if self.ended.is_some() { None } else { self.tape.sink().ended() }
    }

    /// Ends the recording before the job has ended; the job goes on.
    fn end(&mut self, why: Ended, watch: &mut dyn Watch) {
        self.arena.arena().session().end();
        watch.notice(&format!(
            "the recording ends here ({}); the command goes on unrecorded",
            why.as_str()
        ));
        self.ended.get_or_insert(why);
    }

    /// Ends the tape.
    fn finish(mut self, exit: Exit, path: PathBuf) -> Outcome {
        for place in self.live.clone() {
            if let Err(error) = self.finish_process(place) {
                self.ended.get_or_insert(Ended::Other(error.to_string()));
            }
        }
        self.arena.arena().session().end();
        let (events, order_faults) = self.tape.counts();
        let lost = self.processes.iter().map(Process::lost).sum();
        let ended = self.ended.clone();
        let (bytes, failed) = match self.tape.finish(ended.clone()) {
            Ok(sink) => {
                let failed = sink.ended();
                (sink.close(), failed)
            }
            Err(error) => (0, Some(Ended::Other(error.to_string()))),
        };
        Outcome {
            path,
            exit,
            ended: ended.or(failed),
            events,
            lost,
            order_faults,
            bytes,
            processes: self.processes.len(),
            uncovered: self.uncovered,
        }
    }
}

/// How often a pid has registered.
fn count(registrations: &HashMap<u32, u64>, pid: u32) -> u64 {
    registrations.get(&pid).copied().unwrap_or(0)
}

/// Whether a process has ended: its descriptor is readable, or there never was one.
fn is_gone(process: &Process) -> bool {
    let Some(fd) = &process.watch else { return true };
    let mut poll = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(rustix::event::poll(&mut poll, Some(&now)), Ok(n) if n > 0)
}
