//! One process of the job: its lanes, its place on the tape, how it ends.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use heaptape_proc::Job;
use heaptape_tape::{
    Code, Error, Event, ForkPoint, Note, ProcessEnd, ProcessNumber, ProcessStart, Writer,
};
use heaptape_wire::chunk::{ChunkView, Owner, UNKNOWN_TID};
use heaptape_wire::event::{Allocation, Call, Record};
use heaptape_wire::note::{NoteKind, NoteRecord};
use heaptape_wire::plain::Plain;
use heaptape_wire::site::SiteEnd;

use crate::apart::Apart;
use crate::arena::Chunk;
use crate::drain::{Lane, Source};
use crate::exit::{self, Exit};
use crate::merge::{Stream, merge};
use crate::namespace::{Found, Namespaces, Sought, Who};
use crate::sink::Sink;

/// Bytes that an event has in a chunk, at least.
pub(crate) const BYTES_PER_EVENT: u64 = 16;
/// Events that go to the tape together.
const BATCH: usize = 32;

/// How long the end of a job, or of its parent's part in it, waits for the child of a fork that has not
/// registered.
const CHILD_GRACE: Duration = Duration::from_millis(500);

/// Who a process is.
pub(crate) struct Identity {
    /// What it has said of itself.
    pub(crate) said: Who,
    /// How it is known, and found again.
    pub(crate) sought: Sought,
    /// Where it is.
    pub(crate) found: Found,
    /// Its place in a parallel job.
    pub(crate) job: Option<Job>,
}

/// A process that is, or was, recorded.
pub(crate) struct Process {
    pub(crate) number: ProcessNumber,
    /// What was known of it when it was first seen. Its pid is ours for it, or 0 where it was gone too
    /// soon.
    pub(crate) start: ProcessStart,
    /// How it knows itself.
    pub(crate) who: Who,
    /// How it is found again.
    sought: Sought,
    /// Its number in our namespace; none when it was not found.
    pub(crate) pid: Option<u32>,
    /// Whether it was looked for, and is gone.
    pub(crate) is_absent: bool,
    /// Its place in a parallel job.
    pub(crate) job: Option<Job>,
    pub(crate) slot: u16,
    pub(crate) generation: u32,
    pub(crate) watch: Option<OwnedFd>,
    /// The round in which it was first seen.
    pub(crate) since: u64,
    /// When it was last sampled, or first seen.
    pub(crate) sampled: Instant,
    /// When it last wrote, or was first seen.
    heard: Instant,
    /// When it was first seen to have ended.
    pub(crate) gone: Option<Instant>,
    pub(crate) ended: Option<Instant>,
    pub(crate) exit: Exit,
    /// The exit code that it said it leaves with.
    said_code: Option<i32>,
    /// The time of its last record, which none may go behind.
    time: u64,
    /// What of its calls is not seen, as its file shows; taken when it is named.
    pub(crate) gap: Option<String>,
    /// Whether its file is still being looked at.
    pub(crate) is_being_inspected: bool,
    /// What of its calls is not seen, as the library has said; taken when it is named.
    pub(crate) said: Option<String>,
    /// Libraries whose calls are not seen.
    pub(crate) apart: Apart,
    lanes: Vec<Lane>,
    /// Threads whose lanes are closed.
    closed: Totals,
    forks: HashMap<u64, (ForkPoint, Instant)>,
    /// Children that this process has waited for, with their wait status.
    children: Vec<(u32, i32)>,
    begun: Option<Begun>,
    batch: Vec<Event>,
}

/// What closed lanes leave behind.
#[derive(Default)]
struct Totals {
    threads: u64,
    free_null: u64,
    lost: u64,
}

/// A reallocation that has begun and whose release is not on the tape (yet).
struct Begun {
    thread: u32,
    time: u64,
    old: u64,
}

