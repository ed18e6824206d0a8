//! Tables of who made what: the stacks of a profile added up by place, function, file, thread, process or rank.
//!
//! The rows of a table add up to all that the profile has, but for functions: there a row is what was made in the
//! function or below it, each stack once, however often the function is on it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;

use heaptape_tape::ProcessNumber;

use crate::profile::{Frame, FrameKind, FrameNumber, Measure, Profile, Stack};
use crate::sites::Deeds;
use crate::tree::{Functions, Grain};

/// What stacks are added up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The whole stack.
    Site,
    /// The innermost frame.
    Caller,
    /// Every function on the stack.
    Function,
    /// The module of the innermost frame; of Python its source file.
    Module,
    /// The source file of the innermost frame of which it is known.
    File,
    /// The thread of its process.
    Thread,
    /// The process.
    Process,
    /// The MPI rank.
    Rank,
}

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The stack at this place of [`Profile::stacks`].
    Site(usize),
    /// The caller.
    Caller(FrameNumber),
    /// The function of this frame.
    Function(FrameNumber),
    /// The module's path, or that of the source file of Python; empty where none is known.
    Module(Arc<str>),
    /// The source file; `None` where none is known.
    File(Option<Arc<str>>),
    /// The thread of a process.
    Thread(ProcessNumber, u32),
    /// The process.
    Process(ProcessNumber),
    /// The rank; `None` for processes without one.
    Rank(Option<u32>),
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it is about.
    pub subject: Subject,
    /// What was made there; of a function, there and below.
    pub deeds: Deeds,
    /// Of a function: what it made itself.
    pub own: Option<Deeds>,
    /// The place in [`Profile::stacks`] of the stack with most of it.
    pub largest: usize,
}

/// The rows, by the measure, the largest first.
pub fn rows(profile: &Profile, by: By, measure: Measure) -> Vec<Row> {
    let mut rows = match by {
        By::Site => sites(profile, measure),
        By::Function => functions(profile, measure),
        By::Caller => callers(profile, measure),
        By::Module => added_up(profile, measure, |stack| {
            Some(Subject::Module(module(profile.frames_of(stack).next()?)))
        }),
        By::File => added_up(profile, measure, |stack| {
            Some(Subject::File(profile.frames_of(stack).find_map(|frame| frame.file.clone())))
        }),
        By::Thread => {
            added_up(profile, measure, |stack| Some(Subject::Thread(stack.process, stack.thread)))
        }
        By::Process => added_up(profile, measure, |stack| Some(Subject::Process(stack.process))),
        By::Rank => added_up(profile, measure, |stack| Some(Subject::Rank(stack.rank))),
    };
    // What came first stays first among equals.
    rows.sort_by_key(|row| {
        let weight = measure.weight(measure.metric.of(&row.deeds));
        let own = row.own.as_ref().map(|own| measure.weight(measure.metric.of(own)));
        Reverse((weight, own, measure.weight(row.deeds.made)))
    });
    rows
}

/// Two addresses of one line look the same, and so they are.
fn sites(profile: &Profile, measure: Measure) -> Vec<Row> {
    let places = Functions::of(profile, Grain::Place);
    let mut growing = Growing::new(profile, measure);
    for (place, stack) in profile.stacks.iter().enumerate() {
        let key: Box<[u32]> = stack.frames.iter().map(|&frame| places.of_frame(frame)).collect();
        growing.add(key, place, |_| Subject::Site(place));
    }
    growing.rows
}

/// Likewise of callers.
fn callers(profile: &Profile, measure: Measure) -> Vec<Row> {
    let places = Functions::of(profile, Grain::Place);
    let mut growing = Growing::new(profile, measure);
    for (place, stack) in profile.stacks.iter().enumerate() {
        if let Some(&caller) = stack.frames.first() {
            growing.add(places.of_frame(caller), place, |_| Subject::Caller(caller));
        }
    }
    growing.rows
}

/// Where code of a frame lies. What Python runs is in no module of machine code, but in a file of its own.
pub fn module(frame: &Frame) -> Arc<str> {
    match (frame.kind, &frame.file) {
        (FrameKind::Python, Some(file)) => Arc::clone(file),
        (FrameKind::Python, None) => "Python".into(),
        _ => Arc::clone(&frame.module),
    }
}

/// Rows that grow by the stacks that are theirs.
struct Growing<'a, K> {
    profile: &'a Profile,
    measure: Measure,
    places: HashMap<K, usize>,
    rows: Vec<Row>,
}

impl<'a, K: Eq + Hash + Clone> Growing<'a, K> {
    fn new(profile: &'a Profile, measure: Measure) -> Growing<'a, K> {
        Growing { profile, measure, places: HashMap::new(), rows: Vec::new() }
    }

    /// The row of a key takes a stack in.
    fn add(&mut self, key: K, place: usize, subject: impl FnOnce(K) -> Subject) -> &mut Row {
        let number = match self.places.entry(key) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let subject = subject(new.key().clone());
                let deeds = Deeds::default();
                self.rows.push(Row { subject, deeds, own: None, largest: place });
                *new.insert(self.rows.len() - 1)
            }
        };
        let stacks = &self.profile.stacks;
        let weight = |place: usize| {
            let deeds = &stacks[place].deeds;
            (self.measure.weight(self.measure.metric.of(deeds)), deeds.made)
        };
        let row = &mut self.rows[number];
        if weight(place) > weight(row.largest) {
            row.largest = place;
        }
        row.deeds.join(&stacks[place].deeds);
        row
    }
}

