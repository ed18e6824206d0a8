//! Looks at what is resident in a job, and says when it has to end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use heaptape_ledger::{Basis, Judge, Kernel, Over, unaccounted_allowed};
use heaptape_proc::read;
use heaptape_wire::ledger::Ledger;

use super::members::{Members, Who};
use super::{Seen, parts};
use crate::budget::{self, Budget};
use crate::cgroup::Group;
use crate::halt::{Halting, Seeds};
use crate::segments::Identity;

/// How often a group is looked at, and the share of the time that may take: one part in this many.
const GROUP: (Duration, u32) = (Duration::from_millis(5), 50);
/// What a look is taken to cost at most: of a group, and of processes.
const LONG: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// How often while it has not half of the limit: the kernel's limit holds meanwhile.
const FAR: Duration = Duration::from_millis(20);
/// The same of processes, of which the kernel has to walk all pages.
const PROCESSES: (Duration, u32) = (Duration::from_millis(10), 10);
/// How often it is noted who is there, and the share of the time that may take: of thousands that is long.
const MEMBERS: (Duration, u32) = (Duration::from_millis(50), 50);
/// How long one who is killed may take to give his memory back.
const DYING: Duration = Duration::from_millis(500);

/// Who looks.
pub(super) struct Looker {
    /// The job's limit, and what it is on.
    limit: u64,
    basis: Basis,
    group: Option<Arc<Group>>,
    /// The group's hard limit.
    ceiling: u64,
    session: Option<Identity>,
    ledger: Option<Ledger>,
    halting: Option<Halting>,
    started: Instant,
    due: Budget,
    /// The begin of the last look, and what was held.
    last: Option<(Instant, u64)>,
    /// What was shared beyond all that is charged, at the last look.
    unmapped: u64,
    /// Groups of commands that stay there, by their paths, and whether there is one of which that is not known.
    others: Vec<String>,
    is_of_unknown: bool,
    members: Members,
    to_note: Budget,
    seen: Seen,
    kernel: Kernel,
    /// The end was decided and nobody was told yet.
    is_news: bool,
    is_stopped: bool,
}

impl Looker {
    /// `limits`: the job's, and the kernel's for its group.
    pub(super) fn new(
        (limit, ceiling): (u64, u64),
        basis: Basis,
        group: Option<Arc<Group>>,
        kernel: Kernel,
    ) -> Looker {
        let now = Instant::now();
        let (every, share) = if group.is_some() { GROUP } else { PROCESSES };
        Looker {
            limit,
            basis,
            group,
            ceiling,
            session: None,
            ledger: None,
            halting: None,
            started: now,
            due: Budget::new(every, share, now),
            last: None,
            unmapped: 0,
            others: Vec::new(),
            is_of_unknown: false,
            members: Members::default(),
            to_note: Budget::new(MEMBERS.0, MEMBERS.1, now),
            seen: Seen::default(),
            kernel,
            is_news: false,
            is_stopped: false,
        }
    }

    /// There is no group after all.
    pub(super) fn give_up(&mut self, why: String) {
        self.group = None;
        self.due = Budget::new(PROCESSES.0, PROCESSES.1, Instant::now());
        self.kernel.missing = Some(why);
    }

    /// Not all of the job has come into the group: who stays in another has left nothing.
    pub(super) fn is_of_some_only(&mut self, why: String, stays_in: Option<String>) {
        self.kernel.missing.get_or_insert(why);
        match stays_in {
            Some(path) => self.others.push(path),
            None => self.is_of_unknown = true,
        }
    }

    /// Whether the job has to end, or had to, or has passed its limit where nobody holds it to that.
    pub(super) fn is_broken(&self) -> bool {
        let has_unaccounted = || self.basis != Basis::Resident && self.unaccounted().is_some();
        self.kernel.over.is_some() || self.kernel.is_left || has_unaccounted()
    }

