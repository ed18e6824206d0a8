//! What is never freed, for people: the sums in sentences, then caller by caller.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptape_analyze::Summary;
use heaptape_analyze::choice::LastPart;
use heaptape_analyze::growth::Growth;
use heaptape_analyze::leaks::{Birth, Course, Fate, IGNORED, Kept, Leaks, Leaver};
use heaptape_analyze::lives::Load;
use heaptape_analyze::suppressions::Suppressions;
use heaptape_analyze::timeline::Axis;

use crate::size::{Count, Millis, Size};
use crate::table::{Align, Style, Table};
use crate::{document, live, spark, stacks, text};

/// What stands before the calls behind the first.
const STACK: &str = "      from ";
/// The longest path of a library, in characters.
const LONGEST_PATH: usize = 200;

/// What was found, and what was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The tape's name.
    pub tape: &'a str,
    /// The tape's index.
    pub summary: &'a Summary,
    /// What is left.
    pub leaks: &'a Leaks,
    /// The part that was to be ignored, where that was said.
    pub ignored: Option<LastPart>,
    /// The suppressions with what they matched; `None` without a file.
    pub suppressions: Option<&'a Suppressions>,
    /// What those callers left that do not grow, where they were not wanted.
    pub others: Option<Load>,
    /// How many callers are wanted; all for 0.
    pub top: usize,
    /// Whether call stacks are shown whole.
    pub whole: bool,
}

impl Found<'_> {
    /// The callers that are shown.
    pub(crate) fn shown(&self) -> &[Kept] {
        let callers = &self.leaks.callers;
        if self.top == 0 { callers } else { callers.get(..self.top).unwrap_or(callers) }
    }

    /// What the callers left that were wanted.
    pub fn wanted(&self) -> Load {
        let left = self.leaks.sums.left;
        let others = self.others.unwrap_or_default();
        Load { bytes: left.bytes - others.bytes, blocks: left.blocks - others.blocks }
    }

    /// What the blocks are told apart by: one, and several.
    fn what(&self) -> (&'static str, &'static str) {
        let has_stacks = self.leaks.callers.iter().any(|kept| kept.caller.trace.is_some());
        if has_stacks { ("call stack", "call stacks") } else { ("caller", "callers") }
    }

    /// What was wanted and found, as the subject of a sentence.
    pub fn sentence(&self) -> String {
        let (load, callers) = (self.wanted(), self.leaks.callers.len() as u64);
        if load.blocks == 0 {
            return match self.others {
                Some(_) => "No caller grows all the time.".to_owned(),
                None => "Nothing is left.".to_owned(),
            };
        }
        let what = if self.others.is_some() { "Growing and never freed" } else { "Never freed" };
        format!(
            "{what}: {}, made by {}.",
            amount(load),
            text::counted(callers, self.what().0, self.what().1)
        )
    }
}

/// `1.0 KiB in 2 blocks`
fn amount(load: Load) -> String {
    format!("{} in {}", Size(load.bytes), text::counted(load.blocks, "block", "blocks"))
}

/// Writes all of it.
pub fn write(
    out: &mut impl Write,
    found: Found<'_>,
    style: Style,
    verbose: bool,
) -> io::Result<()> {
    for sentence in std::iter::once(found.sentence()).chain(beside(found)) {
        document::wrap(out, &text::plain(&sentence), "", style)?;
    }
    if found.leaks.processes.len() > 1 {
        writeln!(out)?;
        processes(out, found, style)?;
    }
    for kept in found.shown() {
        writeln!(out)?;
        caller(out, kept, found, style)?;
    }
    live::rest(out, found.shown().len(), found.leaks.callers.len(), found.what().1)?;
    if let Some(suppressions) = found.suppressions.filter(|_| verbose) {
        writeln!(out)?;
        patterns(out, suppressions, style)?;
    }
    next(out, found)
}

