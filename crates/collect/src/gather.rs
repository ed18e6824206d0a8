//! The recording of a job whose commands come by themselves: lets them join, and ends when the last
//! of them has ended.
//!
//! Of each command it holds a copy of the standard error until that command has ended, and the last
//! one's until the tape is whole: a launcher returns when those are closed, and so the tape is there
//! when it does.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use heaptape_ledger::Job;
use heaptape_proc::{launcher, lineage};
use rustix::fs::FlockOperation;

use crate::Error;
use crate::caller::{Caller, Standing, Waiting};
use crate::count::{self, CountWatch, Counted, Counting};
use crate::counter::Counter;
use crate::exit;
use crate::meeting::{self, Heard, Reply};
use crate::output::OpenOutput;
use crate::record::{self, Outcome, Recording};
use crate::recorder::{Joined, Observer, Recorder};

/// How long the first command may take to join.
const FIRST: Duration = Duration::from_secs(10);
/// How long, after all commands have ended, others that the launcher announced are waited for.
const OTHERS: Duration = Duration::from_secs(2);
/// The same where a launcher does not say how many there are.
const PERHAPS: Duration = Duration::from_secs(1);
/// How long, after all commands have ended, their launcher is held for processes that they left.
const LEFTOVERS: Duration = Duration::from_secs(1);
/// How long wrappers are told why there is no recording.
const REFUSALS: Duration = Duration::from_millis(500);
/// A round of waiting.
const MOMENT: Duration = Duration::from_millis(2);

/// Whom a recording may wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// Commands on this host, where that is known.
    pub(crate) commands: Option<u32>,
    /// The process that starts them.
    pub(crate) launcher: Option<u32>,
}

/// A command that has joined.
struct Member {
    pid: u32,
    watch: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

/// The commands of a job as they come and go.
struct Gathering {
    /// `None` when nobody is let in any more.
    listener: Option<OwnedFd>,
    callers: Vec<Caller>,
    members: Vec<Member>,
    /// Commands that have joined and begun.
    joined: u32,
    /// Whether anybody ever asked to join.
    was_called: bool,
    expected: Expected,
    /// Readable once the launcher is gone.
    launcher: Option<OwnedFd>,
    /// When the last command ended, or the recording began.
    alone_since: Instant,
    /// The standard error of the command that ended last.
    held: Option<OwnedFd>,
}

/// What a wrapper changed.
enum Change {
    /// A process, its command, and whether it is none of the job's already.
    Joined {
        pid: u32,
        command: Vec<String>,
        is_new: bool,
    },
    Failed(u32),
    Waits(u32),
    Asks(u32),
}

/// Records a job; `None` when nobody joined.
pub(crate) fn collect(
    recording: &Recording,
    listener: OwnedFd,
    expected: Expected,
) -> Option<Outcome> {
    let mut gathering = Gathering::new(listener, expected);
    let (output, mut recorder) = match begin(recording) {
        Ok(begun) => begun,
        Err(error) => {
            gathering.refuse(&error.to_string());
            return None;
        }
    };
    let whole = gathering.run(&mut recorder, recording.no_wait, &mut Unobserved);
    if gathering.joined == 0 {
        output.discard();
        return None;
    }
    let outcome = recorder.finish(output.path().to_owned());
    drop(output);
    if !whole {
        gathering.see_off("the tape of its job has ended already");
    }
    gathering.speak();
    Some(outcome)
}

/// Counts a job; `None` when nobody joined.
pub(crate) fn count(
    counting: &Counting,
    listener: OwnedFd,
    expected: Expected,
    watch: &mut dyn CountWatch,
) -> Option<(Job, Waiting)> {
    let mut gathering = Gathering::new(listener, expected);
    record::keep_memory();
    let _ = crate::limits::Limits::lift();
    let mut recorder = match count::open(counting) {
        Ok(recorder) => recorder,
        Err(error) => {
            gathering.refuse(&error.to_string());
            return None;
        }
    };
    let mut counted = Counted::enclosing(watch, &recorder, counting);
    let whole = gathering.run(&mut recorder, counting.no_wait, &mut counted);
    if gathering.joined == 0 {
        return None;
    }
    let job = counted.finish(recorder, counting);
    if !whole {
        gathering.see_off("the counting of its job has ended already");
    }
    gathering.speak();
    Some((job, gathering.waiting()))
}

/// Nobody who is told what happens between rounds: a recording that was joined says all at its end.
struct Unobserved;

impl Observer for Unobserved {
    fn waiting(&mut self, _pids: &[u32]) {}
}

fn begin(recording: &Recording) -> Result<(OpenOutput, Recorder), Error> {
    record::keep_memory();
    let mut output = recording.output.open()?;
    let _ = crate::limits::Limits::lift();
    let begun = output
        .settle(std::process::id())
        .map_err(|source| Error::Output { path: output.path().to_owned(), source })
        .and_then(|()| record::open(recording, &output));
    match begun {
        Ok(recorder) => {
            // Who reads the tape sees by this that it is about to be ended.
            let _ = rustix::fs::flock(&output.file, FlockOperation::NonBlockingLockExclusive);
            Ok((output, recorder))
        }
        Err(error) => {
            output.discard();
            Err(error)
        }
    }
}

impl Gathering {
    fn new(listener: OwnedFd, expected: Expected) -> Gathering {
        Gathering {
            listener: Some(listener),
            callers: Vec::new(),
            members: Vec::new(),
            joined: 0,
            was_called: false,
            expected,
            launcher: expected.launcher.and_then(exit::watch),
            alone_since: Instant::now(),
            held: None,
        }
    }

