//! Call graphs: each function once, with what was made in it and below it, and who calls whom for how much.
//!
//! The stacks come from a [`Profile`]. A function counts once for a stack, however often it is on it, and so does a call
//! from one function to another. Only the largest functions and calls are kept; where a kept function reaches another one
//! only through some that are not, the edge between them is a residual one.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use crate::profile::{FrameKind, FrameNumber, Measure, Profile, Stack};
use crate::tree::{self, Functions, Grain};

/// What is asked of a graph.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What it is measured by.
    pub measure: Measure,
    /// No more functions than these are kept.
    pub most_nodes: usize,
    /// Functions with a smaller part of what the stacks have are folded; if all are, a few of them stay.
    pub least_node: f64,
    /// No more edges than these are kept.
    pub most_edges: usize,
    /// Edges with a smaller part of it are left out.
    pub least_edge: f64,
}

/// So many functions are kept, where all of them are little.
const FEW: usize = 10;

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The first frame of the function that was found.
    pub frame: FrameNumber,
    /// What stacks made that end in it.
    pub own: u64,
    /// What stacks made that it is on.
    pub all: u64,
}

/// Calls of one function by another, by their places among the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Who calls.
    pub from: usize,
    /// Who is called, which is another one.
    pub to: usize,
    /// What stacks made that have the call.
    pub weight: u64,
    /// Whether it leads, for the most part, through functions that are folded.
    pub is_residual: bool,
}

/// A graph of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// The functions, the largest first; of equals those that leave more to others.
    pub nodes: Vec<Node>,
    /// The calls between them, the largest first.
    pub edges: Vec<Edge>,
    /// How many functions are folded.
    pub folded: u64,
    /// What stacks made that end in those.
    pub folded_own: u64,
    /// How many calls between kept functions are left out.
    pub left_out: u64,
    /// What all stacks made.
    pub all: u64,
}

impl Graph {
    /// The graph of these stacks.
    pub fn of(profile: &Profile, plan: &Plan) -> Graph {
        let calls = Calls { profile, plan, functions: Functions::of(profile, Grain::Function) };
        let sums = calls.sums();
        let (kept, nodes) = calls.nodes(&sums);
        let mut graph = Graph { nodes, all: sums.all, ..Graph::default() };
        graph.folded = sums.met - graph.nodes.len() as u64;
        let own = graph.nodes.iter().map(|node| node.own).fold(0, u64::saturating_add);
        graph.folded_own = sums.all.saturating_sub(own);
        let mut edges = calls.edges(&kept);
        let found = edges.len();
        let least = tree::least(graph.all, plan.least_edge);
        edges.retain(|edge| edge.weight >= least);
        edges.sort_by_key(|edge| (Reverse(edge.weight), edge.from, edge.to));
        edges.truncate(plan.most_edges);
        graph.left_out = (found - edges.len()) as u64;
        graph.edges = edges;
        graph.drop_redundant();
        graph
    }

    /// Leaves out residual edges whose end is reached by others too: they tell nothing new.
    fn drop_redundant(&mut self) {
        let mut place = self.edges.len();
        while place > 0 {
            place -= 1;
            let edge = self.edges[place];
            if edge.is_residual && self.is_reached(edge.from, edge.to, place) {
                self.edges.remove(place);
            }
        }
    }

    /// Whether there is a way from a node to another one without a certain edge.
    fn is_reached(&self, from: usize, to: usize, without: usize) -> bool {
        let mut is_met = vec![false; self.nodes.len()];
        let mut ahead = vec![from];
        while let Some(node) = ahead.pop() {
            for (place, edge) in self.edges.iter().enumerate() {
                if edge.from == node && place != without && !is_met[edge.to] {
                    is_met[edge.to] = true;
                    ahead.push(edge.to);
                }
            }
        }
        is_met.get(to) == Some(&true)
    }
}

/// The sums of all functions, by their numbers.
struct Sums {
    own: Vec<u64>,
    all_of: Vec<u64>,
    callers: Vec<u32>,
    callees: Vec<u32>,
    all: u64,
    /// How many functions are on stacks that made something.
    met: u64,
}

/// A call under way to be an edge.
#[derive(Default)]
struct Weighed {
    /// The last stack that had it, counted from 1.
    last: usize,
    direct: u64,
    residual: u64,
}

struct Calls<'a> {
    profile: &'a Profile,
    plan: &'a Plan,
    functions: Functions,
}

