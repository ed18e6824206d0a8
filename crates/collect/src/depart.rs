//! Processes as they go: ended, become another program, or never covered.

use std::time::{Duration, Instant};

use heaptape_proc::read;
use heaptape_tape::{Error, Uncovered};
use heaptape_wire::atomic::Ordering;
use heaptape_wire::chunk::Owner;
use heaptape_wire::process as wire;

use crate::arena::{Chunk, SharedArena};
use crate::drain::Source;
use crate::exit::{self, Exit};
use crate::gaps;
use crate::intents::Missed;
use crate::launch::texts;
use crate::namespace::Who;
use crate::process::Process;
use crate::recorder::Recorder;

/// How long the kernel may take to say how a process ended.
const EXIT_GRACE: Duration = Duration::from_millis(100);

/// Processes that are named at once because there was no room for them.
const TURNED_AWAY_MOST: u32 = 1024;

impl Recorder {
    /// Ends the processes that are gone.
    pub(crate) fn reap(&mut self, root: Option<(u32, Exit)>) -> Result<bool, Error> {
        let gone: Vec<usize> =
            self.live.iter().copied().filter(|&i| is_gone(&self.processes[i])).collect();
        let mut any = false;
        if !gone.is_empty() {
            self.look_twice();
        }
        for place in gone {
            let exit = self.exit_of(place, root);
            let process = &mut self.processes[place];
            let gone_at = *process.gone.get_or_insert_with(Instant::now);
            if exit.is_none() && gone_at.elapsed() < EXIT_GRACE && self.ended.is_none() {
                // Dead and drained at the end; the kernel tells its status when it is reaped.
                continue;
            }
            process.exit = exit.unwrap_or_default();
            self.finish_drained(place)?;
            any = true;
        }
        Ok(any)
    }

    /// How a process that is gone has ended, as far as that is known by now.
    fn exit_of(&mut self, place: usize, root: Option<(u32, Exit)>) -> Option<Exit> {
        let process = &self.processes[place];
        // Taken in any case: another process may get the number.
        let by_number =
            process.pid.and_then(|pid| self.statuses.remove(&self.namespaces.here(pid)));
        let told = self.statuses.remove(&process.who).or(by_number).map(Exit::from_wait_status);
        match root {
            Some((pid, exit)) if process.pid == Some(pid) => Some(exit),
            _ => exit::status(process.pid, process.watch.as_ref()).or(told),
        }
    }

    /// At the end of the recording: ends the rows that are open. True when a process goes on.
    pub(crate) fn finish_all(&mut self, root: Option<(u32, Exit)>) -> Result<bool, Error> {
        let mut goes_on = self.has_newcomers();
        for place in self.live.clone() {
            if is_gone(&self.processes[place]) {
                let exit = self.exit_of(place, root);
                let process = &mut self.processes[place];
                process.gone.get_or_insert_with(Instant::now);
                process.exit = exit.unwrap_or_default();
            } else {
                // What is nowhere to be seen and silent is not waited for.
                goes_on |= !self.processes[place].is_unplaced();
            }
            self.finish_process(place)?;
        }
        Ok(goes_on)
    }

    pub(crate) fn finish_process(&mut self, place: usize) -> Result<(), Error> {
        self.look_twice();
        self.finish_drained(place)
    }

    /// After the end of a process all that it wrote is published, and two looks find every chunk of
    /// it.
    fn look_twice(&mut self) {
        self.look();
        self.look();
    }

    /// Ends a process whose chunks have all been found.
    fn finish_drained(&mut self, place: usize) -> Result<(), Error> {
        self.arena.arena().session().beat();
        let time = self.clock.now();
        let process = &self.processes[place];
        let unread = self.unread(process.slot, process.generation);
        let process = &mut self.processes[place];
        process.lose(unread);
        let mut source = Source::new(&self.arena, &mut self.done);
        process.finish(&mut self.tape, &mut source, time)?;
        drop(source);
        self.statuses.extend(process.take_statuses());
        let (slot, generation) = (process.slot, process.generation);
        self.processes[place].said = gaps::said(self.arena.arena().slot(slot as usize));
        self.name_gap(place)?;
        self.live.retain(|&i| i != place);
        self.forget_done();
        if self.arena.arena().slot(slot as usize).is_detached() {
            self.detached += 1;
        }
        if let Some(counter) = &mut self.counter {
            counter.end(&mut self.arena, &self.processes, (place, &self.live), time);
        }
        self.reclaim(slot, generation);
        Ok(())
    }

    /// Bytes that a process has written into chunks which no lane has read.
    fn unread(&self, slot: u16, generation: u32) -> u64 {
        let view = |chunk| self.arena.header(chunk).view(SharedArena::capacity(chunk));
        let views = self.held(slot, generation).filter_map(view);
        views.map(|view| view.published as u64).sum()
    }

