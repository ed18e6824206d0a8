//! What is on a tape, for people: sentences, then a row per process.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use heaptape_analyze::overview::{Member, Overview};
use heaptape_analyze::{Call, Placement, ProcessSummary, Summary};

use crate::size::{Count, Millis, Size};
use crate::table::{Align, Style, Table};
use crate::{text, unseen};

/// Writes the summary of the tape that was opened as `file`.
pub fn write(
    out: &mut impl Write,
    file: &str,
    overview: &Overview,
    style: Style,
) -> io::Result<()> {
    write_recording(out, file, overview)?;
    write_faults(out, overview)?;
    write_foremost(out, &overview.members)?;
    write_jobs(out, &overview.members)?;
    write_verdicts(out, overview)?;
    write_stackless(out, overview)?;
    write_settings(out, overview)?;
    write_uncovered(out, overview, style)?;
    if overview.members.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    // Only of several is a sum of use, and only the sum of all is the job's.
    let sum = match overview.members.len() {
        0 | 1 => None,
        n if n == overview.summary.processes.len() => Some("job"),
        _ => Some("sum"),
    };
    processes(&overview.members, sum, style).write(out)?;
    writeln!(out)?;
    calls(&overview.members, sum, style).write(out)?;
    if overview.members.iter().any(|m| m.process.sites.sites > 0) {
        writeln!(out)?;
        stacks(&overview.members, sum, style).write(out)?;
    }
    let file = text::plain(&text::command(&[file.to_owned()]));
    writeln!(out, "\nNext: heaptape live {file} --at peak · heaptape events {file} 0..20")
}

fn write_recording(out: &mut impl Write, file: &str, overview: &Overview) -> io::Result<()> {
    let s = &overview.summary;
    let host = if s.header.host.is_empty() { "an unnamed host" } else { &s.header.host };
    writeln!(
        out,
        "{} is a recording of: {}",
        text::plain(file),
        text::plain(&text::command(&s.header.command))
    )?;
    write!(out, "It was made on {}", text::plain(host))?;
    if let Some(started) = UNIX_EPOCH.checked_add(Duration::from_nanos(s.header.started)) {
        write!(out, " at {}", humantime::format_rfc3339_seconds(started))?;
    }
    match text::incomplete(s) {
        Some(why) => writeln!(out, " and is incomplete: {why}.")?,
        None => writeln!(out, " and is complete.")?,
    }
    write!(
        out,
        "It holds {} of {}",
        text::counted(s.events, "event", "events"),
        text::counted(s.processes.len() as u64, "process", "processes"),
    )?;
    if let Some(duration) = overview.duration() {
        write!(out, " over {}", Millis(duration))?;
    }
    write!(out, ", in {}", Size(s.bytes))?;
    match overview.bytes_per_event() {
        Some(ratio) => writeln!(out, " ({ratio:.2} bytes an event)."),
        None => writeln!(out, "."),
    }
}

fn write_faults(out: &mut impl Write, overview: &Overview) -> io::Result<()> {
    let s = &overview.summary;
    writeln!(
        out,
        "Lost events: {}{}. Order faults: {}. Unknown frees: {}.",
        Count(s.lost),
        if ends_early(s) { " up to where the tape ends" } else { "" },
        Count(s.order_faults),
        Count(s.unknown_frees)
    )?;
    match unseen::faults(&overview.summary) {
        Some(sentence) => writeln!(out, "{sentence}"),
        None => Ok(()),
    }
}

/// Whether more may have happened than the tape has room to say.
fn ends_early(summary: &Summary) -> bool {
    let only_lost = summary.lost > 0 && !summary.cut && summary.ended.is_none();
    !summary.complete && !only_lost
}

/// Of several processes, names those that one looks for first.
fn write_foremost(out: &mut impl Write, members: &[Member]) -> io::Result<()> {
    if members.len() < 2 {
        return Ok(());
    }
    // max_by_key gives the last of equals.
    let first_of = |key: fn(&ProcessSummary) -> u64| {
        members.iter().rev().map(|m| &m.process).max_by_key(|p| key(p))
    };
    if let Some(most) = first_of(|p| p.events) {
        let events = text::counted(most.events, "event", "events");
        writeln!(out, "Most events: {}, with {events}.", text::process(most))?;
    }
    if let Some(highest) = first_of(|p| p.peak_requested) {
        let peak = Size(highest.peak_requested);
        writeln!(out, "Highest peak: {}, with {peak}.", text::process(highest))?;
    }
    Ok(())
}

