//! What came of the limit, as sentences: the verdict, and who broke it.

use heaptape_ledger::{Basis, Bounds, FirstRefusal, Job, Kernel, OnLimit, Process, Verdict};

use super::Figures;
use crate::document::Part;
use crate::size::{Millis, Size};
use crate::text;

pub(super) fn parts(figures: &Figures<'_>) -> Vec<Part> {
    let job = figures.job;
    let is_good = job.verdict() == Verdict::Within;
    let mut parts = vec![Part::Verdict(is_good, verdict(figures))];
    if matches!(job.verdict(), Verdict::Refused | Verdict::Killed) {
        parts.push(Part::Text(format!("{}{}", capital(&held(job)), unseen(job))));
    }
    if job.verdict() == Verdict::Killed && !job.killed && job.refused > 0 {
        parts.push(Part::Text(refused(figures)));
    }
    parts.extend(beyond(job).map(Part::Text));
    parts
}

/// That more was resident than the limit, though no more was charged.
fn beyond(job: &Job) -> Option<String> {
    let limit = job.limit?;
    let resident = job.resident.filter(|&resident| resident > limit)?;
    Some(format!(
        "{} or more were resident at one time, which is more than the limit of {}. Resident but not charged are code and \
         files that are mapped, what allocators keep beside the blocks, and the copies that the processes of a fork \
         have made of pages which they had shared.",
        Size(resident),
        Size(limit)
    ))
}

/// The verdict in one sentence.
fn verdict(figures: &Figures<'_>) -> String {
    let job = figures.job;
    match job.verdict() {
        Verdict::Within if job.limit.is_none() => capital(&held(job)),
        Verdict::Within => format!("Within the limit: {}{}", held(job), unseen(job)),
        Verdict::Uncovered => {
            format!("Not all was counted; of what was, {}{}", held(job), unseen(job))
        }
        Verdict::Unaccounted => format!(
            "{} were resident that nothing charged stands for; beside that, {}",
            Size(job.unaccounted.unwrap_or(0)),
            held(job)
        ),
        Verdict::Tampered => format!(
            "Tampered with: a program has written over the memory in which the job is counted, so no figure here can be relied on. {}",
            capital(&held(job))
        ),
        Verdict::Refused => refused(figures),
        Verdict::Killed => killed(figures),
    }
}

/// The most that was held, as a sentence that has no capital.
fn held(job: &Job) -> String {
    if let (Basis::Resident, Some(kernel)) = (job.basis, &job.kernel) {
        return resident(job, kernel);
    }
    let most = job.peak.upper;
    match job.limit {
        Some(limit) => {
            format!(
                "at most {} of {} ({}) were held.",
                Size(most),
                Size(limit),
                text::share(most, limit)
            )
        }
        None => format!("at most {} were held.", Size(most)),
    }
}

/// The same of a limit on what is resident: what looks have shown, and what the kernel has kept as the most, unless page
/// cache made that large.
fn resident(job: &Job, kernel: &Kernel) -> String {
    let (limit, lower) = (job.limit.unwrap_or(0), kernel.most.held());
    let peak = kernel.group.as_ref().and_then(|group| group.peak).filter(|&peak| peak <= limit);
    let most = match peak {
        Some(upper) => text::bounds(Bounds { lower, upper: upper.max(lower) }),
        None => format!("{} or more", Size(lower)),
    };
    format!("{most} of {} ({}) were resident at most.", Size(limit), text::share(lower, limit))
}

/// How much was not counted, behind another sentence.
fn unseen(job: &Job) -> String {
    let mut words = String::new();
    match job.uncovered.len() as u64 {
        0 => {}
        n => words += &format!(" {} not counted: see the end.", were(n, "process", "processes")),
    }
    match job.uncounted_threads {
        0 => {}
        n => {
            words +=
                &format!(" There was no room to count {}.", text::counted(n, "thread", "threads"))
        }
    }
    words
}

fn were(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", text::counted(n, one, many), if n == 1 { "was" } else { "were" })
}

