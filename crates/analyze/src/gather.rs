//! From a tape to a profile: what was made on each call stack of its processes, under the names of the calls.
//!
//! The figures come from the survey of each process, the places from its modules; functions are looked up by a
//! [`Namer`], which is handed in, once for each place of a file.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use heaptape_tape::{Code, ProcessSummary, SiteEnd, Sites, Tape, interpreted_of};

use crate::callers::Callers;
use crate::choice::Moment;
use crate::modules::{Module, Modules, Place};
use crate::profile::{Builder, Frame, FrameKind, FrameNumber, Owner, Profile, Stack};
use crate::sites::{Origin, Site};
use crate::stack;
use crate::survey::{self, Moments};
use crate::{Error, account, moment};

/// A function at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name, demangled; empty when it is not known.
    pub name: Arc<str>,
    /// The source file.
    pub file: Option<Arc<str>>,
    /// The line of the call in it.
    pub line: Option<u32>,
}

/// Tells which functions are at a place.
pub trait Namer {
    /// Those at a return address, the innermost first: all but the last are inlined into the next one. None when
    /// nothing is known.
    fn functions(&mut self, place: &Place) -> Vec<Function>;

    /// The same at an address in no file, where a process has made code.
    fn made(&mut self, process: &ProcessSummary, address: u64) -> Vec<Function>;
}

/// The frames of a stack of a process with their names, innermost first, and how it ends where it is not whole.
pub fn named(stack: &stack::Stack, process: &ProcessSummary, namer: &mut dyn Namer) -> Vec<Frame> {
    let mut frames = all_named(stack, process, namer);
    if let Some(cut) = middle(frames.len()) {
        frames.splice(cut, [too_deep()]);
    }
    frames.extend(end(stack.end, frames.is_empty()));
    frames
}

/// The frames of a stack of a process with their names, innermost first, as many as there are.
pub fn all_named(
    stack: &stack::Stack,
    process: &ProcessSummary,
    namer: &mut dyn Namer,
) -> Vec<Frame> {
    let mut frames = Vec::new();
    for frame in &stack.frames {
        match frame {
            stack::Frame::Native { address, place } => {
                let (kind, unnamed) = match place {
                    Some(place) => (FrameKind::Native, unnamed(place)),
                    None => (FrameKind::Unknown, Frame { offset: *address, ..Frame::named("") }),
                };
                let functions = match place {
                    Some(place) => namer.functions(place),
                    None => namer.made(process, *address),
                };
                frames.extend(frames_of(functions, &unnamed, kind));
            }
            stack::Frame::Interpreted { code, line } => frames.push(script(code.as_ref(), *line)),
        }
    }
    frames
}

/// The frames of a stack of so many that are left out, so that the innermost stay, and who called them all.
fn middle(frames: usize) -> Option<Range<usize>> {
    (frames > DEEPEST).then(|| DEEPEST - OUTERMOST - 1..frames - OUTERMOST)
}

/// What stands for those.
fn too_deep() -> Frame {
    Frame { kind: FrameKind::Cut, ..Frame::named("(calls left out)") }
}

/// A frame at a place of which no function is known.
fn unnamed(place: &Place) -> Frame {
    Frame {
        module: place.module.path.as_str().into(),
        build_id: place.module.build_id.as_slice().into(),
        offset: place.offset,
        load: place.module.bias,
        ..Frame::named("")
    }
}

/// The frames of functions at one address, which is as `frame` says; of what kind a frame without a function is, is told.
fn frames_of(functions: Vec<Function>, frame: &Frame, unnamed: FrameKind) -> Vec<Frame> {
    if functions.is_empty() {
        return vec![Frame { kind: unnamed, ..frame.clone() }];
    }
    let outermost = functions.len() - 1;
    let frames = functions.into_iter().enumerate().map(|(n, function)| Frame {
        kind: if n < outermost { FrameKind::Inlined } else { FrameKind::Native },
        function: function.name,
        file: function.file,
        line: function.line,
        ..frame.clone()
    });
    frames.collect()
}

/// A line of a script.
fn script(code: Option<&Code>, line: u32) -> Frame {
    let function = code.map_or("(unknown code)", |code| &code.function);
    let file = code.map(|code| Arc::from(code.file.as_str()));
    let line = (line > 0).then_some(line);
    Frame { kind: FrameKind::Python, file, line, ..Frame::named(function) }
}

