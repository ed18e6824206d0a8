//! What a pprof profile must say.

use super::*;
use crate::stacks::sample::{SERVICE, shares, subject};
use flate2::read::GzDecoder;
use heaptape_analyze::modules::Module;
use heaptape_analyze::profile::{Frame, FrameKind, Measure, Profile};
use std::io::Read;

/// What a reader finds in the bytes.
fn read(subject: Subject<'_>, labels: Labels) -> Document {
    let mut out = Vec::new();
    write(&mut out, subject, labels).unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(out.as_slice()).read_to_end(&mut bytes).unwrap();
    let document = Document::decode(bytes.as_slice()).unwrap();
    check(&document);
    document
}

/// What holds for every profile: all numbers stand for something, and all ids count from 1.
fn check(document: &Document) {
    let text = |place: i64| document.string_table.get(place as usize).unwrap();
    assert_eq!(text(0), "");
    let ids: [Vec<u64>; 3] = [
        document.location.iter().map(|l| l.id).collect(),
        document.function.iter().map(|f| f.id).collect(),
        document.mapping.iter().map(|m| m.id).collect(),
    ];
    for ids in ids {
        assert!(ids.iter().copied().eq(1..=ids.len() as u64));
    }
    for mapping in &document.mapping {
        assert!(mapping.memory_start < mapping.memory_limit);
    }
    let mut ranges: Vec<_> =
        document.mapping.iter().map(|m| (m.memory_start, m.memory_limit)).collect();
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|two| two[0].1 <= two[1].0), "{ranges:x?}");
    for location in &document.location {
        let Some(mapping) = (location.mapping_id as usize).checked_sub(1) else { continue };
        let mapping = &document.mapping[mapping];
        assert!((mapping.memory_start..mapping.memory_limit).contains(&location.address));
    }
    for function in &document.function {
        assert!(!text(function.name).is_empty());
    }
    for sample in &document.sample {
        assert_eq!(sample.value.len(), document.sample_type.len());
        assert!(
            sample.location_id.iter().all(|id| (1..=document.location.len() as u64).contains(id))
        );
    }
}

/// The stacks by the names of their functions, from the outermost, with one of the values.
fn stacks(document: &Document, value: usize) -> Vec<(Vec<String>, u64)> {
    let name = |line: &message::Line| {
        let function = &document.function[line.function_id as usize - 1];
        document.string_table[function.name as usize].clone()
    };
    let stack = |sample: &Sample| {
        let lines =
            sample.location_id.iter().flat_map(|&id| &document.location[id as usize - 1].line);
        let names: Vec<String> = lines.map(name).collect();
        (names.into_iter().rev().collect(), sample.value[value] as u64)
    };
    document.sample.iter().map(stack).collect()
}

fn types(document: &Document) -> Vec<String> {
    let text = |place: i64| &document.string_table[place as usize];
    document.sample_type.iter().map(|t| format!("{}/{}", text(t.kind), text(t.unit))).collect()
}

#[test]
fn a_heap_profile_as_other_tools_make_them() {
    let profile: Profile = SERVICE.parse().unwrap();
    let document = read(subject(&profile), Labels::default());
    assert_eq!(
        types(&document),
        ["alloc_objects/count", "alloc_space/bytes", "inuse_objects/count", "inuse_space/bytes"]
    );
    assert_eq!(document.string_table[document.default_sample_type as usize], "inuse_space");
    shares(stacks(&document, 3).into_iter());
    shares(stacks(&document, 1).into_iter());
    let blocks: u64 = stacks(&document, 2).iter().map(|(_, blocks)| blocks).sum();
    assert_eq!(blocks, 4);
}

#[test]
fn inlined_functions_are_lines_of_one_place() {
    let profile: Profile = "main;f;g [inlined];h [inlined] 8\nmain;f 1".parse().unwrap();
    let document = read(subject(&profile), Labels::default());
    assert_eq!(document.location.len(), 3);
    assert_eq!(document.location[0].line.len(), 3);
    let names = ["main", "f", "g", "h"].map(str::to_owned).to_vec();
    assert_eq!(stacks(&document, 3)[0], (names, 8));
}

#[test]
fn modules_are_mappings_with_their_build_ids() {
    let mut profile: Profile = "a;b;run (job.py:3) 5".parse().unwrap();
    for (frame, offset) in profile.frames.iter_mut().zip([0x1000, 0x2fff]) {
        if frame.kind == FrameKind::Native {
            *frame = Frame {
                module: "/lib/libx.so".into(),
                build_id: [0xab, 1].as_slice().into(),
                offset,
                load: 0x7f00_0000_0000,
                ..frame.clone()
            };
        }
    }
    let document = read(subject(&profile), Labels::default());
    let [mapping] = document.mapping.as_slice() else { panic!("{:?}", document.mapping) };
    let text = |place: i64| document.string_table[place as usize].as_str();
    assert_eq!((text(mapping.filename), text(mapping.build_id)), ("/lib/libx.so", "ab01"));
    assert_eq!(mapping.memory_start, 0x7f00_0000_0000);
    let python = document.location.iter().find(|l| l.mapping_id == 0).unwrap();
    assert_eq!((python.address, python.line[0].line), (0, 3));
}

