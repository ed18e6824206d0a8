//! Call trees: what was made below each call, and by itself, from the outermost calls inwards or the other way round.
//!
//! The stacks of a profile are put in order by their functions, so that every node of the tree is a range of them, and
//! only nodes that are to be shown are made, the largest first: the work room is that of the stacks' order,
//! however deep or many they are. What is not shown is added up where it hangs.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

use crate::lives::Load;
use crate::profile::{Frame, FrameKind, FrameNumber, Measure, Profile, Stack};

/// What is asked of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What its nodes are measured by.
    pub measure: Measure,
    /// Whether it begins with the innermost calls, and goes on to who called them.
    pub reverse: bool,
    /// What is one node.
    pub grain: Grain,
    /// Nodes with a smaller part of what the stacks have are folded; if all at the top are, a few of them stay.
    pub least: f64,
    /// Nodes deeper than this are folded.
    pub depth: usize,
    /// No more nodes than these, the largest, are shown.
    pub most: usize,
}

/// Nodes that are not shown, with all below them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// How many.
    pub nodes: u64,
    /// What was made there.
    pub load: Load,
}

impl Folded {
    fn add(&mut self, all: Load) {
        self.nodes += 1;
        self.load.join(all);
    }
}

/// A call, in one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The first frame of the function that was found.
    pub frame: FrameNumber,
    /// The place of the node above among the nodes; `None` at the top.
    pub parent: Option<usize>,
    /// How many nodes are above.
    pub depth: usize,
    /// What was made here and below.
    pub all: Load,
    /// What stacks made that end here.
    pub own: Load,
    /// Nodes right below that are not shown.
    pub folded: Folded,
}

/// A tree of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Each node after the one that it hangs on, the largest of those on one first.
    pub nodes: Vec<Node>,
    /// Nodes at the top that are not shown.
    pub folded: Folded,
    /// What all stacks made that it is of.
    pub all: Load,
}

/// The least weight of what is to be kept of a whole; nothing at all never is.
pub(crate) fn least(whole: u64, part: f64) -> u64 {
    ((whole as f64 * part).ceil() as u64).max(1)
}

/// So many nodes at the top are shown, where all of them are little.
const FEW: usize = 10;

/// A node that may come to be shown.
struct Candidate {
    node: Node,
    range: Range<usize>,
}

/// By weight; of equals the one that was found first is the largest.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Order(u64, Reverse<usize>);

impl Tree {
    /// The tree of these stacks.
    pub fn of(profile: &Profile, plan: &Plan) -> Tree {
        let mut growing = Growing::new(profile, plan);
        let mut tree = Tree::default();
        tree.all = growing.children(None, 0..growing.order.len(), &mut tree.folded).all;
        growing.fold_tops(tree.all, &mut tree.folded);
        while tree.nodes.len() < plan.most {
            let Some(Order(_, Reverse(place))) = growing.heap.pop() else { break };
            let Some(Candidate { mut node, range }) = growing.waiting[place].take() else {
                continue;
            };
            let number = tree.nodes.len();
            node.own = growing.children(Some((number, node.depth)), range, &mut node.folded).own;
            tree.nodes.push(node);
        }
        for Candidate { node, .. } in growing.waiting.into_iter().flatten() {
            let folded = match node.parent {
                Some(parent) => &mut tree.nodes[parent].folded,
                None => &mut tree.folded,
            };
            folded.add(node.all);
        }
        tree.put_in_order();
        tree
    }

    /// From the order in which nodes were found, which is by weight, to each below its parent.
    fn put_in_order(&mut self) {
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        let mut tops = Vec::new();
        for (place, node) in self.nodes.iter().enumerate() {
            node.parent.map_or(&mut tops, |parent| &mut below[parent]).push(place);
        }
        let mut ahead: Vec<(usize, Option<usize>)> =
            tops.iter().rev().map(|&top| (top, None)).collect();
        let mut nodes = Vec::with_capacity(self.nodes.len());
        while let Some((place, parent)) = ahead.pop() {
            ahead.extend(below[place].iter().rev().map(|&child| (child, Some(nodes.len()))));
            nodes.push(Node { parent, ..self.nodes[place].clone() });
        }
        self.nodes = nodes;
    }
}

/// The sums of a range: all of it, and what stacks made that end there.
struct Sums {
    all: Load,
    own: Load,
}

/// A tree under way.
struct Growing<'a> {
    profile: &'a Profile,
    plan: &'a Plan,
    functions: Functions,
    /// The stacks that have something, in order of their functions.
    order: Vec<u32>,
    /// What nodes have at least that are not folded: at the top, that is told only when all are known.
    least: u64,
    waiting: Vec<Option<Candidate>>,
    heap: BinaryHeap<Order>,
}

