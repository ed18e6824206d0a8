//! Counting a job: the entry for `stat` and `limit`.
//!
//! A counted job has the same session as a recorded one, with a ledger behind its arena. Its processes send
//! no events; what else they tell goes the same way as in a recording, to a tape that nobody keeps.

use std::fs::File;
use std::process::Child;
use std::time::{Duration, Instant};

use heaptape_ledger::{Basis, FirstRefusal, Job, Missed, Over, Stopped};
use heaptape_proc::read;
use heaptape_tape::Writer;
use heaptape_wire::budget::NO_LIMIT;
use heaptape_wire::exempt::{EXEMPT_BYTES, EXEMPT_NAMES};
use heaptape_wire::ledger::{Ledger, OnLimit, Wanted};

use crate::Error;
use crate::arena::SharedArena;
use crate::belonging::Belonging;
use crate::cgroup::Group;
use crate::clock::Clock;
use crate::counter::Counter;
use crate::enclosure::{Enclosure, Seen};
use crate::exit::{self, Exit};
use crate::halt::{Halting, Seeds, Standing};
use crate::inspect::Inspector;
use crate::killer::{Killer, Sources};
use crate::launch::{Launch, texts};
use crate::limits::Limits;
use crate::namespace::Namespaces;
use crate::patched::Patches;
use crate::record::{self, Watch};
use crate::recorder::{Joined, Observer, Recorder};
use crate::segments::Segments;
use crate::signals::Signals;
use crate::sink::Sink;
use crate::together::job;

/// Bytes that a thread draws ahead from the budget.
pub(crate) const BATCH: u64 = 64 << 10;

/// How often the caller is told what is held.
const SHOWN_EVERY: Duration = Duration::from_millis(100);
/// How often processes are sampled of which more is resident than the limit.
const SUSPECTED_EVERY: Duration = Duration::from_millis(20);
/// Rounds between two looks for orphans that have ended.
const REAP_EVERY: u64 = 256;

/// What to count and how.
#[derive(Clone, Debug)]
pub struct Counting {
    /// The command.
    pub launch: Launch,
    /// Bytes that the job may hold; `None` only counts.
    pub limit: Option<u64>,
    /// Which bytes of blocks are held against it.
    pub basis: Basis,
    /// What happens to a request beyond it.
    pub on_limit: OnLimit,
    /// Nothing is drawn ahead, so that peaks are exact.
    pub exact: bool,
    /// Beside requested bytes and counts also usable bytes, size classes and modules.
    pub details: bool,
    /// Processes that only launch others are held against the limit as well.
    pub count_launchers: bool,
    /// What the MPI runtime takes while it starts is not held against the limit.
    pub exclude_mpi_runtime: bool,
    /// Modules whose blocks are not: files' names, or paths. They [fit](exempt_fit).
    pub exempt: Vec<String>,
    /// Ends with the command, also while other processes of the job still run.
    pub no_wait: bool,
    /// The job has a control group of its own behind the limit, where one can be made. (With a limit on what is
    /// resident it has one always.)
    pub strict: bool,
}

impl Counting {
    /// What requests are held against.
    pub(crate) fn budget(&self) -> u64 {
        self.limit.filter(|_| self.basis != Basis::Resident).unwrap_or(NO_LIMIT)
    }
}

/// A refusal, as it is told while the job goes on.
#[derive(Clone, Debug)]
pub struct Refusal<'a> {
    /// What was refused.
    pub first: &'a FirstRefusal,
    /// The limit.
    pub limit: u64,
    /// The process id, where it is known.
    pub pid: Option<u32>,
    /// Its MPI rank.
    pub rank: Option<u32>,
    /// The host it runs on.
    pub host: &'a str,
    /// Its command line.
    pub command: &'a [String],
}

