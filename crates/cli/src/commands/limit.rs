//! `heaptape limit` and `heaptape stat`: the memory of a job, counted while it runs, with a limit for all its
//! processes together or without one.

mod asker;
mod auto;
mod bars;
mod exempt;
mod files;
mod joined;
mod summoned;
mod watcher;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use heaptape_collect::{Counting, Error, Exit, Launch, collects_for_others, count, was_open};
use heaptape_ledger::{Basis, Ended, Job, Missed, OnLimit, Spread, Totals, Verdict};
use heaptape_proc::Cgroup;
use heaptape_report::document::Part;
use heaptape_report::limit::{self, Figures, Settings};
use heaptape_report::table::UNLIMITED;
use heaptape_report::{Style, document, json};

use super::running::{FAILED, Teller, exit_code, not_started};
use crate::args;
use crate::library;
use crate::output::by_limit;
use crate::terminal::Terminal;
use bars::Bars;
use files::{Files, Form, Pipes, Target};
pub(crate) use summoned::run as summoned;
use watcher::Watcher;

/// What was asked for makes no sense.
const WRONG_USAGE: u8 = 2;
/// The verdict is not `within`, and `--strict` was given.
const NOT_WITHIN: u8 = 3;
/// The job was killed for a request beyond the limit: 128 + SIGKILL.
const KILLED: u8 = 137;

/// Runs a command with a limit.
pub(crate) fn limit(mut args: args::Limit, terminal: &Terminal) -> ExitCode {
    let teller = Teller { quiet: terminal.is_quiet() };
    match auto::sized(&mut args, &teller) {
        Ok(size) => run(Some(size), args.on_limit.into(), args.counting, terminal),
        Err(sentence) => {
            teller.error(&sentence);
            ExitCode::from(WRONG_USAGE)
        }
    }
}

/// Runs a command and only counts.
pub(crate) fn stat(args: args::Stat, terminal: &Terminal) -> ExitCode {
    run(None, OnLimit::Fail, args.counting, terminal)
}

fn run(
    limit: Option<u64>,
    on_limit: OnLimit,
    args: args::Counting,
    terminal: &Terminal,
) -> ExitCode {
    let teller = Teller { quiet: terminal.is_quiet() };
    let Prepared { files, counting, settings } = match Prepared::new(limit, on_limit, &args) {
        Ok(prepared) => prepared,
        Err(unable) => return unable.tell(&teller),
    };
    let bars = if args.live { Bars::new(limit) } else { None };
    let mut watcher = Watcher::new(teller, on_limit, bars);
    if args.join {
        return joined::run(counting, settings, files, &args, watcher, terminal);
    }
    files.begin();
    let came = counted(&counting, settings.strict, &mut watcher);
    watcher.close();
    match came {
        Ok((job, exit)) => {
            let report = Report { job, exit, settings: &settings, verbose: args.verbose };
            let is_told = report.tell(files, &mut watcher, terminal);
            status(&report.job, exit, &settings, is_told)
        }
        Err(error) => {
            watcher.teller.error(&error.to_string());
            files.discard();
            not_started(&error)
        }
    }
}

/// What was asked for together and does not go together.
fn contradiction(limit: Option<u64>, args: &args::Counting) -> Option<&'static str> {
    match Basis::from(args.basis) {
        Basis::Usable if args.brief => {
            Some("--brief counts no usable bytes, and --basis usable needs them")
        }
        Basis::Resident if limit.is_none() => {
            Some("--basis resident is for a limit; stat tells what is resident in any case")
        }
        Basis::Resident if args.join => Some(
            "--basis resident needs a job that heaptape starts itself, and --join is for others",
        ),
        _ => None,
    }
}

/// Why nothing is started: the sentence, and the status.
struct Unable(String, u8);

impl Unable {
    fn tell(&self, teller: &Teller) -> ExitCode {
        teller.error(&self.0);
        ExitCode::from(self.1)
    }
}

/// All that is needed to count.
struct Prepared {
    files: Files,
    counting: Counting,
    settings: Settings,
}