/// What leads on from here: how the process that left most came by it.
fn next(out: &mut impl Write, found: Found<'_>) -> io::Result<()> {
    let most = found.leaks.processes.iter().rev().max_by_key(|leaver| leaver.sums.left);
    let Some(leaver) = most.filter(|leaver| leaver.sums.left.blocks > 0) else { return Ok(()) };
    let file = text::plain(&text::command(&[found.tape.to_owned()]));
    let process = match found.leaks.processes.len() {
        1 => String::new(),
        _ => format!(" --process '#{}'", leaver.process.number),
    };
    let half =
        text::plain(&text::command(&[format!("{}@{}", found.tape, leaver.process.events / 2)]));
    let end = text::plain(&text::command(&[format!("{}@end", found.tape)]));
    writeln!(
        out,
        "\nNext: heaptape live {file} --at end{process} · heaptape diff {half} {end}{process}"
    )
}

/// The sentences after the first: what the figure does not hold, and what it means.
fn beside(found: Found<'_>) -> Vec<String> {
    let sums = &found.leaks.sums;
    let mut sentences = Vec::new();
    if let Some(others) = found.others.filter(|load| load.blocks > 0) {
        sentences.push(format!("Callers that do not grow have {} more.", amount(others)));
    }
    sentences.extend(unended(&found.leaks.processes));
    sentences.extend(ignored(found));
    if let Some(suppressions) = found.suppressions {
        let all = suppressions.iter().count() as u64;
        let used = suppressions.iter().filter(|s| s.callers() > 0).count();
        sentences.push(format!(
            "Suppressed: {}, by {used} of {}.",
            amount(sums.suppressed),
            text::counted(all, "pattern", "patterns")
        ));
    }
    if sums.inherited.blocks > 0 {
        sentences.push(format!(
            "Not counted, as they are their parents': {} that forked processes began with and did not free.",
            amount(sums.inherited)
        ));
    }
    sentences
}

/// Which part of the run was left out of account.
fn ignored(found: Found<'_>) -> Option<String> {
    let processes = &found.leaks.processes;
    let all_ended = processes.iter().all(|leaver| leaver.fate == Fate::Exited);
    match found.ignored {
        Some(LastPart::NOTHING) => return Some("Counted to the last event.".to_owned()),
        None if all_ended => {
            let who = match processes.len() {
                0 => return None,
                1 => "the process ended by itself",
                _ => "all processes ended by themselves",
            };
            return Some(format!(
                "Counted to the last event, as {who} (--ignore-last 10% stops earlier)."
            ));
        }
        _ if found.leaks.sums.recent.blocks == 0 => return None,
        _ => {}
    }
    let part = match found.ignored.unwrap_or(IGNORED) {
        LastPart::Events(n) => text::counted(n, "event", "events"),
        LastPart::Millis(n) => Millis(n).to_string(),
        part @ LastPart::Permille(_) => format!("{part} of the events"),
    };
    let of = match found.ignored {
        Some(_) => "each process",
        None => "what did not end by itself",
    };
    let recent = amount(found.leaks.sums.recent);
    Some(format!(
        "Not counted, as work in progress: {recent}, born in the last {part} of {of} (--ignore-last 0 counts them)."
    ))
}

/// Whose blocks were perhaps not meant to stay.
fn unended(processes: &[Leaver]) -> Option<String> {
    let others: Vec<&Leaver> = processes.iter().filter(|p| p.fate != Fate::Exited).collect();
    let [first, rest @ ..] = &others[..] else { return None };
    if rest.is_empty() {
        let name = text::process(&first.process);
        let how = match (first.fate, first.process.signal) {
            (Fate::Killed, Some(signal)) => format!("was ended by signal {signal}"),
            (Fate::Replaced, _) => "was replaced by another program (exec)".to_owned(),
            (Fate::Unfinished, _) => "had not ended where the tape ends".to_owned(),
            _ => "ended in a way that is not known".to_owned(),
        };
        return Some(format!("{} {how}: what is left is what lived then.", sentence_case(&name)));
    }
    let mut ways: Vec<String> = Vec::new();
    for (fate, name) in [
        (Fate::Killed, "ended by a signal"),
        (Fate::Replaced, "replaced by another program (exec)"),
        (Fate::Unfinished, "not ended where the tape ends"),
        (Fate::Unknown, "ended in a way that is not known"),
    ] {
        match others.iter().filter(|p| p.fate == fate).count() {
            0 => {}
            n => ways.push(format!("{n} {name}")),
        }
    }
    Some(format!(
        "{} of {} processes did not end by themselves ({}): what they left is what lived then.",
        others.len(),
        processes.len(),
        ways.join(", ")
    ))
}

