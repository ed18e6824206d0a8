//! `export --to` of what is made of call stacks: folded stacks, profiles for other tools, and pictures.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use heaptape_analyze::choice::ProcessChoice;
use heaptape_analyze::gather::Ask;
use heaptape_report::stacks::Subject;
use heaptape_report::{callgraph, firefox, flamegraph, folded, pprof, speedscope};

use crate::args::{Export, Format, Label};
use crate::commands::{open, stacks};
use crate::output::{Named, check_other};
use crate::terminal::Terminal;

/// What is written.
#[derive(Clone, Copy)]
enum Form {
    Folded,
    Flamegraph,
    Pprof(pprof::Labels),
    Speedscope,
    Firefox,
    Dot,
    Svg,
    Pdf,
}

/// Writes it to a file or to stdout.
pub(super) fn run(args: &Export, terminal: &Terminal) -> Result<ExitCode> {
    let form = Form::of(args)?;
    if let Some(path) = &args.output {
        check_other(path, &args.file)?;
    }
    let tape = open::tape(&args.file, terminal)?;
    let name = args.file.display().to_string();
    let labels = labels(args);
    let ask = Ask {
        moment: args.measured.moment(),
        processes: labels.process,
        threads: labels.thread,
        ..Ask::default()
    };
    let measure = args.measured.measure();
    let stacks =
        stacks::read(&name, &tape, &args.selection, ask, measure, &args.sysroot, terminal)?;
    let subject = stacks.subject();
    if let Some(why) = subject.no_stacks() {
        terminal.say(why);
    }
    check_selected(args, form, subject).with_context(|| name.clone())?;
    // A file that is there is lost once it is created: what can't be drawn must be known before.
    let picture = form.picture(subject).with_context(|| name.clone())?;
    match &args.output {
        None => write(form, subject, picture, terminal.out())?,
        Some(path) => {
            let name = path.display().to_string();
            let file = File::create(path).with_context(|| format!("cannot create {name}"))?;
            let out = BufWriter::with_capacity(1 << 16, Named::new(name, file));
            write(form, subject, picture, out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses a selection that nothing is in: a file of nothing would look like an answer.
fn check_selected(args: &Export, form: Form, subject: Subject<'_>) -> Result<()> {
    if subject.is_selected || args.selection.process != ProcessChoice::All {
        let is_any = !subject.profile.stacks.is_empty();
        ensure!(is_any, "nothing was selected (--focus, --ignore, --process)");
        let is_there = form.has_other_figures() || subject.is_any();
        ensure!(is_there, "nothing of what was selected was {}", subject.measured());
    }
    Ok(())
}

fn labels(args: &Export) -> pprof::Labels {
    let has = |label| args.label.contains(&label);
    pprof::Labels { process: has(Label::Rank), thread: has(Label::Thread) }
}

fn write(
    form: Form,
    subject: Subject<'_>,
    picture: Option<Vec<u8>>,
    mut out: impl Write,
) -> Result<()> {
    match (form, picture) {
        (_, Some(picture)) => out.write_all(&picture)?,
        (Form::Pprof(labels), None) => pprof::write(&mut out, subject, labels)?,
        (Form::Speedscope, None) => speedscope::write(&mut out, subject)?,
        (Form::Firefox, None) => firefox::write(&mut out, subject)?,
        (_, None) => folded::write(&mut out, subject)?,
    }
    out.flush()?;
    Ok(())
}

impl Form {
    fn of(args: &Export) -> Result<Form> {
        Ok(match args.to {
            Format::Flamegraph => Form::Flamegraph,
            Format::Pprof => Form::Pprof(labels(args)),
            Format::Speedscope => Form::Speedscope,
            Format::Firefox => Form::Firefox,
            Format::Dot => Form::Dot,
            Format::Callgraph => match &args.output {
                Some(path) => Form::drawn(path)?,
                None => Form::Svg,
            },
            Format::Folded | Format::Csv | Format::Parquet => Form::Folded,
        })
    }

    /// Whether more is in it than what is asked for is measured by.
    fn has_other_figures(self) -> bool {
        matches!(self, Form::Pprof(_) | Form::Speedscope)
    }

    /// The kind of a call graph by the ending of its file.
    fn drawn(path: &Path) -> Result<Form> {
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        match ending.as_ref().and_then(|ending| ending.to_str()) {
            Some("svg") => Ok(Form::Svg),
            Some("dot" | "gv") => Ok(Form::Dot),
            Some("pdf") if cfg!(feature = "pdf") => Ok(Form::Pdf),
            Some("pdf") => bail!("this heaptape was built without the feature pdf; .svg works"),
            _ => bail!(
                "{} names no call graph that can be drawn: it must end in .svg, .pdf or .dot",
                path.display()
            ),
        }
    }

    /// What is drawn as a whole, and is no large thing.
    fn picture(self, subject: Subject<'_>) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        match self {
            Form::Flamegraph => flamegraph::write(&mut bytes, subject)?,
            Form::Dot => callgraph::dot::write(&mut bytes, subject)?,
            Form::Svg => bytes = callgraph::svg::draw(subject)?.into_bytes(),
            #[cfg(feature = "pdf")]
            Form::Pdf => bytes = callgraph::pdf::draw(subject)?,
            _ => return Ok(None),
        }
        Ok(Some(bytes))
    }
}