/// pprof shows the file of the first mapping as that of the profile.
#[test]
fn the_executable_is_the_first_mapping_even_where_no_call_is_from_there() {
    for caller in ["/lib/libx.so", "/bin/job"] {
        let mut profile: Profile = "a;b 5".parse().unwrap();
        for (frame, module) in profile.frames.iter_mut().zip(["/lib/libx.so", caller]) {
            (frame.module, frame.offset) = (module.into(), 0x1500);
            frame.load = if module == "/bin/job" { 0x5000_0000 } else { 0x7000_0000 };
        }
        profile.executable = Some(Module {
            path: "/bin/job".into(),
            build_id: Vec::new(),
            bias: 0x5000_0000,
            start: 0x5000_0000,
            end: 0x5000_3000,
        });
        let document = read(subject(&profile), Labels::default());
        assert_eq!(document.mapping.len(), 2);
        let first = &document.mapping[0];
        assert_eq!(document.string_table[first.filename as usize], "/bin/job");
        assert_eq!((first.memory_start, first.memory_limit), (0x5000_0000, 0x5000_3000));
    }
}

#[test]
fn modules_of_several_processes_are_mappings_that_do_not_overlap() {
    let mut profile: Profile = "a;b;c;d 5\ne 1".parse().unwrap();
    let loads = [0x40_0000, 0x40_1000, 0x40_0000, 0x70_0000, 0];
    let modules = ["x", "y", "z", "x", "static"];
    let offsets = [0x500, 0x1500, 0x2500, 0x3500, 0x40_0500];
    for (n, frame) in profile.frames.iter_mut().enumerate() {
        (frame.module, frame.load, frame.offset) = (modules[n].into(), loads[n], offsets[n]);
    }
    let document = read(subject(&profile), Labels::default());
    assert_eq!(document.mapping.len(), 4);
    for location in &document.location {
        let mapping = &document.mapping[location.mapping_id as usize - 1];
        let file = &document.string_table[mapping.filename as usize];
        // What is left when the begin of the mapping is taken off is the place in the file, as pprof would look it up.
        let name = &document.function[location.line[0].function_id as usize - 1].name;
        let name = document.string_table[*name as usize].as_str();
        let n = profile.frames.iter().position(|frame| &*frame.function == name).unwrap();
        assert_eq!(file, modules[n]);
        if modules[n] != "static" {
            assert_eq!(location.address - mapping.memory_start, offsets[n] - 1);
        }
    }
}

#[test]
fn labels_tell_rank_and_thread_where_that_is_asked() {
    let mut profile: Profile = "a 5".parse().unwrap();
    profile.stacks[0].rank = Some(3);
    profile.stacks[0].thread = 7;
    let labels = Labels { process: true, thread: true };
    let document = read(subject(&profile), labels);
    assert_eq!(told(&document), [("rank", 3), ("thread", 7)]);
    assert!(read(subject(&profile), Labels::default()).sample[0].label.is_empty());
}

/// A reader drops a label with the number 0, unless it has a unit.
#[test]
fn the_first_rank_process_and_thread_have_labels_too() {
    let mut profile: Profile = "a 5".parse().unwrap();
    let labels = Labels { process: true, thread: true };
    for (rank, key) in [(Some(0), "rank"), (None, "process")] {
        profile.stacks[0].rank = rank;
        let document = read(subject(&profile), labels);
        assert_eq!(told(&document), [(key, 0), ("thread", 0)]);
        assert!(document.sample[0].label.iter().all(|label| label.num_unit != 0));
    }
}

/// The labels of the first sample.
fn told(document: &Document) -> Vec<(&str, i64)> {
    let text = |place: i64| document.string_table[place as usize].as_str();
    document.sample[0].label.iter().map(|label| (text(label.key), label.num)).collect()
}

/// Where both names of a function are the same, pprof shows `<module>` as unknown, and the instances of a template as one.
#[test]
fn names_are_not_for_the_reader_to_shorten() {
    let profile: Profile = "<module> (job.py:3) 5\nstd::vector<int>::f 1".parse().unwrap();
    let document = read(subject(&profile), Labels::default());
    assert_eq!(document.function.len(), 2);
    assert!(document.function.iter().all(|f| f.system_name != f.name));
}

#[test]
fn what_is_asked_for_is_shown_first() {
    let profile: Profile = "a 5/2".parse().unwrap();
    for (metric, blocks, name) in [
        (Metric::Total, false, "alloc_space"),
        (Metric::Total, true, "alloc_objects"),
        (Metric::End, false, "inuse_space"),
        (Metric::Temporary, false, "temporary_space"),
    ] {
        let measure = Measure { metric, blocks };
        let document = read(Subject { measure, ..subject(&profile) }, Labels::default());
        assert_eq!(document.string_table[document.default_sample_type as usize], name);
        assert!(types(&document).iter().any(|t| t.starts_with(name)));
    }
}

#[test]
fn nothing_and_too_much_are_written() {
    for text in ["", "a 0/0", "a 18446744073709551615", "f [inlined] 3"] {
        let profile: Profile = text.parse().unwrap();
        read(subject(&profile), Labels::default());
    }
}
