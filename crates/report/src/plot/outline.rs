//! The outline of a curve in units of the picture: its upper edge, its lower one, and dashes.

use std::ops::Range;

use heaptape_analyze::curves::{Column, Curve};

/// A place in the picture: from the left, from the top.
pub(super) type Point = (i32, i32);

/// A part of a curve between two places of the axis: a level, or all between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

/// A curve in units.
pub(super) struct Outline {
    pieces: Vec<Piece>,
}

impl Outline {
    /// The outline where `x` and `y` say at which units a place and a level lie.
    pub(super) fn of(curve: &Curve, x: impl Fn(u64) -> i32, y: impl Fn(u64) -> i32) -> Outline {
        let ends = curve.columns.iter().skip(1).map(|column| column.at).chain([curve.end]);
        let pieces = curve.columns.iter().zip(ends).map(|(column, end)| {
            let (top, bottom) = extent(column);
            Piece { left: x(column.at), right: x(end), top: y(top), bottom: y(bottom) }
        });
        Outline { pieces: pieces.collect() }
    }

    /// The line along the highest levels.
    pub(super) fn upper(&self) -> Vec<Point> {
        edge(&self.pieces, |piece| piece.top)
    }

    /// The lines along the lowest levels, where these are others than the highest, with what joins them to
    /// the left and right.
    pub(super) fn lower(&self) -> Vec<Vec<Point>> {
        // Flat pieces between two that are not, at most; more would fill the gaps of a dashed upper line.
        const NEAR: usize = 2;
        self.thick(NEAR).into_iter().map(|pieces| edge(pieces, |piece| piece.bottom)).collect()
    }

    /// The areas between the two.
    pub(super) fn bands(&self) -> Vec<Vec<Point>> {
        const NEAR: usize = 8;
        let area = |pieces| {
            let mut area = edge(pieces, |piece| piece.top);
            area.extend(edge(pieces, |piece| piece.bottom).into_iter().rev());
            area
        };
        self.thick(NEAR).into_iter().map(area).collect()
    }

    /// The stretches with pieces higher than the line, each with a piece more on both sides; those that at most
    /// `near` others lie between are one.
    fn thick(&self, near: usize) -> Vec<&[Piece]> {
        const LINE: i32 = 1;
        let mut ranges = Vec::new();
        let mut from = None;
        let mut last = 0;
        let thick = |piece: &Piece| piece.bottom - piece.top > LINE;
        for (n, _) in self.pieces.iter().enumerate().filter(|(_, piece)| thick(piece)) {
            if let Some(first) = from.filter(|_| n > last + near) {
                ranges.push(first..last + 2);
                from = None;
            }
            from.get_or_insert(n.saturating_sub(1));
            last = n;
        }
        ranges.extend(from.map(|first| first..last + 2));
        let pieces = |range: Range<usize>| {
            self.pieces.get(range.start..range.end.min(self.pieces.len())).unwrap_or_default()
        };
        ranges.into_iter().map(pieces).collect()
    }

    /// The area from the lowest levels down to `floor`.
    pub(super) fn under(&self, floor: i32) -> Vec<Point> {
        let mut area = edge(&self.pieces, |piece| piece.bottom);
        if let (Some(&(left, _)), Some(&(right, _))) = (area.first(), area.last()) {
            area.extend([(right, floor), (left, floor)]);
        }
        area
    }
}

/// The most and the least of a column. A single change is no area but an upright line at its beginning: what
/// was before belongs to the column before.
fn extent(column: &Column) -> (u64, u64) {
    let (began, ended) = (column.began, column.ended);
    let single = (column.least, column.most) == (began.min(ended), began.max(ended));
    if single { (ended, ended) } else { (column.most, column.least) }
}

fn edge(pieces: &[Piece], level: fn(&Piece) -> i32) -> Vec<Point> {
    let mut line: Vec<Point> = Vec::new();
    for piece in pieces {
        let level = level(piece);
        push(&mut line, (piece.left, level));
        // Narrow ones are points, which makes a file half as large.
        if piece.right > piece.left + 2 {
            push(&mut line, (piece.right, level));
        }
    }
    if let Some(piece) = pieces.last() {
        push(&mut line, (piece.right, level(piece)));
    }
    slim(&line)
}

/// The line without the points that lie on it anyway, as near as can be drawn: slopes are long, and a file should
/// be short. What turns up or down stays.
fn slim(line: &[Point]) -> Vec<Point> {
    const NEAR: f64 = 1.0;
    let mut kept: Vec<Point> = line.iter().take(1).copied().collect();
    // Slopes from the last point kept that come near all points since.
    let all = (f64::NEG_INFINITY, f64::INFINITY);
    let mut slopes = all;
    for (&before, &point) in line.iter().zip(line.iter().skip(1)) {
        let Some(&from) = kept.last() else { break };
        if fits(from, point, slopes, 0.0).is_none() && before != from {
            kept.push(before);
            slopes = all;
        }
        let from = kept.last().copied().unwrap_or(before);
        slopes = fits(from, point, slopes, NEAR).unwrap_or((1.0, -1.0));
    }
    kept.extend(line.last().filter(|_| line.len() > 1));
    kept
}

/// The slopes among `slopes` of lines from one point that come as near another; `None` if there are none.
fn fits(from: Point, to: Point, (least, most): (f64, f64), near: f64) -> Option<(f64, f64)> {
    let (across, up) = (f64::from(to.0 - from.0), f64::from(to.1 - from.1));
    if across <= 0.0 {
        return None;
    }
    let slopes = (least.max((up - near) / across), most.min((up + near) / across));
    (slopes.0 <= slopes.1).then_some(slopes)
}