impl<'a> Growing<'a> {
    fn new(profile: &'a Profile, plan: &'a Plan) -> Growing<'a> {
        let functions = Functions::of(profile, plan.grain);
        let mut order: Vec<u32> = (0..profile.stacks.len() as u32).collect();
        let measure = plan.measure;
        order.retain(|&n| measure.weight(measure.metric.of(&profile.stacks[n as usize].deeds)) > 0);
        let mut growing = Growing {
            profile,
            plan,
            functions,
            order: Vec::new(),
            least: 1,
            waiting: Vec::new(),
            heap: BinaryHeap::new(),
        };
        order.sort_unstable_by(|&a, &b| growing.compare(a, b));
        growing.order = order;
        growing
    }

    fn compare(&self, a: u32, b: u32) -> Ordering {
        let (one, two) = (&self.profile.stacks[a as usize], &self.profile.stacks[b as usize]);
        let function = |&frame: &FrameNumber| self.functions.of_frame(frame);
        let order = if self.plan.reverse {
            one.frames.iter().map(function).cmp(two.frames.iter().map(function))
        } else {
            one.frames.iter().rev().map(function).cmp(two.frames.iter().rev().map(function))
        };
        order.then(a.cmp(&b))
    }

    /// The frame so far from where the tree begins.
    fn at(&self, stack: &Stack, depth: usize) -> Option<FrameNumber> {
        let frames = &stack.frames;
        let place = if self.plan.reverse { depth } else { frames.len().checked_sub(depth + 1)? };
        frames.get(place).copied()
    }

    /// Finds what hangs on a node (none: at the top), of which its place and depth are told; gives the node's sums.
    fn children(
        &mut self,
        parent: Option<(usize, usize)>,
        range: Range<usize>,
        folded: &mut Folded,
    ) -> Sums {
        let depth = parent.map_or(0, |(_, depth)| depth + 1);
        let mut sums = Sums { all: Load::default(), own: Load::default() };
        let mut current: Option<(u32, Candidate)> = None;
        for place in range {
            let stack = &self.profile.stacks[self.order[place] as usize];
            let load = self.plan.measure.metric.of(&stack.deeds);
            sums.all.join(load);
            let Some(frame) = self.at(stack, depth) else {
                sums.own.join(load);
                continue;
            };
            let function = self.functions.of_frame(frame);
            match &mut current {
                Some((same, candidate)) if *same == function => {
                    candidate.node.all.join(load);
                    candidate.range.end = place + 1;
                }
                _ => {
                    let node = Node {
                        frame: self.functions.first[function as usize],
                        parent: parent.map(|(place, _)| place),
                        depth,
                        all: load,
                        own: Load::default(),
                        folded: Folded::default(),
                    };
                    let new = Candidate { node, range: place..place + 1 };
                    let before = current.replace((function, new));
                    self.wait(before, folded);
                }
            }
        }
        self.wait(current, folded);
        sums
    }

    /// Folds what is little at the top. Where all of it is, a few stay, and what is as large as they are below them.
    fn fold_tops(&mut self, all: Load, folded: &mut Folded) {
        self.least = least(self.plan.measure.weight(all), self.plan.least);
        let mut tops = std::mem::take(&mut self.heap).into_sorted_vec();
        tops.reverse();
        let mut kept = tops.partition_point(|Order(weight, _)| *weight >= self.least);
        if kept == 0 {
            kept = tops.len().min(FEW);
            self.least = tops[..kept].last().map_or(self.least, |Order(weight, _)| *weight);
        }
        for Order(_, Reverse(place)) in tops.drain(kept..) {
            if let Some(Candidate { node, .. }) = self.waiting[place].take() {
                folded.add(node.all);
            }
        }
        self.heap = tops.into();
    }

    /// Puts a candidate with the others, unless it is to be folded.
    fn wait(&mut self, candidate: Option<(u32, Candidate)>, folded: &mut Folded) {
        let Some((_, candidate)) = candidate else { return };
        let weight = self.plan.measure.weight(candidate.node.all);
        if weight < self.least || candidate.node.depth >= self.plan.depth {
            folded.add(candidate.node.all);
            return;
        }
        self.heap.push(Order(weight, Reverse(self.waiting.len())));
        self.waiting.push(Some(candidate));
    }
}

/// What frames have in common that are taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// The function.
    Function,
    /// The function, but of Python the line: a function there may be a whole program.
    PythonLine,
    /// The line.
    Line,
    /// The line, and the address where no line is known.
    Place,
}

