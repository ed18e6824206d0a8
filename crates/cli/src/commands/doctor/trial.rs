//! Records a program that does nothing, in a temporary place, and sees what comes of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use heaptape_collect::{Launch, Output, Recording, Watch, record};
use heaptape_report::doctor::system::Trial;

/// Where the program may be.
const PROGRAMS: [&str; 2] = ["/bin/true", "/usr/bin/true"];
/// Runs of each kind; the best counts.
const RUNS: usize = 3;

/// Records it; in one phrase why that was not possible.
pub(super) fn run(library: &Path) -> Result<Trial, String> {
    let Some(program) = PROGRAMS.iter().find(|path| Path::new(path).is_file()) else {
        return Err(format!("there is no {} to try it with", PROGRAMS[0]));
    };
    let directory = Directory::make()?;
    let mut trial = Trial { command: (*program).to_owned(), ..Trial::default() };
    trial.plain = best(|| {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).status().map(|_| ()).map_err(|error| error.to_string())
    })?;
    let recording = Recording {
        launch: Launch {
            command: vec![program.into()],
            library: library.to_owned(),
            no_aslr: false,
            python_malloc: false,
        },
        output: Output::Named(directory.path.join("trial.tape")),
        no_wait: true,
        max_size: None,
        stack_depth: 0,
    };
    trial.recorded = best(|| {
        let outcome = record(&recording, &mut Silent).map_err(|error| error.to_string())?;
        trial.code = outcome.exit.code;
        trial.events = outcome.events;
        trial.lost = trial.lost.max(outcome.lost);
        trial.order_faults = trial.order_faults.max(outcome.order_faults);
        trial.processes = outcome.processes as u64;
        Ok(())
    })?;
    Ok(trial)
}

/// The shortest of a few runs, in microseconds.
fn best(mut run: impl FnMut() -> Result<(), String>) -> Result<u64, String> {
    let mut best = u64::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        run()?;
        best = best.min(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    Ok(best)
}

/// A directory of our own, removed at the end.
struct Directory {
    path: PathBuf,
}

impl Directory {
    fn make() -> Result<Directory, String> {
        let name = format!("heaptape-doctor.{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        match fs::create_dir(&path) {
            Ok(()) => Ok(Directory { path }),
            Err(error) => Err(format!("cannot make {}: {error}", path.display())),
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// What there is to say goes into the diagnosis.
struct Silent;

impl Watch for Silent {
    fn notice(&mut self, _: &str) {}
    fn waiting(&mut self, _: &[u32]) {}
}
