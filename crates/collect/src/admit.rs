//! Processes as they come: programs that were started, copies that were forked.

use heaptape_proc::{Job, job, launcher, read};
use heaptape_tape::{Error, ForkPoint, Origin, Placement, ProcessNumber, ProcessStart};
use heaptape_wire::process::{self as wire, Proof, Registration, SlotState};

use crate::launch::texts;
use crate::namespace::{Found, Sought, Who};
use crate::process::{Identity, Process};
use crate::recorder::Recorder;

impl Recorder {
    /// Slots whose process has registered and is not known yet.
    pub(crate) fn arrivals(&self) -> Vec<(u16, u32, Registration)> {
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

    pub(crate) fn admit(&mut self, arrivals: &[(u16, u32, Registration)]) -> Result<bool, Error> {
        let mut any = false;
        self.coming.clear();
        for &(slot, generation, registration) in arrivals {
            let who = self.namespaces.who(registration.namespace, registration.pid);
            if who.is_certain() && self.coming.contains(&who) {
                // The same process as another program: first comes first.
                continue;
            }
            let admitted = match registration.origin {
                wire::Origin::Exec => self.admit_program(slot, generation, &registration)?,
                wire::Origin::Fork => self.admit_fork(slot, generation, &registration)?,
            };
            any |= admitted;
            // Where hundreds come at once, their threads wait for sheets meanwhile.
            self.arena.sheets();
            if !admitted {
                self.coming.push(who);
            }
        }
        Ok(any)
    }

    /// A new program: it ends the row that its process had before.
    pub(crate) fn admit_program(
        &mut self,
        slot: u16,
        generation: u32,
        registration: &Registration,
    ) -> Result<bool, Error> {
        let said = self.namespaces.who(registration.namespace, registration.pid);
        let (sought, found) = self.find(slot, generation, registration, None);
        let (who, pid) = (sought.who, found.pid());
        let before = self.row_before(who, pid);
        let Some(command) = self.command_of(slot, pid) else { return Ok(false) };
        let parent = match before {
            Some(place) => {
                let parent = self.processes[place].start.parent;
                self.finish_process(place)?;
                parent
            }
            None => self.parent_of(who, pid, registration.ppid),
        };
        if before.is_none() && who.pid == 1 && !self.namespaces.is_here(who) {
            self.forget_namespace(who.namespace);
        }
        let joined = pid.and_then(|pid| self.joined.remove(&pid)).unwrap_or_default();
        let job = self.job_of(slot, pid).or(joined.job);
        let rank = job.as_ref().map(|job| job.rank);
        let time = u64::from(registration.time);
        let number = pid.unwrap_or(0);
        let start = ProcessStart { pid: number, parent, origin: Origin::Exec, time, rank, command };
        let identity = Identity { said, sought, found, job };
        self.start_process((slot, generation), start, identity, registration.order)?;
        if let Some(process) = self.processes.last_mut() {
            process.watch = process.watch.take().or(joined.watch);
        }
        if before.is_some()
            && let Some(counter) = &mut self.counter
        {
            counter.became(self.processes.len() - 1);
        }
        Ok(true)
    }

    /// The row that a process has which has just become another program.
    fn row_before(&self, who: Who, pid: Option<u32>) -> Option<usize> {
        self.live.iter().copied().rev().find(|&place| {
            let row = &self.processes[place];
            match (pid, row.pid) {
                (Some(pid), Some(its)) => pid == its,
                // Numbers are used again: one that lives is not one that is gone.
                (Some(_), None) => !row.is_absent && row.who == who && who.is_certain(),
                (None, _) => row.who == who && who.is_certain(),
            }
        })
    }

    /// A new namespace has the inode of one that is gone: what was known of that one is of others.
    fn forget_namespace(&mut self, namespace: u64) {
        self.statuses.retain(|who, _| who.namespace != namespace);
        self.programs.retain(|who, _| who.namespace != namespace);
    }

    /// A copy of a process that is known, unless that one is itself so new that it was not drained
    /// before: then in the next round.
    pub(crate) fn admit_fork(
        &mut self,
        slot: u16,
        generation: u32,
        registration: &Registration,
    ) -> Result<bool, Error> {
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
        let near = self.processes[place].pid;
        let said = self.namespaces.who(registration.namespace, registration.pid);
        let (sought, found) = self.find(slot, generation, registration, near);
        let (who, pid) = (sought.who, found.pid());
        if who.pid == 1 && !self.namespaces.is_here(who) {
            self.forget_namespace(who.namespace);
        }
        let parent = &mut self.processes[place];
        let number = parent.number;
        let (command, rank) = (parent.start.command.clone(), parent.start.rank);
        let job = parent.job.clone();
        let point = match parent.take_fork(u64::from(registration.fork)) {
            Some(point) => Some(point),
            None => self.tape.fork_point(number).ok(),
        };
        let origin = point.map_or(Origin::Exec, |point| Origin::Fork { point });
        let (parent, time) = (Some(number), u64::from(registration.time));
        let number = pid.unwrap_or(0);
        let start = ProcessStart { pid: number, parent, origin, time, rank, command };
        let identity = Identity { said, sought, found, job };
        self.start_process((slot, generation), start, identity, registration.order)?;
        if let Some(counter) = &mut self.counter {
            counter.forked(place, self.processes.len() - 1);
        }
        self.drop_points(point)?;
        Ok(true)
    }

    pub(crate) fn drop_points(
        &mut self,
        points: impl IntoIterator<Item = ForkPoint>,
    ) -> Result<(), Error> {
        for point in points {
            self.tape.drop_fork_point(point)?;
        }
        Ok(())
    }

    /// Who has just come, perhaps as a child of `parent`, and where it is.
    fn find(
        &self,
        slot: u16,
        generation: u32,
        registration: &Registration,
        parent: Option<u32>,
    ) -> (Sought, Found) {
        let name = self.arena.arena().session().name();
        let bytes = Proof::bytes(name, u32::from(slot), generation);
        let who = self.namespaces.who(registration.namespace, registration.pid);
        let sought = Sought { who, proof: Some((registration.proof, bytes)) };
        let is_far = !self.namespaces.is_here(who);
        let near = parent.filter(|_| is_far).and_then(|pid| read::children(pid).ok());
        let found = self.namespaces.find(&sought, &near.unwrap_or_default());
        (Sought { who: self.namespaces.told(who, found), ..sought }, found)
    }

    /// The row of the parent of a new program: by the number that it has told, or by the kernel's word
    /// where the parent can't be seen from its namespace.
    fn parent_of(&self, who: Who, pid: Option<u32>, ppid: u32) -> Option<ProcessNumber> {
        if ppid != 0 && who.is_certain() {
            return self.number_of(Who { pid: ppid, ..who });
        }
        let parent = read::status(pid?).ok()?.ppid?;
        let is_it = |&&place: &&usize| self.processes[place].pid == Some(parent);
        self.live.iter().rev().find(is_it).map(|&place| self.processes[place].number)
    }

    /// Begins the row of a process; its slot is told with the slot's generation, its `order` is its place
    /// among all registrations.
    pub(crate) fn start_process(
        &mut self,
        slot: (u16, u32),
        start: ProcessStart,
        identity: Identity,
        order: u32,
    ) -> Result<(), Error> {
        let is_program = start.origin == Origin::Exec;
        let number = self.tape.start_process(&start)?;
        if let Some(job) = &identity.job {
            self.tape.place(number, placement(job))?;
        }
        let place = self.processes.len();
        self.by_slot.insert(slot, place);
        if is_program {
            self.programs.insert(identity.sought.who, order);
            self.programs.insert(identity.said, order);
        }
        self.processes.push(Process::new(number, start, identity, slot, self.round));
        self.live.push(place);
        // A program may be gone before the next sample is due. A fork begins as its parent was.
        if is_program {
            self.inspect(place);
            self.sample_process(place, false)?;
        }
        self.arena.arena().session().beat();
        Ok(())
    }

    /// The command line: what the library has left in the slot, else what the kernel says; `None`
    /// while neither is there and the process lives.
    pub(crate) fn command_of(&self, slot: u16, pid: Option<u32>) -> Option<Vec<String>> {
        let asked =
            || pid.and_then(|pid| read::cmdline(pid).ok()).filter(|words| !words.is_empty());
        // Between the two looks it may have told all and be gone.
        let told = self.command_told(slot).or_else(|| asked().map(|words| texts(&words)));
        Some(told.or_else(|| self.command_told(slot)).unwrap_or_default())
    }

    /// The command line that the library has left in the slot, where it is whole.
    fn command_told(&self, slot: u16) -> Option<Vec<String>> {
        let bytes: Vec<u8> = self.arena.arena().slot(slot as usize).command().collect();
        if bytes.is_empty() || bytes.len() >= wire::COMMAND_BYTES {
            return None;
        }
        let words = bytes.split(|&b| b == 0).map(|w| String::from_utf8_lossy(w).into_owned());
        let mut words: Vec<String> = words.collect();
        words.pop();
        Some(words)
    }

    /// A program's place in a parallel job: what its environment tells, as the library has left it in
    /// the slot. Only a name that the launcher does not give is asked of the system, which may be too
    /// late for that.
    fn job_of(&self, slot: u16, pid: Option<u32>) -> Option<Job> {
        let bytes: Vec<u8> = self.arena.arena().slot(slot as usize).job().collect();
        let mut job = job::find(|name| {
            bytes.split(|&byte| byte == 0).find_map(|entry| {
                let (key, value) = str::from_utf8(entry).ok()?.split_once('=')?;
                (key == name).then(|| value.to_owned())
            })
        })?;
        job.id = job.id.or_else(|| launcher::job_of(pid?)?.id);
        Some(job)
    }

    pub(crate) fn number_of(&self, who: Who) -> Option<ProcessNumber> {
        let is_it = |&&i: &&usize| who.is_certain() && self.processes[i].who == who;
        self.live.iter().rev().find(is_it).map(|&i| self.processes[i].number)
    }
}

fn placement(job: &Job) -> Placement {
    Placement {
        rank: job.rank,
        size: job.size,
        job: job.id.clone().unwrap_or_default(),
        host: job.host.clone().unwrap_or_default(),
        launcher: job.launcher.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_tells_all_variables_that_are_asked_for() {
        let mut missing = Vec::new();
        for rank in ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"] {
            // Nothing but the rank: every other variable is asked for as well.
            let asked = std::cell::RefCell::new(Vec::new());
            job::find(|name| {
                if !wire::JOB_VARIABLES.contains(&name) {
                    asked.borrow_mut().push(name.to_owned());
                }
                (name == rank).then(|| "0".to_owned())
            });
            missing.extend(asked.into_inner());
        }
        assert!(missing.is_empty(), "{missing:?}");
    }
}