impl Process {
    /// A process that registered in `slot`, first seen in the round `since`.
    pub(crate) fn new(
        number: ProcessNumber,
        start: ProcessStart,
        Identity { sought, found, job, .. }: Identity,
        (slot, generation): (u16, u32),
        since: u64,
    ) -> Process {
        let pid = found.pid();
        Process {
            number,
            watch: pid.and_then(exit::watch),
            said_code: None,
            time: start.time,
            start,
            who: sought.who,
            sought,
            pid,
            is_absent: found == Found::Absent,
            job,
            slot,
            generation,
            since,
            sampled: Instant::now(),
            heard: Instant::now(),
            gone: None,
            ended: None,
            exit: Exit::default(),
            gap: None,
            is_being_inspected: false,
            said: None,
            apart: Apart::default(),
            lanes: Vec::new(),
            closed: Totals::default(),
            forks: HashMap::new(),
            children: Vec::new(),
            begun: None,
            batch: Vec::with_capacity(BATCH),
        }
    }

    /// Whether it may live, and nobody knows where.
    pub(crate) fn is_unplaced(&self) -> bool {
        self.pid.is_none() && !self.is_absent
    }

    /// Whether nobody knows where it is, and it has said nothing for so long that nobody waits for it.
    pub(crate) fn is_lost_from_sight(&self) -> bool {
        /// How long it may be silent.
        const SILENCE: Duration = Duration::from_secs(2);
        self.is_unplaced() && self.heard.elapsed() > SILENCE
    }

    /// Looks for it again.
    pub(crate) fn place(&mut self, namespaces: &Namespaces) {
        match namespaces.find(&self.sought, &[]) {
            Found::Here(pid) => {
                self.who = namespaces.told(self.who, Found::Here(pid));
                self.sought.who = self.who;
                (self.pid, self.watch) = (Some(pid), exit::watch(pid));
            }
            Found::Absent => self.is_absent = true,
            Found::Unsure => {}
        }
    }

    /// A chunk of this process was found: it begins a lane, or continues its thread's. False when the
    /// thread's first chunk has not been found yet.
    pub(crate) fn attach(&mut self, owner: Owner, chunk: Chunk, view: &ChunkView) -> bool {
        let (tid, first) = (view.tid, view.first);
        if first == 0 {
            self.lanes.push(self.new_lane(owner.thread, tid, view.depth));
        }
        let is_its = |lane: &&mut Lane| lane.slot == owner.thread && lane.tid == tid;
        let lane = self.lanes.iter_mut().rev().find(is_its);
        let found = lane.is_some();
        if let Some(lane) = lane {
            lane.attach(chunk, first);
        }
        found
    }

    /// The lane of a thread that is new, or one inside a thread's own, with that one's number.
    fn new_lane(&self, slot: u16, tid: u32, depth: u32) -> Lane {
        let own = self.lanes.iter().rev().find(|lane| lane.depth == 0 && lane.tid == tid);
        // Numbers that are not known tell no two threads apart.
        if let Some(own) = own.filter(|_| depth > 0 && tid != UNKNOWN_TID) {
            let mut lane = Lane::new(own.number, slot, tid);
            lane.depth = depth;
            return lane;
        }
        let threads = self.lanes.iter().filter(|lane| lane.depth == 0).count() as u64;
        Lane::new((self.closed.threads + threads) as u32, slot, tid)
    }

    /// Looks how far the threads have come; the bytes that they have written since the last look.
    pub(crate) fn look(&mut self, source: &mut Source<'_>) -> u64 {
        let seen = self.lanes.iter_mut().map(|lane| lane.look(source)).fold(0, u64::saturating_add);
        if seen > 0 {
            self.heard = Instant::now();
        }
        seen
    }