fn sentence_case(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// How a process ended, in a word or two.
pub(crate) fn fate(leaver: &Leaver) -> String {
    match (leaver.fate, leaver.process.code, leaver.process.signal) {
        (Fate::Killed, _, Some(signal)) => format!("signal {signal}"),
        (Fate::Exited, Some(code), _) => code.to_string(),
        (Fate::Replaced, ..) => "exec".to_owned(),
        (Fate::Unfinished, ..) => "not ended".to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// The processes that left most, in order of start.
fn processes(out: &mut impl Write, found: Found<'_>, style: Style) -> io::Result<()> {
    let columns = [
        ("#", Align::Right),
        ("pid", Align::Right),
        ("never freed", Align::Right),
        ("blocks", Align::Right),
        ("exit", Align::Left),
        ("command", Align::Text),
    ];
    let all = &found.leaks.processes;
    let mut order: Vec<&Leaver> = all.iter().collect();
    if found.top > 0 && order.len() > found.top {
        order.sort_by_key(|leaver| (Reverse(leaver.sums.left), leaver.process.number));
        order.truncate(found.top);
        order.retain(|leaver| leaver.sums.left.blocks > 0);
        order.sort_by_key(|leaver| leaver.process.number);
    }
    let mut table = Table::new(style, &columns).one_line();
    for leaver in &order {
        table.row([
            leaver.process.number.to_string(),
            text::or_dash(leaver.process.known_pid()),
            Size(leaver.sums.left.bytes).to_string(),
            Count(leaver.sums.left.blocks).to_string(),
            fate(leaver),
            text::short_command(&leaver.process.command),
        ]);
    }
    table.write(out)?;
    live::rest(out, order.len(), all.len(), "processes")
}

/// What one caller left, in a few lines.
fn caller(out: &mut impl Write, kept: &Kept, found: Found<'_>, style: Style) -> io::Result<()> {
    let several = found.leaks.processes.len() > 1;
    let share = text::share(kept.left.bytes, found.wanted().bytes);
    let head = format!("{} ({share}), ", amount(kept.left));
    let (caller, room) = (&kept.caller, live::room(style, head.len()));
    writeln!(out, "{head}{}", text::plain(&stacks::caller(caller, room)))?;
    let below = |trace| stacks::below(trace, found.whole, live::room(style, STACK.len()));
    for line in caller.trace.as_deref().into_iter().flat_map(below) {
        writeln!(out, "{STACK}{}", text::plain(&line))?;
    }
    let line = course(kept, &found.leaks.processes);
    let mut lines = vec![line, format!("{}; {}", births(kept, several), of_all_made(kept))];
    if kept.unloaded.blocks > 0 {
        let library = kept.caller.place.as_ref().map_or("", |place| place.module.path.as_str());
        let which = match kept.unloaded.blocks {
            all if all == kept.left.blocks => "their".to_owned(),
            some => format!("for {} of them the", text::counted(some, "block", "blocks")),
        };
        let library = text::without_middle(&text::plain(library), LONGEST_PATH);
        lines.push(format!("{which} library was unloaded afterwards: {library}"));
    }
    lines.iter().try_for_each(|line| document::wrap(out, line, "    ", style))
}

/// How it came to be so much: the plot, what it shows, and what it is about where that is not the figure above it.
fn course(kept: &Kept, processes: &[Leaver]) -> String {
    let (course, growth) = (&kept.course, kept.growth());
    let levels: Vec<Option<u64>> = course.at.iter().map(|load| Some(load.bytes)).collect();
    let mut line = format!("{}  {}", spark::line(&levels), self::growth(growth, course.axis));
    line.push_str(&whose(course, kept, processes));
    let recent = course.recent();
    if recent.blocks > 0 {
        line.push_str(&format!(", with {} of work in progress", amount(recent)));
    }
    if !matches!(growth, Growth::Steady(_)) {
        let sizes: Vec<String> =
            course.at.iter().map(|load| Size(load.bytes).to_string()).collect();
        line.push_str(&format!(": {}", sizes.join(", ")));
    }
    line
}

/// The process that the plot is about, where there are several.
fn whose(course: &Course, kept: &Kept, processes: &[Leaver]) -> String {
    let all = processes.iter();
    let leaver = all.map(|leaver| &leaver.process).find(|p| p.number == course.process);
    let Some(process) = leaver.filter(|_| processes.len() > 1) else { return String::new() };
    let of_it = match course.left {
        all if all == kept.left => "all".to_owned(),
        part => Size(part.bytes).to_string(),
    };
    format!(" in process {} (#{}), which left {of_it} of it", text::pid(process), process.number)
}

/// When the blocks were born that stay, and their sizes.
fn births(kept: &Kept, several: bool) -> String {
    let birth = |birth: &Birth| {
        let of = if several { format!(" of #{}", birth.process) } else { String::new() };
        format!("event {}{of} ({})", Count(birth.index), Millis(birth.time))
    };
    if kept.oldest == kept.newest {
        return format!("made by {}", birth(&kept.oldest));
    }
    let sizes = match (kept.oldest.size, kept.newest.size) {
        (first, last) if first == last => format!("first and last of {}", Size(first)),
        (first, last) => format!("first of {}, last of {}", Size(first), Size(last)),
    };
    format!("made from {} to {}, {sizes}", birth(&kept.oldest), birth(&kept.newest))
}

fn of_all_made(kept: &Kept) -> String {
    match kept.made.blocks {
        made if made == kept.left.blocks => "none freed".to_owned(),
        made => format!("{} made in all", text::counted(made, "block", "blocks")),
    }
}

/// In words. Moments are eighths of a process's time, or of its calls.
fn growth(growth: Growth, axis: Axis) -> String {
    let whole = match axis {
        Axis::Index => "the calls",
        Axis::Time => "the run",
    };
    let eighth = |n: usize| match n {
        2 | 6 => format!("{}/4 of {whole}", n / 2),
        4 => format!("half of {whole}"),
        n => format!("{n}/8 of {whole}"),
    };
    match growth {
        Growth::Growing(1) => format!("grows all through {whole}"),
        Growth::Growing(n) => format!("grows since {}", eighth(n)),
        Growth::Slowing(1) => "rises ever more slowly".to_owned(),
        Growth::Slowing(n) => format!("rises ever more slowly since {}", eighth(n)),
        Growth::Steady(1) => "steady since the beginning".to_owned(),
        Growth::Steady(n) => format!("steady since {}", eighth(n)),
        Growth::Until(n) => format!("grew until {}", eighth(n)),
        Growth::Late => format!("grew in the last eighth of {whole}"),
        Growth::Highest(n) => format!("highest at {}", eighth(n)),
    }
}

/// Which pattern matched how often.
fn patterns(out: &mut impl Write, suppressions: &Suppressions, style: Style) -> io::Result<()> {
    let columns = [
        ("callers", Align::Right),
        ("blocks", Align::Right),
        ("bytes", Align::Right),
        ("line", Align::Right),
        ("pattern", Align::Left),
    ];
    let mut table = Table::new(style, &columns);
    for suppression in suppressions.iter() {
        let matched = suppression.matched();
        table.row([
            Count(suppression.callers()).to_string(),
            Count(matched.blocks).to_string(),
            Size(matched.bytes).to_string(),
            suppression.line().to_string(),
            suppression.pattern().to_owned(),
        ]);
    }
    table.write(out)
}