    /// What is unaccounted, where that is more than may be.
    fn unaccounted(&self) -> Option<u64> {
        let unaccounted = self.seen.unaccounted.max(Some(self.kernel.unmapped));
        unaccounted.filter(|&bytes| bytes > unaccounted_allowed(self.limit))
    }

    /// The command has started.
    pub(super) fn begin(
        &mut self,
        session: Option<Identity>,
        ledger: Option<Ledger>,
        halting: Halting,
    ) {
        (self.session, self.ledger, self.halting) = (session, ledger, Some(halting));
    }

    /// Looks, if it is time to; why the job has to end is kept.
    pub(super) fn look(&mut self, is_last: bool, beat: &dyn Fn()) {
        let now = Instant::now();
        let is_held_here = self.group.is_some() || self.basis == Basis::Resident;
        // What comes after the end was decided is no news.
        let is_open = is_held_here && self.kernel.over.is_none();
        if !is_open || !(is_last || self.is_due(now)) {
            return;
        }
        let before = budget::processor_time();
        let found = self.looked(now);
        let (cost, ended) = (budget::processor_time().saturating_sub(before), Instant::now());
        // One that took long by chance does not keep the next from coming in time.
        let longest = if self.group.is_some() { LONG.0 } else { LONG.1 };
        self.due.spent(cost.min(longest), ended);
        let Some((judge, bytes)) = found else { return };
        let who = match judge {
            Judge::Kernel | Judge::Machine => self.killed(beat),
            Judge::Resident | Judge::Unaccounted => self.largest(),
        };
        let time = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.kernel.over = Some(Over { time, judge, bytes, who });
        self.is_news = true;
    }

    /// The same, and stops a job that has to end: so it takes no more until that is done.
    pub(super) fn look_and_stop(&mut self) {
        self.look(false, &|| ());
        if !self.is_news || std::mem::replace(&mut self.is_stopped, true) {
            return;
        }
        let pids = self.pids();
        let Some(halting) = &self.halting else { return };
        let seeds = Seeds { certain: pids, ..Seeds::default() };
        halting.stop(&seeds, self.group.as_deref(), &|| ());
    }

    /// Why the job has to end, once.
    pub(super) fn news(&mut self) -> Option<Over> {
        std::mem::take(&mut self.is_news).then(|| self.kernel.over.clone()).flatten()
    }

    /// Takes in what is known.
    pub(super) fn tell(&mut self, seen: Seen) {
        self.seen = seen;
    }

    /// How long it is to the next look.
    pub(super) fn pause(&self) -> Duration {
        match self.group {
            Some(_) if self.is_far() => FAR,
            Some(_) => GROUP.0,
            None => PROCESSES.0,
        }
    }

    fn is_far(&self) -> bool {
        self.last.is_none_or(|(_, held)| held < self.limit / 2)
    }

    /// Whether more is resident than the limit and what may be unaccounted.
    pub(super) fn is_suspect(&self) -> bool {
        let most = self.limit.saturating_add(unaccounted_allowed(self.limit));
        self.basis != Basis::Resident && self.last.is_some_and(|(_, held)| held > most)
    }

    fn is_due(&self, now: Instant) -> bool {
        match self.group {
            Some(_) if self.is_far() => self.due.is_due_with(FAR, GROUP.1, now),
            _ => self.due.is_due(now),
        }
    }

