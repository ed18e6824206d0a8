//! What a reader of a tape may choose: a process, a range of indexes, a moment; as people write them.
//!
//! Only text becomes values here; [`crate::processes`] and [`crate::moment`] say what they mean on a
//! tape.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::Error;

/// Which processes of a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessChoice {
    /// Every process.
    All,
    /// Those with this process id; an exec starts another one with the same id.
    Pid(u32),
    /// Those with this rank in their job.
    Rank(u32),
    /// The one with this number, counted from 0 in order of start.
    Number(u32),
}

impl fmt::Display for ProcessChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessChoice::All => f.write_str("at all"),
            ProcessChoice::Pid(pid) => write!(f, "{pid}"),
            ProcessChoice::Rank(rank) => write!(f, "rank:{rank}"),
            ProcessChoice::Number(number) => write!(f, "#{number}"),
        }
    }
}

impl FromStr for ProcessChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parsed = if text == "all" {
            Some(ProcessChoice::All)
        } else if let Some(rank) = text.strip_prefix("rank:") {
            rank.parse().ok().map(ProcessChoice::Rank)
        } else if let Some(number) = text.strip_prefix('#') {
            number.parse().ok().map(ProcessChoice::Number)
        } else {
            text.parse().ok().map(ProcessChoice::Pid)
        };
        parsed.ok_or_else(|| Error::ProcessText(text.to_owned()))
    }
}

/// A range of indexes `A..B`, B excluded; either may be left out, and `N` alone is `N..N+1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    start: u64,
    end: Option<u64>,
}

impl Span {
    /// Everything.
    pub const ALL: Span = Span { start: 0, end: None };

    /// The `margin` indexes before `index`, itself, and as many after it.
    pub const fn around(index: u64, margin: u64) -> Span {
        let end = index.saturating_add(margin).saturating_add(1);
        Span { start: index.saturating_sub(margin), end: Some(end) }
    }

    /// The part of it that lies within `events` events.
    pub fn within(self, events: u64) -> Range<u64> {
        let end = self.end.unwrap_or(events).min(events);
        self.start.min(end)..end
    }
}

impl FromStr for Span {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let nonsense = || Error::SpanText(text.to_owned());
        let number = |s: &str| s.trim().parse::<u64>().map_err(|_| nonsense());
        let Some((start, end)) = text.split_once("..") else {
            let start = number(text)?;
            return Ok(Span { start, end: Some(start.checked_add(1).ok_or_else(nonsense)?) });
        };
        let start = if start.trim().is_empty() { 0 } else { number(start)? };
        let end = if end.trim().is_empty() { None } else { Some(number(end)?) };
        match end {
            Some(end) if end < start => Err(Error::Backwards(text.to_owned())),
            _ => Ok(Span { start, end }),
        }
    }
}

/// A part of a run, over the index or over time: `A..B` as a [`Span`] has it, or with times, such as
/// `1.5s..3s` or `..80ms`. The unit of one of two times is the other's, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Numbers without a unit: indexes, or seconds on an axis of time.
    Bare {
        /// As indexes; `None` where they are not whole.
        indexes: Option<Span>,
        /// As seconds, in milliseconds.
        millis: Span,
    },
    /// Milliseconds since the recording began.
    Millis(Span),
}

impl FromStr for Window {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let nonsense = || Error::WindowText(text.to_owned());
        let (start, end) = text.split_once("..").ok_or_else(nonsense)?;
        let (start, end) = (start.trim(), end.trim());
        let unit = |text: &str| match text {
            _ if text.ends_with("ms") => Some(1),
            _ if text.ends_with('s') => Some(1000),
            _ => None,
        };
        let common = unit(end).or(unit(start));
        let time = |text: &str| {
            if text.is_empty() {
                return Ok(None);
            }
            let number = text.strip_suffix("ms").or(text.strip_suffix('s')).unwrap_or(text);
            let unit = unit(text).or(common).unwrap_or(1000);
            millis(number, unit).map(Some).ok_or_else(nonsense)
        };
        let (from, to) = (time(start)?.unwrap_or(0), time(end)?);
        if to.is_some_and(|to| to < from) {
            return Err(Error::Backwards(text.to_owned()));
        }
        let span = Span { start: from, end: to };
        Ok(match common {
            Some(_) => Window::Millis(span),
            None => Window::Bare { indexes: text.parse().ok(), millis: span },
        })
    }
}

/// A moment in the life of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// After the event with this index.
    Index(u64),
    /// After the event that brought the most requested bytes.
    Peak,
    /// After the last event.
    End,
    /// This many milliseconds after the recording began.
    Millis(u64),
}

impl FromStr for Moment {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let moment = match text {
            "peak" => Some(Moment::Peak),
            "end" => Some(Moment::End),
            _ => match text.strip_suffix("ms") {
                Some(ms) => millis(ms, 1).map(Moment::Millis),
                None => match text.strip_suffix('s') {
                    Some(s) => millis(s, 1000).map(Moment::Millis),
                    None => text.parse().ok().map(Moment::Index),
                },
            },
        };
        moment.ok_or_else(|| Error::MomentText(text.to_owned()))
    }
}

/// The last part of the run of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastPart {
    /// So many thousandths of its events.
    Permille(u16),
    /// So many events.
    Events(u64),
    /// What happened in so many milliseconds.
    Millis(u64),
}

impl LastPart {
    /// No part at all.
    pub const NOTHING: LastPart = LastPart::Events(0);
}

impl fmt::Display for LastPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LastPart::Permille(n) if n % 10 == 0 => write!(f, "{} %", n / 10),
            LastPart::Permille(n) => write!(f, "{}.{} %", n / 10, n % 10),
            LastPart::Events(n) => n.fmt(f),
            LastPart::Millis(n) => write!(f, "{}.{:03} s", n / 1000, n % 1000),
        }
    }
}