    /// Whether anything waits to be merged, as what the last round's second look found.
    pub(crate) fn has_pending(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.is_empty())
    }

    /// All that is there now must come out in this round.
    pub(crate) fn settle(&mut self) {
        self.lanes.iter_mut().for_each(Lane::settle);
    }

    /// Merges what is settled (with `all`, everything) onto the tape.
    pub(crate) fn merge(
        &mut self,
        tape: &mut Writer<Sink>,
        source: &mut Source<'_>,
        all: bool,
    ) -> Result<(), Error> {
        let mut stream = Merged {
            number: self.number,
            tape,
            batch: &mut self.batch,
            begun: &mut self.begun,
            forks: &mut self.forks,
            children: &mut self.children,
            apart: &mut self.apart,
            said_code: &mut self.said_code,
            now: &mut self.time,
        };
        let merged = merge(&mut self.lanes, all, &mut |lane| lane.pull(source), &mut stream);
        merged.and(stream.write_batch())
    }

    /// How children ended, as this process was told when it waited for them.
    pub(crate) fn take_statuses(&mut self) -> impl Iterator<Item = (Who, i32)> + '_ {
        let namespace = self.who.namespace;
        self.children.drain(..).map(move |(pid, status)| (Who { namespace, pid }, status))
    }

    /// The point of an announced fork.
    pub(crate) fn take_fork(&mut self, number: u64) -> Option<ForkPoint> {
        self.forks.remove(&number).map(|(point, _)| point)
    }

    /// Whether a fork was announced less than `age` ago and its child is still to come.
    pub(crate) fn has_fork_since(&self, age: Duration) -> bool {
        self.forks.values().any(|(_, since)| since.elapsed() < age)
    }

    /// Whether a child that it has forked is still to make itself known, as far as that can be.
    pub(crate) fn awaits_child(&self) -> bool {
        self.has_fork_since(CHILD_GRACE)
    }

    /// Its number in our namespace, where it was ever found.
    pub(crate) fn known_pid(&self) -> Option<u32> {
        self.pid.or((self.start.pid != 0).then_some(self.start.pid))
    }

    /// The host it runs on, where its launcher tells.
    pub(crate) fn host(&self) -> Option<&str> {
        self.job.as_ref()?.host.as_deref()
    }

    /// Points of forks whose child never came, older than `age`.
    pub(crate) fn stale_forks(&mut self, age: Duration) -> Vec<ForkPoint> {
        let stale = |since: &Instant| since.elapsed() > age;
        let points = self.forks.values().filter(|(_, since)| stale(since)).map(|(p, _)| *p);
        let points = points.collect();
        self.forks.retain(|_, (_, since)| !stale(since));
        points
    }

    /// Whether any thread holds a chunk.
    pub(crate) fn holds_chunks(&self) -> bool {
        self.lanes.iter().any(Lane::holds_chunks)
    }

    /// Whether a thread with this number in the library holds a chunk.
    pub(crate) fn has_open_lane(&self, number: u16) -> bool {
        self.lanes.iter().any(|lane| lane.slot == number && lane.holds_chunks())
    }

    /// Closes the lanes of threads that are gone; their numbers in the library, to be used again.
    /// `lives` is asked for each thread by itself: a list of all may lack some while others end.
    pub(crate) fn close_gone(
        &mut self,
        lives: impl Fn(u32) -> bool,
        source: &mut Source<'_>,
    ) -> Vec<u16> {
        let mut numbers = Vec::new();
        let mut later = HashSet::new();
        for lane in self.lanes.iter_mut().rev() {
            // A later thread with the same number in the kernel: this one is gone, too.
            let is_last = later.insert((lane.tid, lane.depth));
            let is_unknown = lane.tid == UNKNOWN_TID;
            if !lane.holds_chunks() || is_unknown || (is_last && lives(lane.tid)) {
                continue;
            }
            // It wrote its last before it was gone, so this look sees it.
            lane.look(source);
            lane.settle();
            if lane.is_empty() && lane.holds_chunks() && !lane.has_gap() {
                lane.close(source);
                numbers.push(lane.slot);
            }
        }
        self.drop_finished();
        numbers
    }

    /// Forgets lanes that are finished and stand before all others.
    fn drop_finished(&mut self) {
        let count = self.lanes.iter().take_while(|lane| lane.is_finished()).count();
        for lane in self.lanes.drain(..count) {
            self.closed.add(&lane);
        }
    }

    /// So many bytes of the process's events can't be read.
    pub(crate) fn lose(&mut self, bytes: u64) {
        self.closed.lost += bytes.div_ceil(BYTES_PER_EVENT);
    }

    /// The process is gone: reads the rest, gives its chunks back and ends it on the tape.
    pub(crate) fn finish(
        &mut self,
        tape: &mut Writer<Sink>,
        source: &mut Source<'_>,
        time: u64,
    ) -> Result<(), Error> {
        self.look(source);
        let merged = self.merge(tape, source, true);
        for mut lane in self.lanes.drain(..) {
            lane.close(source);
            self.closed.add(&lane);
        }
        merged?;
        self.ended = Some(Instant::now());
        if self.exit == Exit::default() && self.gone.is_some() {
            self.exit.code = self.said_code;
        }
        let end = ProcessEnd {
            time: time.max(self.time),
            code: self.exit.code,
            signal: self.exit.signal,
            threads: self.closed.threads,
            free_null: self.closed.free_null,
            lost: self.closed.lost,
        };
        tape.end_process(self.number, &end)
    }

    /// Events that are known to be lost.
    pub(crate) fn lost(&self) -> u64 {
        self.closed.lost
    }
}

