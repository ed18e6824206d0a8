//! The lanes of a process into one order.
//!
//! A release is published before it happens and an allocation before its address is returned, so
//! whatever an event depends on has been published before it. Hence two looks a round: all that the
//! first look saw is merged, together with what the second look finds, which holds every predecessor
//! of the first. Within a round the stamps decide; a call that was still going on during the round
//! comes in a later one, where its place is as true as any within its duration. No thread has to
//! wait for another, however long that one is preempted between a stamp and its publication.
//!
//! This holds for any stamp that never goes back along a chain of cause and effect: the processors'
//! common time stamp counter, or a counter that the threads share.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use heaptape_wire::event::{Malformed, Record};
use heaptape_wire::plain::Plain;

use crate::drain::Lane;

/// Where the merged stream goes.
pub(crate) trait Stream {
    /// Why it can't go on.
    type Error;
    /// The next record: of the thread `number` on the tape, at `time` of the session clock.
    fn record(&mut self, number: u32, time: u64, record: &Record<'_>) -> Result<(), Self::Error>;
    /// The same for one that is plain.
    fn plain(&mut self, number: u32, time: u64, plain: &Plain) -> Result<(), Self::Error>;
}

/// Where a lane's next record stands in the order: stamp, then releases first, then the lane.
type Place = (u64, bool, usize);

/// Merges what is settled in every lane, and with `all` also what came after. `pull` gets a lane the
/// next words that were seen of it; false if there are none.
pub(crate) fn merge<S: Stream>(
    lanes: &mut [Lane],
    all: bool,
    pull: &mut impl FnMut(&mut Lane) -> bool,
    stream: &mut S,
) -> Result<(), S::Error> {
    if all {
        lanes.iter_mut().for_each(Lane::settle);
    }
    let heads = lanes.iter_mut().enumerate().filter_map(|(i, lane)| place(lane, i, pull));
    let mut heads: BinaryHeap<Reverse<Place>> = heads.map(Reverse).collect();
    // Those with a record that has to come out. What else was seen may come before such a record, and no further.
    let is_unsettled = |Reverse((_, _, index)): &&Reverse<Place>| !lanes[*index].is_settled();
    let mut unsettled = heads.iter().filter(is_unsettled).count();
    while unsettled > 0 {
        let Some(Reverse((_, _, index))) = heads.pop() else { break };
        let next = heads.peek().map(|&Reverse(place)| place);
        let lane = &mut lanes[index];
        let was_unsettled = !lane.is_settled();
        let is_last = was_unsettled && unsettled == 1;
        run(lane, index, next, is_last, pull, stream)?;
        let head = place(lane, index, pull);
        if was_unsettled && (head.is_none() || lane.is_settled()) {
            unsettled -= 1;
        }
        heads.extend(head.map(Reverse));
    }
    Ok(())
}

/// Where the next record of a lane stands; a lane whose next record is none is given up.
fn place(lane: &mut Lane, index: usize, pull: &mut impl FnMut(&mut Lane) -> bool) -> Option<Place> {
    if lane.is_empty() || (lane.words_from(lane.merged).is_empty() && !pull(lane)) {
        return None;
    }
    match Record::decode(lane.words_from(lane.merged)) {
        Ok((record, _)) => Some(place_of(&record, lane.stamp, index)),
        Err(Malformed) => {
            lane.broken = true;
            None
        }
    }
}

fn place_of(record: &Record<'_>, last: u64, index: usize) -> Place {
    let releases = matches!(record, Record::Release { .. } | Record::ReallocBegin { .. });
    // A record without a stamp follows the one before it at once.
    (record.stamp().unwrap_or(last), !releases, index)
}

/// Hands on the records of one lane up to the next lane's place, and no further than to where it is settled when it is
/// the last that is not: the second look finds what comes before a record that the first has seen, and may miss what
/// comes before one that it has only seen itself.
fn run<S: Stream>(
    lane: &mut Lane,
    index: usize,
    next: Option<Place>,
    is_last: bool,
    pull: &mut impl FnMut(&mut Lane) -> bool,
    stream: &mut S,
) -> Result<(), S::Error> {
    let mut at = lane.merged;
    let result = loop {
        let words = lane.words_from(at);
        if words.is_empty() {
            if !pull(lane) {
                break Ok(());
            }
            at = 0;
            continue;
        }
        if is_last && lane.is_settled_at(at) {
            break Ok(());
        }
        let stop = if is_last { lane.settled_word() } else { usize::MAX };
        let (until, over) = run_plain(lane, index, next, at..stop, stream);
        at = until;
        match over {
            Over::Other => {}
            Over::Next => break Ok(()),
            Over::Failed(error) => break Err(error),
        }
        let words = lane.words_from(at);
        if words.is_empty() || at >= stop {
            continue;
        }
        let (record, length) = match Record::decode(words) {
            Ok(decoded) => decoded,
            Err(Malformed) => {
                lane.broken = true;
                break Ok(());
            }
        };
        let (place, time) = (place_of(&record, lane.stamp, index), lane.time);
        if next.is_some_and(|next| place > next) {
            break Ok(());
        }
        if let Record::Time(time) = record {
            lane.time = time;
        } else if let Err(error) = stream.record(lane.number, time, &record) {
            break Err(error);
        }
        lane.stamp = lane.stamp.max(place.0);
        at += length;
    };
    lane.merged = at.min(lane.words_from(0).len());
    result
}

/// Why the plain records of a lane are over.
enum Over<E> {
    /// Something else follows, or nothing.
    Other,
    /// The next record comes behind the next lane's.
    Next,
    /// The stream can't go on.
    Failed(E),
}

/// Hands on the plain records that begin among the words in `range`, up to the next lane's place; where it stopped,
/// and why.
#[inline(always)]
fn run_plain<S: Stream>(
    lane: &mut Lane,
    index: usize,
    next: Option<Place>,
    range: Range<usize>,
    stream: &mut S,
) -> (usize, Over<S::Error>) {
    let Range { start: mut at, end } = range;
    let (number, time, mut last) = (lane.number, lane.time, lane.stamp);
    let words = lane.words_from(0);
    let over = loop {
        let rest = words.get(at..).unwrap_or_default();
        let plain = if at < end { Plain::decode(rest) } else { None };
        let Some((plain, length)) = plain else { break Over::Other };
        let stamp = plain.stamp.unwrap_or(last);
        if let Some(next) = next
            && (stamp, !plain.call.is_release(), index) > next
        {
            break Over::Next;
        }
        if let Err(error) = stream.plain(number, time, &plain) {
            break Over::Failed(error);
        }
        last = last.max(stamp);
        at += length;
    };
    lane.stamp = last;
    (at, over)
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptape_wire::event::{
        Allocation, Call, put_allocation, put_realloc_begin, put_release, put_time,
    };
    use std::convert::Infallible;

    /// Thread, time, address of each record, in the order that came out.
    #[derive(Default)]
    struct Seen(Vec<(u32, u64, u64)>);

    impl Stream for Seen {
        type Error = Infallible;
        fn record(&mut self, number: u32, time: u64, r: &Record<'_>) -> Result<(), Infallible> {
            let address = match *r {
                Record::Allocation { allocation, .. } => allocation.address,
                Record::Release { address, .. } => address,
                Record::ReallocBegin { old, .. } => old,
                _ => 0,
            };
            self.0.push((number, time, address));
            Ok(())
        }

        fn plain(&mut self, number: u32, time: u64, plain: &Plain) -> Result<(), Infallible> {
            self.0.push((number, time, plain.address));
            Ok(())
        }
    }

    struct Words(Vec<u64>);
    impl heaptape_wire::event::Put for Words {
        fn put(&mut self, word: u64) {
            self.0.push(word);
        }
    }

    fn lane(number: u32, write: impl FnOnce(&mut Words)) -> Lane {
        let mut words = Words(Vec::new());
        write(&mut words);
        let mut lane = Lane::new(number, number as u16, 100 + number);
        lane.feed(&words.0);
        lane.settle();
        lane
    }

    fn allocation(address: u64) -> Allocation {
        Allocation { address, size: 8, ..Allocation::default() }
    }

    fn addresses(mut lanes: Vec<Lane>, all: bool) -> Vec<u64> {
        let mut seen = Seen::default();
        let Ok(()) = merge(&mut lanes, all, &mut |_| false, &mut seen);
        seen.0.into_iter().map(|(_, _, address)| address).collect()
    }

    #[test]
    fn stamps_decide_and_a_release_goes_first_at_equal_stamps() {
        let a = lane(0, |w| {
            put_allocation(w, Call::Malloc, &allocation(8), Some(10));
            put_release(w, Call::Free, 8, 0, Some(20));
            put_allocation(w, Call::Malloc, &allocation(24), Some(40));
        });
        let b = lane(1, |w| {
            put_allocation(w, Call::Malloc, &allocation(16), Some(20));
            put_realloc_begin(w, 32, 40);
        });
        assert_eq!(addresses(vec![b, a], false), [8, 8, 16, 32, 24]);
    }

    #[test]
    fn what_came_before_there_were_threads_goes_first() {
        let a = lane(0, |w| {
            put_time(w, 5);
            put_allocation(w, Call::Malloc, &allocation(8), None);
            put_allocation(w, Call::Malloc, &allocation(16), Some(100));
        });
        let b = lane(1, |w| put_allocation(w, Call::Malloc, &allocation(24), Some(50)));
        assert_eq!(addresses(vec![b, a], false), [8, 24, 16]);
    }

    #[test]
    fn only_what_is_settled_must_come_out_and_the_rest_may_wait() {
        let a = lane(0, |w| put_allocation(w, Call::Malloc, &allocation(8), Some(100)));
        let mut b = lane(1, |_| {});
        let mut late = Words(Vec::new());
        put_allocation(&mut late, Call::Malloc, &allocation(16), Some(50));
        put_allocation(&mut late, Call::Malloc, &allocation(24), Some(150));
        b.feed(&late.0);
        assert_eq!(addresses(vec![a, b], false), [16, 8]);
    }

    /// What came between the two looks: its predecessors may be in no look yet, whatever other lanes have.
    #[test]
    fn nothing_that_only_the_second_look_saw_comes_out_behind_all_that_the_first_saw() {
        let mut a = lane(0, |w| put_allocation(w, Call::Malloc, &allocation(8), Some(10)));
        let mut late = Words(Vec::new());
        put_allocation(&mut late, Call::Malloc, &allocation(16), Some(30));
        a.feed(&late.0);
        let mut b = lane(1, |_| {});
        let mut later = Words(Vec::new());
        put_allocation(&mut later, Call::Malloc, &allocation(24), Some(40));
        b.feed(&later.0);
        assert_eq!(addresses(vec![a.clone(), b.clone()], false), [8]);
        // A third one's, published meanwhile, whose stamp is between them.
        let c = lane(2, |w| put_allocation(w, Call::Malloc, &allocation(32), Some(20)));
        assert_eq!(addresses(vec![a.clone(), b.clone(), c.clone()], false), [8, 32]);
        assert_eq!(addresses(vec![a, b, c], true), [8, 32, 16, 24]);
    }

    #[test]
    fn a_lane_that_was_scribbled_over_is_given_up_and_counted() {
        let a = lane(0, |w| {
            put_allocation(w, Call::Malloc, &allocation(8), None);
            w.0.push(31);
        });
        let mut lanes = vec![a];
        let mut seen = Seen::default();
        let Ok(()) = merge(&mut lanes, true, &mut |_| false, &mut seen);
        assert_eq!(seen.0.len(), 1);
        assert_eq!(lanes[0].lost(), 1);
    }

    #[test]
    fn a_lane_that_cannot_go_on_holds_up_no_other() {
        let record = |w: &mut Words| {
            put_allocation(w, Call::Malloc, &allocation(8), Some(1));
            put_allocation(w, Call::Malloc, &allocation(16), Some(3));
        };
        // Scribbled over from its beginning, after a record before another's, and after one behind it.
        for records in [&[][..], &[2], &[9]] {
            let broken = lane(1, |w| {
                for &stamp in records {
                    put_allocation(w, Call::Malloc, &allocation(24), Some(stamp));
                }
                w.0.push(31);
            });
            for all in [false, true] {
                let mut lanes = vec![lane(0, record), broken.clone()];
                let mut seen = Seen::default();
                let Ok(()) = merge(&mut lanes, all, &mut |_| false, &mut seen);
                assert_eq!(seen.0.len(), 2 + records.len(), "{records:?} {all}");
                assert_eq!((lanes[0].lost(), lanes[1].lost()), (0, 1), "{records:?} {all}");
            }
        }
        // Words that were seen and can't be got, while more has come that need not come out yet.
        let mut missing = lane(1, |_| {});
        missing.expect(8);
        let mut settled = lane(0, |w| put_allocation(w, Call::Malloc, &allocation(8), Some(1)));
        let mut late = Words(Vec::new());
        put_allocation(&mut late, Call::Malloc, &allocation(16), Some(2));
        settled.feed(&late.0);
        assert_eq!(addresses(vec![settled, missing], false), [8]);
    }

    #[test]
    fn the_clock_of_each_lane_moves_by_itself() {
        let a = lane(0, |w| {
            put_time(w, 5);
            put_allocation(w, Call::Malloc, &allocation(8), Some(1));
            put_time(w, 6);
            put_allocation(w, Call::Malloc, &allocation(16), Some(3));
        });
        let b = lane(1, |w| {
            put_time(w, 4);
            put_allocation(w, Call::Malloc, &allocation(24), Some(2));
        });
        let mut seen = Seen::default();
        let Ok(()) = merge(&mut [a, b], true, &mut |_| false, &mut seen);
        assert_eq!(seen.0, [(0, 5, 8), (1, 4, 24), (0, 6, 16)]);
    }
}