/// What a process holds while the job goes on.
#[derive(Clone, Copy, Debug)]
pub struct Holding<'a> {
    /// The process id, where it is known.
    pub pid: Option<u32>,
    /// Its MPI rank.
    pub rank: Option<u32>,
    /// Its command line.
    pub command: &'a [String],
    /// Bytes that are charged to it, at least.
    pub charged: u64,
}

/// What the caller may tell the user while a job is counted.
pub trait CountWatch: Watch {
    /// A request was refused, for the first time.
    fn refused(&mut self, refusal: &Refusal<'_>);
    /// More was resident than may be: the job is being killed, or stopped.
    fn over(&mut self, over: &Over);
    /// The job was stopped; these are its processes.
    fn stopped(&mut self, pids: &[u32]);
    /// The command has ended, and these processes of the job are still stopped.
    fn still_stopped(&mut self, pids: &[u32]);
    /// What the processes of the job hold now, and all together: several times a second.
    fn goes_on(&mut self, _processes: &[Holding<'_>], _charged: u64) {}
}

/// Counts a job, and how its command ended.
///
/// # Errors
/// Only before the command has started.
pub fn count(counting: &Counting, watch: &mut dyn CountWatch) -> Result<(Job, Exit), Error> {
    counting.launch.check()?;
    record::keep_memory();
    let limits = Limits::lift();
    let signals = Signals::catch()?;
    let mut enclosure = Enclosure::begin(counting);
    // It is in our control group, and not in the way there once it ends; and it shares no memory with the job.
    let signals = signals.with_sentinel();
    let mut recorder = open(counting)?;
    let needs_kin = enclosure.as_ref().is_some_and(Enclosure::needs_kin);
    let adopts = counting.on_limit == OnLimit::Kill || needs_kin;
    let halting = Halting::begin(adopts, belonging(&recorder));
    let mut child = start(&mut recorder, counting, limits, enclosure.as_mut())?;
    watch_over(&recorder, enclosure.as_mut(), &halting);
    if let Some(why) = counting.launch.obstacle() {
        watch.notice(&format!("{} can't be counted: {why}", counting.launch.name()));
    }
    let mut counted = Counted::new(watch, Some(child.id()), halting, counting.on_limit);
    counted.enclosure = enclosure;
    recorder.run(&mut child, &signals, counting.no_wait, &mut counted);
    if !counting.no_wait {
        counted.wait_for_the_rest(&mut recorder, &signals);
    }
    let job = counted.finish(recorder, counting);
    // It may go on, where nobody waits for it or the counting had to end.
    let exit = record::wait(&mut child, &signals);
    let exit = if is_killed(&job, counting.on_limit) { exit.of_a_killed_job() } else { exit };
    Ok((job, exit))
}

/// Whether a job was killed, for a request or for what was resident.
fn is_killed(job: &Job, on_limit: OnLimit) -> bool {
    let is_ended = |over: &Over| on_limit != OnLimit::Stop || over.judge.is_kernel();
    (job.killed && on_limit == OnLimit::Kill) || job.over().is_some_and(is_ended)
}

/// Starts the command, in the group of its job where it is let in.
fn start(
    recorder: &mut Recorder,
    counting: &Counting,
    limits: Limits,
    enclosure: Option<&mut Enclosure>,
) -> Result<Child, Error> {
    let Some(enclosure) = enclosure else {
        return record::start(recorder, &counting.launch, limits, None);
    };
    match record::start(recorder, &counting.launch, limits, enclosure.entrance()) {
        Err(Error::Outside) => {
            enclosure.give_up();
            record::start(recorder, &counting.launch, limits, None)
        }
        started => started,
    }
}

/// By what the processes of the job are known from others.
fn belonging(recorder: &Recorder) -> Belonging {
    Belonging::to(recorder.arena.identity().ok(), recorder.arena.session_path())
}

/// Begins to look at what is resident.
fn watch_over(recorder: &Recorder, enclosure: Option<&mut Enclosure>, halting: &Halting) {
    let session = recorder.counter.as_ref().and_then(|counter| counter.session);
    let ledger = recorder.arena.ledger();
    enclosure.into_iter().for_each(|enclosure| enclosure.watch(session, ledger, halting));
}

/// A session that counts as soon as somebody registers with it.
pub(crate) fn open(counting: &Counting) -> Result<Recorder, Error> {
    let arena = SharedArena::create_counting(|ledger| prepare(ledger, counting))?;
    let nothing = File::options().write(true).open("/dev/null");
    let nothing = nothing.map_err(|source| Error::System { what: "opening /dev/null", source })?;
    let sink = Sink::start(nothing, None, arena.arena())?;
    let tape = Writer::new(sink, &record::header(&counting.launch, 0))?;
    let clock = Clock::start(arena.arena())?;
    let identity = arena.identity()?;
    let ledger = arena.ledger();
    let namespaces = Namespaces::new(identity);
    let mut recorder = Recorder::new(arena, clock, tape, Inspector::start()?, namespaces);
    recorder.counter = ledger.map(|ledger| {
        let host = read::hostname().unwrap_or_default();
        let mut counter = Counter::new(ledger, counting.basis, counting.exact, host);
        counter.session = Some(identity);
        let library = counting.launch.library.file_name().unwrap_or_default();
        counter.patches = Some(Patches::new(library.to_owned()));
        if counting.on_limit == OnLimit::Kill {
            counter.usage.segments = Some(Segments::new(identity));
        }
        counter
    });
    Ok(recorder)
}

/// Whether there is room to tell the programs so many exempt modules.
pub fn exempt_fit(names: &[String]) -> bool {
    names.len() <= EXEMPT_NAMES
        && names.iter().map(|name| name.len() + 1).sum::<usize>() <= EXEMPT_BYTES
}

/// Says what is wanted, before anybody can join.
fn prepare(ledger: Ledger, counting: &Counting) {
    ledger.header().want(Wanted {
        on_limit: counting.on_limit,
        details: counting.details,
        launchers: counting.count_launchers,
        mpi_runtime: !counting.exclude_mpi_runtime,
        usable: counting.basis == Basis::Usable,
    });
    ledger.header().exempt.set(counting.exempt.iter().map(|name| name.as_bytes()));
    let batch = if counting.exact { 0 } else { BATCH };
    ledger.budget().open(counting.budget(), batch);
}

/// What is done between two rounds.
pub(crate) struct Counted<'a> {
    watch: &'a mut dyn CountWatch,
    /// The command's pid, where we have started it.
    command: Option<u32>,
    halting: Halting,
    standing: Standing,
    started: Instant,
    /// When the caller was last told what is held.
    shown: Instant,
    /// What the kernel holds the job to.
    enclosure: Option<Enclosure>,
    killer: Killer,
    on_limit: OnLimit,
}

impl Observer for Counted<'_> {
    fn waiting(&mut self, pids: &[u32]) {
        let stopped = self.standing.still();
        if stopped.is_empty() {
            self.watch.waiting(pids);
        } else {
            // They don't end by themselves.
            self.watch.still_stopped(&stopped);
        }
    }

    fn admits(&mut self, pid: u32) {
        self.enclosure.iter_mut().for_each(|enclosure| enclosure.admit(pid));
    }

    fn is_broken(&mut self, recorder: &Recorder) -> bool {
        let session = recorder.arena.arena().session();
        let enclosure = self.enclosure.as_mut();
        enclosure.is_some_and(|enclosure| enclosure.is_broken(&|| session.beat()))
    }

    fn may_speak(&self) -> bool {
        self.enclosure.is_some()
    }

    fn is_holding(&self) -> bool {
        self.enclosure.as_ref().is_some_and(|enclosure| !enclosure.is_empty())
    }

    fn after_round(&mut self, recorder: &mut Recorder) {
        if recorder.round.is_multiple_of(REAP_EVERY) {
            let mut spared = recorder.live_pids();
            spared.extend(self.command);
            self.halting.reap(&spared);
        }
        if self.shown.elapsed() >= SHOWN_EVERY {
            self.show(recorder);
        }
        self.look_around(recorder, false);
        let limit = recorder.arena.ledger().map_or(0, |ledger| ledger.budget().limit());
        let Some(counter) = &mut recorder.counter else { return };
        let Some(first) = counter.refusals.news() else { return };
        let process = first.process.map(|place| &recorder.processes[place]);
        self.watch.refused(&Refusal {
            first: &first,
            limit,
            pid: process.and_then(|process| process.known_pid()),
            rank: process.and_then(|process| process.start.rank),
            host: process.and_then(|process| process.host()).unwrap_or(counter.host()),
            command: process.map_or(&[], |process| &process.start.command),
        });
        if let Some(how) = counter.refusals.due() {
            self.halt(recorder, how);
        }
    }
}

impl<'a> Counted<'a> {
    /// From the start of the job on.
    pub(crate) fn new(
        watch: &'a mut dyn CountWatch,
        command: Option<u32>,
        halting: Halting,
        on_limit: OnLimit,
    ) -> Counted<'a> {
        let started = Instant::now();
        Counted {
            watch,
            command,
            halting,
            standing: Standing::default(),
            started,
            shown: started,
            enclosure: None,
            killer: Killer::watch(Sources::here()),
            on_limit,
        }
    }

