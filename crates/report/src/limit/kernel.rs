//! What the kernel says of a whole job: why it was ended, its control group, and what of it was resident, by parts.

use heaptape_ledger::{Basis, Group, Judge, Kernel, Looks, Over, Parts};

use super::Figures;
use crate::document::{Part, Rows};
use crate::size::{Count, Size};
use crate::table::Align::{Left, Right, Text};
use crate::text;

/// Why a job was ended for what was resident, without a capital and an end.
pub fn over(over: &Over) -> String {
    let bytes = Size(over.bytes);
    let who = over.who.as_ref().map(|(pid, command, resident)| {
        let name = command.first().map_or("a process", |word| text::file_name(word));
        let size = resident.map_or_else(String::new, |bytes| format!(", {}", Size(bytes)));
        format!("{name} (pid {pid}{size})")
    });
    let most = |who: Option<String>| who.map_or_else(String::new, |who| format!(", most in {who}"));
    match over.judge {
        Judge::Kernel | Judge::Machine => {
            let who = who.unwrap_or_else(|| "a process".to_owned());
            let place = match over.judge {
                Judge::Kernel => "at the limit of the job's cgroup",
                _ => "for want of memory elsewhere: the job's cgroup was well below its limit",
            };
            format!("the kernel killed {who} {place}; {bytes} or more were resident in it")
        }
        Judge::Resident => format!("{bytes} were resident{}", most(who)),
        Judge::Unaccounted => format!(
            "more was resident than the limit, and {bytes} of it that nothing charged stands for{}",
            most(who)
        ),
    }
}

pub(super) fn parts(figures: &Figures<'_>) -> Vec<Part> {
    let Some(kernel) = &figures.job.kernel else { return Vec::new() };
    let mut parts = Vec::new();
    if kernel.looks.count > 0 {
        parts.push(Part::Heading("What was resident when it was most".to_owned()));
        parts.push(Part::Table(rows(&kernel.most)));
    }
    parts.extend(kernel.group.as_ref().map(|group| Part::Text(group_sentence(group))));
    parts.extend(kernel.missing.as_deref().map(|why| Part::Text(missing(figures, why))));
    if kernel.looks.count > 0 {
        parts.push(Part::Text(looks(kernel)));
    }
    parts
}

fn rows(most: &Parts) -> Rows {
    let mut rows = Rows::new(&[("", Left), ("bytes", Right), ("what it is", Text)]);
    let parts = [
        ("anonymous", Some(most.anonymous), "private memory: heap, data, stacks, copies"),
        ("shared", Some(most.shared), "memory that processes share, and files in tmpfs"),
        ("swap", Some(most.swap).filter(|&bytes| bytes > 0), "what of both was moved to swap"),
        ("heaptape", most.ours, "its notes in the programs, left out of the sum"),
    ];
    let mut row = |name: &str, bytes: u64, what: &str| {
        rows.row([name.to_owned(), Size(bytes).to_string(), what.to_owned()]);
    };
    for (name, bytes, what) in parts {
        bytes.into_iter().for_each(|bytes| row(name, bytes, what));
    }
    row("all", most.held(), "");
    let beside = [
        ("page cache", most.cache, "of files; not the programs': the kernel takes it back"),
        ("kernel", most.kernel, "page tables, stacks, pipes, sockets; beside the sum"),
    ];
    for (name, bytes, what) in beside {
        bytes.into_iter().for_each(|bytes| row(name, bytes, what));
    }
    rows
}

/// The group: what it was limited to, what it reached.
fn group_sentence(group: &Group) -> String {
    let mut words = format!(
        "The job had a cgroup of its own (version {}), which the kernel lets have {}",
        group.version,
        Size(group.limit)
    );
    if let Some(peak) = group.peak {
        words +=
            &format!("; at most {} were in it, page cache and the kernel's own too", Size(peak));
    }
    if let Some(current) = group.current {
        words += &format!(", at the end {}", Size(current));
    }
    match group.oom_kills {
        0 => words + ".",
        n => format!(
            "{words}. The kernel killed {} in it.",
            text::counted(n, "process", "processes")
        ),
    }
}

/// Why there was no group, or not for all.
fn missing(figures: &Figures<'_>, why: &str) -> String {
    let instead = match figures.job.basis {
        Basis::Resident => "The limit is held by looks at its processes.",
        _ => "What a program takes that is not counted shows, and is not stopped.",
    };
    let what = match figures.job.kernel.as_ref().and_then(|kernel| kernel.group.as_ref()) {
        Some(_) => "Not all of the job was in it",
        None => "The job had no cgroup of its own",
    };
    format!("{what}: {why} {instead}")
}

/// How closely it was looked at, and what may have been missed.
fn looks(kernel: &Kernel) -> String {
    let Looks { count, longest, grown } = kernel.looks;
    format!(
        "Looked at {}, at most {}.{:03} ms old; between two looks at most {} came.",
        times(count),
        longest / 1000,
        longest % 1000,
        Size(grown)
    )
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{} times", Count(count)) }
}
