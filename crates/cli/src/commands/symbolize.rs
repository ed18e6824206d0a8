//! `symbolize`: looks all names up that a tape's readers could want, and puts them on the tape.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use heaptape_analyze::places::Places;
use heaptape_report::{size, text};
use heaptape_symbols::ModuleId;
use heaptape_tape::{ModuleNames, NamedPlace, Tape};

use super::open;
use crate::args::Symbolize;
use crate::names::{Names, made_by, named};
use crate::output::Named;
use crate::terminal::Terminal;

/// Writes the tape anew, with names; what is known of them is said.
pub(crate) fn run(args: &Symbolize, terminal: &Terminal) -> Result<ExitCode> {
    let name = args.file.display().to_string();
    let (tape, incomplete) = open::judged(&args.file)?;
    ensure!(
        !(tape.summary().cut && open::is_being_written(&args.file)),
        "{name} is still being recorded: it can be symbolized when that has ended"
    );
    if let Some(why) = incomplete {
        terminal.say(&format!("{name} is incomplete: {why}. It stays so, with names."));
    }
    let found = find(args, &tape, terminal).with_context(|| name.clone())?;
    let output = args.output.as_deref().unwrap_or(&args.file);
    write(&tape, &found.modules, output)?;
    found.troubles.iter().for_each(|trouble| terminal.say(trouble));
    found.nameless.iter().for_each(|path| {
        terminal.say(&format!("{path} gave no name: it is not there, another build, or has none."));
    });
    let (places, all) = (found.modules.iter().map(|m| m.places.len()).sum(), found.asked);
    terminal.say(&format!("{}: {}.", output.display(), sentence(places, all, output)));
    Ok(ExitCode::SUCCESS)
}

fn sentence(named: usize, all: usize, output: &Path) -> String {
    let bytes = fs::metadata(output).map_or(0, |found| found.len());
    let places = text::counted(all as u64, "place", "places");
    format!("{named} of {places} named, {} in all", size::Size(bytes))
}

/// What was found.
struct Found {
    modules: Vec<ModuleNames>,
    asked: usize,
    /// Files that told nothing, by path.
    nameless: Vec<String>,
    troubles: Vec<String>,
}

fn find(args: &Symbolize, tape: &Tape, terminal: &Terminal) -> Result<Found> {
    let mut progress = terminal.progress(tape.summary().events, false);
    let places = Places::of(tape, &mut |events| progress.events(events))?;
    let mut names = Names::new(&args.sysroot, tape)?;
    let mut all: BTreeMap<(String, Vec<u8>), BTreeMap<u64, NamedPlace>> = BTreeMap::new();
    // Those that were put there before stay where nothing better is found.
    for (module, place) in names.on_tape() {
        let key = (module.path.clone(), module.build_id.clone());
        all.entry(key).or_default().insert(place.offset, place);
    }
    let mut nameless = Vec::new();
    for (file, offsets) in &places.files {
        let module = ModuleId { path: file.path.clone(), build_id: file.build_id.clone() };
        let known = all.entry((module.path.clone(), module.build_id.clone())).or_default();
        for &offset in offsets {
            let frames = names.looked_up(&module, offset);
            if !frames.is_empty() {
                known.insert(offset, named(offset, &frames));
            }
        }
        if known.is_empty() {
            nameless.push(module.path);
        }
    }
    for (process, addresses) in &places.elsewhere {
        let summary = tape.summary().processes.get(process.0 as usize);
        let Some(pid) = summary.and_then(|p| p.known_pid()) else { continue };
        let known = all.entry((made_by(pid).path, Vec::new())).or_default();
        for &address in addresses {
            let frames = names.made(pid, address);
            if !frames.is_empty() {
                known.insert(address, named(address, &frames));
            }
        }
    }
    let modules = all.into_iter().map(|((path, build_id), places)| {
        let places = places.into_values().collect();
        ModuleNames { path, build_id, places }
    });
    let troubles = names.troubles().map(str::to_owned).collect();
    Ok(Found { modules: modules.collect(), asked: places.count(), nameless, troubles })
}

/// Writes the tape beside its name, and gives it that when it is whole.
fn write(tape: &Tape, names: &[ModuleNames], output: &Path) -> Result<()> {
    // A link goes on to lead to the tape.
    let target = fs::canonicalize(output).unwrap_or_else(|_| output.to_owned());
    let old = fs::metadata(&target).ok();
    let name = output.display();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        let file = OpenOptions::new().write(true).open(&target);
        return put(tape, names, &file.with_context(|| format!("cannot open {name}"))?, output);
    }
    let (beside, file) = Beside::new(&target).with_context(|| format!("cannot write {name}"))?;
    if let Some(old) = old {
        let permissions = file.set_permissions(old.permissions());
        permissions.with_context(|| format!("cannot write {name}"))?;
    }
    put(tape, names, &file, output)?;
    beside.settle(&file, &target).with_context(|| format!("cannot write {name}"))
}

fn put(tape: &Tape, names: &[ModuleNames], file: &File, output: &Path) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, Named::new(output.display().to_string(), file));
    match tape.copy_with(names, &mut out) {
        // It names the file itself.
        Err(heaptape_tape::Error::Write(why)) => Err(why.into()),
        done => done.map_err(Into::into).and_then(|()| Ok(out.flush()?)),
    }
}

/// A file beside the one that is to be written.
struct Beside {
    path: Option<PathBuf>,
}

impl Beside {
    fn new(target: &Path) -> std::io::Result<(Beside, File)> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let path = target.with_file_name(format!(".{name}.{}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok((Beside { path: Some(path) }, file))
    }

    /// It is whole, and is to be so after a failure of the machine too.
    fn settle(mut self, file: &File, target: &Path) -> std::io::Result<()> {
        file.sync_all()?;
        if let Some(path) = &self.path {
            fs::rename(path, target)?;
        }
        self.path = None;
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Where it can't be removed, its name says whose it was.
            let _ = fs::remove_file(path);
        }
    }
}