    fn looked(&mut self, now: Instant) -> Option<(Judge, u64)> {
        let pids = self.pids();
        if self.to_note.is_due(now) {
            let before = budget::processor_time();
            self.members.note(&pids);
            self.kernel.is_left |= self.has_left();
            let cost = budget::processor_time().saturating_sub(before);
            self.to_note.spent(cost, Instant::now());
        }
        let objects = self.objects();
        let memory = self.group.as_ref().map(|group| group.memory()).unwrap_or_default();
        let mut parts = match &self.group {
            Some(_) => parts::of_group(&memory),
            None => parts::of_processes(&pids)?,
        };
        if self.basis == Basis::Resident && parts.held() > self.limit {
            // What is this tool's is looked for only where it matters, since it takes longer.
            parts::without_ours(&mut parts, &pids, self.session, self.group.is_none());
        }
        let held = parts.held();
        self.count(held, now);
        if held >= self.kernel.most.held() {
            self.kernel.most = parts;
        }
        if let Some(shared) = memory.shared {
            self.look_for_unmapped(shared.saturating_sub(objects.max(self.objects())));
        }
        if memory.oom_kills > Some(0) {
            // It is gone now; so much there was at the last look, at least.
            let is_ours = memory.peak.is_none_or(|peak| peak >= self.ceiling - self.ceiling / 16);
            let judge = if is_ours { Judge::Kernel } else { Judge::Machine };
            Some((judge, self.kernel.most.held()))
        } else if self.basis == Basis::Resident && held > self.limit {
            Some((Judge::Resident, held))
        } else {
            let bytes = self.unaccounted().filter(|_| self.is_suspect())?;
            Some((Judge::Unaccounted, bytes))
        }
    }

    /// What is charged for shared memory.
    fn objects(&self) -> u64 {
        self.ledger.map_or(0, Ledger::bytes_of_objects)
    }

    /// So much is shared in the group beyond what is charged. (What comes or goes just then is seen in one of two looks
    /// only.)
    fn look_for_unmapped(&mut self, now: u64) {
        let unmapped = now.min(std::mem::replace(&mut self.unmapped, now));
        self.kernel.unmapped = self.kernel.unmapped.max(unmapped);
    }

    /// The processes of the group, or those that are known and their children.
    fn pids(&self) -> Vec<u32> {
        let known = || {
            let all = |halting: &Halting| halting.all(&self.seen.pids);
            self.halting.as_ref().map(all).unwrap_or_default()
        };
        self.group.as_ref().map_or_else(known, |group| group.pids())
    }

    /// Who holds most, now.
    fn largest(&mut self) -> Option<Who> {
        self.members.note(&self.pids());
        self.members.largest()
    }

    /// Whom the kernel has killed. It says so before he is gone, so there is a little waiting.
    fn killed(&self, beat: &dyn Fn()) -> Option<Who> {
        let until = Instant::now() + DYING;
        loop {
            let who = self.members.killed(self.seen.root);
            if who.is_some() || Instant::now() >= until {
                return who;
            }
            beat();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn count(&mut self, held: u64, now: Instant) {
        let looks = &mut self.kernel.looks;
        looks.count += 1;
        if let Some((before, last)) = self.last.replace((now, held)) {
            let age = Instant::now().duration_since(before).as_micros();
            looks.longest = looks.longest.max(u64::try_from(age).unwrap_or(u64::MAX));
            looks.grown = looks.grown.max(held.saturating_sub(last));
        }
    }

    /// Whether one of these processes is neither in the group nor where one was that has not come into it. One that is ending is in none any more; it has no memory
    /// left then, so that is looked at afterwards.
    fn has_left(&self) -> bool {
        let Some(group) = self.group.as_ref().filter(|_| !self.is_of_unknown) else {
            return false;
        };
        let has_memory = |pid| read::statm(pid, 1).is_ok_and(|statm| statm.resident > 0);
        let is_outside = |pid| group.has(pid) == Some(false) && !group.is_within(pid, &self.others);
        self.seen.pids.iter().any(|&pid| is_outside(pid) && has_memory(pid))
    }

    /// What the kernel says of the job, at its end.
    pub(super) fn finish(&mut self) -> Kernel {
        self.kernel.group = self.group.take().map(|group| {
            let memory = group.memory();
            heaptape_ledger::Group {
                version: group.version(),
                directory: group.directory().to_string_lossy().into_owned(),
                limit: self.ceiling,
                peak: memory.peak,
                current: memory.current,
                cache: memory.cache,
                kernel: memory.kernel,
                oom_kills: memory.oom_kills.unwrap_or(0),
            }
        });
        std::mem::take(&mut self.kernel)
    }
}
