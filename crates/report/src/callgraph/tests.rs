//! What a call graph must show, and that no profile breaks it.

use super::*;
use crate::stacks::sample::{SERVICE, subject};
use heaptape_analyze::profile::Profile;
use proptest::prelude::*;

/// The lettering of a drawing.
fn words(svg: &str) -> Vec<String> {
    let ends = svg.split("<text ").skip(1);
    let text = |rest: &str| Some(rest.split_once('>')?.1.split_once('<')?.0.to_owned());
    ends.filter_map(text).collect()
}

#[test]
fn the_service_has_its_shares() {
    let profile: Profile = SERVICE.parse().unwrap();
    let svg = svg::draw(subject(&profile)).unwrap();
    let words = words(&svg);
    let has = |lines: &[&str]| words.windows(lines.len()).any(|window| window == lines);
    assert!(has(&["main", "0 of 400.0 MiB (100 %)"]), "{words:?}");
    assert!(has(&["malloc_wrapper", "400.0 MiB (100 %)"]), "{words:?}");
    assert!(has(&["test1", "0 of 100.0 MiB (25 %)"]), "{words:?}");
    assert!(has(&["test2", "0 of 200.0 MiB (50 %)"]), "{words:?}");
    let labels = words.iter().filter(|word| *word == "200.0 MiB").count();
    assert_eq!(labels, 2, "{words:?}");
    let mut dot = Vec::new();
    dot::write(&mut dot, subject(&profile)).unwrap();
    let dot = String::from_utf8(dot).unwrap();
    for line in ["label=\"test1\\n0 of 100.0 MiB (25 %)\\n\"", "n0 -> n2 [label=\" 200.0 MiB\""] {
        assert!(dot.contains(line), "{line}: {dot}");
    }
}

#[test]
fn nothing_to_draw_is_said() {
    let profile = Profile::default();
    let why = svg::draw(subject(&profile)).unwrap_err().to_string();
    assert_eq!(why, "There is nothing to draw: nothing was live at the peak.");
}

#[test]
fn a_large_profile_is_cut_to_what_can_be_seen() {
    let mut text = String::new();
    for n in 0..3000u64 {
        text += &format!("main;a{};b{};c{n} {}\n", n % 7, n % 91, 1 + n * n % 1000);
    }
    let profile: Profile = text.parse().unwrap();
    let svg = svg::draw(subject(&profile)).unwrap();
    assert!(svg.matches("<g><title>").count() <= MOST_NODES);
    assert!(svg.len() < 200_000, "{}", svg.len());
    assert!(words(&svg).iter().any(|line| line.starts_with("Not shown: ")));
}

/// Names that would end a text, an attribute or the file.
#[test]
fn names_act_on_nothing() {
    let profile: Profile =
        "a<b>&\"c\\\"\u{1b}[0m;x\u{fffe}]]>;</svg>\u{202e}; 5\n--> 7".parse().unwrap();
    let svg = svg::draw(subject(&profile)).unwrap();
    assert_eq!(svg.matches("</svg>").count(), 1);
    assert!(!svg.contains(['\u{1b}', '\u{fffe}', '\u{202e}']));
    let mut dot = Vec::new();
    dot::write(&mut dot, subject(&profile)).unwrap();
    let dot = String::from_utf8(dot).unwrap();
    assert!(dot.contains("a<b>&\\\"c\\\\\\\""), "{dot}");
    #[cfg(feature = "pdf")]
    assert!(pdf::draw(subject(&profile)).unwrap().starts_with(b"%PDF"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_profile_is_drawn(
        stacks in prop::collection::vec(
            (prop::collection::vec(0..30u8, 1..12), prop_oneof![0..50u64, Just(u64::MAX)]),
            0..60,
        ),
    ) {
        let line = |(frames, bytes): &(Vec<u8>, u64)| {
            let names: Vec<String> = frames.iter().map(u8::to_string).collect();
            format!("{} {bytes}\n", names.join(";"))
        };
        let text: String = stacks.iter().map(line).collect();
        let profile: Profile = text.parse().unwrap();
        let is_something = stacks.iter().any(|(_, bytes)| *bytes > 0);
        let svg = svg::draw(subject(&profile));
        prop_assert_eq!(svg.is_ok(), is_something);
        prop_assert!(svg.iter().all(|svg| !svg.contains("NaN") && !svg.contains("inf")));
        prop_assert_eq!(dot::write(&mut Vec::new(), subject(&profile)).is_ok(), is_something);
    }
}
