//! Call stacks of a job with what was made there, named: what trees, tables and exports of sites show.
//!
//! A [`Builder`] takes the stacks, from whoever has read them off a tape and looked up their names, and keeps one of
//! each frame and of each stack. A tape without stacks gives stacks of one frame, the caller. Nothing here reads a
//! tape or opens a file.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::str::FromStr;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use heaptape_tape::ProcessNumber;

use crate::Error;
use crate::lives::Load;
use crate::modules::Module;
use crate::sites::Deeds;

/// Call stacks of a job with what was made there. Frames are named already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The frames that the stacks are made of, each once.
    pub frames: Vec<Frame>,
    /// The stacks.
    pub stacks: Vec<Stack>,
    /// The command that was recorded.
    pub command: Vec<String>,
    /// The executable of the first process, where it is known.
    pub executable: Option<Module>,
    /// When the recording began, in nanoseconds since 1970.
    pub started: u64,
    /// How long it took, in milliseconds.
    pub duration: u64,
}

/// The place of a frame in [`Profile::frames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameNumber(pub u32);

/// What a frame is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameKind {
    /// A call in machine code.
    #[default]
    Native,
    /// A function that the compiler put into the next outer frame: both are one address.
    Inlined,
    /// A line of Python.
    Python,
    /// The rest of the stack, which was cut at its depth, and then stands outermost; or calls that were left out of
    /// the midst of one that is too deep.
    Cut,
    /// Code about which nothing is known: no module was there, or a stack ended too early.
    Unknown,
}

/// A call on a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// What it is.
    pub kind: FrameKind,
    /// The function, demangled; empty when it is not known: then [`Frame::label`] shows the module and the offset.
    pub function: Arc<str>,
    /// The path of the module; empty for none, as for code that was made at run time.
    pub module: Arc<str>,
    /// The build id of the module; empty for none.
    pub build_id: Arc<[u8]>,
    /// The source file.
    pub file: Option<Arc<str>>,
    /// The line in it.
    pub line: Option<u32>,
    /// The return address in the module's file; the address in memory where there is no module; 0 of Python frames.
    pub offset: u64,
    /// What is added to addresses of the file to get those in memory; 0 when it is not known.
    pub load: u64,
}

impl Frame {
    /// A frame in machine code of which only the function is known.
    pub fn named(function: &str) -> Frame {
        Frame {
            kind: FrameKind::Native,
            function: function.into(),
            module: Arc::default(),
            build_id: Arc::default(),
            file: None,
            line: None,
            offset: 0,
            load: 0,
        }
    }

    /// The function; where none is known, the module with the offset.
    pub fn label(&self) -> Cow<'_, str> {
        if !self.function.is_empty() {
            return Cow::Borrowed(&self.function);
        }
        let offset = self.offset;
        match self.module_name() {
            "" => format!("{offset:#x}").into(),
            module => format!("{module}+{offset:#x}").into(),
        }
    }

    /// The last part of the module's path; empty for none.
    pub fn module_name(&self) -> &str {
        last_part(&self.module)
    }

    /// The last part of the source file's path with the line, such as `main.c:12`.
    pub fn source(&self) -> Option<String> {
        let file = last_part(self.file.as_ref()?);
        Some(match self.line {
            Some(line) => format!("{file}:{line}"),
            None => file.to_owned(),
        })
    }
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A call stack with what was made there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The frames, innermost first; inlined functions are frames of their own. Never empty.
    pub frames: Vec<FrameNumber>,
    /// The process; of stacks that several processes share, the first of them.
    pub process: ProcessNumber,
    /// The MPI rank of that process.
    pub rank: Option<u32>,
    /// The thread in that process, where the threads are kept apart; else 0.
    pub thread: u32,
    /// What was made there.
    pub deeds: Deeds,
}

impl Profile {
    /// Keeps the stacks of which a frame is in `focus` and none in `ignore`, where those are given; what was made on
    /// the others is given back.
    pub fn select(&mut self, focus: Option<&Wanted<'_>>, ignore: Option<&Wanted<'_>>) -> Deeds {
        let fits = |wanted: &Wanted<'_>| self.frames.iter().map(wanted).collect::<Vec<bool>>();
        let (focus, ignore) = (focus.map(fits), ignore.map(fits));
        let meets = |stack: &Stack, frames: &[bool]| {
            stack.frames.iter().any(|frame| frames.get(frame.0 as usize) == Some(&true))
        };
        let mut others = Deeds::default();
        self.stacks.retain(|stack| {
            let is_kept = focus.as_ref().is_none_or(|frames| meets(stack, frames))
                && !ignore.as_ref().is_some_and(|frames| meets(stack, frames));
            if !is_kept {
                others.join(&stack.deeds);
            }
            is_kept
        });
        others
    }

