//! What two moments differ in: of one tape, or of two.
//!
//! Each side is a list of figures by caller, bin or module, made elsewhere ([`live_by`], [`made_by`]); here they are
//! set against each other. What is the same on both sides is for `Same` to say.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use heaptape_tape::{LiveBlock, ProcessSummary, Sites, Tape};

use crate::Error;
use crate::bins::Bin;
use crate::callers::Callers;
use crate::live::{self, Caller};
use crate::lives::Load;
use crate::modules::{Module, Place};
use crate::sites::{Origin, Standing};
use crate::stack::{self, Stack};
use crate::survey::{self, Moments};

/// What figures are added up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The calling place.
    Caller,
    /// The size class.
    Bin,
    /// The file that the caller is in.
    Module,
    /// The whole call stack.
    Site,
}

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A calling place.
    Caller(Caller),
    /// A size class.
    Bin(Bin),
}

/// The figures of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// What lives at the moment.
    pub live: Load,
    /// What was made in all; nothing where that is not asked for.
    pub made: Load,
}

impl Figures {
    fn join(&mut self, other: Figures) {
        self.live.join(other.live);
        self.made.join(other.made);
    }
}

/// The figures of a side, by subject. A subject may come more than once.
pub type Side = Vec<(Subject, Figures)>;

/// The live blocks of a side, added up.
pub fn live_by(by: By, blocks: &[LiveBlock], callers: &mut Callers<'_>) -> Result<Side, Error> {
    let live = |sum: live::Sum| Figures {
        live: Load { bytes: sum.requested, blocks: sum.blocks },
        made: Load::default(),
    };
    Ok(if by == By::Bin {
        let parts = live::by_bin(blocks).into_iter();
        parts.map(|part| (Subject::Bin(part.key), live(part.sum))).collect()
    } else {
        let parts = if by == By::Site {
            live::by_site(blocks, callers)?
        } else {
            live::by_caller(blocks, |block| callers.of_block(block))?
        };
        let parts = parts.into_iter();
        parts.map(|part| (Subject::Caller(part.key), live(part.sum))).collect()
    })
}

/// All that a process made, added up. `progress` is told how many more events have been read.
pub fn made_by(
    by: By,
    tape: &Tape,
    process: &ProcessSummary,
    callers: &mut Callers<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Side, Error> {
    let moments = Moments::Events(Vec::new());
    let time = process.started..process.started.saturating_add(1);
    let plan =
        survey::Plan { moments, time, steps: 1, inherited: false, peak: None, threads: false };
    let stacks = if by == By::Site { tape.sites(process.number)? } else { Sites::default() };
    let modules = callers.modules(process.number)?;
    let survey = survey::of(tape, process, modules, &plan, progress)?;
    let figures = |made| Figures { live: Load::default(), made };
    Ok(if by == By::Bin {
        let bins = survey.bins.bins();
        bins.map(|(bin, traffic)| {
            let made = Load { bytes: traffic.total, blocks: traffic.count };
            (Subject::Bin(bin), figures(made))
        })
        .collect()
    } else {
        let sites = survey.sites.into_iter();
        sites
            .filter_map(|site| match site.origin {
                Origin::Caller { address, place } => {
                    let Standing { stack, met, .. } = site.standing;
                    let stack = stack.and_then(|n| Stack::of(&stacks, n, modules, met));
                    let caller = Caller::at(address, place, process.number, stack);
                    Some((Subject::Caller(caller), figures(site.deeds.made)))
                }
                Origin::Inherited => None,
            })
            .collect()
    })
}

/// What the subjects of both sides that are the same have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Bin(Bin),
    /// The build id, and the offset.
    Build(Vec<u8>, u64),
    /// The file's name, and the offset.
    File(String, u64),
    /// The file's name, and the function.
    Function(String, Arc<str>),
    /// All of a file with this name.
    Module(String),
    /// An address that lies in no module.
    Address(u64),
    /// A line of a script: its file, function and line.
    Line(String, String, u32),
    /// A stack of such.
    Stack(Vec<Key>),
    Unknown,
}

/// Says which subjects of two sides are the same.
#[derive(Debug)]
struct Same {
    by_module: bool,
    one_process: bool,
    /// The build ids that both sides have.
    builds: HashSet<Vec<u8>>,
}

