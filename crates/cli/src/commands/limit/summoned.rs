//! `HEAPTAPE_LIMIT`: a program that was started with the capture library, and by no heaptape, is to have a
//! limit. The library calls this command from within it, before the program begins, and is told by a pipe
//! which session to join; what goes on is what `limit --join` does.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use heaptape_collect::{
    JoiningCount, LAUNCHERS, LIMIT_VARIABLE, SESSION_VERSION, join_count_for_parent,
};
use heaptape_ledger::Basis;
use heaptape_proc::{lineage, read};

use super::{Prepared, Unable, auto};
use crate::args::{Cli, Command, Limit, Summoned};
use crate::commands::running::{FAILED, Teller, job};

/// Finds or starts the counting of the job that the parent of this process is of. The status is 0 where
/// there is none to be, and nothing to be said about it.
pub(crate) fn run(args: &Summoned) -> ExitCode {
    let parent = std::os::unix::process::parent_id();
    if args.version != SESSION_VERSION {
        return failed(
            "the library that LD_PRELOAD names is not of this version of heaptape; set it anew to what heaptape capture-path prints",
        );
    }
    if is_left_alone(parent) {
        return ExitCode::SUCCESS;
    }
    let command = command_of(parent);
    let (mut limit, words, is_quiet) = match asked(&command) {
        Ok(asked) => asked,
        Err(why) => return failed(&why),
    };
    let teller = Teller { quiet: is_quiet };
    let size = match auto::sized(&mut limit, &teller) {
        Ok(size) => size,
        Err(why) => return failed(&why),
    };
    let prepared = Prepared::new(Some(size), limit.on_limit.into(), &limit.counting);
    let Prepared { files, counting, .. } = match prepared {
        Ok(prepared) => prepared,
        Err(Unable(why, _)) => return failed(&why),
    };
    let files = files.close();
    let earlier = jobs_above(parent);
    let own = || earlier.first().cloned().unwrap_or_else(|| name(parent, 0));
    let (job, local_size) = job().unwrap_or_else(|_| (own(), None));
    let joining = JoiningCount { counting, job, local_size, earlier, again: words };
    let told = join_count_for_parent(&joining).map_err(|error| error.to_string());
    let told = told.and_then(|session| match session {
        Some(session) => tell(args.pipe, &session).map_err(|error| error.to_string()),
        None => Err("the counting of this job has ended already".to_owned()),
    });
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            files.discard();
            failed(&why)
        }
    }
}

fn failed(why: &str) -> ExitCode {
    // The program itself goes on, whoever has made the sentence.
    let why = why.trim_end_matches("; nothing was started");
    let teller = Teller { quiet: false };
    teller.error(&format!("{LIMIT_VARIABLE} limits and counts nothing here: {why}"));
    ExitCode::from(FAILED)
}

/// A launcher, whose ranks come by themselves, and heaptape itself, which starts jobs of its own.
fn is_left_alone(pid: u32) -> bool {
    let Ok(exe) = read::exe(pid) else { return false };
    let is_launcher = LAUNCHERS.iter().any(|name| exe.file_name().is_some_and(|it| it == *name));
    let file = |path: PathBuf| fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
    let own = file("/proc/self/exe".into());
    is_launcher || (own.is_some() && file(read::seen_by(pid, "")) == own)
}

fn command_of(pid: u32) -> Vec<OsString> {
    let words = read::cmdline(pid).ok().filter(|words| !words.is_empty());
    let name = || read::exe(pid).map_or_else(|_| "(unknown)".into(), PathBuf::into_os_string);
    words.unwrap_or_else(|| vec![name()])
}

/// The options that the variable has, and the command line that says the same.
fn asked(command: &[OsString]) -> Result<(Limit, Vec<OsString>, bool), String> {
    let text = std::env::var(LIMIT_VARIABLE).unwrap_or_default();
    let words = shlex::split(&text).filter(|words| !words.is_empty());
    let given = words.ok_or_else(|| {
        format!(
            "its value '{text}' is no size, with options of heaptape limit behind it or without"
        )
    })?;
    let given = given.into_iter().map(OsString::from);
    let words: Vec<OsString> = ["heaptape".into(), "limit".into()]
        .into_iter()
        .chain(given)
        .chain(["--join".into(), "--".into()])
        .chain(command.iter().cloned())
        .collect();
    let first = |error: clap::Error| {
        let text = error.to_string();
        text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
    };
    let Cli { command: Command::Limit(limit), quiet, .. } =
        Cli::try_parse_from(&words).map_err(first)?
    else {
        return Err(format!("its value '{text}' is no size"));
    };
    if !limit.counting.join || limit.counting.command != command {
        return Err(format!("its value '{text}' has more in it than a size and options"));
    }
    if limit.counting.strict {
        return Err(
            "--strict needs an exit status of its own; look at the verdict in the JSON".to_owned()
        );
    }
    if Basis::from(limit.counting.basis) == Basis::Resident {
        return Err("--basis resident is for jobs that heaptape limit starts itself".to_owned());
    }
    Ok((limit, words, quiet))
}

/// The names of the jobs that a process and those who have started it may have begun, nearest first.
fn jobs_above(pid: u32) -> Vec<String> {
    let found = |pid| Some(name(pid, read::stat(pid).ok()?.starttime));
    lineage(pid).map_while(found).collect()
}

/// The name of the job that begins with a process: it stays that of the process, whatever that becomes.
fn name(pid: u32, started: u64) -> String {
    format!("process {pid} of {started}")
}

fn tell(pipe: u32, session: &Path) -> io::Result<()> {
    let mut pipe = OpenOptions::new().write(true).open(format!("/proc/self/fd/{pipe}"))?;
    pipe.write_all(session.as_os_str().as_bytes())
}
