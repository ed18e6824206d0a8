//! Profiles for pprof: `profile.proto`, compressed with gzip.
//!
//! A sample has four values as heap profiles of other tools do: the objects and the bytes that were allocated, and those
//! in use, which are what lives at the moment that is asked for. Names, files, lines and inlined functions are in it, so
//! that the program is not needed to read it.

mod message;
mod tables;

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use heaptape_analyze::lives::Load;
use heaptape_analyze::profile::{Metric, Stack};
use prost::Message;

use crate::stacks::Subject;
use message::{Document, Label, Sample, ValueType};
use tables::{Strings, Tables};

/// What a stack's labels say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// The MPI rank, where it has one, and else the number of the process.
    pub process: bool,
    /// The number of the thread in its process.
    pub thread: bool,
}

/// Writes the profile.
pub fn write(out: &mut impl Write, subject: Subject<'_>, labels: Labels) -> io::Result<()> {
    let document = document(subject, labels);
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&document.encode_to_vec())?;
    gzip.finish()?;
    Ok(())
}

fn document(subject: Subject<'_>, labels: Labels) -> Document {
    let profile = subject.profile;
    let metrics = metrics(subject.measure.metric);
    let mut tables = Tables::default();
    if let Some(executable) = &profile.executable {
        tables.executable(executable);
    }
    let mut sample = Vec::new();
    for stack in &profile.stacks {
        let loads = metrics.iter().map(|&(_, metric)| metric.of(&stack.deeds));
        let value: Vec<i64> = loads.flat_map(values).collect();
        if value.iter().any(|&value| value != 0) {
            let location_id = tables.stack(&profile.frames, &stack.frames);
            let label = labels_of(stack, labels, &mut tables.strings);
            sample.push(Sample { location_id, value, label });
        }
    }
    tables.place();
    let strings = &mut tables.strings;
    let mut kind = |kind: &str, unit: &str| {
        let kind = strings.add(kind);
        ValueType { kind, unit: strings.add(unit) }
    };
    let sample_type = metrics
        .iter()
        .flat_map(|(name, _)| {
            [kind(&format!("{name}_objects"), "count"), kind(&format!("{name}_space"), "bytes")]
        })
        .collect();
    let period_type = Some(kind("space", "bytes"));
    let command = strings.add(&crate::text::command(&profile.command));
    let measured = strings.add(&format!("inuse: {}", in_use(subject)));
    let default_sample_type = strings.add(&shown(subject));
    Document {
        sample_type,
        sample,
        time_nanos: profile.started as i64,
        duration_nanos: profile.duration.saturating_mul(1_000_000).min(i64::MAX as u64) as i64,
        period_type,
        period: 1,
        comment: vec![command, measured],
        default_sample_type,
        mapping: tables.mappings,
        location: tables.locations,
        function: tables.functions,
        string_table: tables.strings.list,
    }
}

/// The figures of a sample under their names.
fn metrics(asked: Metric) -> Vec<(&'static str, Metric)> {
    let mut metrics = vec![("alloc", Metric::Total), ("inuse", live(asked))];
    if asked == Metric::Temporary {
        metrics.push(("temporary", Metric::Temporary));
    }
    metrics
}

/// What is in use is what lives when it is asked for, else at the peak.
fn live(asked: Metric) -> Metric {
    match asked {
        Metric::Total | Metric::Temporary => Metric::Peak,
        moment => moment,
    }
}

fn in_use(subject: Subject<'_>) -> String {
    let measure = subject.measure;
    let measure = heaptape_analyze::profile::Measure { metric: live(measure.metric), ..measure };
    Subject { measure, ..subject }.measured()
}

/// The name of the value that is shown when nothing else is asked for.
fn shown(subject: Subject<'_>) -> String {
    let name = match subject.measure.metric {
        Metric::Total => "alloc",
        Metric::Temporary => "temporary",
        _ => "inuse",
    };
    format!("{name}_{}", if subject.measure.blocks { "objects" } else { "space" })
}

fn values(load: Load) -> [i64; 2] {
    [load.blocks, load.bytes].map(|n| i64::try_from(n).unwrap_or(i64::MAX))
}

fn labels_of(stack: &Stack, labels: Labels, strings: &mut Strings) -> Vec<Label> {
    let mut found = Vec::new();
    // pprof reads `-tagfocus rank=0` as a range of numbers, which no text is in. The unit that it supposes is the key.
    let mut add = |key: &str, num: u32| {
        let key = strings.add(key);
        found.push(Label { key, num: i64::from(num), num_unit: key });
    };
    if labels.process {
        match stack.rank {
            Some(rank) => add("rank", rank),
            None => add("process", stack.process.0),
        }
    }
    if labels.thread {
        add("thread", stack.thread);
    }
    found
}

#[cfg(test)]
mod tests;