    /// What was made on all stacks.
    pub fn deeds(&self) -> Deeds {
        let mut all = Deeds::default();
        self.stacks.iter().for_each(|stack| all.join(&stack.deeds));
        all
    }

    /// The frames of a stack, innermost first.
    pub fn frames_of<'a>(&'a self, stack: &'a Stack) -> impl DoubleEndedIterator<Item = &'a Frame> {
        stack.frames.iter().filter_map(|number| self.frames.get(number.0 as usize))
    }
}

/// Whether a frame is meant.
pub type Wanted<'a> = dyn Fn(&Frame) -> bool + 'a;

/// A figure of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// What lives at the peak.
    Peak,
    /// What lives at the end.
    End,
    /// What lives at the moment that was asked for.
    Moment,
    /// All that was made.
    Total,
    /// What was freed before its thread's next allocation.
    Temporary,
}

impl Metric {
    /// The figure of these deeds.
    pub fn of(self, deeds: &Deeds) -> Load {
        match self {
            Metric::Peak => deeds.at_peak,
            Metric::End => deeds.left,
            Metric::Moment => deeds.at.first().copied().unwrap_or_default(),
            Metric::Total => deeds.made,
            Metric::Temporary => deeds.temporary,
        }
    }
}

/// What stacks are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// The figure.
    pub metric: Metric,
    /// Whether its blocks count, and not its bytes.
    pub blocks: bool,
}

impl Measure {
    /// How much of it is in a load.
    pub fn weight(self, load: Load) -> u64 {
        if self.blocks { load.blocks } else { load.bytes }
    }
}

/// Takes stacks, and keeps one of each frame and of each stack: what is added to a known one is added up.
#[derive(Debug, Default)]
pub struct Builder {
    profile: Profile,
    /// By the frame, without its load bias.
    frames: HashMap<Frame, FrameNumber>,
    /// The places of the stacks, by their frames and owners.
    stacks: HashTable<usize>,
    owners: Vec<Owner>,
    hasher: DefaultHashBuilder,
}

/// Whose stack it is, as far as stacks are kept apart by that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The process, where processes are kept apart.
    pub process: Option<ProcessNumber>,
    /// The thread, where threads are kept apart.
    pub thread: Option<u32>,
}

impl Builder {
    /// With no stacks so far.
    pub fn new(command: Vec<String>, started: u64, duration: u64) -> Builder {
        let profile = Profile { command, started, duration, ..Profile::default() };
        Builder { profile, ..Builder::default() }
    }

    /// The number of a frame. Where its module was loaded makes no other frame of it: processes differ in that.
    pub fn frame(&mut self, frame: Frame) -> FrameNumber {
        match self.frames.entry(Frame { load: 0, ..frame.clone() }) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let number = FrameNumber(self.profile.frames.len() as u32);
                self.profile.frames.push(frame);
                *new.insert(number)
            }
        }
    }

    /// The frame with a number that was given out.
    pub(crate) fn get(&self, number: FrameNumber) -> &Frame {
        &self.profile.frames[number.0 as usize]
    }

    /// Takes a stack; of one that is known, with this owner, the deeds are added up.
    pub fn stack(&mut self, stack: Stack, owner: Owner) {
        let Builder { profile: Profile { stacks, .. }, owners, hasher, .. } = self;
        let hash = hasher.hash_one((&stack.frames, owner));
        let same = |&place: &usize| stacks[place].frames == stack.frames && owners[place] == owner;
        if let Some(&place) = self.stacks.find(hash, same) {
            stacks[place].deeds.join(&stack.deeds);
            return;
        }
        self.stacks.insert_unique(hash, stacks.len(), |&place| {
            hasher.hash_one((&stacks[place].frames, owners[place]))
        });
        stacks.push(stack);
        owners.push(owner);
    }

    /// All of it.
    pub fn finish(self) -> Profile {
        self.profile
    }
}

/// Reads folded stacks, a line each: frames from the outermost, between semicolons, then a blank and the bytes, or
/// `bytes/blocks` (one block when not said). A frame is the name of a function, which ends with ` [inlined]` when it
/// is inlined, or is `function (file.py:line)`. So many were made, live at the peak and live at the end.
impl FromStr for Profile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Profile, Error> {
        let mut builder = Builder::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (frames, load) =
                folded(line).ok_or_else(|| Error::NotFolded { line: line.to_owned() })?;
            let frames = frames.map(|text| builder.frame(frame_of(text))).collect();
            let deeds = Deeds { made: load, left: load, at_peak: load, ..Deeds::default() };
            let (process, rank, thread) = (ProcessNumber(0), None, 0);
            builder.stack(Stack { frames, process, rank, thread, deeds }, Owner::default());
        }
        Ok(builder.finish())
    }
}

