//! `diff`: what two tapes, or two moments, differ in.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use heaptape_analyze::callers::Callers;
use heaptape_analyze::choice::Moment;
use heaptape_analyze::diff::{self, By, Side, Subject};
use heaptape_analyze::{ProcessSummary, live, moment, processes};
use heaptape_report::diff as report;
use heaptape_report::{json, text};
use heaptape_tape::Tape;

use super::live::beyond;
use super::open;
use crate::args::{Diff, DiffBy, Sysroot};
use crate::names::Names;
use crate::terminal::Terminal;

/// Prints what is different.
pub(crate) fn run(args: &Diff, terminal: &Terminal) -> Result<ExitCode> {
    let [before, after] = [Choice::of(&args.before)?, Choice::of(&args.after)?];
    let first = open::tape(&before.file, terminal)?;
    // One tape is opened, and complained of, once.
    let other = (!is_one_file(&before.file, &after.file))
        .then(|| open::tape(&after.file, terminal))
        .transpose()?;
    let second = other.as_ref().unwrap_or(&first);
    let [before, after] =
        [Chosen::of(before, &first, args, terminal)?, Chosen::of(after, second, args, terminal)?];
    let by = match args.by {
        DiffBy::Caller => By::Caller,
        DiffBy::Bin => By::Bin,
        DiffBy::Module => By::Module,
        DiffBy::Site => By::Site,
    };
    let made = before.is_whole && after.is_whole;
    let one_process = other.is_none() && before.process.number == after.process.number;
    let diff = {
        let side = |chosen: &Chosen<'_>| chosen.side(by, made, &args.sysroot, terminal);
        let [first, second] = [side(&before)?, side(&after)?];
        diff::Diff::of(by, one_process, first, second)
    };
    let names = [&before, &after].map(|chosen| chosen.file.display().to_string());
    let moments = [before.moment(&names[0])?, after.moment(&names[1])?];
    let found = report::Found { moments, by, diff: &diff, made, top: args.top, whole: args.stacks };
    let mut out = terminal.out();
    if args.json {
        json::diff::write(&mut out, found)?;
    } else {
        report::write(&mut out, found, terminal.style())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Whether two names are of one file that is there.
fn is_one_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    identity(a).is_some_and(|file| identity(b) == Some(file))
}

/// A tape, and perhaps a moment: `FILE` or `FILE@MOMENT`.
#[derive(Debug, PartialEq, Eq)]
struct Choice {
    file: PathBuf,
    at: Option<Moment>,
}

impl Choice {
    fn of(text: &OsString) -> Result<Choice, heaptape_analyze::Error> {
        Choice::among(text, |path| path.exists())
    }

    /// What follows the last `@` is the moment, unless there is a file of the whole name.
    fn among(
        text: &OsStr,
        exists: impl Fn(&Path) -> bool,
    ) -> Result<Choice, heaptape_analyze::Error> {
        let whole = || Choice { file: PathBuf::from(text), at: None };
        let bytes = text.as_bytes();
        let Some(place) = bytes.iter().rposition(|&byte| byte == b'@') else { return Ok(whole()) };
        let file = PathBuf::from(OsStr::from_bytes(&bytes[..place]));
        if exists(Path::new(text)) {
            return Ok(whole());
        }
        let at = String::from_utf8_lossy(&bytes[place + 1..]).parse::<Moment>();
        match at {
            Ok(at) => Ok(Choice { file, at: Some(at) }),
            // It is the moment that is wrong, if the file is there.
            Err(error) if exists(&file) => Err(error),
            Err(_) => Ok(whole()),
        }
    }
}

/// A moment of a process of an open tape.
struct Chosen<'a> {
    file: PathBuf,
    tape: &'a Tape,
    process: &'a ProcessSummary,
    at: Moment,
    /// Whether no moment was named.
    is_whole: bool,
    /// How many events the process had made.
    made: u64,
}