/// Names processes that have made blocks and have no stacks, where those were wanted.
fn write_stackless(out: &mut impl Write, overview: &Overview) -> io::Result<()> {
    const NAMED: usize = 5;
    let makes = |p: &ProcessSummary| {
        let made = p.calls.iter().filter(|(call, _)| !matches!(call, Call::Free | Call::Delete));
        made.fold(0, |sum: u64, (_, count)| sum.saturating_add(count)) > 0
    };
    let is_without = |p: &&ProcessSummary| p.sites.sites == 0 && makes(p);
    let without: Vec<_> = overview.members.iter().map(|m| &m.process).filter(is_without).collect();
    if without.is_empty() || overview.summary.header.stacks().is_none() {
        return Ok(());
    }
    let names: Vec<_> = without.iter().take(NAMED).map(|p| text::process(p)).collect();
    let more = match without.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {} more", Count(more as u64)),
    };
    writeln!(
        out,
        "No call stacks could be had of (they need glibc 2.35 or later, and room in the address space): {}{more}.",
        names.join("; ")
    )
}

/// Says which parallel jobs the processes belong to.
fn write_jobs(out: &mut impl Write, members: &[Member]) -> io::Result<()> {
    let mut jobs: Vec<(&Placement, Vec<u32>)> = Vec::new();
    for placement in members.iter().filter_map(|m| m.process.placement.as_ref()) {
        let is_same = |other: &Placement| {
            (&other.job, &other.host, &other.launcher)
                == (&placement.job, &placement.host, &placement.launcher)
        };
        match jobs.iter_mut().find(|(first, _)| is_same(first)) {
            Some((_, ranks)) if ranks.contains(&placement.rank) => {}
            Some((_, ranks)) => ranks.push(placement.rank),
            None => jobs.push((placement, vec![placement.rank])),
        }
    }
    for (job, ranks) in jobs {
        let count = Count(ranks.len() as u64);
        match job.size {
            Some(size) => write!(out, "MPI: {count} of {size} ranks")?,
            None => write!(out, "MPI: {}", text::counted(ranks.len() as u64, "rank", "ranks"))?,
        }
        for (before, what) in
            [(" of job ", &job.job), (" on ", &job.host), (", started by ", &job.launcher)]
        {
            if !what.is_empty() {
                write!(out, "{before}{}", text::plain(what))?;
            }
        }
        writeln!(out, ".")?;
    }
    Ok(())
}

fn write_verdicts(out: &mut impl Write, overview: &Overview) -> io::Result<()> {
    for member in &overview.members {
        let Some(verdict) = &member.verdict else { continue };
        let events = text::counted(verdict.events, "event", "events");
        write!(out, "Checked {events} of process {}: ", text::pid(&member.process))?;
        if verdict.faults == 0 {
            writeln!(out, "no two live blocks overlap.")?;
            continue;
        }
        writeln!(out, "{}:", text::counted(verdict.faults, "overlap", "overlaps"))?;
        for o in &verdict.first {
            writeln!(
                out,
                "  event {}: {} bytes at {:#x} lie over {} bytes at {:#x}",
                o.index, o.size, o.address, o.other_size, o.other_address
            )?;
        }
    }
    Ok(())
}

fn write_settings(out: &mut impl Write, overview: &Overview) -> io::Result<()> {
    if overview.settings.is_empty() {
        return Ok(());
    }
    writeln!(out, "Settings:")?;
    for (name, value) in &overview.settings {
        writeln!(out, "  {}={}", text::plain(name), text::plain(value))?;
    }
    Ok(())
}

fn write_uncovered(out: &mut impl Write, overview: &Overview, style: Style) -> io::Result<()> {
    let uncovered = &overview.summary.uncovered;
    if uncovered.is_empty() {
        return Ok(());
    }
    let count = text::counted(uncovered.len() as u64, "process was", "processes were");
    writeln!(out, "{count} not recorded, or only in part:\n")?;
    let columns = [("pid", Align::Right), ("command", Align::Text), ("why", Align::Text)];
    let mut table = Table::new(style, &columns);
    for u in uncovered {
        table.row([text::or_dash(u.known_pid()), text::command(&u.command), u.why.clone()]);
    }
    table.write(out)
}