fn added_up(
    profile: &Profile,
    measure: Measure,
    subject: impl Fn(&Stack) -> Option<Subject>,
) -> Vec<Row> {
    let mut growing = Growing::new(profile, measure);
    for (place, stack) in profile.stacks.iter().enumerate() {
        if let Some(subject) = subject(stack) {
            growing.add(subject, place, |subject| subject);
        }
    }
    growing.rows
}

fn functions(profile: &Profile, measure: Measure) -> Vec<Row> {
    let functions = Functions::of(profile, Grain::Function);
    let mut growing = Growing::new(profile, measure);
    // The last stack that each function was met on.
    let mut met = vec![usize::MAX; functions.first.len()];
    for (place, stack) in profile.stacks.iter().enumerate() {
        for (n, &frame) in stack.frames.iter().enumerate() {
            let function = functions.of_frame(frame);
            let Some(last) = met.get_mut(function as usize) else { continue };
            if std::mem::replace(last, place) == place {
                continue;
            }
            let first = functions.first[function as usize];
            let row = growing.add(function, place, |_| Subject::Function(first));
            let own = row.own.get_or_insert_default();
            if n == 0 {
                own.join(&stack.deeds);
            }
        }
    }
    growing.rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Metric;

    const TOTAL: Measure = Measure { metric: Metric::Total, blocks: false };

    fn table(text: &str, by: By) -> Vec<(String, u64, Option<u64>)> {
        let profile: Profile = text.parse().unwrap();
        let name = |subject: &Subject| match subject {
            Subject::Caller(frame) | Subject::Function(frame) => {
                profile.frames[frame.0 as usize].label().into_owned()
            }
            Subject::File(file) => file.as_deref().unwrap_or("-").to_owned(),
            other => format!("{other:?}"),
        };
        let rows = rows(&profile, by, TOTAL);
        let own = |row: &Row| row.own.as_ref().map(|own| own.made.bytes);
        rows.iter().map(|row| (name(&row.subject), row.deeds.made.bytes, own(row))).collect()
    }

    #[test]
    fn a_function_has_a_stack_once_however_often_it_is_on_it() {
        let rows = table("main;f;g;f;f 10\nmain;g 5\nmain;f 1\nmain 2", By::Function);
        let row = |name: &str, all, own| (name.to_owned(), all, Some(own));
        assert_eq!(rows, [row("main", 18, 2), row("g", 15, 5), row("f", 11, 11)]);
    }

    #[test]
    fn rows_of_what_a_stack_has_one_of_add_up_to_all() {
        let text = "
            main;a;wrapper 10
            main;b;wrapper 20
            main;run (job.py:3);make (job.py:9) 7
            main;run (job.py:3);strdup 2
        ";
        let row = |name: &str, bytes| (name.to_owned(), bytes, None);
        let of_sites = table(text, By::Site);
        assert_eq!(of_sites.iter().map(|row| row.1).collect::<Vec<_>>(), [20, 10, 7, 2]);
        assert_eq!(of_sites[0].0, "Site(1)");
        assert_eq!(table(text, By::Caller), [row("wrapper", 30), row("make", 7), row("strdup", 2)]);
        assert_eq!(table(text, By::File), [row("-", 30), row("job.py", 9)]);
        assert_eq!(table(text, By::Module).iter().map(|row| row.1).collect::<Vec<_>>(), [32, 7]);
        for by in [By::Thread, By::Process, By::Rank] {
            assert_eq!(table(text, by).iter().map(|row| row.1).collect::<Vec<_>>(), [39]);
        }
    }

    #[test]
    fn callers_that_look_the_same_are_one_row() {
        let mut profile: Profile = "main;a 1\nmain;b 2\nmain;c 4\nmain;d 8".parse().unwrap();
        for (name, line, offset) in [("a", 3, 0x10), ("b", 3, 0x20), ("c", 4, 0x30)] {
            let frame = profile.frames.iter_mut().find(|frame| &*frame.function == name).unwrap();
            let file = Some("x.c".into());
            *frame = Frame { file, line: Some(line), offset, ..Frame::named("f") };
        }
        let bytes = |by| -> Vec<u64> {
            rows(&profile, by, TOTAL).iter().map(|row| row.deeds.made.bytes).collect()
        };
        assert_eq!(bytes(By::Caller), [8, 4, 3]);
    }

    #[test]
    fn python_lies_in_its_files() {
        let mut profile: Profile =
            "main;f (job.py:3) 1\nmain;g 2\nmain;h (x.py:4) 4".parse().unwrap();
        profile.frames.iter_mut().for_each(|frame| match &*frame.function {
            "g" => frame.module = "/lib/libg.so".into(),
            "h" => frame.file = None,
            _ => {}
        });
        let rows = rows(&profile, By::Module, TOTAL);
        let modules = ["Python", "/lib/libg.so", "job.py"].map(|name| Subject::Module(name.into()));
        assert_eq!(rows.iter().map(|row| row.subject.clone()).collect::<Vec<_>>(), modules);
    }

    #[test]
    fn the_largest_stack_of_a_row_is_known() {
        let profile: Profile = "a;f 1\nb;f 9\nc;f 9\nd;f 3".parse().unwrap();
        assert_eq!(rows(&profile, By::Caller, TOTAL)[0].largest, 1);
    }
}