fn refused(figures: &Figures<'_>) -> String {
    let job = figures.job;
    let requests = text::counted(job.refused, "request", "requests");
    let Some(first) = &job.first else { return format!("Refused {requests}.") };
    let which = if job.refused == 1 { "it came" } else { "the first came" };
    let at = Millis(first.time);
    format!("Refused {requests}; {which} at {at} from {}.", asked(job, first, figures.function))
}

fn killed(figures: &Figures<'_>) -> String {
    let job = figures.job;
    let by_kernel = job.over().is_some_and(|over| over.judge.is_kernel());
    let what = match figures.settings.on_limit {
        _ if by_kernel => "Killed",
        OnLimit::Stop => "Stopped",
        OnLimit::Fail | OnLimit::Kill => "Killed",
    };
    if let Some(over) = job.over() {
        return format!("{what} at {}: {}.", Millis(over.time), super::over(over));
    }
    if let Some(sentence) = super::felled::verdict(figures).filter(|_| !job.killed) {
        return sentence;
    }
    match &job.first {
        Some(first) => format!(
            "{what} at {}, at the first request beyond the limit, from {}.",
            Millis(first.time),
            asked(job, first, figures.function)
        ),
        None => format!("{what} at the first request beyond the limit."),
    }
}

fn asked(job: &Job, first: &FirstRefusal, function: Option<&str>) -> String {
    refusal(first, job.first_refused(), job.limit, function)
}

/// Who asked for how much and when, without a capital and an end: `rank 2 (pid 4711 on host node1, thread
/// 4712): 512.0 MiB asked by main (sizes+0x1234) when the job held 900.1 MiB of 1.0 GiB`.
pub fn refusal(
    first: &FirstRefusal,
    process: Option<&Process>,
    limit: Option<u64>,
    function: Option<&str>,
) -> String {
    let mut words = format!("{}: {} ", who(first, process), Size(first.bytes));
    words += if first.is_data { "of data with bss" } else { "asked" };
    if let Some(caller) = caller(first, process, function) {
        words += &format!(" {} {caller}", if first.is_data { "as in" } else { "by" });
    }
    words += &format!(" when the job held {}", Size(first.job));
    if let Some(limit) = limit {
        words += &format!(" of {}", Size(limit));
        // As they are printed, the two may look as if there had been no room at all.
        let room = limit.saturating_sub(first.job);
        if room > 0 && Size(limit).to_string() == Size(first.job).to_string() {
            words += &format!(" ({} left)", Size(room));
        }
    }
    words
}

/// `rank 2 (pid 4711 on host node1, thread 4712)`; without a rank the command's name.
fn who(first: &FirstRefusal, process: Option<&Process>) -> String {
    let name = match process {
        Some(Process { rank: Some(rank), .. }) => format!("rank {rank}"),
        Some(process) if !process.name().is_empty() => process.name().to_owned(),
        _ => "a process".to_owned(),
    };
    let pid = process.and_then(|process| process.pid);
    let mut place = pid.map_or_else(|| "of an unknown pid".to_owned(), |pid| format!("pid {pid}"));
    if let Some(process) = process.filter(|process| !process.host.is_empty()) {
        place += &format!(" on host {}", process.host);
    }
    if first.thread != 0 {
        place += &format!(", thread {}", first.thread);
    }
    format!("{name} ({place})")
}

/// Where it was asked: `function (module+0xoffset)`, or as much of it as is known.
pub(crate) fn caller(
    first: &FirstRefusal,
    process: Option<&Process>,
    function: Option<&str>,
) -> Option<String> {
    let Some((path, offset)) = &first.place else {
        return (first.caller != 0).then(|| format!("{:#x}", first.caller));
    };
    let place = format!("{}+{offset:#x}", module(path, process));
    Some(match function {
        Some(function) => format!("{function} ({place})"),
        None => place,
    })
}

/// The name of a module: of an executable, whose path is empty, its command's.
pub(crate) fn module<'a>(path: &'a str, process: Option<&'a Process>) -> &'a str {
    match (path, process) {
        ("", Some(process)) if !process.name().is_empty() => process.name(),
        ("", _) => "(executable)",
        (path, _) => text::file_name(path),
    }
}

fn capital(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
