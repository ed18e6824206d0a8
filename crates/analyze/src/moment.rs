//! The index of the event after which a chosen moment is.

use heaptape_tape::{Columns, Item, ProcessSummary, Tape};

use crate::Error;
use crate::choice::Moment;

/// The index of the last event that was made by the moment; an index beyond the end is the last one.
/// [`Error::NothingYet`] when no event was.
pub fn index(tape: &Tape, process: &ProcessSummary, moment: Moment) -> Result<u64, Error> {
    let nothing = |when: String| Error::NothingYet { pid: process.pid, when };
    let Some(last) = process.events.checked_sub(1) else {
        return Err(nothing("that is on the tape".to_owned()));
    };
    match moment {
        Moment::Index(index) => Ok(index.min(last)),
        Moment::Peak => Ok(process.peak_at.min(last)),
        Moment::End => Ok(last),
        Moment::Millis(millis) => {
            let made = made_by(tape, process, millis)?;
            let seconds = millis as f64 / 1000.0;
            made.checked_sub(1)
                .ok_or_else(|| nothing(format!("{seconds} s after the recording began")))
        }
    }
}

/// How many events were made by this time, by bisection: times on a tape rise, within the
/// coarseness of their clock.
fn made_by(tape: &Tape, process: &ProcessSummary, millis: u64) -> Result<u64, Error> {
    let (mut below, mut above) = (0, process.events);
    while below < above {
        let middle = below + (above - below) / 2;
        if time_of(tape, process, middle)? <= millis {
            below = middle + 1;
        } else {
            above = middle;
        }
    }
    Ok(below)
}

fn time_of(tape: &Tape, process: &ProcessSummary, index: u64) -> Result<u64, Error> {
    let columns = Columns { time: true, ..Columns::REPLAY };
    let range = index..index.saturating_add(1);
    for item in tape.events_with(process.number, range, columns)? {
        if let Item::Event(event) = item? {
            return Ok(event.event.time);
        }
    }
    Ok(u64::MAX)
}