impl<'a> Chosen<'a> {
    fn of(choice: Choice, tape: &'a Tape, args: &Diff, terminal: &Terminal) -> Result<Chosen<'a>> {
        let name = || choice.file.display().to_string();
        let process = processes::one(tape.summary(), args.process).with_context(name)?;
        let at = choice.at.unwrap_or(Moment::Peak);
        if let Some(what) = beyond(at, tape, process).with_context(name)? {
            terminal.say(&format!("{}: {} {what}.", name(), text::process(process)));
        }
        let made = moment::events_made(tape, process, at).with_context(name)?;
        Ok(Chosen { file: choice.file, tape, process, at, is_whole: choice.at.is_none(), made })
    }

    fn side(&self, by: By, made: bool, sysroot: &Sysroot, terminal: &Terminal) -> Result<Side> {
        let name = || self.file.display().to_string();
        let mut callers = Callers::new(self.tape);
        let blocks = live::after(self.tape, self.process.number, self.made).with_context(name)?;
        let mut side = diff::live_by(by, &blocks, &mut callers).with_context(name)?;
        drop(blocks);
        if made {
            let mut progress = terminal.progress(self.process.events, false);
            let mut told = |events| progress.events(events);
            let made = diff::made_by(by, self.tape, self.process, &mut callers, &mut told);
            side.extend(made.with_context(name)?);
        }
        if by == By::Caller || by == By::Site {
            let mut names = Names::new(sysroot, self.tape)?;
            for (subject, _) in &mut side {
                if let Subject::Caller(caller) = subject {
                    names.complete_caller(caller, self.tape.summary());
                    let stacks = caller.trace.iter_mut();
                    let places = stacks.flat_map(|trace| trace.stack.places());
                    places.for_each(|place| names.complete(place));
                }
            }
        }
        Ok(side)
    }

    fn moment<'b>(&'b self, tape: &'b str) -> Result<report::Moment<'b>> {
        let time = moment::time_after(self.tape, self.process, self.made);
        Ok(report::Moment {
            tape,
            complete: self.tape.summary().complete,
            process: self.process,
            name: match self.at {
                Moment::Peak => Some("peak"),
                Moment::End => Some("end"),
                Moment::Index(_) | Moment::Millis(_) => None,
            },
            at: self.made.checked_sub(1),
            time: time.with_context(|| self.file.display().to_string())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(text: &str, there: &[&str]) -> Option<(String, Option<Moment>)> {
        let exists = |path: &Path| there.iter().any(|name| Path::new(name) == path);
        let choice = Choice::among(OsStr::new(text), exists).ok()?;
        Some((choice.file.to_str()?.to_owned(), choice.at))
    }

    #[test]
    fn files_and_moments() {
        for (text, there, file, at) in [
            ("a.tape", &["a.tape"][..], "a.tape", None),
            ("a.tape@peak", &["a.tape"], "a.tape", Some(Moment::Peak)),
            ("a.tape@end", &[], "a.tape", Some(Moment::End)),
            ("a.tape@500", &["a.tape"], "a.tape", Some(Moment::Index(500))),
            ("a.tape@12.5s", &["a.tape"], "a.tape", Some(Moment::Millis(12_500))),
            ("a@b@7", &["a@b"], "a@b", Some(Moment::Index(7))),
            // A file whose name has an @ is itself.
            ("a.tape@7", &["a.tape", "a.tape@7"], "a.tape@7", None),
            ("me@home.tape", &["me@home.tape"], "me@home.tape", None),
            // It is not there, and its opening will say so.
            ("me@home.tape", &[], "me@home.tape", None),
            ("a@b.tape@end", &["a@b.tape"], "a@b.tape", Some(Moment::End)),
        ] {
            assert_eq!(choice(text, there), Some((file.to_owned(), at)), "{text}");
        }
        for text in ["a.tape@", "a.tape@now", "a.tape@-1", "a.tape@1..2"] {
            assert_eq!(choice(text, &["a.tape"]), None, "{text}");
        }
    }

    #[test]
    fn names_that_are_no_text() {
        let text = OsStr::from_bytes(b"\xff@3");
        let choice = Choice::among(text, |_| false).unwrap();
        assert_eq!(
            (choice.file.as_os_str().as_bytes(), choice.at),
            (&b"\xff"[..], Some(Moment::Index(3)))
        );
        assert!(Choice::among(OsStr::from_bytes(b"a@\xff"), |p| p == Path::new("a")).is_err());
    }
}