/// Which frames are the same function.
pub struct Functions {
    /// By the frame's number.
    of: Vec<u32>,
    /// The first frame of each.
    pub first: Vec<FrameNumber>,
}

/// What makes a function, and no other.
#[derive(PartialEq, Eq, Hash)]
pub(crate) enum Identity<'a> {
    Named { is_python: bool, name: &'a str, place: &'a str, line: Option<Line<'a>> },
    Unnamed { kind: FrameKind, module: &'a str, offset: u64 },
}

/// The source file, the line in it, and the offset where that tells more.
type Line<'a> = (&'a str, Option<u32>, u64);

impl<'a> Identity<'a> {
    pub(crate) fn of(frame: &'a Frame, grain: Grain) -> Identity<'a> {
        let Frame { kind, module, offset, .. } = frame;
        if frame.function.is_empty() {
            return Identity::Unnamed { kind: *kind, module, offset: *offset };
        }
        let file = frame.file.as_deref().unwrap_or_default();
        let is_python = *kind == FrameKind::Python;
        let has_line = match grain {
            Grain::Function => false,
            Grain::PythonLine => is_python,
            Grain::Line | Grain::Place => true,
        };
        let is_nowhere = grain == Grain::Place && frame.line.is_none();
        let offset = if is_nowhere { frame.offset } else { 0 };
        Identity::Named {
            is_python,
            name: &frame.function,
            // Every file of Python may have its own `main`.
            place: if is_python { file } else { module },
            line: has_line.then_some((file, frame.line, offset)),
        }
    }
}

impl Functions {
    /// Those of a profile, or each line of them.
    pub fn of(profile: &Profile, grain: Grain) -> Functions {
        let mut known: HashMap<Identity<'_>, u32> = HashMap::new();
        let (mut of, mut first) = (Vec::with_capacity(profile.frames.len()), Vec::new());
        for (number, frame) in (0..).zip(&profile.frames) {
            let function = *known.entry(Identity::of(frame, grain)).or_insert_with(|| {
                first.push(FrameNumber(number));
                first.len() as u32 - 1
            });
            of.push(function);
        }
        Functions { of, first }
    }

