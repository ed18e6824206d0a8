//! What the job held: its peaks, the rows of the charge, and what it took of the machine.

use heaptape_ledger::{Basis, Bounds, Charged};

use super::Figures;
use crate::document::{Part, Rows};
use crate::size::{Count, Size};
use crate::table::Align::{Left, Right, Text};
use crate::text;

pub(super) fn parts(figures: &Figures<'_>) -> Vec<Part> {
    let mut parts = vec![Part::Heading("The most at one instant".to_owned()), peaks(figures)];
    parts.extend(own_peaks(figures));
    parts.extend(charged(figures));
    parts.extend(unaccounted(figures));
    // A command that was not started took nothing.
    let was_started = figures.job.elapsed > 0.0;
    parts.extend(was_started.then(|| Part::Text(machine(figures))));
    parts
}

fn peaks(figures: &Figures<'_>) -> Part {
    let job = figures.job;
    let mut rows =
        Rows::new(&[("", Left), ("peak", Right), ("in bytes", Right), ("what it is", Text)]);
    let charged = match job.limit {
        Some(_) if job.basis != Basis::Resident => {
            "what is held against the limit: all that is listed below"
        }
        _ => "all that is listed below",
    };
    rows.row(peak("charged", Some(job.peak), charged));
    rows.row(peak("requested", Some(job.requested), "heap blocks, as the programs asked for them"));
    rows.row(peak("usable", job.usable, "heap blocks, as the allocators set them aside"));
    // What lived between two samples was not seen.
    rows.row([
        "resident".to_owned(),
        job.resident.map_or_else(|| "n/a".to_owned(), |bytes| format!("{} or more", Size(bytes))),
        job.resident.map_or_else(String::new, |bytes| Count(bytes).to_string()),
        "pages in RAM, in samples; shared ones once".to_owned(),
    ]);
    Part::Table(rows)
}

fn peak(name: &str, peak: Option<Bounds>, what: &str) -> [String; 4] {
    let bytes = peak.map_or_else(String::new, |peak| Count(peak.upper).to_string());
    let size = peak.map_or_else(|| "n/a".to_owned(), text::bounds);
    [name.to_owned(), size, bytes, what.to_owned()]
}

/// The sum of peaks that people reckon with, and that it is none.
fn own_peaks(figures: &Figures<'_>) -> Option<Part> {
    let (job, own) = (figures.job, figures.totals.own_peaks);
    if job.counted().count() < 2 {
        return None;
    }
    let apart = if own.lower > job.peak.upper {
        "were never held at one time"
    } else {
        "need not have come at one time"
    };
    Some(Part::Text(format!(
        "The peaks of the {} add up to {}, which {apart}.",
        text::counted(job.counted().count() as u64, "process", "processes"),
        text::bounds(own)
    )))
}

/// The rows that the charge consists of, those that are not empty.
fn charged(figures: &Figures<'_>) -> Vec<Part> {
    let (job, charged) = (figures.job, &figures.job.charged);
    let mut rows =
        Rows::new(&[("", Left), ("bytes", Right), ("share", Right), ("what it is", Text)]);
    let sum = charged.total();
    for (name, bytes, what) in named(charged, job.basis) {
        if bytes > 0 {
            let share = text::share(bytes, sum);
            rows.row([name.to_owned(), Size(bytes).to_string(), share, what.to_owned()]);
        }
    }
    if rows.is_empty() {
        return Vec::new();
    }
    rows.row(["all".to_owned(), Size(sum).to_string(), text::share(sum, sum), String::new()]);
    let mut parts =
        vec![Part::Heading("What was held when it was most".to_owned()), Part::Table(rows)];
    parts.push(Part::Text("A sample, which may lie a little below the peak.".to_owned()));
    parts
}

fn named(charged: &Charged, basis: Basis) -> [(&'static str, u64, &'static str); 7] {
    let Charged { heap, mappings, shared, data, stacks, mpi_runtime, reserve, .. } = *charged;
    let of_mpi = match charged.mpi_excluded {
        true => "what MPI_Init took for itself; left out of the sum",
        false => "what MPI_Init took for itself",
    };
    let blocks = match basis {
        Basis::Requested | Basis::Resident => "heap blocks, as asked for",
        Basis::Usable => "heap blocks, as set aside by the allocator",
    };
    [
        ("heap", heap, blocks),
        ("mappings", mappings, "writable private memory that programs mapped themselves"),
        ("shared", shared, "memory that processes share, counted once"),
        ("data", data, "writable data of executables and libraries, bss included"),
        ("stacks", stacks, "stacks, as far as they were touched, in steps"),
        ("MPI runtime", mpi_runtime, of_mpi),
        ("reserve", reserve, "set aside for libraries after a refusal"),
    ]
}

fn unaccounted(figures: &Figures<'_>) -> Option<Part> {
    let bytes = figures.job.unaccounted.filter(|&bytes| bytes > 0)?;
    Some(Part::Text(format!(
        "Unaccounted: {} or more were resident that none of these stands for.",
        Size(bytes)
    )))
}

/// What the job took of the machine beside memory.
fn machine(figures: &Figures<'_>) -> String {
    let job = figures.job;
    let [user, system] = job.processor;
    let [minor, major] = job.faults;
    let [peak, total] = job.threads;
    format!(
        "It took {:.3} s, and {user:.3} s of processor time in programs and {system:.3} s in the kernel. Page faults: \
         {} minor, {} major. Threads: {} at one time, {} in all. {}.",
        job.elapsed,
        Count(minor),
        Count(major),
        Count(peak),
        Count(total),
        text::counted(job.numa_nodes, "NUMA node", "NUMA nodes")
    )
}