    /// Goes on until the job has ended; false when the tape had to end before.
    fn run(&mut self, recorder: &mut Recorder, no_wait: bool, observer: &mut dyn Observer) -> bool {
        let mut idle = 0;
        loop {
            let reply = Reply::Session(recorder.arena.session_path().to_owned());
            for change in self.listen() {
                match change {
                    Change::Joined { pid, command, is_new } => {
                        if is_new {
                            observer.admits(pid);
                        }
                        recorder.namespaces.expect(pid);
                        recorder.intents.expect(recorder.namespaces.of(pid), pid, command);
                        let (job, watch) = (launcher::job_of(pid), exit::watch(pid));
                        recorder.joined.insert(pid, Joined { job, watch });
                        self.answer(pid, &reply);
                    }
                    Change::Failed(pid) => {
                        recorder.intents.forget(pid);
                        recorder.joined.remove(&pid);
                    }
                    Change::Waits(pid) => self.answer(pid, &Reply::Within(None)),
                    Change::Asks(pid) => {
                        let is_broken = recorder.counter.as_ref().is_some_and(Counter::is_broken)
                            || observer.is_broken(recorder);
                        self.answer(pid, &Reply::Within(is_broken.then_some(false)));
                    }
                }
            }
            self.let_go();
            let Some(busy) = recorder.go_on(None) else { return false };
            let may_speak = recorder.has_news() || observer.may_speak();
            self.aloud(may_speak, || observer.after_round(recorder));
            if self.is_over()
                && (self.joined == 0 || has_ended_all(recorder, no_wait, observer))
                && !self.is_called()
            {
                return true;
            }
            idle = if busy { 0 } else { idle + 1 };
            if !busy {
                recorder.rest(idle);
            }
        }
    }
}

/// Whether nobody is left who has joined, or was started by one who has. What the group of the job holds and nobody
/// counts is waited for as long as it lives: the kernel tells of it, and not a word that a program may have written.
fn has_ended_all(recorder: &mut Recorder, no_wait: bool, observer: &dyn Observer) -> bool {
    let is_held = !no_wait && observer.is_holding();
    !is_held && (recorder.is_over(no_wait) || recorder.waits_in_vain())
}

impl Gathering {
    /// Takes in who calls and what they say; the commands that have just asked to join are still to be
    /// answered.
    fn listen(&mut self) -> Vec<Change> {
        self.accept();
        let mut changes = Vec::new();
        let mut callers = Vec::new();
        for caller in std::mem::take(&mut self.callers) {
            match caller.line.hear() {
                Heard::Nothing => callers.push(caller),
                Heard::Joins(who, command, stderr) => {
                    let Some(pid) = caller.of(who) else { continue };
                    let is_new = self.take_in(pid, stderr);
                    changes.push(Change::Joined { pid, command, is_new });
                    let is_counted = caller.is_counted || is_new;
                    callers.push(Caller { standing: Standing::Joined, pid, is_counted, ..caller });
                }
                Heard::Waits => {
                    changes.push(Change::Waits(caller.pid));
                    callers.push(Caller { standing: Standing::WaitsFirst, ..caller });
                }
                Heard::Asks => {
                    changes.push(Change::Asks(caller.pid));
                    callers.push(caller);
                }
                Heard::Failed if caller.standing == Standing::Joined => {
                    self.members.retain(|member| member.pid != caller.pid);
                    self.joined = self.joined.saturating_sub(caller.is_counted.into());
                    self.alone_since = Instant::now();
                    changes.push(Change::Failed(caller.pid));
                }
                Heard::Failed | Heard::Left => {}
            }
        }
        self.callers = callers;
        for change in &changes {
            if let Change::Joined { pid, .. } = change {
                self.settle_with(*pid);
            }
        }
        changes
    }

    /// A process joins. What a member has started is none of those that its launcher starts, and whose
    /// number is known. Whether it is none of those.
    fn take_in(&mut self, pid: u32, stderr: Option<OwnedFd>) -> bool {
        let is_member = |pid: u32| self.members.iter().any(|member| member.pid == pid);
        let is_members = lineage(pid).any(is_member);
        self.joined += u32::from(!is_members);
        self.members.push(Member { pid, watch: exit::watch(pid), stderr });
        self.was_called = true;
        self.held = None;
        !is_members
    }