fn processes(members: &[Member], sum: Option<&str>, style: Style) -> Table {
    let ranked = members.iter().any(|m| m.process.rank.is_some());
    let mut columns = vec![
        ("#", Align::Right),
        ("pid", Align::Right),
        ("parent", Align::Right),
        ("rank", Align::Right),
        ("events", Align::Right),
        ("threads", Align::Right),
        ("peak", Align::Right),
        ("at", Align::Right),
        ("end", Align::Right),
        ("blocks", Align::Right),
        ("exit", Align::Left),
        ("command", Align::Text),
    ];
    if !ranked {
        columns.retain(|c| c.0 != "rank");
    }
    let mut table = Table::new(style, &columns).one_line();
    for member in members {
        let p = &member.process;
        let mut row = vec![
            p.number.to_string(),
            text::or_dash(p.known_pid()),
            text::or_dash(member.parent_pid),
        ];
        if ranked {
            row.push(text::or_dash(p.rank));
        }
        row.extend([
            Count(p.events).to_string(),
            Count(p.threads).to_string(),
            Size(p.peak_requested).to_string(),
            p.peak_at.to_string(),
            Size(p.end_requested).to_string(),
            Count(p.end_blocks).to_string(),
            text::exit(member),
            text::command(&p.command),
        ]);
        table.row(row);
    }
    if let Some(name) = sum {
        let events = total(members, |p| p.events);
        let place = if ranked { 4 } else { 3 };
        let mut row = vec![String::new(); columns.len()];
        row.splice(..1, [name.to_owned()]);
        row.splice(place..=place, [events]);
        table.row(row);
    }
    table
}

/// Calls by process; a call that nobody made has no column.
fn calls(members: &[Member], sum: Option<&str>, style: Style) -> Table {
    let made: Vec<Call> = Call::ALL
        .into_iter()
        .filter(|&call| members.iter().any(|m| m.process.calls.of(call) > 0))
        .collect();
    let mut columns = vec![("#", Align::Right)];
    columns.extend(made.iter().map(|call| (call.name(), Align::Right)));
    columns.push(("free(NULL)", Align::Right));
    let mut table = Table::new(style, &columns);
    for member in members {
        let p = &member.process;
        let mut row = vec![p.number.to_string()];
        row.extend(made.iter().map(|&call| Count(p.calls.of(call)).to_string()));
        row.push(Count(p.free_null).to_string());
        table.row(row);
    }
    if let Some(name) = sum {
        let mut row = vec![name.to_owned()];
        row.extend(made.iter().map(|&call| total(members, |p| p.calls.of(call))));
        row.push(total(members, |p| p.free_null));
        table.row(row);
    }
    table
}

