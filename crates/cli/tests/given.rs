//! `limit auto`, which takes what a batch system or a control group gives; and what is said of processes that ended by
//! SIGKILL: the kernel's doing for want of memory, or somebody's.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::program;
use harness::limited::{assert_documented, assert_has_documented, document};
use harness::running::{Outcome, run};
use harness::{heaptape, scratch, skip};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const MIB: u64 = 1 << 20;
/// Variables by which batch systems give memory, or name their job.
const VARIABLES: [&str; 12] = [
    "SLURM_JOB_ID",
    "SLURM_MEM_PER_NODE",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_CPUS_ON_NODE",
    "SLURM_JOB_CPUS_PER_NODE",
    "PBS_JOBID",
    "PBS_RESC_MEM",
    "TORQUE_RESC_MEM",
    "LSB_JOBID",
    "SGE_TASK_ID",
    "SGE_HGR_m_mem_free",
];

/// `heaptape` with these variables, and no other of a batch system.
fn within(command: &mut Command, variables: &[(&str, &str)]) -> Outcome {
    for name in VARIABLES {
        command.env_remove(name);
    }
    run(command.envs(variables.iter().copied()))
}

/// `heaptape limit SIZE --json … -- COMMAND…`, its document, and what it said in one line.
fn limited(size: &str, words: &[&str], variables: &[(&str, &str)]) -> (Outcome, Value, String) {
    let folder = scratch();
    let mut command = heaptape(["limit", size, "--json"]);
    command.arg(folder.path().join("x.json")).arg("--").args(words);
    let outcome = within(&mut command, variables);
    let document = document(folder.path());
    assert_documented(&document);
    let text = outcome.stderr_text().split_whitespace().collect::<Vec<_>>().join(" ");
    (outcome, document, text)
}

/// What `auto` takes here without a batch system: what a control group gives, if one has a limit.
fn of_group() -> Option<u64> {
    let document = within(&mut heaptape(["doctor", "--json"]), &[]).json();
    document["system"]["auto_limit"]["bytes"].as_u64()
}

#[test]
fn the_limit_is_what_the_batch_system_gives() {
    for (variables, mib, source) in [
        (&[("SLURM_JOB_ID", "7"), ("SLURM_MEM_PER_NODE", "48")][..], 48, "SLURM_MEM_PER_NODE"),
        (
            &[("SLURM_MEM_PER_CPU", "16"), ("SLURM_CPUS_ON_NODE", "4")],
            64,
            "SLURM_MEM_PER_CPU × SLURM_CPUS_ON_NODE",
        ),
        (&[("PBS_JOBID", "1"), ("PBS_RESC_MEM", "33554432")], 32, "PBS_RESC_MEM"),
        (&[("SGE_HGR_m_mem_free", "0.0625G")], 64, "SGE_HGR_m_mem_free"),
    ] {
        let (outcome, document, text) = limited("auto", &["true"], variables);
        assert_eq!(outcome.code(), 0, "{text}");
        let found = (&document["limit"], &document["limit_source"]);
        assert_eq!(found, (&(mib * MIB).into(), &source.into()), "{document}");
        let words = format!("{mib}.0 MiB ({source})");
        assert!(text.contains(&format!("heaptape: auto: {words}")), "{text}");
        let line = format!("The limit is what this job was given on this node: {words}.");
        assert!(text.contains(&line), "{text}");
        let doctor = within(&mut heaptape(["doctor", "--json"]), variables).json();
        let found = &doctor["system"]["auto_limit"];
        assert_eq!((&found["bytes"], &found["source"]), (&(mib * MIB).into(), &source.into()));
    }
    let (_, document, _) = limited("1GB", &["true"], &[("SLURM_MEM_PER_NODE", "48")]);
    assert_eq!(document["limit_source"], Value::Null, "it was not asked for");
}

#[test]
fn what_was_given_limits_the_job() {
    let variables = [("SLURM_MEM_PER_NODE", "40")];
    let enclosed = program("enclosed");
    let words = [enclosed.to_str().expect("UTF-8"), "touch"];
    let (_, document, text) =
        limited("auto", &[&words[..], &[&(100 * MIB).to_string()]].concat(), &variables);
    assert_eq!(document["verdict"], "refused", "{text}");
    let (_, document, text) =
        limited("auto", &[&words[..], &[&(10 * MIB).to_string()]].concat(), &variables);
    assert_eq!(document["verdict"], "within", "{text}");
}

#[test]
fn where_nothing_was_given_that_is_said_and_nothing_is_started() {
    if of_group().is_some() {
        return skip("a control group gives this test a limit");
    }
    for (variables, words) in [
        (&[][..], "no batch system says"),
        (&[("PBS_JOBID", "7")], "qstat -f $PBS_JOBID shows"),
        (&[("LSB_JOBID", "7")], "LSF does not say"),
        (&[("SLURM_JOB_ID", "7")], "scontrol show job $SLURM_JOB_ID"),
    ] {
        let outcome = within(&mut heaptape(["limit", "auto", "--", "echo", "started"]), variables);
        let text = outcome.stderr_text();
        assert_eq!(
            (outcome.code(), outcome.stdout.len(), text.lines().count()),
            (2, 0, 1),
            "{text}"
        );
        assert!(text.starts_with("heaptape: auto: ") && text.contains(words), "{text}");
    }
}