    /// Who waits for this process's part in the job need not be waited for any more.
    fn settle_with(&mut self, pid: u32) {
        let Some(parent) = lineage(pid).nth(1) else { return };
        let waits =
            |caller: &&mut Caller| caller.pid == parent && caller.standing == Standing::WaitsFirst;
        self.callers.iter_mut().filter(waits).for_each(|it| it.standing = Standing::Waits);
    }

    /// Those who wait for what comes of the limit, now that nobody joins any more.
    fn waiting(self) -> Waiting {
        let waits = self.callers.into_iter().filter(|it| it.standing == Standing::Waits);
        Waiting(waits.map(|caller| caller.line).collect())
    }

    fn accept(&mut self) {
        while let Some(line) = self.listener.as_ref().and_then(meeting::accept) {
            // One of another user has nothing to look for here.
            if let Some(pid) = line.peer() {
                self.callers.extend(Caller::new(line, pid));
            }
        }
    }

    fn answer(&self, pid: u32, reply: &Reply) {
        self.callers
            .iter()
            .filter(|caller| caller.pid == pid)
            .for_each(|caller| caller.line.tell(reply));
    }

    /// Forgets the commands that have ended.
    fn let_go(&mut self) {
        let (ended, running): (Vec<_>, Vec<_>) = std::mem::take(&mut self.members)
            .into_iter()
            .partition(|member| has_ended(&member.watch));
        self.members = running;
        if let Some(last) = ended.into_iter().last()
            && self.members.is_empty()
        {
            self.held = last.stderr;
            self.alone_since = Instant::now();
        }
        if self.is_over() && self.alone_since.elapsed() > self.patience() + LEFTOVERS {
            self.held = None;
        }
    }

    /// Whether all commands have ended and no more are to come.
    fn is_over(&self) -> bool {
        let alone = self.alone_since.elapsed();
        let is_alone = self.members.is_empty()
            && self.callers.iter().all(|caller| caller.standing.is_settled());
        is_alone
            && (alone >= self.patience()
                || (self.was_called && self.launcher.is_some() && has_ended(&self.launcher)))
    }

    /// How long others are waited for.
    fn patience(&self) -> Duration {
        match (self.expected.commands, self.expected.launcher) {
            _ if !self.was_called => FIRST,
            (Some(all), _) if self.joined >= all => Duration::ZERO,
            (Some(_), _) => OTHERS,
            (None, Some(_)) => PERHAPS,
            (None, None) => Duration::ZERO,
        }
    }

    /// The last moment before nobody is let in any more: whether somebody has come.
    fn is_called(&mut self) -> bool {
        self.accept();
        let is_called = self.callers.iter().any(|caller| !caller.standing.is_settled());
        if !is_called {
            self.listener = None;
        }
        is_called
    }

    /// Tells those who come why there is no recording.
    fn refuse(&mut self, why: &str) {
        let mut last = Instant::now();
        while last.elapsed() < REFUSALS {
            for change in self.listen() {
                if let Change::Joined { pid, .. } | Change::Waits(pid) = change {
                    self.answer(pid, &Reply::Refused(why.to_owned()));
                    last = Instant::now();
                }
            }
            std::thread::sleep(MOMENT);
        }
    }

    /// Lets the others of the job begin unrecorded, until all have ended.
    fn see_off(&mut self, why: &str) {
        while !self.is_over() || self.is_called() {
            for change in self.listen() {
                match change {
                    Change::Joined { pid, .. } | Change::Waits(pid) => {
                        self.answer(pid, &Reply::Over(why.to_owned()));
                    }
                    // Not all was counted.
                    Change::Asks(pid) => self.answer(pid, &Reply::Within(Some(false))),
                    Change::Failed(_) => {}
                }
            }
            self.let_go();
            std::thread::sleep(MOMENT);
        }
    }

    /// Does something, if there `is_news` with the standard error of one of the commands for ours.
    fn aloud(&self, is_news: bool, tell: impl FnOnce()) {
        let stderr = self.members.iter().filter_map(|member| member.stderr.as_ref()).next_back();
        let Some(stderr) = stderr.or(self.held.as_ref()).filter(|_| is_news) else {
            return tell();
        };
        let own = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3);
        let _ = rustix::stdio::dup2_stderr(stderr);
        tell();
        // A descriptor that stays open would keep the launcher waiting.
        if let Ok(own) = own {
            let _ = rustix::stdio::dup2_stderr(own);
        }
    }

    /// From here on our standard error is that of the last command.
    fn speak(&mut self) {
        if let Some(stderr) = self.held.take() {
            let _ = rustix::stdio::dup2_stderr(stderr);
        }
    }
}

/// Whether the process behind a descriptor has ended; without one it had before.
fn has_ended(watch: &Option<OwnedFd>) -> bool {
    watch.as_ref().is_none_or(exit::is_readable)
}
