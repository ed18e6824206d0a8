//! `heaptape doctor`: will it work here, and with this command, and what will be seen.
//!
//! Nothing of a command that is asked about is run. Of this system, a program that does nothing is
//! recorded on trial, and MPI launchers and UCX are asked for their versions.

mod ask;
mod trial;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use heaptape_collect::{SHARED_BYTES, features};
use heaptape_proc::libraries::{self, Settings};
use heaptape_proc::program::Place;
use heaptape_proc::{Allotments, Loader, Program, System, counters, mpi};
use heaptape_report::doctor::system::Preload;
use heaptape_report::doctor::{self, Check, Subject, program, system};
use heaptape_report::json;

use crate::args::Doctor;
use crate::library;
use crate::terminal::Terminal;

/// Prints the diagnosis; fails when nothing can be recorded.
pub(crate) fn run(args: &Doctor, terminal: &Terminal) -> Result<ExitCode> {
    let mut out = terminal.out();
    let checks = if args.command.is_empty() {
        let findings = examine_system();
        let checks = system::checks(&findings);
        if args.json {
            json::doctor::write_system(&mut out, &findings, &checks)?;
        } else {
            doctor::write(&mut out, Subject::System, &checks, terminal.style())?;
        }
        checks
    } else {
        let findings = examine_program(&args.command);
        let checks = program::checks(&findings);
        if args.json {
            json::doctor::write_program(&mut out, &findings, &checks)?;
        } else {
            let subject = Subject::Command(&findings.command);
            doctor::write(&mut out, subject, &checks, terminal.style())?;
        }
        checks
    };
    out.flush()?;
    let fails = |check: &Check| check.is_fatal;
    Ok(if checks.iter().any(fails) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn examine_program(command: &[OsString]) -> program::Findings {
    let path = env::var_os("PATH").unwrap_or_default();
    let place = Place { path: &path, directory: Path::new("") };
    let program = Program::of(command.first().map_or(OsStr::new(""), OsString::as_os_str), place);
    let libraries = match (&program.executable, &program.elf, &program.obstacle) {
        (Some(path), Some(elf), None) => Loader::new(settings()).libraries(path, elf),
        _ => Vec::new(),
    };
    program::Findings {
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        allocator: libraries::allocator(&libraries),
        program,
        libraries,
    }
}

fn examine_system() -> system::Findings {
    let path = env::var_os("PATH").unwrap_or_default();
    let place = Place { path: &path, directory: Path::new("") };
    let loader = Loader::new(settings());
    // Before the trial, which changes how our own memory is kept.
    let lag = counters::measure();
    let mut mpi = mpi::libraries(&loader, place, variable);
    for one in &mut mpi {
        let told = one.launcher.as_deref().and_then(|path| ask::output(path, &["--version"]));
        one.version = told.and_then(|text| mpi::version(&text));
    }
    let mut ucx = mpi::ucx(&loader, place, variable);
    if let Some(ucx) = &mut ucx
        && let Some(told) = ucx.teller.as_deref().and_then(|path| ask::output(path, &["-v", "-c"]))
    {
        ucx.told(&told);
    }
    let library = library::path();
    system::Findings {
        system: System::read(features()),
        lag,
        shared_bytes: SHARED_BYTES,
        allotments: Allotments::here(variable),
        mpi,
        ucx,
        preloads: preloads(&loader),
        audit: variable("LD_AUDIT").filter(|value| !value.is_empty()),
        trial: match &library {
            Ok(path) => trial::run(path),
            Err(_) => Err("there is no library to try it with".into()),
        },
        library: library
            .map(|path| path.to_string_lossy().into_owned())
            .map_err(|error| format!("{error:#}")),
    }
}

fn preloads(loader: &Loader) -> Vec<Preload> {
    let found = loader.preloads().into_iter().map(|library| Preload {
        allocator: libraries::allocator(std::slice::from_ref(&library)).map(|found| found.name),
        path: library.path.map(|path| path.to_string_lossy().into_owned()),
        name: library.name,
    });
    found.collect()
}

fn settings() -> Settings {
    let value = |name| variable(name).unwrap_or_default();
    Settings::new(&value("LD_PRELOAD"), &value("LD_LIBRARY_PATH"))
}

fn variable(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}