/// The frames of a folded line, innermost first, and its figures.
fn folded(line: &str) -> Option<(impl Iterator<Item = &str>, Load)> {
    let (stack, figures) = line.rsplit_once(' ')?;
    let (bytes, blocks) = figures.split_once('/').unwrap_or((figures, "1"));
    let load = Load { bytes: bytes.parse().ok()?, blocks: blocks.parse().ok()? };
    Some((stack.rsplit(';'), load))
}

fn frame_of(text: &str) -> Frame {
    if let Some(function) = text.strip_suffix(" [inlined]") {
        return Frame { kind: FrameKind::Inlined, ..Frame::named(function) };
    }
    let python = || {
        let (function, place) = text.strip_suffix(')')?.split_once(" (")?;
        let (file, line) = place.rsplit_once(':')?;
        let (file, line) = (Some(file.into()), line.parse().ok());
        Some(Frame { kind: FrameKind::Python, file, line, ..Frame::named(function) })
    };
    python().unwrap_or_else(|| Frame::named(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_read_from_text_share_frames_and_add_up() {
        let text = "
            main;test1;grow [inlined];wrapper 100
            main;test1;grow [inlined];wrapper 50/3
            main;run (job.py:7);wrapper 5
        ";
        let profile: Profile = text.parse().unwrap();
        let labels = |stack: &Stack| {
            let frames = stack.frames.iter().map(|f| &profile.frames[f.0 as usize]);
            frames.map(|f| (f.kind, f.label().into_owned(), f.source())).collect::<Vec<_>>()
        };
        let [one, two] = profile.stacks.as_slice() else { panic!("{:?}", profile.stacks) };
        assert_eq!(one.deeds.made, Load { bytes: 150, blocks: 4 });
        assert_eq!(profile.frames.len(), 5);
        let native = |name: &str| (FrameKind::Native, name.to_owned(), None);
        assert_eq!(
            labels(one),
            [
                native("wrapper"),
                (FrameKind::Inlined, "grow".into(), None),
                native("test1"),
                native("main")
            ]
        );
        let python = (FrameKind::Python, "run".to_owned(), Some("job.py:7".to_owned()));
        assert_eq!(labels(two), [native("wrapper"), python, native("main")]);
    }

    #[test]
    fn what_is_no_folded_line_is_said() {
        for bad in ["main", "main;f x", "main 1/x", "main 99999999999999999999"] {
            assert!(bad.parse::<Profile>().unwrap_err().to_string().contains(bad));
        }
    }

    #[test]
    fn owners_are_kept_apart() {
        let mut builder = Builder::default();
        let frame = builder.frame(Frame::named("main"));
        for thread in [1, 2, 1] {
            let (deeds, process) = (Deeds::default(), ProcessNumber(0));
            let stack = Stack { frames: vec![frame], process, rank: None, thread, deeds };
            builder.stack(stack, Owner { process: None, thread: Some(thread) });
        }
        assert_eq!(builder.finish().stacks.len(), 2);
    }

    #[test]
    fn the_same_place_of_a_file_is_one_frame_wherever_it_was_loaded() {
        let mut builder = Builder::default();
        let at =
            |load| Frame { module: "/lib/libx.so".into(), offset: 8, load, ..Frame::named("f") };
        assert_eq!(builder.frame(at(0x1000)), builder.frame(at(0x2000)));
        assert_eq!(builder.finish().frames, [at(0x1000)]);
    }

    #[test]
    fn stacks_can_be_selected_by_their_frames() {
        let text = "main;a;x 1\nmain;b;x 2\nmain;b;y 4\nmain;c 8";
        let left = |focus: Option<&str>, ignore: Option<&str>| {
            let named = |name: Option<&str>| {
                let name = name.map(str::to_owned);
                move |frame: &Frame| name.as_deref() == Some(&*frame.function)
            };
            let (wanted, unwanted) = (named(focus), named(ignore));
            let mut profile: Profile = text.parse().unwrap();
            let others = profile.select(
                focus.map(|_| &wanted as &Wanted<'_>),
                ignore.map(|_| &unwanted as &Wanted<'_>),
            );
            assert_eq!(profile.deeds().made.bytes + others.made.bytes, 15);
            profile.deeds().made.bytes
        };
        assert_eq!(left(None, None), 15);
        assert_eq!(left(Some("b"), None), 6);
        assert_eq!(left(Some("b"), Some("x")), 4);
        assert_eq!(left(None, Some("main")), 0);
    }

    #[test]
    fn a_frame_without_a_function_shows_where_it_is() {
        let unnamed = Frame { offset: 0x20, ..Frame::named("") };
        assert_eq!(unnamed.label(), "0x20");
        let somewhere = Frame { module: "/lib/libx.so".into(), ..unnamed };
        assert_eq!(somewhere.label(), "libx.so+0x20");
    }
}