/// What stands for the rest of a stack that is not whole.
fn end(end: SiteEnd, is_empty: bool) -> Option<Frame> {
    let (text, kind) = match end {
        SiteEnd::Outermost if is_empty => (NO_CALLER, FrameKind::Unknown),
        SiteEnd::Outermost => return None,
        SiteEnd::Depth => ("(cut at the depth)", FrameKind::Cut),
        SiteEnd::Foreign => ("(code without unwinding rules)", FrameKind::Unknown),
        SiteEnd::Unreadable => ("(unreadable stack)", FrameKind::Unknown),
    };
    Some(Frame { kind, ..Frame::named(text) })
}

/// What is asked of a tape.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask {
    /// A moment besides peak and end at which the live blocks are wanted.
    pub moment: Option<Moment>,
    /// Whether the same stack in two processes is two.
    pub processes: bool,
    /// Whether the same stack in two threads is two.
    pub threads: bool,
    /// Whether the interpreter's own calls are kept where lines of Python stand for them.
    pub raw: bool,
}

impl Profile {
    /// Reads all events of the chosen processes; of several, the peak is that of their sum. `progress` is told how many more have been read.
    pub fn of_tape(
        tape: &Tape,
        chosen: &[&ProcessSummary],
        callers: &mut Callers<'_>,
        ask: &Ask,
        namer: &mut dyn Namer,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Profile, Error> {
        let header = &tape.summary().header;
        let duration = account::span_of(tape, chosen)?;
        let command = chosen.first().map(|p| p.command.clone()).unwrap_or_default();
        let mut gather = Gather {
            builder: Builder::new(command, header.started, duration.end - duration.start),
            ask,
            namer,
            known: HashMap::new(),
            held: HashMap::new(),
            addresses: HashMap::new(),
            lines: HashMap::new(),
        };
        let peaks = account::peaks(tape, chosen, progress)?;
        for (process, peak) in chosen.iter().zip(peaks) {
            let plan = survey::Plan {
                moments: moments(tape, chosen, ask.moment)?,
                peak,
                time: process.started..process.started.saturating_add(1),
                steps: 1,
                inherited: chosen.len() == 1,
                threads: ask.threads,
            };
            let modules = callers.modules(process.number)?;
            let survey = survey::of(tape, process, modules, &plan, progress)?;
            let (changes, stacks) = (modules.changes(), tape.sites(process.number)?);
            gather.add(&Own { process, modules, changes, stacks }, survey.sites);
        }
        let profile = gather.builder.finish();
        let executable = match chosen.first() {
            Some(process) => callers.modules(process.number)?.executable().cloned(),
            None => None,
        };
        Ok(Profile { executable, ..profile })
    }

    /// How many events [`Profile::of_tape`] reads in all.
    pub fn reads(chosen: &[&ProcessSummary]) -> u64 {
        account::Account::reads(chosen)
    }
}

fn moments(
    tape: &Tape,
    chosen: &[&ProcessSummary],
    moment: Option<Moment>,
) -> Result<Moments, Error> {
    Ok(match (moment, chosen) {
        (None | Some(Moment::Peak | Moment::End), _) => Moments::Events(Vec::new()),
        (Some(moment), [process]) => {
            Moments::Events(vec![moment::events_made(tape, process, moment)?])
        }
        (Some(Moment::Millis(time)), _) => Moments::Millis(vec![time]),
        (Some(Moment::Index(_)), _) => return Err(Error::IndexOfSeveral),
    })
}

/// A profile under way.
struct Gather<'a> {
    builder: Builder,
    ask: &'a Ask,
    namer: &'a mut dyn Namer,
    /// The frames of a place, innermost first, by the module's address in memory and the offset in it.
    known: HashMap<(*const Module, u64), Box<[FrameNumber]>>,
    /// Those that `known` has an address of: held, their addresses become no other's.
    held: HashMap<*const Module, Held>,
    /// The same by the address in the process that is added, and how many changes of its modules were before.
    addresses: HashMap<(u64, usize), Box<[FrameNumber]>>,
    /// The frames of its scripts' lines.
    lines: HashMap<(u32, u32), FrameNumber>,
}

/// What makes frames of a process's addresses.
struct Own<'a> {
    process: &'a ProcessSummary,
    modules: &'a Modules,
    /// The indexes at which modules were unloaded.
    changes: Vec<u64>,
    stacks: Sites,
}

/// A module with what its frames say of it.
#[derive(Clone)]
struct Held {
    _module: Arc<Module>,
    path: Arc<str>,
    build_id: Arc<[u8]>,
}