impl Prepared {
    /// What was asked for, looked through.
    fn new(
        limit: Option<u64>,
        on_limit: OnLimit,
        args: &args::Counting,
    ) -> Result<Prepared, Unable> {
        if let Some(sentence) = contradiction(limit, args) {
            return Err(Unable(sentence.to_owned(), WRONG_USAGE));
        }
        // Who counts for others opens them without a word: nobody would hear it.
        let is_early = !(args.join && collects_for_others());
        let [output, json] =
            [&args.output, &args.json].map(|path| path.as_deref().filter(|_| is_early));
        let pipes = if args.join { Pipes::Later } else { Pipes::Wait };
        let files = open(output, json, pipes)?;
        let refuse = |files: Files, sentence: String, status| {
            files.discard();
            Err(Unable(sentence, status))
        };
        let library = match library::path() {
            Ok(library) => library,
            Err(error) => return refuse(files, format!("{error:#}"), FAILED),
        };
        let settings = settings(on_limit, args);
        let mut counting = counting(limit, args, &settings, library);
        match exempt::names(&args.exempt, &counting.launch) {
            Ok(names) => counting.exempt = names,
            Err(sentence) => return refuse(files, sentence, WRONG_USAGE),
        }
        Ok(Prepared { files, counting, settings })
    }
}

/// Opens the files that the report goes to, or says why not.
fn open(output: Option<&Path>, json: Option<&Path>, pipes: Pipes) -> Result<Files, Unable> {
    Files::open(output, json, pipes).map_err(|error| match error {
        files::Error::Same(sentence) => Unable(sentence, WRONG_USAGE),
        files::Error::Unwritable(error) => {
            let source = error.root_cause().downcast_ref().map_or("", by_limit);
            Unable(format!("{error:#}{source}; nothing was started"), FAILED)
        }
    })
}

/// Counts, but not what can't be counted where only that would do.
fn counted(
    counting: &Counting,
    is_strict: bool,
    watcher: &mut Watcher,
) -> Result<(Job, Exit), Error> {
    // What the kernel holds needs nobody who counts.
    let is_held = counting.basis == Basis::Resident && Cgroup::read().ground.is_ok();
    let why = (is_strict && !is_held).then(|| counting.launch.obstacle()).flatten();
    let Some(why) = why else { return count(counting, watcher) };
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    let command: Vec<String> = counting.launch.command.iter().map(text).collect();
    tell_not_started(&watcher.teller, &counting.launch, &why);
    let job = Job {
        uncovered: vec![Missed { pid: 0, command: command.clone(), why }],
        command,
        limit: counting.limit,
        basis: counting.basis,
        exact: counting.exact,
        details: counting.details,
        ..Job::default()
    };
    Ok((job, Exit::default()))
}

/// Says why a command is not started that only would do counted.
fn tell_not_started(teller: &Teller, launch: &Launch, why: &str) {
    let name = launch.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    teller.error(&format!("{name} can't be counted: {why}; with --strict it is not started"));
}

fn settings(on_limit: OnLimit, args: &args::Counting) -> Settings {
    Settings {
        on_limit,
        source: args.source.clone(),
        exclude_mpi_runtime: args.exclude_mpi_runtime,
        exempt: args.exempt.clone(),
        count_launcher: args.count_launcher,
        strict: args.strict,
    }
}

fn counting(
    limit: Option<u64>,
    args: &args::Counting,
    settings: &Settings,
    library: PathBuf,
) -> Counting {
    let command = args.command.clone();
    Counting {
        launch: Launch { command, library, no_aslr: false, python_malloc: false },
        limit,
        basis: args.basis.into(),
        on_limit: settings.on_limit,
        exact: args.exact,
        details: !args.brief,
        count_launchers: settings.count_launcher,
        exclude_mpi_runtime: settings.exclude_mpi_runtime,
        exempt: Vec::new(),
        no_wait: args.no_wait,
        strict: settings.strict,
    }
}

/// The exit status: the command's, unless the verdict counts for more. `is_told`: the report is where it
/// was to be.
fn status(job: &Job, exit: Exit, settings: &Settings, is_told: bool) -> ExitCode {
    let verdict = job.verdict();
    if settings.strict && (verdict != Verdict::Within || !is_told) {
        ExitCode::from(NOT_WITHIN)
    } else if verdict == Verdict::Killed && is_killed(job, settings.on_limit) {
        ExitCode::from(KILLED)
    } else if !is_told && exit.code == Some(0) {
        // Who goes on by the status alone would look for a report that is not there.
        ExitCode::from(FAILED)
    } else {
        exit_code(exit)
    }
}

/// Whether a job that had to be ended was killed, and not stopped.
fn is_killed(job: &Job, on_limit: OnLimit) -> bool {
    let by_kernel = job.over().is_some_and(|over| over.judge.is_kernel());
    match on_limit {
        OnLimit::Kill => true,
        OnLimit::Fail => job.over().is_some(),
        OnLimit::Stop => by_kernel,
    }
}

/// What is to be told.
struct Report<'a> {
    job: Job,
    exit: Exit,
    settings: &'a Settings,
    verbose: bool,
}

