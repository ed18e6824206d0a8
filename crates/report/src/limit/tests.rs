//! The report on jobs that were made by hand.

use heaptape_ledger::{Basis, Felled, Job, Judge, Kernel, Kills, Moment, OnLimit, Patched};

use super::sample::{
    self, felled, hostile, job, kernel, missed, over, patch, rank, refused, with_figures,
};
use super::{Figures, parts};
use crate::document::{write_markdown, write_terminal};
use crate::table::{Style, UNLIMITED};

fn in_columns(job: &Job, verbose: bool, width: u16) -> String {
    let mut out = Vec::new();
    let style = Style { width, color: false };
    with_figures(job, verbose, |figures| write_terminal(&mut out, &parts(figures), style)).unwrap();
    String::from_utf8(out).unwrap()
}

fn text(job: &Job) -> String {
    in_columns(job, false, UNLIMITED)
}

/// The sentence below the title.
fn verdict(text: &str) -> String {
    text.lines().skip(3).take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_job_within_its_limit() {
    let text = in_columns(&job(), false, 80);
    let expected = include_str!("within.txt");
    assert_eq!(text, expected, "\n{text}");
}

#[test]
fn more_resident_than_the_limit_is_told_below_the_verdict() {
    let resident = |bytes| text(&Job { resident: Some(bytes), ..job() });
    let told =
        "1.5 GiB or more were resident at one time, which is more than the limit of 1.0 GiB.";
    assert!(resident(3 << 29).contains(told) && resident(3 << 29).contains("processes of a fork"));
    assert!(!resident(1 << 30).contains("which is more than"));
    let counted = Job { limit: None, resident: Some(3 << 29), ..job() };
    assert!(!text(&counted).contains("which is more than"));
}

#[test]
fn every_verdict_is_one_sentence() {
    let within = job();
    let counted = Job { limit: None, ..job() };
    let uncovered = Job { uncovered: vec![missed()], ..job() };
    let once = Job { refused: 1, ..refused() };
    let killed = Job { killed: true, ..refused() };
    for (job, sentence) in [
        (within, "Within the limit: at most 921.6 MiB of 1.0 GiB (90 %) were held."),
        (counted, "At most 921.6 MiB were held."),
        (
            uncovered,
            "Not all was counted; of what was, at most 921.6 MiB of 1.0 GiB (90 %) were held. 1 process \
             was not counted: see the end.",
        ),
        (
            refused(),
            "Refused 3 requests; the first came at 1.234 s from rank 2 (pid 4711 on host node1, thread \
             4712): 512.0 MiB asked by main (sizes+0x1234) when the job held 900.0 MiB of 1.0 GiB.",
        ),
        (
            once,
            "Refused 1 request; it came at 1.234 s from rank 2 (pid 4711 on host node1, thread 4712): \
             512.0 MiB asked by main (sizes+0x1234) when the job held 900.0 MiB of 1.0 GiB.",
        ),
        (
            killed,
            "Killed at 1.234 s, at the first request beyond the limit, from rank 2 (pid 4711 on host node1, \
             thread 4712): 512.0 MiB asked by main (sizes+0x1234) when the job held 900.0 MiB of 1.0 GiB.",
        ),
    ] {
        assert_eq!(verdict(&text(&job)), sentence);
    }
}

#[test]
fn of_a_command_that_was_not_started_nothing_is_told_that_it_did() {
    let refused = Job {
        command: vec!["fixed".to_owned()],
        uncovered: vec![missed()],
        limit: Some(1 << 30),
        ..Job::default()
    };
    let told = text(&refused);
    assert!(!told.contains("NUMA") && !told.contains("Next:"), "{told}");
    let told = text(&job());
    assert!(told.contains("NUMA") && told.contains("Next:"), "{told}");
}

#[test]
fn at_the_edge_it_is_told_how_little_was_left() {
    let mut job = refused();
    job.first.as_mut().unwrap().job = (1 << 30) - 512;
    assert!(verdict(&text(&job)).ends_with("when the job held 1.0 GiB of 1.0 GiB (512 B left)."));
}

#[test]
fn a_stopped_job_is_told_from_a_killed_one() {
    let job = Job { killed: true, ..refused() };
    let mut settings = sample::settings();
    settings.on_limit = OnLimit::Stop;
    let mut out = Vec::new();
    let style = Style { width: UNLIMITED, color: true };
    with_figures(&job, false, |figures| {
        let figures = Figures { settings: &settings, ..*figures };
        write_terminal(&mut out, &parts(&figures), style)
    })
    .unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("\x1b[1;31mStopped at 1.234 s"), "{text}");
}