    /// For commands that come by themselves: each enters the job's group before it begins.
    pub(crate) fn enclosing(
        watch: &'a mut dyn CountWatch,
        recorder: &Recorder,
        counting: &Counting,
    ) -> Counted<'a> {
        let halting = Halting::begin(false, belonging(recorder));
        let mut enclosure = Enclosure::begin(counting);
        watch_over(recorder, enclosure.as_mut(), &halting);
        let counted = Counted::new(watch, None, halting, counting.on_limit);
        Counted { enclosure, ..counted }
    }

    /// Looks at what is resident, and ends the job where that has to be.
    fn look_around(&mut self, recorder: &mut Recorder, is_last: bool) {
        let Some(enclosure) = &mut self.enclosure else { return };
        let mut pids = recorder.live_pids();
        pids.extend(self.command.filter(|_| recorder.root.is_none()));
        let unaccounted = recorder.counter.as_ref().and_then(|counter| counter.unaccounted.most());
        let seen = Seen { pids, root: recorder.root, unaccounted };
        let session = recorder.arena.arena().session();
        let over = enclosure.look(seen, is_last, &|| session.beat());
        if let Some(counter) = recorder.counter.as_mut().filter(|_| enclosure.is_suspect()) {
            counter.usage.hurry(SUSPECTED_EVERY);
        }
        let Some(over) = over else { return };
        self.watch.over(&over);
        let is_stopped = self.on_limit == OnLimit::Stop && !over.judge.is_kernel();
        self.halt(recorder, if is_stopped { OnLimit::Stop } else { OnLimit::Kill });
    }

    /// Waits for processes that nobody counts and the group holds.
    fn wait_for_the_rest(&mut self, recorder: &mut Recorder, signals: &Signals) {
        let mut is_told = false;
        while recorder.ended.is_none() && self.is_holding() && !signals.ask_for_the_end() {
            if !std::mem::replace(&mut is_told, true) {
                let group = self.enclosure.as_ref().and_then(Enclosure::group);
                let pids = group.map(Group::pids).unwrap_or_default();
                self.waiting(&pids);
            }
            if recorder.go_on(recorder.root).is_none() {
                return;
            }
            self.after_round(recorder);
            recorder.rest(0);
        }
    }

    fn show(&mut self, recorder: &Recorder) {
        self.shown = Instant::now();
        let Some(counter) = &recorder.counter else { return };
        let holding = |&(place, charged): &(usize, u64)| {
            let process = &recorder.processes[place];
            let (pid, start) = (process.known_pid(), &process.start);
            Holding { pid, rank: start.rank, command: &start.command, charged }
        };
        let (each, charged) = &counter.now;
        self.watch.goes_on(&each.iter().map(holding).collect::<Vec<_>>(), *charged);
    }

    /// The job has ended, or is to be counted no longer: all figures.
    pub(crate) fn finish(mut self, mut recorder: Recorder, counting: &Counting) -> Job {
        if let Some(counter) = &mut recorder.counter {
            counter.refusals.look(counter.ledger, &recorder.processes, true);
        }
        self.after_round(&mut recorder);
        self.look_around(&mut recorder, true);
        recorder.conclude();
        self.halting.reap(&Vec::from_iter(self.command));
        let elapsed = self.started.elapsed().as_secs_f64();
        let missed = recorder.ended.take().map(|why| Missed {
            pid: 0,
            command: Vec::new(),
            why: format!("the counting ended before the job did ({})", why.as_str()),
        });
        let Some(mut counter) = recorder.counter.take() else { return Job::default() };
        counter.uncovered.extend(missed);
        let felled = std::mem::take(&mut counter.felled);
        let kernel = self.enclosure.take().map(Enclosure::finish);
        if kernel.as_ref().is_some_and(|kernel| kernel.is_left) {
            let why = "a process of the job was outside of its control group".to_owned();
            counter.uncovered.push(Missed { pid: 0, command: Vec::new(), why });
        }
        let job = job(counter, counting, elapsed);
        let felled = self.killer.testify(felled, recorder.root, &job, kernel.as_ref());
        // What was looked at more often may have shown more.
        let most = kernel.as_ref().map(|kernel| kernel.most.held()).filter(|&bytes| bytes > 0);
        let unmapped = kernel.as_ref().map(|kernel| kernel.unmapped).filter(|&bytes| bytes > 0);
        let unaccounted = job.unaccounted.max(unmapped);
        let stopped = self.standing.still().into_iter().map(stopped).collect();
        Job { kernel, stopped, felled, resident: job.resident.max(most), unaccounted, ..job }
    }

    /// The processes of the job that are known. (Others may have the numbers of those that have ended.)
    fn seeds(&self, recorder: &Recorder, group: Option<&Group>) -> Seeds {
        let mut told = recorder.live_pids();
        told.extend(recorder.intents.named());
        let mut certain = group.map(Group::pids).unwrap_or_default();
        certain.extend(self.command.filter(|_| recorder.root.is_none()));
        let lives =
            |joined: &Joined| joined.watch.as_ref().is_some_and(|it| !exit::is_readable(it));
        let joined = recorder.joined.iter().filter(|(_, joined)| lives(joined));
        certain.extend(joined.map(|(&pid, _)| pid));
        Seeds { certain, told }
    }

    fn halt(&mut self, recorder: &mut Recorder, how: OnLimit) {
        let group = self.enclosure.as_ref().and_then(Enclosure::group);
        let seeds = self.seeds(recorder, group);
        let session = recorder.arena.arena().session();
        let beat = || session.beat();
        if how == OnLimit::Stop {
            self.standing = self.halting.stop(&seeds, group, &beat);
            // Not before: who was refused waits for it, and for the user's word.
            if let Some(ledger) = recorder.arena.ledger() {
                ledger.header().fail_from_now_on();
            }
            return self.watch.stopped(&self.standing.pids());
        }
        let segments = recorder.counter.as_mut().and_then(|counter| counter.usage.segments.take());
        let mut segments = segments;
        self.halting.kill(&seeds, &beat, |pid| {
            segments.iter_mut().for_each(|segments| segments.note(pid));
        });
        // Those that nobody's child led to.
        group.map(|group| group.kill(&beat));
        segments.into_iter().for_each(Segments::remove);
    }
}

fn stopped(pid: u32) -> Stopped {
    Stopped { pid, command: read::cmdline(pid).map(|words| texts(&words)).unwrap_or_default() }
}