impl Held {
    fn of(module: &Arc<Module>) -> Held {
        let (path, build_id) = (module.path.as_str().into(), module.build_id.as_slice().into());
        Held { _module: Arc::clone(module), path, build_id }
    }
}

impl Gather<'_> {
    fn add(&mut self, own: &Own<'_>, sites: Vec<Site>) {
        let process = own.process;
        let Ask { processes, threads, .. } = *self.ask;
        self.addresses.clear();
        self.lines.clear();
        for site in sites {
            let frames = self.frames(&site, own);
            let stack = Stack {
                frames,
                process: process.number,
                rank: process.rank,
                thread: site.thread,
                deeds: site.deeds,
            };
            // A thread's number is one of its process.
            let owner = Owner {
                process: (processes || threads).then_some(process.number),
                thread: threads.then_some(site.thread),
            };
            self.builder.stack(stack, owner);
        }
    }

    fn frames(&mut self, site: &Site, own: &Own<'_>) -> Vec<FrameNumber> {
        let mut frames = Vec::new();
        match (&site.origin, site.standing.stack.and_then(|number| own.stacks.get(number))) {
            (Origin::Inherited, _) => self.mark(INHERITED, FrameKind::Unknown, &mut frames),
            (_, Some(stack)) => {
                let passed = own.changes.partition_point(|&change| change <= site.standing.met);
                for &frame in &stack.frames {
                    match interpreted_of(frame) {
                        Some(line) => frames.push(self.line(own, line)),
                        None => self.address(own, frame, (passed, site.standing.met), &mut frames),
                    }
                }
                if !self.ask.raw {
                    self.fold_interpreter(&mut frames);
                }
                if let Some(cut) = middle(frames.len()) {
                    frames.splice(cut, [self.builder.frame(too_deep())]);
                }
                let end = end(stack.end, frames.is_empty());
                frames.extend(end.map(|end| self.builder.frame(end)));
            }
            (Origin::Caller { address, place }, None) => {
                self.place(own, *address, place.as_ref(), &mut frames);
            }
        }
        frames
    }

    /// A line that says something in the place of a call.
    fn mark(&mut self, text: &str, kind: FrameKind, to: &mut Vec<FrameNumber>) {
        to.push(self.builder.frame(Frame { kind, ..Frame::named(text) }));
    }

    /// The frame of a line of a script in the process.
    fn line(&mut self, own: &Own<'_>, (code, line): (u32, u32)) -> FrameNumber {
        let builder = &mut self.builder;
        let new = || builder.frame(script(own.stacks.code(code), line));
        *self.lines.entry((code, line)).or_insert_with(new)
    }

    /// Leaves out the interpreter's own calls, if a line of Python is there.
    fn fold_interpreter(&self, frames: &mut Vec<FrameNumber>) {
        let frame = |number: FrameNumber| self.builder.get(number);
        if frames.iter().any(|&number| frame(number).kind == FrameKind::Python) {
            frames.retain(|&number| !is_interpreter(frame(number)));
        }
    }

    /// Adds the frames at an address on a stack of the process, before the event `at.1` and after `at.0` changes of
    /// its modules.
    fn address(
        &mut self,
        own: &Own<'_>,
        address: u64,
        at: (usize, u64),
        to: &mut Vec<FrameNumber>,
    ) {
        if let Some(known) = self.addresses.get(&(address, at.0)) {
            to.extend_from_slice(known);
            return;
        }
        let before = to.len();
        let place = own.modules.find_call(address, at.1);
        self.place(own, address, place.as_ref(), to);
        // Where no module is, one may come to be loaded.
        if place.is_some() {
            self.addresses.insert((address, at.0), to[before..].into());
        }
    }

    /// Adds the frames at a return address.
    fn place(
        &mut self,
        own: &Own<'_>,
        address: u64,
        place: Option<&Place>,
        to: &mut Vec<FrameNumber>,
    ) {
        let Some(place) = place else {
            if address == 0 {
                return self.mark(NO_CALLER, FrameKind::Unknown, to);
            }
            // Code that a program made has names, if it has left a list of them.
            let functions = self.namer.made(own.process, address);
            let nowhere = Frame { offset: address, ..Frame::named("") };
            let frames = frames_of(functions, &nowhere, FrameKind::Unknown);
            to.extend(frames.into_iter().map(|frame| self.builder.frame(frame)));
            return;
        };
        let at = (Arc::as_ptr(&place.module), place.offset);
        if let Some(known) = self.known.get(&at) {
            to.extend_from_slice(known);
            return;
        }
        let frames = self.name(place);
        to.extend_from_slice(&frames);
        self.known.insert(at, frames);
    }

    fn name(&mut self, place: &Place) -> Box<[FrameNumber]> {
        let module = &place.module;
        let held = self.held.entry(Arc::as_ptr(module)).or_insert_with(|| Held::of(module));
        let frame = Frame {
            module: Arc::clone(&held.path),
            build_id: Arc::clone(&held.build_id),
            offset: place.offset,
            load: module.bias,
            ..Frame::named("")
        };
        let functions = self.namer.functions(place);
        let frames = frames_of(functions, &frame, FrameKind::Native);
        frames.into_iter().map(|frame| self.builder.frame(frame)).collect()
    }
}