#[test]
fn what_is_not_known_of_a_refusal_is_left_out() {
    let mut job = refused();
    let first = job.first.as_mut().unwrap();
    (first.process, first.place, first.thread) = (None, None, 0);
    assert!(
        verdict(&text(&job))
            .contains("from a process (of an unknown pid): 512.0 MiB asked by 0x401234 when")
    );
    job.first.as_mut().unwrap().caller = 0;
    assert!(verdict(&text(&job)).contains("512.0 MiB asked when the job held"));
    job.first = None;
    assert_eq!(verdict(&text(&job)), "Refused 3 requests.");
}

#[test]
fn peaks_that_cannot_have_come_together_are_said_to() {
    let mut job = job();
    job.peak = heaptape_ledger::Bounds::exact(800 << 20);
    let sentence = "The peaks of the 4 processes add up to 860.0 to 864.0 MiB, which were never held at one time.";
    assert!(text(&job).contains(sentence), "{}", text(&job));
    job.peak.upper = 861 << 20;
    assert!(text(&job).contains("which need not have come at one time"));
}

#[test]
fn of_many_processes_the_largest_have_rows() {
    let mut many = job();
    many.processes.truncate(1);
    many.processes.extend((0..64).map(|n| rank(n, u64::from(n + 1) << 20)));
    let short = text(&many);
    assert!(
        short.contains("Of 64 processes the one that held least had at most 2.0 MiB (rank 0), the")
    );
    assert!(
        short.contains("… and 55 processes more that held less; --verbose shows all."),
        "{short}"
    );
    let rows = |text: &str| text.lines().filter(|line| line.ends_with("./sizes 512MB")).count();
    assert_eq!(rows(&short), 10);
    assert_eq!(rows(&in_columns(&many, true, 80)), 64);
}

#[test]
fn of_many_classes_the_groups_have_rows() {
    let mut many = job();
    let bin = many.processes[1].sums.bins[0];
    many.processes[1].sums.bins[..100].fill(heaptape_ledger::Traffic { count: 1, total: 1, ..bin });
    assert!(text(&many).contains("size classes; --verbose shows them."));
    assert!(!in_columns(&many, true, 80).contains("--verbose shows them"));
}

#[test]
fn what_was_not_counted_is_not_printed_as_nothing() {
    let brief = Job { details: false, usable: None, resident: None, ..job() };
    let text = text(&brief);
    assert!(!text.contains("group") && !text.contains("By the module"), "{text}");
    assert_eq!(text.matches("n/a").count(), 2, "{text}");
}

#[test]
fn uncovered_processes_and_threads_are_named() {
    let job = Job {
        uncovered: vec![missed()],
        uncounted_threads: 2,
        unaccounted: Some(4096),
        ..refused()
    };
    let text = text(&job);
    for words in [
        "1 process was not counted: see the end. There was no room to count 2 threads.",
        "/opt/static     it is linked statically",
        "Unaccounted: 4.0 KiB or more were resident",
    ] {
        assert!(text.replace('\n', " ").contains(words), "{words}: {text}");
    }
}

#[test]
fn no_line_is_wider_than_80_columns() {
    for job in [job(), refused(), Job { uncovered: vec![missed()], ..refused() }] {
        for width in [80, 100] {
            let text = in_columns(&job, true, width);
            let wide = |line: &&str| line.chars().count() > usize::from(width);
            assert_eq!(text.lines().find(wide), None, "{text}");
        }
    }
}

