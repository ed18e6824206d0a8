//! Whole pictures, looked at as text.

use super::*;
use crate::sample;
use heaptape_analyze::curves::{Column, Curve, Curves, Run, Summit};
use heaptape_analyze::timeline::Axis;
use heaptape_ledger::Bounds;

/// A run of a million calls at half a MiB, with one call that had 64 MiB.
fn spike() -> Drawing {
    let level = 512 << 10;
    let peak = 64 << 20;
    let columns = (0..COLUMNS as u64).map(|n| {
        let most = if n == 700 { peak } else { level };
        Column { at: n * 962, began: level, ended: level, least: level, most }
    });
    let curve = |figure| Curve {
        figure,
        columns: columns.clone().collect(),
        end: 1_000_000,
        samples: match figure {
            Figure::Requested | Figure::Usable => Vec::new(),
            Figure::System | Figure::Resident => vec![(10, level), (500_000, level)],
        },
    };
    let curves = Curves {
        curves: Figure::ALL.map(curve).into(),
        summit: Some(Summit { at: 700 * 962, bytes: Bounds::exact(peak) }),
    };
    let run = Run { near: curves, whole: None };
    Drawing { axis: Axis::Index, whole: 0..1_000_000, part: 0..1_000_000, runs: vec![run] }
}

fn picture_of(
    drawing: &Drawing,
    commands: &[Vec<String>],
    figures: &[Figure],
    log: bool,
) -> String {
    let processes: Vec<ProcessSummary> = commands
        .iter()
        .map(|command| ProcessSummary { command: command.clone(), ..sample::process() })
        .collect();
    let tapes: Vec<Tape<'_>> = processes
        .iter()
        .map(|process| Tape {
            file: process.command.concat(),
            command: &process.command,
            processes: vec![process],
        })
        .collect();
    let picture = Picture { tapes: &tapes, drawing, figures, log };
    let png = draw(&picture, Format::Png).unwrap();
    assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
    String::from_utf8(draw(&picture, Format::Svg).unwrap()).unwrap()
}

fn commands(names: &[&str]) -> Vec<Vec<String>> {
    names.iter().map(|name| vec![(*name).to_owned()]).collect()
}

/// The points of all lines and areas with a colour.
fn points(svg: &str, element: &str, color: &str) -> Vec<(i32, i32)> {
    let of = |line: &str| -> Vec<(i32, i32)> {
        let list = line.split("points=\"").nth(1).and_then(|rest| rest.split('"').next());
        let pairs = list.unwrap_or_default().split_whitespace();
        pairs
            .filter_map(|pair| pair.split_once(','))
            .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
            .collect()
    };
    let wanted = |line: &&str| line.starts_with(element) && line.contains(color);
    svg.lines().filter(wanted).flat_map(of).collect()
}

/// Tags that close in order, names and attributes quoted, no character that XML forbids.
fn assert_well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = svg;
    while let Some(start) = rest.find('<') {
        let between = &rest[..start];
        assert!(!between.contains('>'), "{between}");
        for entity in between.split('&').skip(1) {
            let name = entity.split(';').next().unwrap_or_default();
            assert!(["lt", "gt", "amp", "quot", "apos"].contains(&name), "{entity}");
        }
        let end = start + rest[start..].find('>').unwrap();
        let tag = &rest[start + 1..end];
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().unwrap());
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest}");
    let allowed =
        |c: char| c == '\n' || (!c.is_control() && !('\u{fffe}'..='\u{ffff}').contains(&c));
    assert!(svg.chars().all(allowed));
}