/// Whether a call is one of the Python interpreter's own.
fn is_interpreter(frame: &Frame) -> bool {
    let is_native = matches!(frame.kind, FrameKind::Native | FrameKind::Inlined);
    is_native && stack::is_interpreter(frame.module_name())
}

/// Frames of a stack that are kept, those of inlined functions counted.
const DEEPEST: usize = 1024;
/// So many of them are the outermost.
const OUTERMOST: usize = 256;
/// What stands for blocks that a process began with.
const INHERITED: &str = "(inherited by fork)";
/// What stands where no caller was taken down.
const NO_CALLER: &str = "(no caller known)";

#[cfg(test)]
mod tests {
    use heaptape_tape::{Note, NoteKind};

    use super::*;
    use crate::overview::tests::process;

    /// Knows no function.
    struct Nobody;

    impl Namer for Nobody {
        fn functions(&mut self, _: &Place) -> Vec<Function> {
            Vec::new()
        }

        fn made(&mut self, _: &ProcessSummary, _: u64) -> Vec<Function> {
            Vec::new()
        }
    }

    fn note(kind: NoteKind, args: &[u64], text: &[u8]) -> Note {
        Note { thread: 0, time: 0, caller: 0, kind, args: args.to_vec(), text: text.to_vec() }
    }

    #[test]
    fn where_no_module_was_one_may_come_to_be_loaded() {
        let mut modules = Modules::default();
        let end = note(NoteKind::ModulesEnd, &[], b"");
        let module = |start: u64, path: &[u8]| {
            note(NoteKind::Module, &[0, start, start + 0x1000], &[&[0; 21][..], path].concat())
        };
        // A library that is in the list at 50 was loaded after the one at 20.
        for (index, note) in [
            (0, module(0x1000, b"exe")),
            (0, end.clone()),
            (20, module(0x1000, b"exe")),
            (20, end.clone()),
            (50, module(0x1000, b"exe")),
            (50, module(0x5000, b"late")),
            (50, end),
        ] {
            modules.note(index, &note);
        }
        let process = process(0, 1, 100);
        let changes = modules.changes();
        let own = Own { process: &process, modules: &modules, changes, stacks: Sites::default() };
        let mut gather = Gather {
            builder: Builder::default(),
            ask: &Ask::default(),
            namer: &mut Nobody,
            known: HashMap::new(),
            held: HashMap::new(),
            addresses: HashMap::new(),
            lines: HashMap::new(),
        };
        let mut label = |index: u64| {
            let (mut frames, passed) = (Vec::new(), 0);
            gather.address(&own, 0x5800, (passed, index), &mut frames);
            gather.builder.get(frames[0]).label().into_owned()
        };
        assert_eq!(modules.find_call(0x5800, 0), None, "what is early");
        assert_eq!([label(0), label(90), label(99)], ["0x5800", "late+0x5800", "late+0x5800"]);
    }

    #[test]
    fn a_stack_that_is_too_deep_keeps_both_its_ends() {
        assert_eq!(middle(DEEPEST), None);
        for deep in [DEEPEST + 1, 5000] {
            let mut frames: Vec<usize> = (0..deep).collect();
            let cut = middle(deep).unwrap();
            frames.splice(cut, [usize::MAX]);
            assert_eq!((frames.len(), frames[0]), (DEEPEST, 0));
            assert_eq!(frames[DEEPEST - OUTERMOST - 1], usize::MAX);
            assert_eq!(frames[DEEPEST - OUTERMOST..], (deep - OUTERMOST..deep).collect::<Vec<_>>());
        }
    }
}