#[test]
fn nothing_in_a_name_acts_on_the_terminal_or_on_markdown() {
    let acts = |text: &str| text.contains(['\x1b', '\r', '\u{202e}']);
    for verbose in [false, true] {
        for width in [80, 100, UNLIMITED] {
            assert!(!acts(&in_columns(&hostile(), verbose, width)));
        }
    }
    let mut out = Vec::new();
    with_figures(&hostile(), true, |figures| write_markdown(&mut out, &parts(figures))).unwrap();
    let markdown = String::from_utf8(out).unwrap();
    assert!(!acts(&markdown));
    assert!(markdown.contains("| peak | in bytes |"), "{markdown}");
    let cells = |line: &str| line.replace("\\|", "").matches('|').count();
    let table: Vec<&str> =
        markdown.lines().filter(|line| line.contains("u{1b}") && line.starts_with('|')).collect();
    assert!(table.iter().all(|line| cells(line) >= 4), "{table:?}");
}

#[test]
fn a_job_of_nothing() {
    let text = text(&Job::default());
    assert!(
        text.contains("At most 0 B were held.") && text.contains("No process was counted."),
        "{text}"
    );
}

#[test]
fn what_the_kernel_says_stands_in_the_report() {
    let resident = Job { basis: Basis::Resident, kernel: Some(kernel()), ..job() };
    let seen = text(&resident).replace('\n', " ");
    for words in [
        "Within the limit: 900.0 MiB or more of 1.0 GiB (87.9 %) were resident at most.",
        "anonymous   800.0 MiB  private memory",
        "page cache  290.0 MiB  of files; not the programs'",
        "(version 2), which the kernel lets have 1.3 GiB; at most 1.2 GiB were in it",
        "Looked at 500 times, at most 7.250 ms old; between two looks at most 12.0 MiB came.",
    ] {
        assert!(seen.contains(words), "{words}: {seen}");
    }
    let mut certain = kernel();
    certain.group.iter_mut().for_each(|group| group.peak = Some(950 << 20));
    let seen = text(&Job { kernel: Some(certain), ..resident.clone() });
    assert!(seen.contains("900.0 to 950.0 MiB of 1.0 GiB (87.9 %) were resident"), "{seen}");
    let missing = Some("process 7 stays away.".to_owned());
    let seen = text(&Job { kernel: Some(Kernel { missing, ..kernel() }), ..resident.clone() });
    assert!(seen.contains("Not all of the job was in it: process 7 stays away."), "{seen}");
    let missing = Some("no hierarchy. Mount one.".to_owned());
    let looked = Kernel { group: None, missing, ..kernel() };
    let seen = text(&Job { kernel: Some(looked), ..resident }).replace('\n', " ");
    let sentence = "The job had no cgroup of its own: no hierarchy. Mount one. The limit is held by looks at its processes.";
    assert!(seen.contains(sentence), "{seen}");
    for line in in_columns(&Job { kernel: Some(kernel()), ..job() }, false, 80).lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn who_was_ended_for_what_was_resident_is_named() {
    for (judge, sentence) in [
        (
            Judge::Kernel,
            "Killed at 1.234 s: the kernel killed sizes (pid 4711, 700.0 MiB) at the limit of the job's cgroup; 1.1 GiB \
             or more were resident in it.",
        ),
        (
            Judge::Machine,
            "Killed at 1.234 s: the kernel killed sizes (pid 4711, 700.0 MiB) for want of memory elsewhere: the job's \
             cgroup was well below its limit; 1.1 GiB or more were resident in it.",
        ),
        (
            Judge::Resident,
            "Killed at 1.234 s: 1.1 GiB were resident, most in sizes (pid 4711, 700.0 MiB).",
        ),
        (
            Judge::Unaccounted,
            "Killed at 1.234 s: more was resident than the limit, and 1.1 GiB of it that nothing charged stands for, \
             most in sizes (pid 4711, 700.0 MiB).",
        ),
    ] {
        let kernel = Some(Kernel { over: Some(over(judge)), ..kernel() });
        assert_eq!(verdict(&text(&Job { kernel, ..job() })), sentence);
    }
}

#[test]
fn whose_doing_a_kill_was_is_told_as_far_as_it_is_known() {
    let told = |felled: Felled| text(&Job { felled: Some(felled), ..job() }).replace('\n', " ");
    let seen = told(felled());
    for words in [
        "Killed by the kernel at 1.500 s, for want of memory: rank 1 (pid 4710).",
        "sizes (pid 9), rank 1 (pid 4710) ended by SIGKILL at 1.500 s. That was the kernel, for want of memory, as its log \
         says (killed so meanwhile in this control group: 1 process, on this machine: 1 process).",
        "The job held 900.0 MiB then (charged); 800.0 MiB were resident at the last look, 0.120 s before.",
        "Of its 2 processes on this node rank 1 held most, 700.0 MiB.",
        "The limit of the cgroup /sys/fs/cgroup/job is 1.0 GiB.",
        "The log: Memory cgroup out of memory: Killed process 4710 (sizes) total-vm:9kB",
    ] {
        assert!(seen.contains(words), "{words}: {seen}");
    }
    let closed = || Err("/dev/kmsg may not be read: permission denied.".to_owned());
    let counted = told(Felled { log: closed(), ..felled() });
    assert!(
        counted.contains("Killed at 1.500 s, it seems by the kernel for want of memory: "),
        "{counted}"
    );
    assert!(counted.contains("Its log: n/a. /dev/kmsg may not be read"), "{counted}");
    let kills = Kills { group: Some(0), machine: Some(0) };
    let sent = told(Felled { log: Ok(Vec::new()), kills, ..felled() });
    let words = "Somebody has sent it: it was not the kernel, for want of memory (killed so meanwhile in this control \
                 group: nobody, on this machine: nobody).";
    assert!(sent.contains(words) && sent.contains("Within the limit: "), "{sent}");
    let kills = Kills { group: None, machine: Some(2) };
    let unknown = told(Felled { log: closed(), kills, ..felled() });
    let words = "is not known (killed so meanwhile in this control group: n/a, on this machine: 2 processes)";
    assert!(unknown.contains(words) && unknown.contains("Within the limit: "), "{unknown}");
    let nobody = Felled { victims: Vec::new(), moment: Moment::default(), ..felled() };
    let seen = told(nobody);
    assert!(
        seen.contains("No process that was counted ended by SIGKILL; but the kernel has"),
        "{seen}"
    );
}

#[test]
fn refusals_are_told_beside_a_kill_by_the_kernel() {
    let seen = text(&Job { felled: Some(felled()), ..refused() }).replace('\n', " ");
    assert!(
        seen.contains("Killed by the kernel at") && seen.contains("Refused 3 requests; the first"),
        "{seen}"
    );
}

#[test]
fn who_has_patched_what_and_what_that_means() {
    let ucm = Some("/usr/lib/libucm.so.0");
    let other = Some("/usr/lib/libother.so");
    let patches = vec![
        patch(Patched::Libc, "/usr/lib/libc.so.6", ucm),
        patch(Patched::Wrapper, "/x/libheaptape.so", None),
        patch(Patched::Entry, "/usr/lib/liba.so", ucm),
        patch(Patched::Entry, "/usr/lib/liba.so", other),
        patch(Patched::Entry, "/usr/lib/libb.so", ucm),
        patch(Patched::Entry, "/usr/lib/libb.so", other),
    ];
    let seen = text(&Job { patches, ..job() }).replace('\n', " ");
    for words in [
        "libucm.so.0 in 2 processes has patched libc's mmap, munmap: heaptape's wrappers go on to libc",
        "Somebody unknown in 2 processes has patched heaptape's own mmap, munmap: calls go there first",
        "libucm.so.0 in 2 processes has changed the entries by which liba.so, libb.so call mmap, munmap: calls go there first",
    ] {
        assert!(seen.contains(words), "{words}: {seen}");
    }
    for who in ["libucm.so.0", "libother.so"] {
        assert_eq!(seen.matches(&format!("{who} in 2 processes has changed")).count(), 1, "{seen}");
    }
    assert!(!text(&job()).contains("patched"));
}
