//! The call graph that people know from pprof: a box for each function, as large as its own bytes, and an arrow for each
//! call, as thick as the bytes behind it.
//!
//! The graph comes from [`heaptape_analyze::graph`]; it is written for Graphviz as [`dot`], or laid out and drawn as [`svg`] or
//! PDF here, so that no other program is needed. How large a drawing becomes is bounded, whatever the profile.

mod layout;
mod letters;
mod words;

pub mod dot;
#[cfg(feature = "pdf")]
pub mod pdf;
pub mod svg;

use heaptape_analyze::graph::{Graph, Plan};

use crate::Error;
use crate::stacks::Subject;

/// No more functions than these are shown.
const MOST_NODES: usize = 80;
/// No function with a smaller part of what is selected is.
const LEAST_NODE: f64 = 0.005;
/// No more calls than these are shown.
const MOST_EDGES: usize = 240;
/// No call with a smaller part of it is.
const LEAST_EDGE: f64 = 0.001;

/// The graph with what it is of.
struct Shown<'a> {
    subject: Subject<'a>,
    graph: Graph,
    /// What is 100 %.
    whole: u64,
}

impl<'a> Shown<'a> {
    fn of(subject: Subject<'a>) -> Result<Shown<'a>, Error> {
        let whole = subject.measure.weight(subject.whole);
        let plan = Plan {
            measure: subject.measure,
            most_nodes: MOST_NODES,
            least_node: LEAST_NODE,
            most_edges: MOST_EDGES,
            least_edge: LEAST_EDGE,
        };
        let graph = Graph::of(subject.profile, &plan);
        if graph.all == 0 {
            return Err(Error::Nothing { measured: subject.measured() });
        }
        Ok(Shown { subject, graph, whole })
    }

    /// A part of the whole, from 0 to 1.
    fn share(&self, weight: u64) -> f64 {
        if self.whole == 0 { 0.0 } else { (weight as f64 / self.whole as f64).min(1.0) }
    }

    /// The share of the largest among the functions' own, to which sizes are.
    fn size(&self, own: u64) -> f64 {
        let largest = self.graph.nodes.iter().map(|node| node.own).max().unwrap_or_default();
        if largest == 0 { 0.0 } else { (own as f64 / largest as f64).sqrt() }
    }
}

/// The colour of a share: from one end to the other.
fn shade(share: f64, (from, to): ([u8; 3], [u8; 3])) -> String {
    // Most shares are small; they must differ too.
    let share = share.clamp(0.0, 1.0).sqrt();
    let mix = |n: usize| {
        let (from, to) = (f64::from(from[n]), f64::from(to[n]));
        (from + (to - from) * share).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2))
}

/// From a light grey to a light red: what is written on it can be read.
const FILL: ([u8; 3], [u8; 3]) = ([0xf4, 0xf3, 0xef], [0xf7, 0xb5, 0x9f]);
/// From a grey to a red.
const STROKE: ([u8; 3], [u8; 3]) = ([0xa9, 0xa6, 0x9e], [0xbb, 0x36, 0x1d]);

#[cfg(test)]
mod tests;