    /// The function of a frame.
    #[inline]
    pub fn of_frame(&self, frame: FrameNumber) -> u32 {
        self.of.get(frame.0 as usize).copied().unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Metric;

    const PLAN: Plan = Plan {
        measure: Measure { metric: Metric::Total, blocks: false },
        reverse: false,
        grain: Grain::Function,
        least: 0.0,
        depth: usize::MAX,
        most: usize::MAX,
    };

    const SERVICE: &str = "
        start;main 100
        start;main;test1;wrapper 100
        start;main;test2;wrapper 120/2
        start;main;test2;wrapper;grow [inlined] 80
    ";

    /// The tree of folded stacks: a line a node, with its depth, label, and what was made below and by itself.
    fn tree(text: &str, plan: Plan) -> (Tree, Vec<String>) {
        let profile: Profile = text.parse().unwrap();
        let tree = Tree::of(&profile, &plan);
        let line = |node: &Node| {
            let label = profile.frames[node.frame.0 as usize].label();
            let folded = match node.folded {
                Folded { nodes: 0, .. } => String::new(),
                Folded { nodes, load } => format!(" +{nodes}:{}", load.bytes),
            };
            format!(
                "{}{label} {} {}{folded}",
                " ".repeat(node.depth),
                node.all.bytes,
                node.own.bytes
            )
        };
        let lines = tree.nodes.iter().map(line).collect();
        (tree, lines)
    }

    #[test]
    fn every_call_has_what_was_made_below_it() {
        let (tree, lines) = tree(SERVICE, PLAN);
        assert_eq!(
            lines,
            [
                "start 400 0",
                " main 400 100",
                "  test2 200 0",
                "   wrapper 200 120",
                "    grow 80 80",
                "  test1 100 0",
                "   wrapper 100 100",
            ]
        );
        assert_eq!((tree.all, tree.folded), (Load { bytes: 400, blocks: 5 }, Folded::default()));
        for (place, node) in tree.nodes.iter().enumerate() {
            assert!(node.parent.is_none_or(|parent| parent < place));
        }
    }

    #[test]
    fn where_all_at_the_top_are_little_the_largest_are_shown() {
        let mut text = "f0;below 100\n".to_owned();
        for n in 1..1000 {
            text += &format!("f{n} {}\n", 100 - u64::from(n > 3));
        }
        let (little, lines) = tree(&text, Plan { least: 0.01, ..PLAN });
        assert_eq!(lines[..3], ["f0 100 0", " below 100 100", "f1 100 100"]);
        assert_eq!((lines.len(), little.folded.nodes), (FEW + 1, 990), "{lines:?}");
        let tops = little.nodes.iter().filter(|node| node.parent.is_none());
        let shown: u64 = tops.map(|node| node.all.bytes).sum();
        assert_eq!(shown + little.folded.load.bytes, little.all.bytes);
    }

    #[test]
    fn reversed_it_begins_with_who_allocates() {
        let (_, lines) = tree(SERVICE, Plan { reverse: true, ..PLAN });
        assert_eq!(
            lines,
            [
                "wrapper 220 0",
                " test2 120 0",
                "  main 120 0",
                "   start 120 120",
                " test1 100 0",
                "  main 100 0",
                "   start 100 100",
                "main 100 0",
                " start 100 100",
                "grow 80 0",
                " wrapper 80 0",
                "  test2 80 0",
                "   main 80 0",
                "    start 80 80",
            ]
        );
    }

    #[test]
    fn what_is_little_deep_or_too_much_is_folded_where_it_hangs() {
        let (_, lines) = tree(SERVICE, Plan { least: 0.3, ..PLAN });
        assert_eq!(
            lines,
            ["start 400 0", " main 400 100 +1:100", "  test2 200 0", "   wrapper 200 120 +1:80"]
        );
        let (_, lines) = tree(SERVICE, Plan { depth: 2, ..PLAN });
        assert_eq!(lines, ["start 400 0", " main 400 100 +2:300"]);
        let (of_three, lines) = tree(SERVICE, Plan { most: 3, ..PLAN });
        assert_eq!(lines, ["start 400 0", " main 400 100 +1:100", "  test2 200 0 +1:200"]);
        assert_eq!(of_three.folded, Folded::default());
        let (tree, _) = tree("a 3\nb 2\nc 1", Plan { most: 1, ..PLAN });
        assert_eq!(tree.folded, Folded { nodes: 2, load: Load { bytes: 3, blocks: 2 } });
    }

    #[test]
    fn a_function_is_one_wherever_it_is_called_unless_lines_are_wanted() {
        let text = "main (a.py:1);f (a.py:7) 10\nmain (a.py:2);f (a.py:7) 20\nmain (b.py:1) 5";
        let (_, lines) = tree(text, PLAN);
        assert_eq!(lines, ["main 30 0", " f 30 30", "main 5 5"]);
        let (_, lines) = tree(text, Plan { grain: Grain::PythonLine, ..PLAN });
        assert_eq!(lines, ["main 20 0", " f 20 20", "main 10 0", " f 10 10", "main 5 5"]);
    }

    #[test]
    fn a_recursion_is_a_path_and_counts_once_at_each_depth() {
        let (_, lines) = tree("f;f;f 6\nf;f 4", PLAN);
        assert_eq!(lines, ["f 10 0", " f 10 4", "  f 6 6"]);
    }

    #[test]
    fn counted_in_blocks_what_has_no_bytes_is_there() {
        let measure = Measure { metric: Metric::Total, blocks: true };
        let (_, lines) = tree("a 0/7\nb 9/1\nc 5/0", Plan { measure, ..PLAN });
        assert_eq!(lines, ["a 0 0", "b 9 9"]);
    }

    /// A model that makes every node must agree with what is made of ranges, for stacks of every shape.
    #[test]
    fn it_is_what_a_plain_tree_says() {
        let mut random = 7u32;
        let mut next = |n: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 16) % n
        };
        for _ in 0..200 {
            let mut text = String::new();
            let mut model: HashMap<Vec<u32>, (u64, u64)> = HashMap::new();
            for _ in 0..next(20) + 1 {
                let path: Vec<u32> = (0..next(6) + 1).map(|_| next(3)).collect();
                let bytes = u64::from(next(50) + 1);
                let names: Vec<String> = path.iter().map(u32::to_string).collect();
                text += &format!("{} {bytes}\n", names.join(";"));
                for depth in 1..=path.len() {
                    let sums = model.entry(path[..depth].to_vec()).or_default();
                    sums.0 += bytes;
                    sums.1 += if depth == path.len() { bytes } else { 0 };
                }
            }
            let profile: Profile = text.parse().unwrap();
            let (tree, _) = tree(&text, PLAN);
            let mut paths: Vec<Vec<u32>> = Vec::new();
            for node in &tree.nodes {
                let mut path = node.parent.map_or(Vec::new(), |parent| paths[parent].clone());
                path.push(profile.frames[node.frame.0 as usize].function.parse().unwrap());
                assert_eq!(model.remove(&path), Some((node.all.bytes, node.own.bytes)), "{text}");
                paths.push(path);
            }
            assert!(model.is_empty(), "{text}");
        }
    }
}