impl Same {
    fn of(by: By, one_process: bool, before: &Side, after: &Side) -> Same {
        let builds = |side: &Side| -> HashSet<Vec<u8>> {
            let modules = side.iter().flat_map(|(subject, _)| modules(subject));
            modules.map(|m| m.build_id.clone()).filter(|id| !id.is_empty()).collect()
        };
        let builds = builds(before).intersection(&builds(after)).cloned().collect();
        Same { by_module: by == By::Module, one_process, builds }
    }

    /// What makes a subject of one side the same as one of the other.
    ///
    /// A caller is the same at the same offset of a file with the same build id, wherever the file lies and
    /// whatever it is called. Where the other side has no such build, or the file no build id, its name stands
    /// for it: the caller is the same in a function of the same name, as offsets in two builds have nothing to
    /// do with each other. Where the function is not known, and within one process, files without a build id have
    /// the same callers at the same offsets. An address without a module is the same within one process; in two processes all of them
    /// are one. Modules are the same when their build ids are, and where the other side has no such build when
    /// their files' names are.
    fn key(&self, subject: &Subject) -> Key {
        let caller = match subject {
            Subject::Bin(bin) => return Key::Bin(*bin),
            Subject::Caller(caller) => caller,
        };
        let place = |place: &Option<Place>, address| self.place(place.as_ref(), address);
        let Some(trace) = &caller.trace else { return place(&caller.place, caller.address) };
        let frames = trace.stack.frames.iter().map(|frame| match frame {
            stack::Frame::Native { address, place: at } => place(at, *address),
            stack::Frame::Interpreted { code: Some(code), line } => {
                Key::Line(code.file.clone(), code.function.clone(), *line)
            }
            stack::Frame::Interpreted { code: None, .. } => Key::Unknown,
        });
        Key::Stack(frames.collect())
    }

    fn place(&self, place: Option<&Place>, address: u64) -> Key {
        let Some(place) = place else {
            let is_known = self.one_process && !self.by_module;
            return if is_known { Key::Address(address) } else { Key::Unknown };
        };
        let name = || file_name(&place.module);
        let build = &place.module.build_id;
        if self.by_module {
            let is_shared = self.builds.contains(build);
            return if is_shared { Key::Build(build.clone(), 0) } else { Key::Module(name()) };
        }
        if self.builds.contains(build) {
            return Key::Build(build.clone(), place.offset);
        }
        match &place.function {
            Some(function) if !self.one_process => Key::Function(name(), Arc::clone(function)),
            _ if build.is_empty() => Key::File(name(), place.offset),
            _ => Key::Build(build.clone(), place.offset),
        }
    }
}

/// The files of a caller, and of its stack.
fn modules(subject: &Subject) -> impl Iterator<Item = &Module> {
    let caller = match subject {
        Subject::Caller(caller) => Some(caller),
        Subject::Bin(_) => None,
    };
    let stacks = caller.and_then(|caller| caller.trace.as_ref()).into_iter();
    let outer = stacks.flat_map(|trace| &trace.stack.frames).filter_map(|frame| match frame {
        stack::Frame::Native { place, .. } => place.as_ref(),
        stack::Frame::Interpreted { .. } => None,
    });
    let places = caller.and_then(|caller| caller.place.as_ref()).into_iter().chain(outer);
    places.map(|place| &*place.module)
}

fn file_name(module: &Module) -> String {
    let name = Path::new(&module.path).file_name().and_then(|name| name.to_str());
    name.unwrap_or(&module.path).to_owned()
}

/// An order of subjects that depends on nothing but what they are.
fn name(subject: &Subject) -> (Option<Bin>, Option<(String, u64)>, u64) {
    match subject {
        Subject::Bin(bin) => (Some(*bin), None, 0),
        Subject::Caller(Caller { address, place, .. }) => {
            let place = place.as_ref().map(|p| (p.module.path.clone(), p.offset));
            (None, place, *address)
        }
    }
}

/// One row: the same subject on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it is about, as it is called after, or before where it is gone.
    pub subject: Subject,
    /// Its figures before.
    pub before: Figures,
    /// Its figures after.
    pub after: Figures,
}

impl Row {
    /// By how much its live bytes grew.
    pub fn growth(&self) -> i128 {
        i128::from(self.after.live.bytes) - i128::from(self.before.live.bytes)
    }

