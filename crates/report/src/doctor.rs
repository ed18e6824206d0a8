//! Diagnoses for people: a line for each thing that was looked at, with a verdict, and what to do.
//!
//! [`system`] and [`program`] put into words what was found; [`write()`] makes a table of it.

mod check;
pub mod program;
pub mod system;

use std::io::{self, Write};

pub use check::{Check, Verdict};

use crate::table::{Align, Style, Table};
use crate::text;

/// What a diagnosis is about.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// This system.
    System,
    /// A command.
    Command(&'a [String]),
}

/// Writes the checks, what to do about those that are not well, and what it comes to.
pub fn write(
    out: &mut impl Write,
    subject: Subject<'_>,
    checks: &[Check],
    style: Style,
) -> io::Result<()> {
    match subject {
        Subject::System => writeln!(out, "This system:\n")?,
        Subject::Command(words) => writeln!(out, "{}:\n", text::short_command(words))?,
    }
    let columns = [("", Align::Left), ("what", Align::Left), ("found", Align::Text)];
    let mut table = Table::new(style, &columns);
    for check in checks {
        table.row([check.verdict.to_string(), check.name.to_owned(), check.finding.clone()]);
    }
    table.write(out)?;
    let advice = checks.iter().filter_map(|check| Some((check.name, check.advice.as_ref()?)));
    for (place, (name, advice)) in advice.enumerate() {
        if place == 0 {
            writeln!(out, "\nWhat to do:")?;
        }
        writeln!(out, "- {name}: {}", text::plain(advice))?;
    }
    writeln!(out, "\n{}", verdict(subject, checks))
}

/// The last line.
fn verdict(subject: Subject<'_>, checks: &[Check]) -> &'static str {
    let worst = checks.iter().map(|check| check.verdict).max();
    let is_fatal = checks.iter().any(|check| check.is_fatal);
    match (subject, worst) {
        (Subject::System, _) if is_fatal => "Nothing can be recorded here.",
        (Subject::System, Some(Verdict::Problem)) => {
            "Programs can be recorded here, but for what the problems say."
        }
        (Subject::System, _) => "Programs can be recorded here.",
        (Subject::Command(_), _) if is_fatal => "Its heap calls can't be recorded.",
        (Subject::Command(_), Some(Verdict::Problem)) => {
            "It can be recorded, but for what the problems say."
        }
        (Subject::Command(_), _) => "It can be recorded.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(checks: &[Check]) -> String {
        let mut out = Vec::new();
        write(&mut out, Subject::System, checks, Style { width: 80, color: false }).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_a_check_and_advice_below() {
        let checks = [
            Check::ok("kernel", "Linux 6.1"),
            Check::note("clock", "hpet").advise("Boot with tsc."),
            Check::problem("shm", "full\x1b", "Make room."),
        ];
        let expected = "\
This system:

         what    found
ok       kernel  Linux 6.1
note     clock   hpet
problem  shm     full\\u{1b}

What to do:
- clock: Boot with tsc.
- shm: Make room.

Programs can be recorded here, but for what the problems say.
";
        let text = rendered(&checks);
        assert_eq!(text, expected, "{text}");
    }

    #[test]
    fn the_last_line_tells_the_worst() {
        assert!(rendered(&[Check::note("a", "b")]).ends_with("\nPrograms can be recorded here.\n"));
        let fatal = Check::problem("a", "b", "c").fatal();
        assert!(
            rendered(std::slice::from_ref(&fatal)).ends_with("Nothing can be recorded here.\n")
        );
        let command = Subject::Command(&[]);
        assert_eq!(verdict(command, &[fatal]), "Its heap calls can't be recorded.");
    }
}
