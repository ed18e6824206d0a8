//! What views of call stacks have in common: whose they are, and what they are measured by.

use heaptape_analyze::ProcessSummary;
use heaptape_analyze::choice::Moment;
use heaptape_analyze::live::{Caller, Trace};
use heaptape_analyze::lives::Load;
use heaptape_analyze::modules::Place;
use heaptape_analyze::profile::{Frame, FrameKind, Measure, Metric, Profile, Stack};

use crate::size::{Count, Millis, Size};
use crate::text;

/// What a view is of.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The tape's name.
    pub tape: &'a str,
    /// Whether the tape is complete.
    pub complete: bool,
    /// The processes.
    pub processes: &'a [&'a ProcessSummary],
    /// Whether the tape has whole stacks, and not callers only.
    pub has_stacks: bool,
    /// What was made, where.
    pub profile: &'a Profile,
    /// What the view is measured by.
    pub measure: Measure,
    /// The moment, where one was asked for.
    pub moment: Option<Moment>,
    /// What all stacks have of the measure, selected or not.
    pub whole: Load,
    /// Whether stacks were selected by their frames.
    pub is_selected: bool,
}

impl Subject<'_> {
    /// Who made it: the one process, or how many.
    pub fn who(&self) -> String {
        match self.processes {
            [process] => text::process(process),
            all => text::counted(all.len() as u64, "process", "processes"),
        }
    }

    /// The measure in words.
    pub fn measured(&self) -> String {
        match self.measure.metric {
            Metric::Peak => "live at the peak".to_owned(),
            Metric::End => "live at the end".to_owned(),
            Metric::Moment => match self.moment {
                Some(Moment::Index(index)) => format!("live after event {index}"),
                Some(Moment::Millis(time)) => format!("live at {}", Millis(time)),
                _ => "live then".to_owned(),
            },
            Metric::Total => "made in all".to_owned(),
            Metric::Temporary => {
                "made and freed again before the thread's next allocation".to_owned()
            }
        }
    }

    /// Whether a stack has something of the measure.
    pub fn is_any(&self) -> bool {
        self.stacks().next().is_some()
    }

    /// The first sentences: what there is, and how much of it was selected.
    pub(crate) fn head(&self, selected: Load) -> Vec<String> {
        let mut sentences = vec![format!(
            "{} of {}: {}.",
            sentence_case(&self.measured()),
            self.who(),
            amount(self.whole)
        )];
        if self.processes.len() > 1 && self.measure.metric == Metric::Peak {
            sentences.push(
                "The peak is the most that lived in all of them together. Each has its own most within the milliseconds \
                 of it, so that the sum may be a little more than ever lived at once."
                    .to_owned(),
            );
        }
        if self.is_selected {
            let measure = self.measure;
            let share = text::share(measure.weight(selected), measure.weight(self.whole));
            sentences.push(format!("Selected: {}, {share}.", amount(selected)));
        }
        sentences.extend(self.no_stacks().map(str::to_owned));
        sentences
    }

    /// Why there are no stacks, where there are none.
    pub fn no_stacks(&self) -> Option<&'static str> {
        (!self.has_stacks).then(|| no_stacks(self.processes))
    }

    /// The stacks that have something of the measure, with that.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = (&Stack, u64)> {
        let measure = self.measure;
        let weight = move |stack: &Stack| measure.weight(measure.metric.of(&stack.deeds));
        let stacks = self.profile.stacks.iter().map(move |stack| (stack, weight(stack)));
        stacks.filter(|(_, weight)| *weight > 0)
    }

    /// A part of the measure, in its unit.
    pub(crate) fn figure(&self, load: Load) -> String {
        if self.measure.blocks {
            Count(load.blocks).to_string()
        } else {
            Size(load.bytes).to_string()
        }
    }
}

/// Why there are no stacks of these processes.
pub fn no_stacks(processes: &[&ProcessSummary]) -> &'static str {
    if processes.iter().all(|process| process.events == 0) {
        // Nor would there be any if they had been asked for.
        return "No allocations were recorded.";
    }
    "The tape has callers and no stacks: heaptape record --stacks takes them down."
}

/// Frames beyond the first that are shown where stacks are but one thing that is told.
const FEW: usize = 5;

/// A caller for a column that is `width` wide; with its stack the innermost call that is known.
pub(crate) fn caller(caller: &Caller, width: usize) -> String {
    let innermost = caller.trace.as_ref().and_then(|trace| trace.frames.first());
    match innermost {
        Some(frame) => text::short_frame(&text::named_frame(frame), width),
        None => text::short_caller(caller.place.as_ref(), caller.address, width),
    }
}

/// The calls behind the first of a stack, which [`caller`] has shown, a line each: a few, or all.
pub(crate) fn below(trace: &Trace, whole: bool, width: usize) -> Vec<String> {
    lines(trace.frames.iter().skip(1), if whole { usize::MAX } else { FEW }, width)
}