    fn order(&self) -> impl Ord + use<> {
        let more = |after: u64, before: u64| Reverse(i128::from(after) - i128::from(before));
        let (after, before) = (&self.after, &self.before);
        (
            more(after.live.bytes, before.live.bytes),
            more(after.live.blocks, before.live.blocks),
            more(after.made.bytes, before.made.bytes),
            more(after.made.blocks, before.made.blocks),
        )
    }
}

/// Some rows, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub rows: u64,
    /// Their figures before.
    pub before: Figures,
    /// Their figures after.
    pub after: Figures,
}

impl Sum {
    /// One more of them.
    pub fn add(&mut self, row: &Row) {
        self.rows += 1;
        self.before.join(row.before);
        self.after.join(row.after);
    }
}

/// What two sides differ in.
#[derive(Clone, Debug, Default)]
pub struct Diff {
    /// The rows that changed, the one that grew most first.
    pub rows: Vec<Row>,
    /// The rows that did not.
    pub unchanged: Sum,
    /// All rows.
    pub total: Sum,
}

impl Diff {
    /// Sets two sides against each other. `one_process` says that both are moments of one process of a tape.
    pub fn of(by: By, one_process: bool, before: Side, after: Side) -> Diff {
        let same = Same::of(by, one_process, &before, &after);
        let mut rows: HashMap<Key, Row> = HashMap::new();
        // The later side names the row.
        for (side, is_after) in [(after, true), (before, false)] {
            for (subject, figures) in side {
                let (before, after) = <(Figures, Figures)>::default();
                let new = || Row { subject: subject.clone(), before, after };
                let row = rows.entry(same.key(&subject)).or_insert_with(new);
                if is_after { &mut row.after } else { &mut row.before }.join(figures);
            }
        }
        let mut diff = Diff::default();
        for row in fold(rows.into_values().collect()) {
            diff.total.add(&row);
            if row.before == row.after {
                diff.unchanged.add(&row);
            } else {
                diff.rows.push(row);
            }
        }
        diff.rows.sort_by_cached_key(|row| (row.order(), name(&row.subject)));
        diff
    }
}

