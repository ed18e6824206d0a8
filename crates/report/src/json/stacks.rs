//! `heaptape.tree/1` and `heaptape.sites/1`: call trees, and tables of who made what.
//!
//! The nodes of a tree stand in a row, each with the place of the one above it: trees are deeper than many readers of
//! JSON follow.

use std::io::{self, Write};

use heaptape_analyze::choice::Moment;
use heaptape_analyze::live::Caller;
use heaptape_analyze::profile::{Frame, FrameKind, FrameNumber, Metric, Profile};
use heaptape_analyze::ranking::{Row, Subject as Of};
use heaptape_analyze::sites::Deeds;
use heaptape_analyze::tree::{Folded, Node};
use serde::Serialize;

use super::document;
use super::parts::{LoadPart, ProcessName};
use crate::stacks::Subject;
use crate::{sites, text, tree};

#[derive(Serialize)]
struct Head<'a> {
    schema: &'static str,
    complete: bool,
    /// One, or none where it is of several.
    process: Option<ProcessName<'a>>,
    processes: usize,
    stacks: bool,
    metric: &'static str,
    at_index: Option<u64>,
    at_ms: Option<u64>,
    whole: LoadPart,
}

impl<'a> Head<'a> {
    fn of(schema: &'static str, subject: &Subject<'a>) -> Head<'a> {
        let process = match subject.processes {
            [process] => Some(ProcessName::of(process)),
            _ => None,
        };
        Head {
            schema,
            complete: subject.complete,
            process,
            processes: subject.processes.len(),
            stacks: subject.has_stacks,
            metric: match subject.measure.metric {
                Metric::Peak => "peak",
                Metric::End => "end",
                Metric::Moment => "at",
                Metric::Total if subject.measure.blocks => "count",
                Metric::Total => "total",
                Metric::Temporary => "temporary",
            },
            at_index: match subject.moment {
                Some(Moment::Index(index)) => Some(index),
                _ => None,
            },
            at_ms: match subject.moment {
                Some(Moment::Millis(time)) => Some(time),
                _ => None,
            },
            whole: subject.whole.into(),
        }
    }
}

/// A call on a stack.
#[derive(Serialize)]
pub(super) struct FramePart<'a> {
    name: String,
    kind: &'static str,
    function: Option<&'a str>,
    module: Option<&'a str>,
    offset: Option<u64>,
    file: Option<&'a str>,
    line: Option<u32>,
}

impl<'a> FramePart<'a> {
    pub(super) fn of(frame: &'a Frame) -> FramePart<'a> {
        let some = |text: &'a str| (!text.is_empty()).then_some(text);
        FramePart {
            name: text::named_frame(frame),
            kind: match frame.kind {
                FrameKind::Native => "native",
                FrameKind::Inlined => "inlined",
                FrameKind::Python => "python",
                FrameKind::Cut => "cut",
                FrameKind::Unknown => "unknown",
            },
            function: some(&frame.function),
            module: some(&frame.module),
            offset: (frame.kind != FrameKind::Python && frame.offset != 0).then_some(frame.offset),
            file: frame.file.as_deref(),
            line: frame.line,
        }
    }
}

/// The frames of a caller's stack, innermost first, where it has one.
pub(super) fn frames(caller: &Caller) -> Option<Vec<FramePart<'_>>> {
    caller.trace.as_ref().map(|trace| trace.frames.iter().map(FramePart::of).collect())
}

#[derive(Serialize)]
struct TreeDocument<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    reverse: bool,
    selected: LoadPart,
    folded: FoldedPart,
    nodes: Vec<NodePart<'a>>,
}

#[derive(Serialize)]
struct FoldedPart {
    nodes: u64,
    #[serde(flatten)]
    load: LoadPart,
}

impl From<Folded> for FoldedPart {
    fn from(folded: Folded) -> FoldedPart {
        FoldedPart { nodes: folded.nodes, load: folded.load.into() }
    }
}

#[derive(Serialize)]
struct NodePart<'a> {
    parent: Option<usize>,
    depth: usize,
    #[serde(flatten)]
    load: LoadPart,
    own: LoadPart,
    folded: FoldedPart,
    #[serde(flatten)]
    frame: Option<FramePart<'a>>,
}

/// Writes a tree.
pub fn tree(out: &mut impl Write, found: tree::Found<'_>) -> io::Result<()> {
    let profile = found.subject.profile;
    let node = |node: &Node| NodePart {
        parent: node.parent,
        depth: node.depth,
        load: node.all.into(),
        own: node.own.into(),
        folded: node.folded.into(),
        frame: frame(profile, node.frame),
    };
    document(
        out,
        &TreeDocument {
            head: Head::of("heaptape.tree/1", &found.subject),
            reverse: found.reverse,
            selected: found.tree.all.into(),
            folded: found.tree.folded.into(),
            nodes: found.tree.nodes.iter().map(node).collect(),
        },
    )
}

fn frame(profile: &Profile, number: FrameNumber) -> Option<FramePart<'_>> {
    profile.frames.get(number.0 as usize).map(FramePart::of)
}

#[derive(Serialize)]
struct SitesDocument<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    by: &'static str,
    rows_in_all: usize,
    rows: Vec<RowPart<'a>>,
}

#[derive(Serialize)]
struct RowPart<'a> {
    name: String,
    process: Option<u32>,
    thread: Option<u32>,
    rank: Option<u32>,
    #[serde(flatten)]
    deeds: DeedsPart,
    own: Option<DeedsPart>,
    /// Of a site: its frames, the innermost first.
    frames: Option<Vec<FramePart<'a>>>,
}

#[derive(Serialize)]
struct DeedsPart {
    peak: LoadPart,
    end: LoadPart,
    at: Option<LoadPart>,
    total: LoadPart,
    temporary: LoadPart,
}

impl DeedsPart {
    fn of(deeds: &Deeds, subject: &Subject<'_>) -> DeedsPart {
        DeedsPart {
            peak: deeds.at_peak.into(),
            end: deeds.left.into(),
            at: subject.moment.map(|_| Metric::Moment.of(deeds).into()),
            total: deeds.made.into(),
            temporary: deeds.temporary.into(),
        }
    }
}

/// Writes a table of who made what.
pub fn sites(out: &mut impl Write, found: sites::Found<'_>) -> io::Result<()> {
    document(
        out,
        &SitesDocument {
            head: Head::of("heaptape.sites/1", &found.subject),
            by: sites::what(found.by).0,
            rows_in_all: found.rows.len(),
            rows: found.shown().iter().map(|of| row(of, &found.subject)).collect(),
        },
    )
}

fn row<'a>(row: &Row, subject: &Subject<'a>) -> RowPart<'a> {
    let profile = subject.profile;
    let (process, thread, rank) = match row.subject {
        Of::Thread(process, thread) => (Some(process.0), Some(thread), None),
        Of::Process(process) => (Some(process.0), None, None),
        Of::Rank(rank) => (None, None, rank),
        _ => (None, None, None),
    };
    let frames = match row.subject {
        Of::Site(place) => profile
            .stacks
            .get(place)
            .map(|stack| profile.frames_of(stack).map(FramePart::of).collect()),
        Of::Caller(number) | Of::Function(number) => {
            Some(frame(profile, number).into_iter().collect())
        }
        _ => None,
    };
    RowPart {
        name: sites::name(&row.subject, subject),
        process,
        thread,
        rank,
        deeds: DeedsPart::of(&row.deeds, subject),
        own: row.own.as_ref().map(|own| DeedsPart::of(own, subject)),
        frames,
    }
}