impl Totals {
    fn add(&mut self, lane: &Lane) {
        self.threads += u64::from(lane.depth == 0);
        self.free_null += lane.free_null();
        self.lost += lane.lost();
    }
}

/// The merged stream of a process on its way to the tape.
struct Merged<'a> {
    number: ProcessNumber,
    tape: &'a mut Writer<Sink>,
    /// Events that are not on the tape yet.
    batch: &'a mut Vec<Event>,
    begun: &'a mut Option<Begun>,
    forks: &'a mut HashMap<u64, (ForkPoint, Instant)>,
    children: &'a mut Vec<(u32, i32)>,
    apart: &'a mut Apart,
    said_code: &'a mut Option<i32>,
    now: &'a mut u64,
}

impl Stream for Merged<'_> {
    type Error = Error;

    #[inline]
    fn plain(&mut self, thread: u32, time: u64, plain: &Plain) -> Result<(), Error> {
        let time = self.next_time(time);
        if self.begun.is_some() {
            self.release_begun()?;
        }
        let &Plain { call, address, caller, size, slack, align, .. } = plain;
        self.push(Event { call, thread, time, caller, address, size, slack, align, old: 0 })
    }

    #[inline(never)]
    fn record(&mut self, thread: u32, time: u64, record: &Record<'_>) -> Result<(), Error> {
        let time = self.next_time(time);
        if self.begun.is_some() {
            self.settle_begun(thread, record)?;
        }
        let event = match *record {
            Record::Time(_) => return Ok(()),
            Record::ReallocBegin { old, .. } => {
                *self.begun = Some(Begun { thread, time, old });
                return Ok(());
            }
            Record::Note(note) => return self.note(thread, time, &note),
            Record::Release { call, address, caller, .. } => {
                let freed = Allocation { address, caller, ..Allocation::default() };
                event(call, thread, time, &freed, 0)
            }
            Record::Allocation { call, allocation, .. } => {
                event(call, thread, time, &allocation, 0)
            }
            Record::Reallocation { call, allocation, old, .. } => {
                event(call, thread, time, &allocation, old)
            }
        };
        self.push(event)
    }
}

fn event(call: Call, thread: u32, time: u64, a: &Allocation, old: u64) -> Event {
    Event {
        call,
        thread,
        time,
        caller: a.caller,
        address: a.address,
        size: a.size,
        slack: a.slack,
        align: a.align,
        old,
    }
}