    /// Chunks of a process that belong to no lane.
    fn held(&self, slot: u16, generation: u32) -> impl Iterator<Item = Chunk> + '_ {
        let is_its = move |owner: Owner| owner.slot == slot && owner.generation == generation;
        self.arena
            .owners()
            .filter(move |(chunk, word)| {
                !self.attached.contains(chunk) && Owner::from_word(*word).is_some_and(is_its)
            })
            .map(|(chunk, _)| chunk)
    }

    /// Takes back what a process held: chunks that it claimed and never opened, and its slot.
    pub(crate) fn reclaim(&mut self, slot: u16, generation: u32) {
        let held: Vec<Chunk> = self.held(slot, generation).collect();
        for chunk in held {
            self.arena.release(chunk);
        }
        self.arena.offer_again(slot, generation);
    }

    pub(crate) fn judge_intents(&mut self) -> Result<(), Error> {
        let mut found: Vec<Missed> = Vec::new();
        let (programs, namespaces) = (&self.programs, &self.namespaces);
        self.intents.judge(
            self.arena.arena(),
            &self.coming,
            |who| {
                // One that could not tell its namespace may be any with its number.
                let nameless = programs.get(&Who { namespace: 0, ..who });
                programs.get(&who).max(nameless).copied()
            },
            |pid| namespaces.maps_arena(pid) == Some(false),
            |missed| found.push(missed),
        );
        for missed in found {
            let gone = match missed {
                Missed::Replaced(uncovered) => {
                    self.name_uncovered(&uncovered)?;
                    continue;
                }
                Missed::Gone(pid, uncovered) => {
                    self.name_uncovered(&uncovered)?;
                    pid
                }
                Missed::Overdue(pid) => pid,
            };
            // Its row before the exec, if it had one, ends here.
            let is_it = |&i: &usize| gone.is_some() && self.processes[i].pid == gone;
            let before = self.live.iter().copied().find(is_it);
            if let Some(place) = before {
                self.finish_process(place)?;
            }
        }
        let turned_away = self.arena.arena().session().turned_away.load(Ordering::Relaxed);
        // Who writes over the count may have it say anything.
        let most = self.turned_away.saturating_add(TURNED_AWAY_MOST);
        for _ in self.turned_away..turned_away.min(most) {
            self.name_uncovered(&Uncovered {
                pid: 0,
                command: Vec::new(),
                why: format!(
                    "the {} processes that can be recorded at the same time were there already",
                    wire::SLOTS
                ),
            })?;
        }
        self.turned_away = turned_away;
        Ok(())
    }

    /// Ends the rows of those that have become other programs by a way that the library does not see.
    pub(crate) fn part_with_replaced(&mut self) -> Result<(), Error> {
        let Some(counter) = &mut self.counter else { return Ok(()) };
        for place in std::mem::take(&mut counter.replaced) {
            if !self.live.contains(&place) {
                continue;
            }
            let pid = self.processes[place].pid.unwrap_or(0);
            let command = read::cmdline(pid).map(|words| texts(&words)).unwrap_or_default();
            let why = "it became another program past libc, and without heaptape's library".into();
            self.name_uncovered(&Uncovered { pid, command, why })?;
            self.finish_process(place)?;
        }
        Ok(())
    }

    pub(crate) fn look_for_strays(&mut self) -> Result<(), Error> {
        let mut known = self.live_pids();
        known.extend(self.intents.named());
        let mut found = Vec::new();
        let processes = &self.processes;
        self.strays.look(
            &known,
            &self.namespaces,
            |pid| processes.iter().any(|process| process.start.pid == pid),
            |uncovered| found.push(uncovered),
        );
        found.retain(|found| !self.intents.has_named(found.pid));
        found.iter().try_for_each(|uncovered| self.name_uncovered(uncovered))
    }

    /// At the end: names those that live and were never recorded.
    pub(crate) fn name_overdue(&mut self) -> Result<(), Error> {
        let mut overdue = self.intents.overdue();
        let is_registered = |pid| self.processes.iter().any(|process| process.start.pid == pid);
        overdue.extend(self.strays.rest(is_registered));
        overdue.iter().try_for_each(|uncovered| self.name_uncovered(uncovered))
    }

    pub(crate) fn name_uncovered(&mut self, uncovered: &Uncovered) -> Result<(), Error> {
        self.uncovered += 1;
        if let Some(counter) = &mut self.counter {
            counter.miss(uncovered);
        }
        self.tape.uncovered(uncovered)
    }
}

/// Whether a process has ended: its descriptor is readable, or, without one, /proc says so.
pub(crate) fn is_gone(process: &Process) -> bool {
    let without = || process.pid.map_or(process.is_absent, exit::has_ended);
    process.watch.as_ref().map_or_else(without, exit::is_readable)
}