impl Calls<'_> {
    /// The stacks that have something of the measure, with a number from 1 and with that.
    fn stacks(&self) -> impl Iterator<Item = (usize, &Stack, u64)> {
        let measure = self.plan.measure;
        let stacks = (1..).zip(&self.profile.stacks);
        let weighed = stacks.map(move |(number, stack)| {
            (number, stack, measure.weight(measure.metric.of(&stack.deeds)))
        });
        weighed.filter(|(_, _, weight)| *weight > 0)
    }

    /// The functions of a stack, from the outermost. That a stack was cut is none.
    fn path(&self, stack: &Stack) -> impl Iterator<Item = usize> {
        let frames = &self.profile.frames;
        let is_call = |number: &FrameNumber| {
            frames.get(number.0 as usize).is_some_and(|frame| frame.kind != FrameKind::Cut)
        };
        let calls = stack.frames.iter().rev().copied().filter(is_call);
        calls.map(|frame| self.functions.of_frame(frame) as usize)
    }

    fn sums(&self) -> Sums {
        let count = self.functions.first.len();
        let (callers, callees) = (vec![0; count], vec![0; count]);
        let (own, all_of) = (vec![0u64; count], vec![0u64; count]);
        let mut sums = Sums { own, all_of, callers, callees, all: 0, met: 0 };
        let mut last = vec![0; count];
        let mut known = HashSet::new();
        for (number, stack, weight) in self.stacks() {
            sums.all = sums.all.saturating_add(weight);
            let mut caller = None;
            for function in self.path(stack) {
                if last[function] != number {
                    sums.met += u64::from(last[function] == 0);
                    last[function] = number;
                    sums.all_of[function] = sums.all_of[function].saturating_add(weight);
                }
                if let Some(caller) = caller.filter(|&caller| caller != function)
                    && known.insert((caller, function))
                {
                    sums.callees[caller] += 1;
                    sums.callers[function] += 1;
                }
                caller = Some(function);
            }
            if let Some(innermost) = caller {
                sums.own[innermost] = sums.own[innermost].saturating_add(weight);
            }
        }
        sums
    }

    /// The functions to keep: their place among the nodes by their number, and the nodes.
    fn nodes(&self, sums: &Sums) -> (Vec<Option<usize>>, Vec<Node>) {
        let least = tree::least(sums.all, self.plan.least_node);
        let mut chosen: Vec<usize> =
            (0..sums.own.len()).filter(|&function| sums.all_of[function] >= least).collect();
        let is_little = chosen.is_empty();
        if is_little {
            chosen = (0..sums.own.len()).filter(|&function| sums.all_of[function] > 0).collect();
        }
        let most = if is_little { self.plan.most_nodes.min(FEW) } else { self.plan.most_nodes };
        // Of what only hands a call on little is learnt.
        let worth = |function: usize| {
            let hands_on = sums.own[function] == 0
                && sums.callers[function] <= 1
                && sums.callees[function] <= 1;
            if hands_on { sums.all_of[function] / 8 } else { sums.all_of[function] }
        };
        if chosen.len() > most {
            chosen.sort_by_key(|&function| (Reverse(worth(function)), function));
            chosen.truncate(most);
        }
        chosen.sort_by_key(|&function| {
            (Reverse(sums.all_of[function]), sums.own[function], function)
        });
        let mut kept = vec![None; sums.own.len()];
        let nodes = chosen.iter().enumerate().map(|(place, &function)| {
            kept[function] = Some(place);
            Node {
                frame: self.functions.first[function],
                own: sums.own[function],
                all: sums.all_of[function],
            }
        });
        let nodes = nodes.collect();
        (kept, nodes)
    }

    fn edges(&self, kept: &[Option<usize>]) -> Vec<Edge> {
        let mut weighed: HashMap<(usize, usize), Weighed> = HashMap::new();
        for (number, stack, weight) in self.stacks() {
            let (mut caller, mut is_residual) = (None, false);
            for function in self.path(stack) {
                let Some(node) = kept.get(function).copied().flatten() else {
                    is_residual = true;
                    continue;
                };
                if let Some(from) = caller.filter(|&from| from != node) {
                    let edge = weighed.entry((from, node)).or_default();
                    if edge.last != number {
                        edge.last = number;
                        let sum = if is_residual { &mut edge.residual } else { &mut edge.direct };
                        *sum = sum.saturating_add(weight);
                    }
                }
                (caller, is_residual) = (Some(node), false);
            }
        }
        let edge = |((from, to), Weighed { direct, residual, .. })| Edge {
            from,
            to,
            weight: u64::saturating_add(direct, residual),
            is_residual: residual > direct,
        };
        weighed.into_iter().map(edge).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Metric;

    const PLAN: Plan = Plan {
        measure: Measure { metric: Metric::Total, blocks: false },
        most_nodes: usize::MAX,
        least_node: 0.0,
        most_edges: usize::MAX,
        least_edge: 0.0,
    };

    /// The graph of folded stacks: its nodes as `name all own`, its edges as `from>to weight`, residual ones with `..>`.
    fn graph(text: &str, plan: Plan) -> (Graph, Vec<String>, Vec<String>) {
        let profile: Profile = text.parse().unwrap();
        let graph = Graph::of(&profile, &plan);
        let name = |node: &Node| profile.frames[node.frame.0 as usize].label().into_owned();
        let nodes = graph.nodes.iter().map(|n| format!("{} {} {}", name(n), n.all, n.own));
        let edges = graph.edges.iter().map(|e| {
            let arrow = if e.is_residual { "..>" } else { ">" };
            let (from, to) = (name(&graph.nodes[e.from]), name(&graph.nodes[e.to]));
            format!("{from}{arrow}{to} {}", e.weight)
        });
        let (nodes, edges) = (nodes.collect(), edges.collect());
        (graph, nodes, edges)
    }

    #[test]
    fn functions_have_their_own_and_what_is_below() {
        let text =
            "main 100\nmain;test1;wrapper 100\nmain;test2;wrapper 150\nmain;test2;wrapper 50";
        let (graph, nodes, edges) = graph(text, PLAN);
        assert_eq!(nodes, ["main 400 100", "wrapper 300 300", "test2 200 0", "test1 100 0"]);
        assert_eq!(
            edges,
            ["main>test2 200", "test2>wrapper 200", "main>test1 100", "test1>wrapper 100"]
        );
        assert_eq!((graph.all, graph.folded, graph.folded_own, graph.left_out), (400, 0, 0, 0));
    }

    #[test]
    fn a_recursion_counts_once_for_a_stack() {
        let (_, nodes, edges) = graph("a;b;a;b;a;a 10\na;b 5", PLAN);
        assert_eq!(nodes, ["b 15 5", "a 15 10"]);
        assert_eq!(edges, ["a>b 15", "b>a 10"]);
    }

    #[test]
    fn folded_functions_leave_residual_edges_and_are_told() {
        let text = "a;b;c 60\na;x;c 30\na;x;y 10\na 5";
        let plan = Plan { least_node: 0.5, ..PLAN };
        let (folded, nodes, edges) = graph(text, plan);
        assert_eq!(nodes, ["a 105 5", "c 90 90", "b 60 0"]);
        // Of a and c, what goes by x alone is told by the edges through b.
        assert_eq!(edges, ["a>b 60", "b>c 60"]);
        assert_eq!((folded.folded, folded.folded_own), (2, 10));
        let (_, _, edges) = graph(text, Plan { least_node: 0.8, ..PLAN });
        assert_eq!(edges, ["a..>c 90"]);
    }

    #[test]
    fn where_all_functions_are_little_the_largest_are_kept() {
        let mut text = String::new();
        for n in 0..1000 {
            text += &format!("f{n} {}\n", 1000 + n);
        }
        let (little, nodes, _) = graph(&text, Plan { least_node: 0.005, ..PLAN });
        assert_eq!((nodes.len(), little.folded), (FEW, 990));
        assert_eq!(nodes[0], "f999 1999 1999");
    }

    #[test]
    fn what_only_hands_on_is_folded_before_others() {
        let plan = Plan { most_nodes: 3, ..PLAN };
        let (_, nodes, _) = graph("a;b;c;d;e;f 90\na;b;c;d;e;g 20", plan);
        assert_eq!(nodes, ["e 110 0", "f 90 90", "g 20 20"]);
    }

    #[test]
    fn where_stacks_were_cut_is_no_function() {
        let mut profile: Profile = "cut;a 5".parse().unwrap();
        profile.frames[1].kind = FrameKind::Cut;
        let graph = Graph::of(&profile, &PLAN);
        assert_eq!((graph.nodes.len(), graph.edges.len(), graph.folded), (1, 0, 0));
    }

    #[test]
    fn little_edges_are_left_out_and_told() {
        let text = "a;b 997\na;c;b 3";
        let (graph, _, edges) = graph(text, Plan { least_edge: 0.01, ..PLAN });
        assert_eq!((edges, graph.left_out), (vec!["a>b 997".to_owned()], 2));
    }
}
