//! How many events a process had made at a chosen moment.

use heaptape_tape::{Columns, Item, ProcessSummary, Tape};

use crate::Error;
use crate::choice::{LastPart, Moment};

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
    let ended = process.ended.unwrap_or(process.started);
    Ok(ended.max(time_after(tape, process, process.events)?))
}

/// When the last of the first `made` events was made, or the process began if that is none; milliseconds since
/// the recording began.
pub fn time_after(tape: &Tape, process: &ProcessSummary, made: u64) -> Result<u64, Error> {
    let columns = Columns { time: true, ..Columns::REPLAY };
    for item in tape.events_with(process.number, made.saturating_sub(1)..made, columns)? {
        if let Item::Event(event) = item? {
            return Ok(event.event.time);
        }
    }
    Ok(process.started)
}

/// The number of events made before the last part of a process's run.
pub fn before_last(tape: &Tape, process: &ProcessSummary, part: LastPart) -> Result<u64, Error> {
    match part {
        LastPart::Permille(n) => {
            let last = u128::from(process.events) * u128::from(n) / 1000;
            Ok(process.events - (last as u64).min(process.events))
        }
        LastPart::Events(n) => Ok(process.events.saturating_sub(n)),
        LastPart::Millis(millis) => {
            let Some(before) = last_time(tape, process)?.checked_sub(millis) else { return Ok(0) };
            events_made(tape, process, Moment::Millis(before))
        }
    }
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
