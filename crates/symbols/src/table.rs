//! The functions of a file by address: spans that do not overlap, made once of the symbols, so that a
//! lookup is one binary search, however the symbols lie.
//!
//! Where symbols overlap, the one that starts last has the address: a part that the compiler put into
//! another's range. Symbols of one span are aliases; which of them is told is decided when it is asked for,
//! as it needs their names.

use std::cmp::Reverse;

use crate::name;
use crate::strings::Strings;

/// Of more aliases than this, the rest are not looked at.
const MOST_ALIASES: usize = 32;

/// A symbol of code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    /// Its address.
    pub(crate) start: u64,
    /// The address behind its last; `None` when the symbol has no size, as many written in assembly.
    pub(crate) end: Option<u64>,
    /// Where its section ends.
    pub(crate) limit: u64,
    /// Where its name stands among the strings.
    pub(crate) name: u32,
    /// Whether it is seen in one object file only.
    pub(crate) local: bool,
}

/// What is kept of a symbol.
#[derive(Clone, Copy, Debug)]
struct Named {
    name: u32,
    local: bool,
}

/// The functions of one file.
pub(crate) struct Table {
    /// In order, none overlapping another.
    spans: Vec<Span>,
    /// The names of a function are neighbours here.
    names: Vec<Named>,
    strings: Strings,
    is_fortran: bool,
}

/// One function of a table, the same for all its addresses: where its names stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Function {
    first: u32,
    count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u64,
    end: u64,
    function: Function,
}

impl Table {
    /// The table of these symbols.
    pub(crate) fn new(symbols: Vec<Symbol>, strings: Strings) -> Table {
        let (sized, unsized_): (Vec<_>, Vec<_>) =
            symbols.into_iter().partition(|s| s.end.is_some());
        let mut names = Vec::new();
        let mut spans = flattened(&grouped(sized, &mut names));
        let between = in_gaps(&grouped(unsized_, &mut names), &spans);
        spans.extend(between);
        spans.sort_unstable_by_key(|s| s.start);
        names.shrink_to_fit();
        spans.shrink_to_fit();
        let is_fortran = strings.hold(b"\0_gfortran_");
        Table { spans, names, strings, is_fortran }
    }

    /// The function that an address lies in.
    pub(crate) fn find(&self, address: u64) -> Option<Function> {
        let span = before(&self.spans, address)?;
        (address < span.end).then_some(span.function)
    }

    /// Whether code of a Fortran compiler is in it: its names then end with an underscore.
    pub(crate) fn is_fortran(&self) -> bool {
        self.is_fortran
    }

    /// The symbol of a function as it stands in the file. Of aliases the one that a person would write.
    pub(crate) fn symbol(&self, function: Function) -> Option<Vec<u8>> {
        let (first, count) = (function.first as usize, function.count as usize);
        let names = self.names.get(first..first + count.min(MOST_ALIASES))?.iter();
        let read = names.filter_map(|n| Some((n.local, self.strings.get(n.name)?)));
        let best = read.min_by(|a, b| name::rank(a.0, &a.1).cmp(&name::rank(b.0, &b.1)));
        best.map(|(_, symbol)| symbol)
    }
}

/// The last span that starts at an address or before it.
fn before(spans: &[Span], address: u64) -> Option<&Span> {
    let after = spans.partition_point(|s| s.start <= address);
    spans.get(after.checked_sub(1)?)
}

/// Joins those that cover the same addresses, and keeps their names. Those that start later come later,
/// of those that start together the shorter; what has no size reaches to its section's end.
fn grouped(mut symbols: Vec<Symbol>, names: &mut Vec<Named>) -> Vec<Span> {
    let reach = |s: &Symbol| (s.start, Reverse(s.end.unwrap_or(s.limit)));
    symbols.sort_unstable_by_key(|s| (reach(s), s.name));
    let spans = symbols.chunk_by(|a, b| reach(a) == reach(b)).filter_map(|same| {
        let first = u32::try_from(names.len()).ok()?;
        names.extend(same.iter().map(|s| Named { name: s.name, local: s.local }));
        let (start, Reverse(end)) = reach(same.first()?);
        let function = Function { first, count: u32::try_from(same.len()).ok()? };
        Some(Span { start, end, function })
    });
    spans.collect()
}