impl Merged<'_> {
    /// The time of the next record: a thread may be preempted between its look at the coarse clock and its stamp.
    #[inline]
    fn next_time(&mut self, time: u64) -> u64 {
        *self.now = time.max(*self.now);
        *self.now
    }

    /// Puts an event behind those that wait to be written, and has fetched by then what it needs.
    #[inline]
    fn push(&mut self, event: Event) -> Result<(), Error> {
        self.tape.expect(self.number, &event);
        self.batch.push(event);
        if self.batch.len() == BATCH { self.write_batch() } else { Ok(()) }
    }

    #[inline(never)]
    fn write_batch(&mut self) -> Result<(), Error> {
        let written = self.tape.events(self.number, self.batch);
        self.batch.clear();
        written
    }

    /// A reallocation has begun and something follows: if that is its end, nothing came between and
    /// the event says it all; else the release stands on the tape by itself.
    fn settle_begun(&mut self, thread: u32, record: &Record<'_>) -> Result<(), Error> {
        let Some(begun) = &self.begun else { return Ok(()) };
        let is_its_end = thread == begun.thread
            && matches!(record, Record::Reallocation { old, begun: true, .. } if *old == begun.old);
        if is_its_end {
            *self.begun = None;
            return Ok(());
        }
        self.release_begun()
    }

    /// The release of a reallocation that has begun stands on the tape by itself.
    #[cold]
    fn release_begun(&mut self) -> Result<(), Error> {
        let Some(begun) = self.begun.take() else { return Ok(()) };
        self.write_batch()?;
        self.tape.release(self.number, begun.thread, begun.time, begun.old)
    }

    fn note(&mut self, thread: u32, time: u64, note: &NoteRecord<'_>) -> Result<(), Error> {
        match note.kind {
            NoteKind::Site => return self.site(note),
            NoteKind::Code => return self.code(note),
            _ => self.write_batch()?,
        }
        if note.kind == NoteKind::Fork {
            let point = self.tape.fork_point(self.number)?;
            let number = note.args.first().copied().unwrap_or(0);
            self.forks.insert(number, (point, Instant::now()));
        }
        if let (NoteKind::Exit, &[code]) = (note.kind, note.args) {
            *self.said_code = i32::try_from(code).ok();
        }
        if let (NoteKind::ChildEnded, [pid, status]) = (note.kind, note.args) {
            self.children.push((*pid as u32, *status as i32));
        }
        self.apart.note(note.kind, note.args, note.text());
        self.tape.note(
            self.number,
            &Note {
                thread,
                time,
                caller: note.caller,
                kind: note.kind,
                args: note.args.to_vec(),
                text: note.text().collect(),
            },
        )
    }

    /// A call stack that is new. What waits to be written does not name it.
    fn site(&mut self, note: &NoteRecord<'_>) -> Result<(), Error> {
        let &[id, end] = note.args else { return Ok(()) };
        let (Ok(id), Some(end)) = (u32::try_from(id), SiteEnd::from_code(end)) else {
            return Ok(());
        };
        self.tape.site(self.number, id, end, note.words())
    }

    /// Interpreted code that is new: its file stands before its name.
    fn code(&mut self, note: &NoteRecord<'_>) -> Result<(), Error> {
        let &[id, line] = note.args else { return Ok(()) };
        let Ok(id) = u32::try_from(id) else { return Ok(()) };
        let text: Vec<u8> = note.text().collect();
        let mut texts = text.splitn(2, |&byte| byte == 0).map(String::from_utf8_lossy);
        let mut text = || texts.next().unwrap_or_default().into_owned();
        let (file, function) = (text(), text());
        let code = Code { file, function, line: u32::try_from(line).unwrap_or(0) };
        self.tape.code(self.number, id, code)
    }
}
