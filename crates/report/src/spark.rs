//! Small plots of block characters: a line of them, or a picture of a few lines with its scale.

use heaptape_analyze::timeline::Extent;

use crate::size::Size;

/// Eighths of a character's height.
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One character for each value, from the least of 0 to the largest of all. What is not known is `·`.
pub fn line(values: &[Option<u64>]) -> String {
    let most = values.iter().flatten().copied().max().unwrap_or(0);
    let level = |value: u64| (u128::from(value) * 8).div_ceil(u128::from(most.max(1))) as usize;
    let character = |value: &Option<u64>| value.map_or('·', |v| LEVELS[level(v).min(8)]);
    values.iter().map(character).collect()
}

/// A picture with so many lines of at most `width` columns, the scale at its left: up to the most of each
/// step, with what was above the least of it drawn light.
pub fn picture(extents: &[Extent], height: usize, width: usize) -> Vec<String> {
    let most = extents.iter().map(|e| e.most).max().unwrap_or(0);
    let scale = [Size(most).to_string(), Size(most / 2).to_string(), Size(0).to_string()];
    let margin = scale.iter().map(String::len).max().unwrap_or(0);
    let columns = joined(extents, width.saturating_sub(margin + 2).max(1));
    let eighths = |value: u64| {
        (u128::from(value) * 8 * height as u128).div_ceil(u128::from(most.max(1))) as usize
    };
    let mut lines = Vec::with_capacity(height);
    for row in (0..height).rev() {
        let label = match row {
            row if row + 1 == height => &scale[0],
            row if row == height / 2 && height > 4 => &scale[1],
            0 => &scale[2],
            _ => "",
        };
        let cells =
            columns.iter().map(|extent| cell(eighths(extent.least), eighths(extent.most), row));
        let text = format!("{label:>margin$} ┤{}", cells.collect::<String>());
        lines.push(text.trim_end().to_owned());
    }
    lines
}

/// The character of a column in a row: full below the least, light up to the most.
fn cell(least: usize, most: usize, row: usize) -> char {
    let in_row = |eighths: usize| eighths.saturating_sub(row * 8).min(8);
    match (in_row(least), in_row(most)) {
        (8, _) => '█',
        (0, 0) => ' ',
        (least, most) if least == most => LEVELS[least],
        (0, most) if most < 8 => LEVELS[most],
        _ => '░',
    }
}

/// The extents put together until there are at most `width`.
pub fn joined(extents: &[Extent], width: usize) -> Vec<Extent> {
    let of = |column: &[Extent]| Extent {
        least: column.iter().map(|e| e.least).min().unwrap_or(0),
        most: column.iter().map(|e| e.most).max().unwrap_or(0),
    };
    let count = extents.len().min(width);
    let edge = |n: usize| n * extents.len() / count.max(1);
    (0..count).map(|n| of(&extents[edge(n)..edge(n + 1)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_zero_the_most_and_what_is_not_known() {
        assert_eq!(line(&[Some(0), Some(1), Some(50), None, Some(100)]), " ▁▄·█");
        assert_eq!(line(&[Some(0), Some(0)]), "  ");
        assert_eq!(line(&[Some(u64::MAX)]), "█");
        assert_eq!(line(&[]), "");
    }

    #[test]
    fn a_single_high_step_shows_at_its_full_height() {
        let mut extents = vec![Extent { least: 10, most: 10 }; 1000];
        extents[700] = Extent { least: 10, most: 1000 };
        let picture = picture(&extents, 8, 60);
        assert_eq!(picture.len(), 8);
        let place = picture[0].chars().position(|c| c == '░').unwrap();
        let margin = picture[0].chars().position(|c| c == '┤').unwrap() + 1;
        let columns = 60 - margin;
        assert_eq!(place - margin, 700 * columns / 1000);
        assert!(picture.iter().all(|line| line.chars().count() <= 60));
        assert!(picture[0].starts_with("1000 B ┤") && picture[7].starts_with("   0 B ┤"));
    }

    #[test]
    fn few_steps_are_not_stretched() {
        assert_eq!(joined(&[Extent { least: 1, most: 2 }; 3], 50).len(), 3);
        assert_eq!(joined(&[], 50).len(), 0);
        assert_eq!(picture(&[], 3, 20).len(), 3);
    }
}
