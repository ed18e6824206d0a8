//! `report --plot`: how much memory was used, as a picture of one tape or of several.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use heaptape_analyze::choice::{ProcessChoice, Window};
use heaptape_analyze::curves::{self, Figure, Source, Wish};
use heaptape_analyze::processes;
use heaptape_analyze::timeline::Axis;
use heaptape_report::plot::{self as report, Format, Picture};
use heaptape_tape::Tape;

use super::open;
use crate::args::PlotOptions;
use crate::output::check_other;
use crate::terminal::Terminal;

/// Draws the tapes into `out`.
pub(crate) fn run(
    files: &[PathBuf],
    process: ProcessChoice,
    out: &Path,
    options: &PlotOptions,
    terminal: &Terminal,
) -> Result<ExitCode> {
    let format = format(out)?;
    for file in files {
        check_other(out, file)?;
    }
    let tapes: Vec<Tape> =
        files.iter().map(|file| open::tape(file, terminal)).collect::<Result<_>>()?;
    let (axis, sources) = sources(files, &tapes, process, options)?;
    let wish = Wish { axis, window: options.range, columns: report::COLUMNS };
    let mut progress = terminal.progress(sources.iter().map(Source::events).sum(), false);
    let drawing = curves::draw(&sources, &wish, &mut |more| progress.events(more))
        .with_context(|| names(files))?;
    drop(progress);
    let named: Vec<report::Tape<'_>> = files
        .iter()
        .zip(&sources)
        .map(|(file, source)| report::Tape {
            file: file.display().to_string(),
            command: &source.tape.summary().header.command,
            processes: source.processes.clone(),
        })
        .collect();
    let figures = figures(options, files.len());
    let picture = Picture { tapes: &named, drawing: &drawing, figures: &figures, log: options.log };
    let bytes = report::draw(&picture, format)?;
    fs::write(out, bytes).with_context(|| format!("cannot write {}", out.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The kind of picture that a file's name asks for.
fn format(out: &Path) -> Result<Format> {
    let ending = out.extension().map(|ending| ending.to_ascii_lowercase());
    match ending.as_ref().and_then(|ending| ending.to_str()) {
        Some("svg") => Ok(Format::Svg),
        Some("png") => Ok(Format::Png),
        _ => bail!(
            "{} names no picture that can be drawn: it must end in .svg or .png",
            out.display()
        ),
    }
}

/// What the curves run over, and the processes of each tape.
fn sources<'a>(
    files: &[PathBuf],
    tapes: &'a [Tape],
    process: ProcessChoice,
    options: &PlotOptions,
) -> Result<(Axis, Vec<Source<'a>>)> {
    let mut sources = Vec::new();
    for (file, tape) in files.iter().zip(tapes) {
        let chosen = processes::all(tape.summary(), process);
        let processes = chosen.with_context(|| file.display().to_string())?;
        sources.push(Source { tape, processes });
    }
    let alone = matches!(sources.as_slice(), [source] if source.processes.len() <= 1);
    let axis = match (options.over, options.range) {
        (Some(over), _) => over.into(),
        (None, Some(Window::Millis(_))) => Axis::Time,
        (None, _) if alone => Axis::Index,
        _ => Axis::Time,
    };
    if axis == Axis::Index {
        // An index counts the calls of one process.
        for source in &mut sources {
            let most = source.processes.iter().rev().max_by_key(|p| p.events).copied();
            source.processes = most.into_iter().collect();
        }
    }
    Ok((axis, sources))
}

/// The curves that are wanted, each once.
fn figures(options: &PlotOptions, tapes: usize) -> Vec<Figure> {
    let wanted = |figure: &Figure| match options.curves.as_slice() {
        [] if tapes == 1 => true,
        [] => matches!(figure, Figure::Requested | Figure::Resident),
        named => named.contains(figure),
    };
    Figure::ALL.into_iter().filter(wanted).collect()
}

/// The files in a sentence.
fn names(files: &[PathBuf]) -> String {
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    names.join(", ")
}