#[test]
fn one_event_among_a_million_shows_at_its_full_height() {
    let drawing = spike();
    let svg = picture_of(&drawing, &commands(&["prog"]), &Figure::ALL, false);
    let layout_top = 92 + 2 * 28 + 34;
    // The axis goes to 13/12 of the most.
    let top = layout_top + HEIGHT - HEIGHT * 12 / 13;
    for (element, color) in
        [("<polyline", "#084594"), ("<polyline", "#D95F02"), ("<polygon", "#084594")]
    {
        let highest = points(&svg, element, color)
            .into_iter()
            .filter(|&(_, y)| y >= layout_top)
            .min_by_key(|&(_, y)| y)
            .unwrap();
        assert!((highest.1 - top).abs() <= 1, "{element} {color}: {highest:?}, {top} expected");
        assert!((highest.0 - (LEFT + 700)).abs() <= 1, "{highest:?}");
    }
    assert!(svg.contains("peak 64.0 MiB at call 673,400"), "{svg}");
    assert!(svg.contains("64 MiB") && svg.contains("200,000"));
}

#[test]
fn the_legend_tells_figure_unit_and_source() {
    let svg = picture_of(&spike(), &commands(&["prog"]), &Figure::ALL, true);
    for entry in [
        "requested bytes: exact, every call",
        "usable bytes: exact, every call",
        "system bytes: kernel, 2 samples",
        "resident bytes: kernel, 2 samples",
    ] {
        assert!(svg.contains(entry), "{entry}");
    }
    assert!(svg.contains("logarithmic") && svg.contains("index of the call"));
}

#[test]
fn only_what_is_wanted_is_drawn() {
    let svg = picture_of(&spike(), &commands(&["prog"]), &[Figure::System], false);
    assert!(svg.contains("system bytes"));
    assert!(!svg.contains("requested") && !svg.contains("peak") && !svg.contains("#084594"));
}

#[test]
fn hostile_names_do_no_harm() {
    let long = "x<&>".repeat(2500);
    for name in [
        "<svg onload=\"x\">&amp;'",
        "a\0b\x1b[31m\n\u{202e}\u{ffff}\u{85}",
        &long,
        "\u{fffd}\u{1f600}",
        "",
    ] {
        let svg = picture_of(&spike(), &commands(&[name]), &Figure::ALL, false);
        assert_well_formed(&svg);
        let title =
            svg.lines().filter(|line| line.len() > 2000 && !line.contains("points")).count();
        assert_eq!(title, 0);
    }
}

#[test]
fn several_tapes_stand_in_the_legend_by_their_names() {
    let mut drawing = spike();
    drawing.runs.push(drawing.runs[0].clone());
    let figures = [Figure::Requested, Figure::Resident];
    let svg =
        picture_of(&drawing, &commands(&["/a/before.tape", "/a/after.tape"]), &figures, false);
    assert!(
        svg.contains("before.tape, requested bytes") && svg.contains("after.tape, resident bytes")
    );
    let svg = picture_of(&drawing, &commands(&["/a/x.tape", "/b/x.tape"]), &figures, false);
    assert!(svg.contains("/a/x.tape, requested bytes") && svg.contains("/b/x.tape, requested"));
    assert_eq!(svg.matches("peak 64.0 MiB").count(), 2);
    assert_well_formed(&svg);
}

#[test]
fn a_part_is_marked_in_a_plot_of_the_whole() {
    let mut drawing = spike();
    drawing.runs[0].whole = Some(drawing.runs[0].near.clone());
    drawing.part = 500_000..750_000;
    let svg = picture_of(&drawing, &commands(&["prog"]), &Figure::ALL, false);
    assert!(svg.contains("the whole run"));
    let frame = points(&svg, "<polyline", "#222222");
    let (left, right) = (LEFT + COLUMNS as i32 / 2, LEFT + COLUMNS as i32 * 3 / 4);
    assert!(frame.iter().any(|p| p.0 == left) && frame.iter().any(|p| p.0 == right), "{frame:?}");
}

#[test]
fn nothing_at_all_is_a_plot_too() {
    let run = Run { near: Curves::default(), whole: None };
    for axis in [Axis::Index, Axis::Time] {
        let drawing = Drawing { axis, whole: 0..1, part: 0..1, runs: vec![run.clone()] };
        for log in [false, true] {
            let svg = picture_of(&drawing, &commands(&["prog"]), &Figure::ALL, log);
            assert_well_formed(&svg);
            assert!(svg.contains("requested bytes: nothing here"));
        }
    }
}
