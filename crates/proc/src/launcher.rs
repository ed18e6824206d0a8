//! The process that started a rank, found where a launcher's variables do not name the job.
//!
//! All ranks of a job on a host have it in common: it is the nearest ancestor that is no rank itself.
//! Read-only, through [`crate::read`]; nothing is asked of the launcher.

use std::ffi::OsString;

use crate::job::{self, Job};
use crate::lineage;
use crate::read;

/// The variable by which a user names the job.
pub const JOB_VARIABLE: &str = "HEAPTAPE_JOB";

/// A launcher on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LauncherProcess {
    /// Its process id.
    pub pid: u32,
    /// When it started, in clock ticks since boot: with the pid it names one process for good.
    pub started: u64,
}

/// The place in its job that a process's environment tells of. A job that its launcher gives no name
/// has one made from the launcher itself.
pub fn job_of(pid: u32) -> Option<Job> {
    let mut job = told(pid)?;
    job.id = job.id.or_else(|| made_name(pid));
    Some(job)
}

/// What a process's environment tells.
fn told(pid: u32) -> Option<Job> {
    let environment = read::environ(pid).ok()?;
    job::find(|name| {
        environment.iter().find_map(|entry| {
            let (key, value) = entry.to_str()?.split_once('=')?;
            (key == name).then(|| value.to_owned())
        })
    })
}

/// The nearest ancestor of a rank that is not of that rank. `None` when `pid` is no rank.
pub fn of(pid: u32) -> Option<LauncherProcess> {
    let own = told(pid)?;
    let is_same = |job: Job| (job.launcher, job.rank) == (own.launcher, own.rank);
    let at = lineage(pid).skip(1).find(|&at| !told(at).is_some_and(is_same))?;
    Some(LauncherProcess { pid: at, started: read::stat(at).ok()?.starttime })
}

/// A name for the job of a rank: the user's, the launcher's, or one made from the launcher itself.
/// `None` for a process that is no rank and has no name given. `lookup` gives the values of the
/// process's own variables.
pub fn job_name(pid: u32, lookup: impl Fn(&str) -> Option<String>) -> Option<String> {
    let given = lookup(JOB_VARIABLE).filter(|name| !name.trim().is_empty());
    given.or_else(|| job::find(&lookup)?.id).or_else(|| made_name(pid))
}

fn made_name(pid: u32) -> Option<String> {
    let launcher = of(pid)?;
    let port = read::cmdline(launcher.pid).ok().and_then(|line| control_port(&line));
    Some(port.unwrap_or_else(|| format!("{}-{}", launcher.pid, launcher.started)))
}

/// Where Hydra's proxies on all hosts report to, `HOST:PORT`: the same for the whole job.
fn control_port(line: &[OsString]) -> Option<String> {
    let at = line.iter().position(|word| word == "--control-port")?;
    line.get(at + 1)?.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_name_comes_first_then_the_launchers() {
        let name = |vars: &[(&str, &str)]| {
            job_name(std::process::id(), |name| {
                vars.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let rank = [("PMIX_RANK", "0"), ("PMIX_NAMESPACE", "77"), (JOB_VARIABLE, "mine")];
        assert_eq!(name(&rank).as_deref(), Some("mine"));
        assert_eq!(name(&rank[..2]).as_deref(), Some("77"));
        assert_eq!(name(&[(JOB_VARIABLE, " ")]), None);
    }

    #[test]
    fn the_port_of_hydra_names_the_job_on_every_host() {
        let line = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let proxy = line("hydra_pmi_proxy --control-port head:34571 --proxy-id 0");
        assert_eq!(control_port(&proxy).as_deref(), Some("head:34571"));
        assert_eq!(control_port(&line("sh -c --control-port")), None);
        assert_eq!(control_port(&[]), None);
    }

    #[test]
    fn a_rank_finds_who_started_it_also_through_a_shell() {
        // `exec` must not be taken for the last command, so that the shell stays between.
        let script = "PMI_RANK=3 sh -c 'sleep 5; :' & wait";
        let mut outer = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
        let descend = |pid: u32| read::children(pid).ok().and_then(|c| c.first().copied());
        let mut found = None;
        for _ in 0..500 {
            let sleeper = descend(outer.id()).and_then(descend);
            found = sleeper.and_then(|pid| of(pid).map(|launcher| (pid, launcher)));
            if found.is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let (sleeper, launcher) = found.expect("a rank below the shell");
        let shell = read::stat(sleeper).unwrap().ppid;
        for pid in [sleeper, shell, outer.id()] {
            let _ = std::process::Command::new("kill").arg(pid.to_string()).status();
        }
        outer.wait().unwrap();
        assert_eq!(launcher.pid, outer.id());
    }
}