impl FromStr for LastPart {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let part = if let Some(percent) = text.strip_suffix('%') {
            let permille = percent.trim().parse::<f64>().ok().map(|n| (n * 10.0).round());
            // Also turns away NaN and infinity.
            let permille = permille.filter(|n| (0.0..=1000.0).contains(n));
            permille.map(|n| LastPart::Permille(n as u16))
        } else {
            match text.parse() {
                Ok(Moment::Index(events)) => Some(LastPart::Events(events)),
                Ok(Moment::Millis(millis)) => Some(LastPart::Millis(millis)),
                _ => None,
            }
        };
        part.ok_or_else(|| Error::PartText(text.to_owned()))
    }
}

/// `text` times `unit` milliseconds, rounded; times are coarse, so a double is exact enough.
fn millis(text: &str, unit: u64) -> Option<u64> {
    let number = text.trim().parse::<f64>().ok()?;
    let ms = (number * unit as f64).round();
    // Also turns away NaN and infinity.
    (0.0..=1e15).contains(&ms).then_some(ms as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes() {
        assert_eq!("all".parse().ok(), Some(ProcessChoice::All));
        assert_eq!("4711".parse().ok(), Some(ProcessChoice::Pid(4711)));
        assert_eq!("rank:0".parse().ok(), Some(ProcessChoice::Rank(0)));
        assert_eq!("#2".parse().ok(), Some(ProcessChoice::Number(2)));
        for text in ["", "rank:", "rank:-1", "#", "ls", "-1", "99999999999"] {
            assert!(text.parse::<ProcessChoice>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn spans() {
        let within = |text: &str, events| text.parse::<Span>().ok().map(|s| s.within(events));
        assert_eq!(within("3..7", 100), Some(3..7));
        assert_eq!(within("3..7", 5), Some(3..5));
        assert_eq!(within("3..", 5), Some(3..5));
        assert_eq!(within("..3", 5), Some(0..3));
        assert_eq!(within("4", 5), Some(4..5));
        assert_eq!(within("9", 5), Some(5..5));
        assert_eq!(within("..", 5), Some(0..5));
        assert_eq!(within("3..3", 5), Some(3..3));
        assert_eq!(Span::ALL.within(7), 0..7);
        assert!(matches!("7..3".parse::<Span>(), Err(Error::Backwards(_))));
        for text in ["", "a", "1...2", "1..b", "-1", "18446744073709551615", "1..2..3"] {
            assert!(text.parse::<Span>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn windows_of_indexes_and_of_time() {
        let window = |text: &str| text.parse::<Window>().ok();
        let millis = |text: &str| match window(text) {
            Some(Window::Millis(span)) => Some(span.within(100_000)),
            _ => None,
        };
        assert_eq!(millis("1.5s..3s"), Some(1500..3000));
        assert_eq!(millis("1.5..3s"), Some(1500..3000));
        assert_eq!(millis("5..80ms"), Some(5..80));
        assert_eq!(millis("80ms..1s"), Some(80..1000));
        assert_eq!(millis("..1s"), Some(0..1000));
        assert_eq!(millis("2 s.."), Some(2000..100_000));
        let bare = window("1..3");
        let Some(Window::Bare { indexes, millis }) = bare else { panic!("{bare:?}") };
        assert_eq!(indexes.map(|span| span.within(100)), Some(1..3));
        assert_eq!(millis.within(10_000), 1000..3000);
        assert!(matches!(window("1.5..3"), Some(Window::Bare { indexes: None, .. })));
        assert!(matches!("3s..1s".parse::<Window>(), Err(Error::Backwards(_))));
        for text in
            ["", "5", "peak", "a..b", "-1..3", "1s..2m", "1..2..3", "s..", "1sms..2", "1ss..2"]
        {
            assert_eq!(window(text), None, "{text:?}");
        }
    }

    #[test]
    fn around_an_index() {
        assert_eq!(Span::around(20, 10).within(100), 10..31);
        assert_eq!(Span::around(3, 10).within(8), 0..8);
        assert_eq!(Span::around(u64::MAX, 10).within(8), 8..8);
    }

    #[test]
    fn last_parts() {
        for (text, part, shown) in [
            ("10%", LastPart::Permille(100), "10 %"),
            ("2.5 %", LastPart::Permille(25), "2.5 %"),
            ("100%", LastPart::Permille(1000), "100 %"),
            ("0", LastPart::NOTHING, "0"),
            ("500", LastPart::Events(500), "500"),
            ("1.5s", LastPart::Millis(1500), "1.500 s"),
            ("80ms", LastPart::Millis(80), "0.080 s"),
        ] {
            assert_eq!(text.parse().ok(), Some(part), "{text}");
            assert_eq!(part.to_string(), shown);
        }
        for text in ["", "%", "101%", "-1%", "nan%", "peak", "end", "-5", "10 percent"] {
            assert!(text.parse::<LastPart>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn moments() {
        assert_eq!("7".parse().ok(), Some(Moment::Index(7)));
        assert_eq!("peak".parse().ok(), Some(Moment::Peak));
        assert_eq!("end".parse().ok(), Some(Moment::End));
        assert_eq!("12.5s".parse().ok(), Some(Moment::Millis(12_500)));
        assert_eq!("0.0004s".parse().ok(), Some(Moment::Millis(0)));
        assert_eq!("80ms".parse().ok(), Some(Moment::Millis(80)));
        for text in ["", "s", "now", "-1s", "nans", "infs", "1e300s", "1m", "-3"] {
            assert!(text.parse::<Moment>().is_err(), "{text:?}");
        }
    }
}
