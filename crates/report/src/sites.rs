//! Tables of who made what, for people; a call stack stands below its row.

use std::io::{self, Write};

use heaptape_analyze::ProcessNumber;
use heaptape_analyze::profile::{FrameNumber, Profile, Stack};
use heaptape_analyze::ranking::{By, Row, Subject as Of};
use heaptape_analyze::sites::Deeds;

use crate::size::{Count, Size};
use crate::stacks::Subject;
use crate::table::{Align, Style, Table};
use crate::{document, live, stacks, text};

/// What the columns before the names take, mostly.
const FIGURES: usize = 64;
/// Frames of a stack that are shown unless all are wanted.
const FRAMES: usize = 12;

/// A table, and what was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// What it is of.
    pub subject: Subject<'a>,
    /// What its rows are by.
    pub by: By,
    /// The rows, all of them.
    pub rows: &'a [Row],
    /// How many are wanted; all for 0.
    pub top: usize,
    /// Whether stacks are shown whole.
    pub whole: bool,
}

impl Found<'_> {
    /// The rows that are shown.
    pub(crate) fn shown(&self) -> &[Row] {
        if self.top == 0 { self.rows } else { self.rows.get(..self.top).unwrap_or(self.rows) }
    }
}

/// What rows are called: one, and several.
pub(crate) fn what(by: By) -> (&'static str, &'static str) {
    match by {
        By::Site => ("site", "sites"),
        By::Caller => ("caller", "callers"),
        By::Function => ("function", "functions"),
        By::Module => ("module", "modules"),
        By::File => ("file", "files"),
        By::Thread => ("thread", "threads"),
        By::Process => ("process", "processes"),
        By::Rank => ("rank", "ranks"),
    }
}

/// Writes the table.
pub fn write(out: &mut impl Write, found: Found<'_>, style: Style) -> io::Result<()> {
    let subject = &found.subject;
    let all = subject.profile.deeds();
    for sentence in subject.head(subject.measure.metric.of(&all)) {
        document::wrap(out, &text::plain(&sentence), "", style)?;
    }
    if found.rows.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut table = table(found, style);
    let room = live::room(style, FIGURES);
    for row in found.shown() {
        let name = text::short_frame(&name(&row.subject, subject), room);
        table.row(cells(found, &row.deeds, row.own.as_ref(), name));
        if let Of::Site(place) = row.subject {
            outer(&mut table, found, place, room);
        }
    }
    let left = found.rows.get(found.shown().len()..).unwrap_or_default();
    if !left.is_empty() && found.by != By::Function {
        let mut rest = Deeds::default();
        left.iter().for_each(|row| rest.join(&row.deeds));
        let more = format!("… {}", text::counted(left.len() as u64, "other", "others"));
        table.row(cells(found, &rest, None, more));
    }
    table.write(out)?;
    live::rest(out, found.shown().len(), found.rows.len(), what(found.by).1)
}

fn table(found: Found<'_>, style: Style) -> Table {
    let moment = found.subject.moment.map(|_| ("live then", Align::Right));
    let own = (found.by == By::Function).then_some(("own", Align::Right));
    let columns = [("at peak", Align::Right), ("at end", Align::Right)];
    let more = [
        ("total", Align::Right),
        ("calls", Align::Right),
        ("temporary", Align::Right),
        ("of calls", Align::Right),
    ];
    let columns = columns.into_iter().chain(moment).chain(more).chain(own);
    Table::new(style, &columns.chain([(what(found.by).0, Align::Left)]).collect::<Vec<_>>())
}

fn cells(found: Found<'_>, deeds: &Deeds, own: Option<&Deeds>, name: String) -> Vec<String> {
    let size = |bytes| Size(bytes).to_string();
    let mut cells = vec![size(deeds.at_peak.bytes), size(deeds.left.bytes)];
    if found.subject.moment.is_some() {
        cells.push(size(deeds.at.first().copied().unwrap_or_default().bytes));
    }
    cells.extend([
        size(deeds.made.bytes),
        Count(deeds.made.blocks).to_string(),
        size(deeds.temporary.bytes),
        Count(deeds.temporary.blocks).to_string(),
    ]);
    if found.by == By::Function {
        let measure = found.subject.measure;
        cells.push(own.map_or(String::new(), |own| found.subject.figure(measure.metric.of(own))));
    }
    cells.push(name);
    cells
}

/// The frames of a stack behind its first.
fn outer(table: &mut Table, found: Found<'_>, place: usize, room: usize) {
    let profile = found.subject.profile;
    let Some(stack) = profile.stacks.get(place) else { return };
    let columns = cells(found, &Deeds::default(), None, String::new()).len() - 1;
    let most = if found.whole { usize::MAX } else { FRAMES };
    for line in stacks::lines(profile.frames_of(stack).skip(1), most, room.saturating_sub(2)) {
        table.row(vec![String::new(); columns].into_iter().chain([format!("  {line}")]));
    }
}

/// What a row is about.
pub(crate) fn name(of: &Of, subject: &Subject<'_>) -> String {
    let profile = subject.profile;
    let frame = |number: FrameNumber| profile.frames.get(number.0 as usize);
    match of {
        Of::Site(place) => {
            profile.stacks.get(*place).map_or_else(String::new, |s| first(profile, s))
        }
        Of::Caller(number) => frame(*number).map_or_else(String::new, text::named_frame),
        Of::Function(number) => frame(*number).map_or_else(String::new, text::function),
        Of::Module(path) if path.is_empty() => "(no module known)".to_owned(),
        Of::Module(path) => path.to_string(),
        Of::File(file) => file.as_deref().unwrap_or("(no file known)").to_owned(),
        Of::Thread(process, thread) => format!("thread {thread} of {}", who(*process, subject)),
        Of::Process(process) => who(*process, subject),
        Of::Rank(rank) => {
            rank.map_or_else(|| "(no rank)".to_owned(), |rank| format!("rank {rank}"))
        }
    }
}

fn first(profile: &Profile, stack: &Stack) -> String {
    profile.frames_of(stack).next().map_or_else(String::new, text::named_frame)
}

fn who(number: ProcessNumber, subject: &Subject<'_>) -> String {
    let process = subject.processes.iter().find(|process| process.number == number);
    process.map_or_else(|| format!("process #{number}"), |process| text::process(process))
}
