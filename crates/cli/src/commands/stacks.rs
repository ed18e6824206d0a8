//! What the commands that show call stacks begin with: the stacks of a tape, named and selected.

use anyhow::{Context, Result};
use heaptape_analyze::callers::Callers;
use heaptape_analyze::choice::Moment;
use heaptape_analyze::gather::Ask;
use heaptape_analyze::lives::Load;
use heaptape_analyze::profile::{Frame, Measure, Profile, Wanted};
use heaptape_analyze::{ProcessSummary, moment, ranking};
use heaptape_report::stacks::Subject;
use heaptape_report::text;
use heaptape_tape::Tape;
use regex::Regex;

use super::live;
use crate::args::{Selection, Sysroot};
use crate::names::Names;
use crate::terminal::Terminal;

/// The stacks of chosen processes, those that were selected.
pub(super) struct Stacks<'a> {
    name: &'a str,
    tape: &'a Tape,
    pub(super) chosen: Vec<&'a ProcessSummary>,
    pub(super) profile: Profile,
    ask: Ask,
    measure: Measure,
    whole: Load,
    is_selected: bool,
}

/// Reads the stacks of a tape.
pub(super) fn read<'a>(
    name: &'a str,
    tape: &'a Tape,
    selection: &Selection,
    ask: Ask,
    measure: Measure,
    sysroot: &Sysroot,
    terminal: &Terminal,
) -> Result<Stacks<'a>> {
    let ask = Ask { raw: selection.raw_frames, ..ask };
    let context = || name.to_owned();
    let chosen = heaptape_analyze::processes::all(tape.summary(), selection.process)
        .with_context(context)?;
    if let Some(what) = ask.moment.map(|at| beyond(at, tape, &chosen)).transpose()?.flatten() {
        terminal.say(&format!("{name}: {what}."));
    }
    let mut names = Names::new(sysroot, tape)?;
    let mut profile = {
        let mut progress = terminal.progress(Profile::reads(&chosen), false);
        let mut callers = Callers::new(tape);
        Profile::of_tape(tape, &chosen, &mut callers, &ask, &mut names, &mut |more| {
            progress.events(more);
        })
    }
    .with_context(context)?;
    let whole = measure.metric.of(&profile.deeds());
    let (focus, ignore) = (selection.focus.as_ref(), selection.ignore.as_ref());
    let (wanted, unwanted) = (matching(focus), matching(ignore));
    profile.select(focus.map(|_| &wanted as &Wanted<'_>), ignore.map(|_| &unwanted as &Wanted<'_>));
    let is_selected = focus.is_some() || ignore.is_some();
    Ok(Stacks { name, tape, chosen, profile, ask, measure, whole, is_selected })
}

/// What there is of the processes, if the moment lies beyond all of them.
fn beyond(at: Moment, tape: &Tape, chosen: &[&ProcessSummary]) -> Result<Option<String>> {
    let mut last = None;
    for process in chosen {
        let Some(what) = live::beyond(at, tape, process)? else { return Ok(None) };
        let end = moment::last_time(tape, process)?;
        if last.as_ref().is_none_or(|(known, _)| end > *known) {
            last = Some((end, format!("{} {what}", text::process(process))));
        }
    }
    Ok(last.map(|(_, what)| what))
}

impl Stacks<'_> {
    /// What a view is of.
    pub(super) fn subject(&self) -> Subject<'_> {
        Subject {
            tape: self.name,
            complete: self.tape.summary().complete,
            processes: &self.chosen,
            has_stacks: self.chosen.iter().any(|process| process.sites.sites > 0),
            profile: &self.profile,
            measure: self.measure,
            moment: self.ask.moment,
            whole: self.whole,
            is_selected: self.is_selected,
        }
    }
}

/// Whether what is printed of a call matches: its function, module, file, file and line, or all of it.
fn matching(pattern: Option<&Regex>) -> impl Fn(&Frame) -> bool {
    move |frame| {
        let matches = |text: &str| pattern.is_some_and(|pattern| pattern.is_match(text));
        let source = || frame.source().is_some_and(|source| matches(&source));
        matches(&frame.label())
            || matches(&frame.module)
            || matches(&ranking::module(frame))
            || frame.file.as_deref().is_some_and(matches)
            || source()
            || matches(&text::named_frame(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptape_analyze::profile::FrameKind;

    #[test]
    fn a_call_is_selected_by_any_text_that_is_printed_of_it() {
        let (file, line) = (Some("/home/me/app.py".into()), Some(3));
        let python = Frame { kind: FrameKind::Python, file, line, ..Frame::named("load") };
        let (module, file) = ("/usr/bin/tool".into(), Some("/src/lib/tool.c".into()));
        let native = Frame { module, file, line, ..Frame::named("grow") };
        let matches = |pattern: &str, frame: &Frame| {
            matching(Some(&Regex::new(pattern).expect("a pattern")))(frame)
        };
        for pattern in ["^load$", "^/home/me/app.py$", "^app.py:3$", r"load \(app.py:3\)"] {
            assert!(matches(pattern, &python) && !matches(pattern, &native), "{pattern}");
        }
        for pattern in ["^grow$", "^/usr/bin/tool$", "/src/lib/", r"^grow \(tool.c:3\)$"] {
            assert!(matches(pattern, &native) && !matches(pattern, &python), "{pattern}");
        }
        assert!(!matching(None)(&native));
    }
}
