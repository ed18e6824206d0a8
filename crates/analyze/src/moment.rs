//! How many events a process had made at a chosen moment.

use heaptape_tape::{Columns, Item, ProcessSummary, Tape};

use crate::Error;
use crate::choice::Moment;

/// The number of events made by the moment, at most all of them. The moment after the event with
/// index `i` is `i + 1` events.
pub fn events_made(tape: &Tape, process: &ProcessSummary, moment: Moment) -> Result<u64, Error> {
    match moment {
        Moment::Index(index) => Ok(index.saturating_add(1).min(process.events)),
        Moment::Peak => Ok(at_peak(process)),
        Moment::End => Ok(process.events),
        Moment::Millis(millis) => {
            Ok(tape.index_at(process.number, millis)?.map_or(0, |last| last + 1))
        }
    }
}

/// When a process ended, or its last event if that is later or its end is not known; milliseconds since
/// the recording began.
pub fn last_time(tape: &Tape, process: &ProcessSummary) -> Result<u64, Error> {
    let mut last = process.ended.unwrap_or(process.started);
    let columns = Columns { time: true, ..Columns::REPLAY };
    let range = process.events.saturating_sub(1)..process.events;
    for item in tape.events_with(process.number, range, columns)? {
        if let Item::Event(event) = item? {
            last = last.max(event.event.time);
        }
    }
    Ok(last)
}

/// The number of events made by the peak. A forked process whose sum never rose above what it inherited was at
/// its peak as it began.
pub(crate) fn at_peak(process: &ProcessSummary) -> u64 {
    if process.peak_requested == process.inherited_bytes {
        return 0;
    }
    process.peak_at.saturating_add(1).min(process.events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overview::tests::process;

    #[test]
    fn a_peak_at_the_start_is_what_was_inherited() {
        let mut p = process(1, 7, 10);
        (p.inherited_bytes, p.peak_requested) = (100, 100);
        assert_eq!(at_peak(&p), 0);
        (p.peak_requested, p.peak_at) = (101, 0);
        assert_eq!(at_peak(&p), 1);
        p.peak_at = 50;
        assert_eq!(at_peak(&p), 10);
    }
}