/// Joins the rows whose stacks print the same, once they are named: two addresses of one line are one site.
fn fold(mut rows: Vec<Row>) -> Vec<Row> {
    // Which of them names the row must not depend on the order of a hash map.
    rows.sort_by_cached_key(|row| match &row.subject {
        Subject::Caller(caller) if caller.trace.is_some() => (name(&row.subject), caller.key()),
        _ => (name(&row.subject), Vec::new()),
    });
    let callers: Vec<(usize, &Caller)> = (0..)
        .zip(&rows)
        .filter_map(|(place, row)| match &row.subject {
            Subject::Caller(caller) => Some((place, caller)),
            Subject::Bin(_) => None,
        })
        .collect();
    let alike = live::alike(callers.iter().map(|(_, caller)| *caller));
    let mut into: Vec<usize> = (0..rows.len()).collect();
    for ((place, _), first) in callers.iter().zip(alike) {
        into[*place] = callers[first].0;
    }
    for (place, &first) in into.iter().enumerate().filter(|(place, first)| *place != **first) {
        let Row { before, after, .. } = rows[place];
        rows[first].before.join(before);
        rows[first].after.join(after);
    }
    let mut places = (0..).zip(into);
    rows.retain(|_| places.next().is_some_and(|(place, first): (usize, usize)| place == first));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::Place;

    fn caller(path: &str, build_id: &[u8], offset: u64) -> Subject {
        in_function(path, build_id, offset, None)
    }

    fn in_function(path: &str, build_id: &[u8], offset: u64, function: Option<&str>) -> Subject {
        let (path, build_id) = (path.to_owned(), build_id.to_vec());
        let module = Module { path, build_id, bias: 0x1000, start: 0x1000, end: 0x9000 };
        let function = function.map(Arc::from);
        let place = Some(Place { module: Arc::new(module), offset, function });
        Subject::Caller(Caller::new(0x1000 + offset, place))
    }

    fn nowhere(address: u64) -> Subject {
        Subject::Caller(Caller::new(address, None))
    }

    fn live(bytes: u64, blocks: u64) -> Figures {
        Figures { live: Load { bytes, blocks }, made: Load::default() }
    }

    fn growths(diff: &Diff) -> Vec<i128> {
        diff.rows.iter().map(Row::growth).collect()
    }

    #[test]
    fn two_addresses_of_one_line_are_one_row_on_both_sides() {
        let side = |callers: &[(u64, u64)]| -> Side {
            let row = |&(offset, bytes): &(u64, u64)| {
                let live = Load { bytes, blocks: 1 };
                let caller = live::tests::named(offset, Some(7));
                (Subject::Caller(caller), Figures { live, made: Load::default() })
            };
            callers.iter().map(row).collect()
        };
        let (before, after) = (side(&[(0x10, 5)]), side(&[(0x10, 6), (0x20, 7)]));
        let diff = Diff::of(By::Site, true, before, after);
        let [row] = diff.rows.as_slice() else { panic!("{:?}", diff.rows) };
        assert_eq!((row.before.live.bytes, row.after.live.bytes, diff.total.rows), (5, 13, 1));
    }

    #[test]
    fn a_library_is_known_by_its_build_wherever_it_lies() {
        let before = vec![
            (caller("/lib/x.so", &[1], 0x10), live(100, 1)),
            (caller("/lib/x.so", &[1], 0x20), live(50, 1)),
            (caller("/lib/y.so", &[], 0x10), live(7, 1)),
            (caller("/bin/p", &[2], 0x10), live(9, 1)),
        ];
        let after = vec![
            (caller("/opt/x.so.1", &[1], 0x10), live(150, 2)),
            (caller("/opt/x.so.1", &[1], 0x20), live(50, 1)),
            (caller("/opt/y.so", &[], 0x10), live(7, 1)),
            // Another build: the same offset is another place.
            (caller("/bin/p", &[3], 0x10), live(11, 1)),
        ];
        let diff = Diff::of(By::Caller, false, before.clone(), after.clone());
        assert_eq!(growths(&diff), [50, 11, -9]);
        assert_eq!((diff.unchanged.rows, diff.unchanged.before.live.bytes), (2, 57));
        assert_eq!((diff.total.before.live.bytes, diff.total.after.live.bytes), (166, 218));
        assert_eq!(diff.rows[0].subject, after[0].0, "it is called as it is now");
        let diff = Diff::of(By::Module, false, before, after);
        // x.so by its build, p by its name; y.so did not grow.
        assert_eq!(growths(&diff), [50, 2]);
        assert_eq!(diff.unchanged.rows, 1);
    }

    #[test]
    fn of_two_builds_functions_of_one_name_are_the_same() {
        let function = |build: u8, offset, function: &str| {
            in_function(&format!("/v{build}/p"), &[build], offset, Some(function))
        };
        let before = vec![
            (function(1, 0x10, "grow"), live(10, 1)),
            (function(1, 0x18, "grow"), live(20, 1)),
            (function(1, 0x50, "gone"), live(5, 1)),
        ];
        let after =
            vec![(function(2, 0x50, "grow"), live(40, 2)), (function(2, 0x10, "came"), live(7, 1))];
        let diff = Diff::of(By::Caller, false, before.clone(), after);
        assert_eq!(growths(&diff), [10, 7, -5]);
        // In one build two places of a function are two callers.
        let diff = Diff::of(By::Caller, false, before.clone(), before);
        assert_eq!(diff.unchanged.rows, 3);
    }

    #[test]
    fn bare_addresses_mean_something_within_one_process_only() {
        let before = vec![(nowhere(1), live(10, 1)), (nowhere(2), live(20, 1))];
        let after = vec![(nowhere(1), live(10, 1)), (nowhere(3), live(5, 1))];
        let diff = Diff::of(By::Caller, true, before.clone(), after.clone());
        assert_eq!((growths(&diff), diff.unchanged.rows), (vec![5, -20], 1));
        let diff = Diff::of(By::Caller, false, before, after);
        assert_eq!(growths(&diff), [-15]);
    }

    #[test]
    fn what_is_only_made_changes_a_row_too() {
        let made = |bytes| Figures { made: Load { bytes, blocks: 1 }, ..live(5, 1) };
        let bin = |size| Subject::Bin(Bin::of_bytes(size));
        let before = vec![(bin(10), made(10)), (bin(100), made(100)), (bin(50), made(70))];
        let after = vec![(bin(10), made(20)), (bin(100), made(90)), (bin(50), made(70))];
        let diff = Diff::of(By::Bin, false, before, after);
        let made: Vec<_> = diff.rows.iter().map(|r| r.after.made.bytes).collect();
        assert_eq!((made, diff.unchanged.rows), (vec![20, 90], 1));
    }
}