/// A control group of the memory controller, version 1 or 2, below our own; removed at the end.
struct Group(PathBuf);

impl Group {
    fn new(bytes: u64) -> Option<Group> {
        let doctor = run(&mut heaptape(["doctor", "--json"])).json();
        let cgroup = &doctor["system"]["cgroup"];
        // In version 2 our own group would have to be empty.
        let parent = cgroup["job_group"].as_str().filter(|_| cgroup["version"] == 1)?;
        let group = Group(PathBuf::from(parent).join(format!("ht-given.{}", std::process::id())));
        fs::create_dir(&group.0).ok()?;
        fs::write(group.0.join("memory.limit_in_bytes"), bytes.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_kill_by_the_kernel_is_explained() {
    let Some(group) = Group::new(64 * MIB) else {
        return skip("no control group of version 1 can be made here");
    };
    let folder = scratch();
    let script = "echo $$ >\"$1/cgroup.procs\" && shift && exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(&group.0);
    let heaptape = heaptape(["limit", "1GB", "--json"]);
    command.arg(heaptape.get_program()).args(heaptape.get_args()).arg(folder.path().join("x.json"));
    command.arg("--").arg(program("enclosed")).args(["touch", &(300 * MIB).to_string()]);
    let outcome = run(&mut command);
    let document = document(folder.path());
    assert_documented(&document);
    let text = outcome.stderr_text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!((outcome.code(), &document["verdict"]), (137, &"killed".into()), "{text}");
    let felled = &document["felled"];
    let is_logged = felled["log"].is_array();
    let cause = if is_logged { "kernel" } else { "kernel_counted" };
    assert_eq!(
        (&felled["cause"], &felled["kills_in_cgroup"]),
        (&cause.into(), &1.into()),
        "{felled}"
    );
    assert_eq!(felled["cgroup_limit"], 64 * MIB, "{felled}");
    assert_eq!(felled["cgroup"], group.0.to_str().expect("UTF-8"), "{felled}");
    let charged = felled["charged"].as_u64().expect("a figure");
    assert!(
        (30 * MIB..80 * MIB).contains(&charged),
        "what had room, a mebibyte at a time: {felled}"
    );
    assert_eq!(felled["processes"][0]["pid"], document["processes"][0]["pid"], "{felled}");
    assert_eq!(felled["processes"][0]["logged"], is_logged, "{felled}");
    assert_eq!(felled["present"][0]["process"], 0, "{felled}");
    for words in
        ["Killed", "kernel", "for want of memory: enclosed (pid ", "The limit of the cgroup "]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(
        !is_logged || text.contains("The log: Memory cgroup out of memory: Killed process"),
        "{text}"
    );
    let [plain, auto] = ["1GB", "auto"].map(|size| {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&group.0).arg(heaptape.get_program());
        run(command.args(["limit", size, "--strict", "--", "true"])).stderr_text()
    });
    assert!(auto.contains("auto: 64.0 MiB (cgroup ") && !plain.contains("auto:"), "{auto}");
}

#[test]
fn a_kill_by_somebody_is_no_kill_for_want_of_memory() {
    let (outcome, document, text) = limited("1GB", &["sh", "-c", "kill -KILL $$"], &[]);
    assert_eq!((outcome.code(), &document["exit"]["signal"]), (137, &9.into()), "{text}");
    assert_has_documented(&document, "felled.");
    let felled = &document["felled"];
    assert_eq!(felled["processes"][0]["pid"], document["processes"][0]["pid"], "{document}");
    assert!(felled["charged"].is_u64() && felled["present"].is_array(), "{felled}");
    // Where others are killed meanwhile and the log is closed, nobody knows.
    let cause = felled["cause"].as_str().expect("a word");
    let is_quiet = felled["kills_on_machine"] == 0;
    assert!(cause == "signal" || (cause == "unknown" && !is_quiet), "{felled}");
    assert_eq!(document["verdict"], "within", "nobody has broken the limit: {document}");
    if cause == "signal" {
        assert!(text.contains("Somebody has sent it: it was not the kernel"), "{text}");
    }
    assert!(text.contains("sh (pid ") && text.contains("ended by SIGKILL at "), "{text}");
    let (_, document, text) = limited("1GB", &["sh", "-c", "kill -TERM $$"], &[]);
    assert_eq!(document["felled"], Value::Null, "{document}");
    assert!(!text.contains("SIGKILL"), "{text}");
}

#[test]
fn what_heaptape_kills_itself_needs_no_explanation() {
    let folder = scratch();
    let mut command = heaptape(["limit", "20MB", "--on-limit", "kill", "--json"]);
    command.arg(folder.path().join("x.json")).arg("--").arg(program("enclosed"));
    let outcome = run(command.args(["touch", &(100 * MIB).to_string()]));
    let document = document(folder.path());
    assert_documented(&document);
    let found = (outcome.code(), &document["verdict"], &document["felled"]);
    assert_eq!(found, (137, &"killed".into(), &Value::Null), "{document}");
}