/// The calls below a return address that was shown. A line of a script and an inlined function are no more than called
/// from there: only a stack that begins with the address itself is shown without its first.
pub(crate) fn below_address(
    trace: &Trace,
    place: Option<&Place>,
    address: u64,
    whole: bool,
) -> Vec<String> {
    let is_shown = trace.frames.first().is_some_and(|frame| is_at(frame, place, address));
    let frames = trace.frames.iter().skip(usize::from(is_shown));
    lines(frames, if whole { usize::MAX } else { FEW }, usize::MAX)
}

/// Whether a frame is the function at this return address, and none that was put into it.
fn is_at(frame: &Frame, place: Option<&Place>, address: u64) -> bool {
    let (module, offset) = place.map_or(("", address), |p| (p.module.path.as_str(), p.offset));
    matches!(frame.kind, FrameKind::Native | FrameKind::Unknown)
        && *frame.module == *module
        && frame.offset == offset
}

/// Frames, a line each; no more than `most`, and then how many more there are.
pub(crate) fn lines<'a>(
    mut frames: impl Iterator<Item = &'a Frame>,
    most: usize,
    width: usize,
) -> Vec<String> {
    let line = |frame| text::short_frame(&text::named_frame(frame), width);
    let mut lines: Vec<String> = frames.by_ref().take(most).map(line).collect();
    let rest = frames.count() as u64;
    if rest > 0 {
        lines.push(format!("… {} (--stacks)", text::counted(rest, "more call", "more calls")));
    }
    lines
}

fn amount(load: Load) -> String {
    format!("{} in {}", Size(load.bytes), text::counted(load.blocks, "block", "blocks"))
}

fn sentence_case(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptape_analyze::modules::Module;
    use heaptape_analyze::stack;
    use heaptape_analyze::{ProcessNumber, SiteEnd};
    use std::sync::Arc;

    /// What stands below the caller at 0x24 of a program, on a stack of these frames.
    fn below_it(frames: Vec<Frame>) -> Vec<String> {
        let module =
            Module { path: "/bin/app".into(), build_id: Vec::new(), bias: 0, start: 0, end: 99 };
        let place = Place { offset: 0x24, module: Arc::new(module), function: None };
        let stack = stack::Stack { frames: Vec::new(), end: SiteEnd::Outermost };
        let trace = Trace { process: ProcessNumber(0), stack, frames };
        below_address(&trace, Some(&place), 0x5024, true)
    }

    #[test]
    fn only_the_caller_that_was_shown_is_left_out_below_it() {
        let at = |function, kind, offset| {
            let named = Frame::named(function);
            Frame { kind, module: "/bin/app".into(), offset, ..named }
        };
        let main = || at("main", FrameKind::Native, 0x24);
        let start = || at("start", FrameKind::Native, 0x90);
        assert_eq!(below_it(vec![main(), start()]), ["start (app+0x90)"]);
        let inlined = at("allocate", FrameKind::Inlined, 0x24);
        assert_eq!(
            below_it(vec![inlined, main(), start()]),
            ["allocate (app+0x24, inlined)", "main (app+0x24)", "start (app+0x90)"]
        );
        let (file, line) = (Some("/home/app.py".into()), Some(3));
        let load = Frame { kind: FrameKind::Python, file, line, ..Frame::named("load") };
        assert_eq!(below_it(vec![load, start()]), ["load (app.py:3)", "start (app+0x90)"]);
        assert_eq!(below_it(Vec::new()), Vec::<String>::new());
    }
}

/// Stacks whose figures are known, for the tests of all that is made of them.
#[cfg(test)]
pub(crate) mod sample {
    use super::*;
    use std::collections::HashSet;

    /// A small service: main makes 100 MiB, test1 as well, test2 twice as much.
    pub(crate) const SERVICE: &str = "
        main;malloc_wrapper 104857600
        main;test1;malloc_wrapper 104857600
        main;test2;malloc_wrapper 104857600
        main;test2;malloc_wrapper 104857600
    ";

    /// What lives at the peak.
    pub(crate) fn subject(profile: &Profile) -> Subject<'_> {
        let measure = Measure { metric: Metric::Peak, blocks: false };
        Subject {
            tape: "service.tape",
            complete: true,
            processes: &[],
            has_stacks: true,
            profile,
            measure,
            moment: None,
            whole: profile.deeds().at_peak,
            is_selected: false,
        }
    }

    /// Holds that stacks of the service, from the outermost frame, have the shares that they must.
    pub(crate) fn shares(stacks: impl Iterator<Item = (Vec<String>, u64)>) {
        let stacks: Vec<(Vec<String>, u64)> = stacks.collect();
        let all: u64 = stacks.iter().map(|(_, weight)| weight).sum();
        let share = |name: &str| {
            let has = |stack: &[String]| {
                stack.iter().map(String::as_str).collect::<HashSet<_>>().contains(name)
            };
            let part: u64 = stacks.iter().filter(|(s, _)| has(s)).map(|(_, weight)| weight).sum();
            part * 100 / all
        };
        assert_eq!(all, 400 << 20);
        let shares = ["main", "test1", "test2", "malloc_wrapper"].map(share);
        assert_eq!(shares, [100, 25, 50, 100]);
        let own: u64 = stacks.iter().filter(|(s, _)| s.len() == 2).map(|(_, weight)| weight).sum();
        assert_eq!(own * 100 / all, 25);
    }
}
