//! What to record, and what came of it: the entry to this crate.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use heaptape_proc::read;
use heaptape_tape::{Ended, Header, Writer};

use crate::Error;
use crate::arena::SharedArena;
use crate::clock::Clock;
use crate::exit::Exit;
use crate::inspect::Inspector;
use crate::launch::{Launch, texts};
use crate::limits::Limits;
use crate::namespace::Namespaces;
use crate::output::{LEAST_BYTES, OpenOutput, Output};
use crate::recorder::{Observer, Recorder};
use crate::signals::Signals;
use crate::sink::Sink;

/// What to record and how.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The command.
    pub launch: Launch,
    /// Where the tape goes.
    pub output: Output,
    /// Ends with the command, also while other processes of the job still run.
    pub no_wait: bool,
    /// Ends the tape at about this many bytes.
    pub max_size: Option<u64>,
    /// Frames of each call stack at the most; 0 for no stacks.
    pub stack_depth: u32,
}

/// What the caller may tell the user while it goes on.
pub trait Watch {
    /// Something that the user should know, as a whole sentence.
    fn notice(&mut self, sentence: &str);
    /// The command has ended, and these processes of the job have not.
    fn waiting(&mut self, pids: &[u32]);
}

/// What came of a recording.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The tape.
    pub path: PathBuf,
    /// How the command ended.
    pub exit: Exit,
    /// Why the tape ended before the job did.
    pub ended: Option<Ended>,
    /// Events on the tape.
    pub events: u64,
    /// Events that are known to have happened and are not on the tape.
    pub lost: u64,
    /// Allocations at live addresses.
    pub order_faults: u64,
    /// Length of the tape in bytes.
    pub bytes: u64,
    /// Processes on the tape.
    pub processes: usize,
    /// Processes that could not be recorded.
    pub uncovered: usize,
}

/// Tells the caller what happens in a recording.
struct Recorded<'a>(&'a mut dyn Watch);

impl Observer for Recorded<'_> {
    fn waiting(&mut self, pids: &[u32]) {
        self.0.waiting(pids);
    }
}

/// Records a job.
///
/// # Errors
/// Only before the command has started; afterwards the outcome says what went wrong.
pub fn record(recording: &Recording, watch: &mut dyn Watch) -> Result<Outcome, Error> {
    recording.launch.check()?;
    check_size(recording)?;
    keep_memory();
    let limits = Limits::lift();
    let mut output = recording.output.open()?;
    let begin = |signals: Signals| {
        // It shares no memory with the job, which there is not yet.
        let signals = signals.with_sentinel();
        let mut recorder = open(recording, &output)?;
        let child = start(&mut recorder, &recording.launch, limits, None)?;
        Ok((signals, child, recorder))
    };
    let (signals, mut child, mut recorder) = match Signals::catch().and_then(begin) {
        Ok(started) => started,
        Err(error) => {
            output.discard();
            return Err(error);
        }
    };
    if let Err(error) = output.settle(child.id()) {
        watch.notice(&format!(
            "the tape stays at {} because it can't be renamed: {error}",
            output.path().display()
        ));
    }
    if let Some(why) = recording.launch.obstacle() {
        watch.notice(&format!("{} can't be recorded: {why}", recording.launch.name()));
    }
    recorder.run(&mut child, &signals, recording.no_wait, &mut Recorded(watch));
    let mut outcome = recorder.finish(output.path().to_owned());
    // The tape is whole; where it had to end early, the command's exit status is still to come.
    outcome.exit = wait(&mut child, &signals);
    Ok(outcome)
}

/// A tape begins with the command and ends with its index; there has to be room for events between.
fn check_size(recording: &Recording) -> Result<(), Error> {
    let words = recording.launch.command.iter().map(|word| word.len() as u64 + 1);
    let least = LEAST_BYTES + words.sum::<u64>();
    match recording.max_size {
        Some(allowed) if allowed < least => Err(Error::TooSmall { allowed, least }),
        _ => Ok(()),
    }
}

/// Blocks of events come and go several times a second: our own allocator keeps their memory, or the
/// kernel would clear the same pages over and over.
pub(crate) fn keep_memory() {
    const KEPT: libc::c_int = 256 << 20;
    // SAFETY: settings of glibc's allocator, made before other threads are started.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
    }
}

/// How the command ends; signals that we get meanwhile go on to it.
pub(crate) fn wait(child: &mut Child, signals: &Signals) -> Exit {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.into(),
            Ok(None) => signals.forward(child.id()),
            Err(_) => return Exit::default(),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Starts the command; `entrance` is that of its control group.
pub(crate) fn start(
    recorder: &mut Recorder,
    launch: &Launch,
    limits: Limits,
    entrance: Option<RawFd>,
) -> Result<Child, Error> {
    let child = launch.spawn(recorder.arena.session_path(), limits, entrance)?;
    let who = recorder.namespaces.here(child.id());
    recorder.intents.expect(who, child.id(), texts(&launch.command));
    Ok(child)
}

/// A recording that goes on as soon as somebody registers with its session.
pub(crate) fn open(recording: &Recording, output: &OpenOutput) -> Result<Recorder, Error> {
    let arena = SharedArena::create(recording.stack_depth)?;
    let file = output.file.try_clone().map_err(|source| Error::System { what: "dup", source })?;
    let sink = Sink::start(file, recording.max_size, arena.arena())?;
    let tape = Writer::new(sink, &header(&recording.launch, recording.stack_depth))?;
    let clock = Clock::start(arena.arena())?;
    let namespaces = Namespaces::new(arena.identity()?);
    Ok(Recorder::new(arena, clock, tape, Inspector::start()?, namespaces))
}

/// What a tape begins with.
pub(crate) fn header(launch: &Launch, stack_depth: u32) -> Header {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut settings = Vec::new();
    if launch.no_aslr {
        settings.push(("no-aslr".to_owned(), "true".to_owned()));
    }
    if launch.python_malloc {
        settings.push(("python-malloc".to_owned(), "true".to_owned()));
    }
    if stack_depth > 0 {
        settings.push((Header::STACKS.to_owned(), stack_depth.to_string()));
    }
    Header {
        started: started.as_nanos() as u64,
        command: texts(&launch.command),
        host: read::hostname().unwrap_or_default(),
        page_size: rustix::param::page_size() as u32,
        settings,
    }
}
