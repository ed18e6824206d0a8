//! What several processes can have had at one instant: of two that lived one after the other not the sum, though the clock
//! has them in one step.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashMap;
use heaptape_tape::{Note, NoteKind, ProcessNumber, ProcessSummary};

use crate::timeline::{Levels, Timeline};

/// When processes ended, as they or their parents have noted it: the collector sees it some milliseconds later.
#[derive(Default)]
pub(crate) struct Ends {
    /// Calls of `exit`.
    exits: HashMap<ProcessNumber, u64>,
    /// What `wait` said: process ids, and when.
    children: Vec<(u64, u64)>,
}

impl Ends {
    /// Takes in a note of a process.
    pub(crate) fn note(&mut self, process: ProcessNumber, note: &Note) {
        match (note.kind, note.args.first()) {
            (NoteKind::Exit, _) => {
                self.exits.insert(process, note.time);
            }
            (NoteKind::ChildEnded, Some(&pid)) => self.children.push((pid, note.time)),
            _ => {}
        }
    }

    /// Tells when a process ended, where that was earlier than known so far; not before its last call.
    pub(crate) fn tell(&self, tops: &mut Tops) {
        let of_it =
            |(pid, time): &&(u64, u64)| *pid == u64::from(tops.pid) && *time >= tops.started;
        let waited = self.children.iter().filter(of_it).map(|(_, time)| *time).min();
        let exited = self.exits.get(&tops.number).copied();
        let told = waited.into_iter().chain(exited).min().unwrap_or(u64::MAX);
        tops.ended = tops.ended.min(told.max(tops.last));
    }
}

/// A process's life, and the steps of a curve in which it had something.
pub(crate) struct Tops {
    number: ProcessNumber,
    pid: u32,
    started: u64,
    ended: u64,
    /// Its last call.
    last: u64,
    steps: Vec<Top>,
}

/// The most that a process had in a step.
struct Top {
    step: usize,
    /// The index of the call that brought it.
    call: u64,
    most: Levels,
}

impl Tops {
    pub(crate) fn of(process: &ProcessSummary, line: &Timeline, last: u64) -> Tops {
        let steps = line.steps().iter().enumerate().filter(|(_, step)| step.requested.most > 0);
        let top = |(number, step): (usize, &crate::timeline::Step)| Top {
            step: number,
            call: step.most_at,
            most: Levels {
                requested: step.requested.most,
                usable: step.usable.most,
                blocks: step.blocks.most,
            },
        };
        Tops {
            number: process.number,
            pid: process.known_pid().unwrap_or(0),
            started: process.started,
            ended: process.ended.unwrap_or(u64::MAX),
            last,
            steps: steps.map(top).collect(),
        }
    }

    fn at(&self, step: usize) -> Option<&Top> {
        let place = self.steps.binary_search_by_key(&step, |top| top.step).ok()?;
        Some(&self.steps[place])
    }
}

/// Holds the sum of each step to what processes had that can have lived at once.
pub(crate) fn hold(sum: &mut Timeline, all: &[Tops]) {
    for step in 0..sum.steps().len() {
        let (_, most) = at_once(all, step);
        sum.hold(step, &most);
    }
}

/// How many events each process had made at its part of the most that lived at once in a step; `None` of one that has none.
pub(crate) fn at_step(all: &[Tops], step: usize) -> Vec<Option<u64>> {
    let (instant, _) = at_once(all, step);
    let lives = |tops: &&Tops| instant.is_some_and(|instant| is_alive(tops, instant));
    let of = |tops: &Tops| Some(tops).filter(lives)?.at(step).map(|top| top.call + 1);
    all.iter().map(of).collect()
}

/// A place in the order in which processes started: the time, and which of those of one millisecond it is.
type Instant = (u64, u64, ProcessNumber);

fn start(tops: &Tops) -> Instant {
    (tops.started, tops.ended, tops.number)
}

/// Whether a process lived as another one had just started. Of two of which one ended in the millisecond in which the other
/// started, the one came after the other.
fn is_alive(tops: &Tops, instant: Instant) -> bool {
    start(tops) == instant || (start(tops) < instant && tops.ended > instant.0)
}

/// The most that can have lived at once in a step, and when that was: as one of them had just started.
fn at_once(all: &[Tops], step: usize) -> (Option<Instant>, Levels) {
    let some = all.iter().filter_map(|tops| Some((tops, tops.at(step)?)));
    let mut some: Vec<(&Tops, &Top)> = some.collect();
    some.sort_unstable_by_key(|(tops, _)| start(tops));
    let (mut alive, mut sum) = (BinaryHeap::new(), Levels::default());
    let (mut instant, mut most) = (None, Levels::default());
    for (place, (tops, top)) in some.iter().enumerate() {
        while let Some(&Reverse((ended, gone))) = alive.peek()
            && ended <= tops.started
        {
            let gone: usize = gone;
            sum.part(&some[gone].1.most);
            alive.pop();
        }
        sum.join(&top.most);
        alive.push(Reverse((tops.ended, place)));
        if instant.is_none() || sum.requested > most.requested {
            (instant, most) = (Some(start(tops)), sum);
        }
    }
    (instant, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes that lived from and to, each with so much in step 0.
    fn lives(all: &[(u64, u64, u64)]) -> Vec<Tops> {
        let tops = |(number, &(started, ended, bytes)): (usize, &(u64, u64, u64))| Tops {
            number: ProcessNumber(number as u32),
            pid: 100 + number as u32,
            started,
            ended,
            last: started,
            steps: vec![Top {
                step: 0,
                call: 7,
                most: Levels { requested: bytes, usable: bytes, blocks: 1 },
            }],
        };
        all.iter().enumerate().map(tops).collect()
    }

    fn most(all: &[(u64, u64, u64)]) -> (u64, Vec<bool>) {
        let all = lives(all);
        let members = at_step(&all, 0).iter().map(Option::is_some).collect();
        (at_once(&all, 0).1.requested, members)
    }

    #[test]
    fn lives_one_after_the_other_are_not_added_up() {
        assert_eq!(most(&[(4, 24, 10), (24, 45, 10), (45, 66, 11)]).0, 11);
        assert_eq!(most(&[(5, 5, 10), (5, 5, 20), (5, 5, 10)]), (20, vec![false, true, false]));
        assert_eq!(
            most(&[(0, 9, 1), (5, 5, 10), (5, 6, 20), (6, 9, 10)]),
            (21, vec![true, false, true, false])
        );
        assert_eq!(most(&[(0, 9, 1), (1, 9, 2), (2, u64::MAX, 3)]), (6, vec![true; 3]));
    }

    #[test]
    fn a_process_ends_when_it_or_its_parent_says_so() {
        let mut all = lives(&[(0, 100, 1), (10, 50, 1), (10, 50, 1)]);
        all[2].last = 40;
        let ends = Ends {
            exits: [(ProcessNumber(1), 30)].into(),
            children: vec![(101, 5), (101, 31), (102, 35)],
        };
        all.iter_mut().for_each(|tops| ends.tell(tops));
        assert_eq!([all[0].ended, all[1].ended, all[2].ended], [100, 30, 40]);
    }
}