/// Adds a point to a line; one that only makes a level line longer moves its end.
fn push(line: &mut Vec<Point>, point: Point) {
    if let [.., before, last] = line.as_mut_slice()
        && before.1 == last.1
        && last.1 == point.1
    {
        *last = point;
    } else if line.last() != Some(&point) {
        line.push(point);
    }
}

/// Cuts a line into dashes, whose length is measured along the axis only. Steep parts are never left out: they are
/// the peaks.
pub(super) fn dashed(line: &[Point], pattern: &[i32]) -> Vec<Vec<Point>> {
    let period: i32 = pattern.iter().sum();
    if period <= 0 {
        return vec![line.to_vec()];
    }
    let mut dashes: Vec<Vec<Point>> = Vec::new();
    let mut dash: Vec<Point> = Vec::new();
    for (&from, &to) in line.iter().zip(line.iter().skip(1)) {
        if is_steep(from, to) {
            if dash.is_empty() {
                dash.push(from);
            }
            dash.push(to);
            continue;
        }
        let height = |x: i32| from.1 + (to.1 - from.1) * (x - from.0) / (to.0 - from.0).max(1);
        let mut x = from.0;
        while x < to.0 {
            let (drawn, rest) = phase(x, pattern, period);
            let end = to.0.min(x + rest);
            if drawn {
                if dash.is_empty() {
                    dash.push((x, height(x)));
                }
                push(&mut dash, (end, height(end)));
            } else if !dash.is_empty() {
                dashes.push(std::mem::take(&mut dash));
            }
            x = end;
        }
    }
    dashes.push(dash);
    dashes.retain(|dash| dash.len() > 1);
    dashes
}

fn is_steep(from: Point, to: Point) -> bool {
    let (across, up) = (to.0 - from.0, (to.1 - from.1).abs());
    across == 0 || (up > 6 && up > 2 * across)
}

/// Whether a place is drawn, and how far that goes.
fn phase(x: i32, pattern: &[i32], period: i32) -> (bool, i32) {
    let mut place = x.rem_euclid(period);
    for (n, &length) in pattern.iter().enumerate() {
        if place < length {
            return (n % 2 == 0, length - place);
        }
        place -= length;
    }
    (false, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptape_analyze::curves::Figure;

    fn curve(levels: &[(u64, u64, u64, u64)], per_column: u64) -> Curve {
        let columns = levels.iter().enumerate().map(|(n, &(began, ended, least, most))| Column {
            at: n as u64 * per_column,
            began,
            ended,
            least,
            most,
        });
        let columns: Vec<Column> = columns.collect();
        let end = columns.len() as u64 * per_column;
        Curve { figure: Figure::Requested, columns, end, samples: Vec::new() }
    }

    fn outline(curve: &Curve) -> Outline {
        Outline::of(curve, |at| at as i32, |bytes| 100 - bytes as i32)
    }

    #[test]
    fn single_changes_are_steps() {
        let steps = outline(&curve(&[(0, 10, 0, 10), (10, 10, 10, 10), (10, 90, 10, 90)], 20));
        assert_eq!(steps.upper(), [(0, 90), (40, 90), (40, 10), (60, 10)]);
        assert!(steps.bands().is_empty() && steps.lower().is_empty());
    }

    #[test]
    fn a_spike_up_or_down_in_one_column_is_drawn_to_its_end() {
        let flat = (50, 50, 50, 50);
        let spikes = outline(&curve(&[flat, (50, 50, 50, 99), flat, (50, 50, 1, 50), flat], 1));
        assert!(spikes.upper().contains(&(1, 1)));
        assert!(spikes.lower().concat().contains(&(3, 99)));
        let band = spikes.bands().concat();
        assert!(band.contains(&(1, 1)) && band.contains(&(3, 99)), "{band:?}");
    }

    #[test]
    fn a_slope_needs_few_points_and_no_turn_is_lost() {
        let slope: Vec<Point> = (0..1000).map(|x| (x, x / 3)).collect();
        assert!(slim(&slope).len() < 5, "{:?}", slim(&slope));
        let noise: Vec<Point> = (0..1000).map(|x| (x, if x % 2 == 0 { 10 } else { 13 })).collect();
        assert_eq!(slim(&noise), noise);
        let jumps = [(0, 5), (10, 5), (10, 90), (11, 5), (20, 5), (20, 5)];
        assert_eq!(slim(&jumps)[..5], jumps[..5]);
        assert_eq!(slim(&[(3, 4)]), [(3, 4)]);
        assert!(slim(&[]).is_empty());
    }

    #[test]
    fn dashes_leave_gaps_but_no_peaks() {
        let flat: Vec<Point> = vec![(0, 50), (100, 50)];
        let dashes = dashed(&flat, &[14, 6]);
        assert_eq!(dashes[..2], [[(0, 50), (14, 50)], [(20, 50), (34, 50)]]);
        let spike = [(0, 50), (16, 50), (17, 2), (18, 50), (100, 50)];
        let dashes = dashed(&spike, &[14, 6]);
        assert!(dashes.concat().contains(&(17, 2)), "{dashes:?}");
        assert_eq!(dashed(&flat, &[]), [flat]);
    }
}