/// Call stacks by process, and those that end before their outermost frame: at the depth, at code that does not say how to go on,
/// or where the stack can't be read.
fn stacks(members: &[Member], sum: Option<&str>, style: Style) -> Table {
    type Figure = (&'static str, fn(&ProcessSummary) -> u64);
    let figures: [Figure; 5] = [
        ("stacks", |p| p.sites.sites),
        ("cut at depth", |p| p.sites.cut),
        ("cut at foreign code", |p| p.sites.foreign),
        ("unreadable", |p| p.sites.unreadable),
        ("scripts' functions", |p| p.sites.codes),
    ];
    let is_told = |&(name, figure): &Figure| {
        !name.starts_with("scripts") || members.iter().any(|m| figure(&m.process) > 0)
    };
    let figures: Vec<Figure> = figures.into_iter().filter(is_told).collect();
    let mut columns = vec![("#", Align::Right)];
    columns.extend(figures.iter().map(|figure| (figure.0, Align::Right)));
    let mut table = Table::new(style, &columns);
    for member in members {
        let mut row = vec![member.process.number.to_string()];
        row.extend(figures.iter().map(|(_, figure)| Count(figure(&member.process)).to_string()));
        table.row(row);
    }
    if let Some(name) = sum {
        let mut row = vec![name.to_owned()];
        row.extend(figures.iter().map(|&(_, figure)| total(members, figure)));
        table.row(row);
    }
    table
}

/// The sum of a figure over all rows.
fn total(members: &[Member], figure: impl Fn(&ProcessSummary) -> u64) -> String {
    let sum = members.iter().fold(0u64, |sum, m| sum.saturating_add(figure(&m.process)));
    Count(sum).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::overview;
    use heaptape_analyze::{CallCounts, Header};

    #[test]
    fn a_summary_reads_as_sentences() {
        let mut out = Vec::new();
        let style = Style { width: 120, color: false };
        write(&mut out, "a b.tape", &overview(), style).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = "\
a b.tape is a recording of: sh -c \"prog 'two words'\"
It was made on node7 at 2023-11-14T22:13:20Z and is incomplete: the recording ended at its largest size (--max-size).
It holds 1,234,567 events of 1 process over 2.000 s, in 1.0 MiB (0.85 bytes an event).
Lost events: 0 up to where the tape ends. Order faults: 0. Unknown frees: 1.
Checked 1,234,567 events of process 78: no two live blocks overlap.
Settings:
  MALLOC_ARENA_MAX=1
1 process was not recorded, or only in part:

pid  command         why
 80  /sbin/static    statically linked

#  pid  parent     events  threads       peak    at      end  blocks  exit      command
1   78      77  1,234,567        3  933.2 MiB  1000  2.0 KiB       7  signal 9  prog 'two words'

#  free(NULL)
1           4

Next: heaptape live 'a b.tape' --at peak · heaptape events 'a b.tape' 0..20
";
        assert_eq!(text, expected, "{text}");
    }

    #[test]
    fn of_several_processes_the_sum_and_the_foremost_are_told() {
        let mut two = overview();
        let mut second = two.members[0].clone();
        second.process.pid = 79;
        second.process.events = 3;
        second.process.peak_requested = 1 << 30;
        second.process.command = vec!["a\nb\x1b".into()];
        two.members.push(second);
        let mut out = Vec::new();
        write(&mut out, "x", &two, Style { width: 120, color: false }).unwrap();
        let text = String::from_utf8(out).unwrap();
        for line in [
            "Most events: process 78 (#1), prog 'two words', with 1,234,567 events.",
            "Highest peak: process 79 (#1), 'a\\nb\\u{1b}', with 1.0 GiB.",
            "sum               1,234,570",
            "sum           8",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }

    #[test]
    fn processes_that_could_have_no_stacks_are_named_where_stacks_were_wanted() {
        let told = |overview: &Overview| {
            let mut out = Vec::new();
            write(&mut out, "x", overview, Style { width: 120, color: false }).unwrap();
            let text = String::from_utf8(out).unwrap();
            text.lines().find(|line| line.starts_with("No call stacks")).map(str::to_owned)
        };
        let mut all = overview();
        all.members[0].process.calls = CallCounts::default();
        all.summary.header.settings.push((Header::STACKS.to_owned(), "64".to_owned()));
        assert_eq!(told(&all), None, "it has made nothing");
        all.members[0].process.calls = [(Call::Free, 3), (Call::New, 2)].into_iter().collect();
        let ends = "room in the address space): process 78 (#1), prog 'two words'.";
        assert!(told(&all).is_some_and(|line| line.ends_with(ends)), "{:?}", told(&all));
        all.members = vec![all.members[0].clone(); 7];
        assert!(told(&all).is_some_and(|line| line.ends_with("; and 2 more.")));
        all.members.truncate(1);
        all.members[0].process.sites.sites = 1;
        assert_eq!(told(&all), None);
        all.members[0].process.sites.sites = 0;
        all.summary.header.settings.pop();
        assert_eq!(told(&all), None);
    }

    #[test]
    fn a_tape_without_processes_has_no_tables() {
        let mut empty = overview();
        empty.summary.processes.clear();
        empty.members.clear();
        let mut out = Vec::new();
        write(&mut out, "x", &empty, Style { width: 80, color: false }).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("of 0 processes, in") && !text.contains("peak"), "{text}");
    }
}
