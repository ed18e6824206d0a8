//! Profiles for speedscope, as <https://www.speedscope.app/file-format-schema.json> has them.
//!
//! Each figure is a sampled profile of its own, whose samples are the call stacks and whose weights are the bytes or the
//! blocks; that which was asked for is shown first.

use std::io::{self, Write};

use heaptape_analyze::profile::{Frame, Measure, Metric};
use serde::Serialize;

use crate::stacks::Subject;
use crate::text;

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: String,
    active_profile_index: usize,
    exporter: String,
    shared: Shared<'a>,
    profiles: Vec<Sampled>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<Named<'a>>,
}

#[derive(Serialize)]
struct Named<'a> {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// Frames by their numbers, from the outermost.
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

/// Writes them.
pub fn write(out: &mut impl Write, subject: Subject<'_>) -> io::Result<()> {
    let bytes = |metric| Measure { metric, blocks: false };
    let mut measures = vec![subject.measure];
    measures.extend([Metric::Peak, Metric::End, Metric::Total].map(bytes));
    measures.push(Measure { metric: Metric::Total, blocks: true });
    let mut profiles: Vec<Sampled> = Vec::new();
    for (place, measure) in measures.iter().enumerate() {
        if !measures[..place].contains(measure) {
            profiles.push(sampled(Subject { measure: *measure, ..subject }));
        }
    }
    let document = Document {
        schema: SCHEMA,
        name: text::short_command(&subject.profile.command),
        active_profile_index: 0,
        exporter: concat!("heaptape ", env!("CARGO_PKG_VERSION")).to_owned(),
        shared: Shared { frames: subject.profile.frames.iter().map(named).collect() },
        profiles,
    };
    serde_json::to_writer(&mut *out, &document)?;
    writeln!(out)
}

fn named(frame: &Frame) -> Named<'_> {
    let file = frame.file.as_deref().or(Some(&*frame.module).filter(|module| !module.is_empty()));
    Named { name: text::plain(&frame.label()), file, line: frame.file.as_ref().and(frame.line) }
}

fn sampled(subject: Subject<'_>) -> Sampled {
    let (unit, what) = if subject.measure.blocks { ("none", "blocks") } else { ("bytes", "bytes") };
    let (mut samples, mut weights, mut end_value) = (Vec::new(), Vec::new(), 0u64);
    for (stack, weight) in subject.stacks() {
        // A reader without 64-bit numbers adds them up as well.
        let fits = end_value.checked_add(weight).filter(|&sum| sum <= EXACT);
        let Some(sum) = fits else { continue };
        end_value = sum;
        samples.push(stack.frames.iter().rev().map(|frame| frame.0).collect());
        weights.push(weight);
    }
    let name = format!("{what} {}", subject.measured());
    Sampled { kind: "sampled", name, unit, start_value: 0, end_value, samples, weights }
}

/// Whole numbers up to this one are exact in JavaScript.
const EXACT: u64 = 1 << 53;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::sample::{SERVICE, shares, subject};
    use heaptape_analyze::profile::Profile;
    use serde_json::Value;

    fn document(profile: &Profile) -> Value {
        let mut out = Vec::new();
        write(&mut out, subject(profile)).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    /// What the schema requires of every file and of sampled profiles.
    fn check(document: &Value) {
        let fields = |value: &Value| -> Vec<String> {
            value.as_object().unwrap().keys().map(String::clone).collect()
        };
        let known = ["$schema", "activeProfileIndex", "exporter", "name", "profiles", "shared"];
        assert!(fields(document).iter().all(|field| known.contains(&field.as_str())));
        assert!(document["name"].is_string() && document["exporter"].is_string());
        assert_eq!(document["$schema"], SCHEMA);
        let frames = document["shared"]["frames"].as_array().unwrap();
        for frame in frames {
            assert!(frame["name"].is_string());
            let known = ["name", "file", "line", "col"];
            assert!(fields(frame).iter().all(|field| known.contains(&field.as_str())));
            assert!(frame.get("file").is_none_or(Value::is_string));
            assert!(frame.get("line").is_none_or(Value::is_u64));
        }
        let profiles = document["profiles"].as_array().unwrap();
        assert!(document["activeProfileIndex"].as_u64().unwrap() < profiles.len() as u64);
        for profile in profiles {
            assert_eq!(profile["type"], "sampled");
            let mut known =
                ["type", "name", "unit", "startValue", "endValue", "samples", "weights"];
            known.sort_unstable();
            let mut there = fields(profile);
            there.sort_unstable();
            assert_eq!(there, known);
            assert!(profile["name"].is_string());
            assert!(["bytes", "none"].contains(&profile["unit"].as_str().unwrap()));
            let samples = profile["samples"].as_array().unwrap();
            let weights = profile["weights"].as_array().unwrap();
            assert_eq!(samples.len(), weights.len());
            let number = |value: &Value| value.as_u64().unwrap();
            for frame in samples.iter().flat_map(|sample| sample.as_array().unwrap()) {
                assert!(number(frame) < frames.len() as u64);
            }
            let sum: u64 = weights.iter().map(number).sum();
            assert_eq!(number(&profile["endValue"]) - number(&profile["startValue"]), sum);
        }
    }

    #[test]
    fn the_schema_holds_and_the_shares_are_right() {
        let profile: Profile = SERVICE.parse().unwrap();
        let document = document(&profile);
        check(&document);
        let profiles = document["profiles"].as_array().unwrap();
        let names: Vec<&str> = profiles.iter().map(|p| p["name"].as_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "bytes live at the peak",
                "bytes live at the end",
                "bytes made in all",
                "blocks made in all"
            ]
        );
        let frames = &document["shared"]["frames"];
        let stacks = profiles[0]["samples"].as_array().unwrap().iter().map(|sample| {
            let numbers = sample.as_array().unwrap().iter().map(|n| n.as_u64().unwrap());
            numbers.map(|n| frames[n as usize]["name"].as_str().unwrap().to_owned()).collect()
        });
        let weights = profiles[0]["weights"].as_array().unwrap().iter();
        shares(stacks.zip(weights.map(|w| w.as_u64().unwrap())));
    }

    #[test]
    fn figures_of_any_size_and_none_are_written() {
        for text in ["a 18446744073709551615\nb 18446744073709551615\nc 7", "a 0", ""] {
            check(&document(&text.parse().unwrap()));
        }
    }
}