impl Report<'_> {
    /// Writes the report where it belongs, and says what can't be written. Whether all was. (What stderr does not take
    /// matters only where the verdict counts.)
    fn tell(&self, files: Files, watcher: &mut Watcher, terminal: &Terminal) -> bool {
        let mut job = self.job.clone();
        let function = watcher.asker.describe(&mut job);
        let figures = Figures {
            job: &job,
            totals: &Totals::of(&job),
            spread: Spread::of(&job),
            settings: self.settings,
            exit: Ended { code: self.exit.code, signal: self.exit.signal },
            function: function.as_deref(),
            unmatched: &exempt::unmatched(&self.settings.exempt, &self.job.unmet),
            verbose: self.verbose,
        };
        let parts = limit::parts(&figures);
        let is_silent = files.output.is_some() || terminal.is_quiet();
        let is_said = is_silent || say(&parts, terminal).is_ok();
        let json = files.json.map(|file| file.write(|out| json::limit::write(out, &figures)));
        let text = files.output.map(|file| save(&file, &parts));
        let failed = [json, text].into_iter().flatten().filter_map(io::Result::err);
        self.tell_stopped(watcher);
        let sentences: Vec<String> = failed.map(|error| error.to_string()).collect();
        sentences.iter().for_each(|sentence| watcher.teller.error(sentence));
        // Nobody would hear that stderr is closed or full, but the status has to tell where it counts.
        sentences.is_empty() && (is_said || !self.settings.strict)
    }

    /// Says what stays stopped, whatever else is not to be said: nobody would look for it.
    fn tell_stopped(&self, watcher: &Watcher) {
        let pids: Vec<u32> = self.job.stopped.iter().map(|process| process.pid).collect();
        if !pids.is_empty() {
            let how = limit::how_to_go_on(&pids);
            watcher.teller.error(&format!(
                "the counting has ended, and what it has stopped is still there: {how}"
            ));
        }
    }
}

/// Writes the report into its file.
fn save(file: &Target, parts: &[Part]) -> io::Result<()> {
    let style = Style { width: UNLIMITED, color: false };
    file.write(|out| match file.form {
        Form::Markdown => document::write_markdown(out, parts),
        Form::Text => document::write_terminal(out, parts, style),
    })
}

/// Writes the report to stderr, all at once.
fn say(parts: &[Part], terminal: &Terminal) -> io::Result<()> {
    const STDERR: i32 = 2;
    let mut out = Vec::new();
    document::write_terminal(&mut out, parts, terminal.style_of_stderr())?;
    if !was_open(STDERR) {
        return Err(io::Error::other("it was closed when heaptape started"));
    }
    io::stderr().write_all(&out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(on_limit: OnLimit, strict: bool) -> Settings {
        Settings {
            on_limit,
            source: None,
            exclude_mpi_runtime: false,
            exempt: Vec::new(),
            count_launcher: false,
            strict,
        }
    }

    /// Exit codes can't be compared but by what they print.
    fn text(code: ExitCode) -> String {
        format!("{code:?}")
    }

    #[test]
    fn the_status_is_the_commands_unless_the_verdict_counts_for_more() {
        let refused = Job { refused: 1, ..Job::default() };
        let killed = Job { killed: true, ..refused.clone() };
        let exit = Exit { code: Some(7), signal: None };
        for (job, on_limit, strict, code) in [
            (&Job::default(), OnLimit::Fail, false, 7),
            (&Job::default(), OnLimit::Kill, true, 7),
            (&refused, OnLimit::Fail, false, 7),
            (&refused, OnLimit::Fail, true, 3),
            (&killed, OnLimit::Kill, false, 137),
            (&killed, OnLimit::Kill, true, 3),
            (&killed, OnLimit::Stop, false, 7),
        ] {
            let found = status(job, exit, &settings(on_limit, strict), true);
            assert_eq!(text(found), text(ExitCode::from(code)), "{on_limit:?} {strict}");
        }
        let unwritten = status(&Job::default(), exit, &settings(OnLimit::Fail, true), false);
        assert_eq!(text(unwritten), text(ExitCode::from(3)));
        let lax = settings(OnLimit::Fail, false);
        let good = Exit { code: Some(0), signal: None };
        for (exit, is_told, code) in [(good, true, 0), (good, false, 125), (exit, false, 7)] {
            let found = status(&Job::default(), exit, &lax, is_told);
            assert_eq!(text(found), text(ExitCode::from(code)), "{exit:?} {is_told}");
        }
    }
}