/// Gives every address to the last of the spans that cover it.
fn flattened(sorted: &[Span]) -> Vec<Span> {
    let mut flat = Vec::with_capacity(sorted.len());
    let mut open: Vec<Span> = Vec::new();
    let mut done = 0;
    let mut finish = |open: &mut Vec<Span>, until: u64| {
        while let Some(top) = open.last() {
            let end = top.end.min(until);
            if done < end {
                flat.push(Span { start: done, end, function: top.function });
                done = end;
            }
            if top.end > until {
                break;
            }
            open.pop();
        }
        done = until;
    };
    for span in sorted {
        finish(&mut open, span.start);
        open.push(*span);
    }
    finish(&mut open, u64::MAX);
    flat
}

/// Those that start where no span is, each up to the next of both.
fn in_gaps(sorted: &[Span], spans: &[Span]) -> Vec<Span> {
    let next_of = |list: &[Span], start: u64| {
        let after = list.partition_point(|s| s.start <= start);
        list.get(after).map_or(u64::MAX, |s| s.start)
    };
    let free = sorted.iter().filter(|s| before(spans, s.start).is_none_or(|b| b.end <= s.start));
    let cut = free.map(|&s| {
        let end = s.end.min(next_of(spans, s.start)).min(next_of(sorted, s.start));
        Span { end, ..s }
    });
    cut.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symbols by start and end (0: no size) in a section that ends at 1000, named a, b, c, ….
    fn table(symbols: &[(u64, u64)]) -> Table {
        let strings = b"\0a\0b\0c\0d\0e\0".to_vec();
        let symbols = symbols.iter().zip((1..).step_by(2)).map(|(&(start, end), name)| Symbol {
            start,
            end: (end > 0).then_some(end),
            limit: 1000,
            name,
            local: false,
        });
        Table::new(symbols.collect(), Strings::Held(strings))
    }

    fn names(table: &Table, addresses: &[u64]) -> String {
        let name = |&a| table.find(a).and_then(|f| table.symbol(f)).map_or('-', |s| s[0].into());
        addresses.iter().map(name).collect()
    }

    #[test]
    fn sizes_are_respected() {
        let table = table(&[(10, 20), (20, 25), (30, 31)]);
        let found = names(&table, &[0, 9, 10, 19, 20, 24, 25, 29, 30, 31, u64::MAX]);
        assert_eq!(found, "--aabb--c--");
    }

    #[test]
    fn the_last_to_start_has_what_overlaps() {
        // a holds b, which holds c; d overlaps the end of a.
        let table = table(&[(10, 50), (20, 40), (25, 30), (45, 60)]);
        assert_eq!(names(&table, &[10, 20, 25, 30, 39, 40, 44, 45, 55, 60]), "abcbbaadd-");
    }

    #[test]
    fn without_a_size_up_to_the_next() {
        // b is a label within a; c reaches to d, which reaches to e; e to the end of the section.
        let table = table(&[(10, 20), (15, 0), (20, 0), (30, 0), (40, 0)]);
        assert_eq!(names(&table, &[15, 19, 20, 29, 30, 39, 40, 999, 1000]), "aaccddee-");
        let table = self::table(&[(10, 0), (12, 14)]);
        assert_eq!(names(&table, &[9, 10, 11, 12, 14]), "-aab-");
    }

    #[test]
    fn ten_thousand_that_all_overlap_are_quick() {
        let symbols = (0..100_000u64).map(|n| Symbol {
            start: n,
            end: Some(1_000_000 - n),
            limit: u64::MAX,
            name: 1,
            local: true,
        });
        let table = Table::new(symbols.collect(), Strings::Held(b"\0a\0".to_vec()));
        let found = (0..1_000_000).filter(|&a| table.find(a).is_some()).count();
        assert_eq!(found, 1_000_000);
        assert_eq!(table.find(1_000_000), None);
    }
}
