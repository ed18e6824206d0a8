//! All places that the calls on a tape came from, and those that their stacks go through.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use heaptape_tape::{CallerNumber, Columns, Lent, ProcessNumber, Tape, interpreted_of};

use crate::Error;
use crate::callers::Callers;

/// A mapped file by its path and build id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct File {
    /// Its path.
    pub path: String,
    /// Its GNU build id; empty for none.
    pub build_id: Vec<u8>,
}

/// Return addresses of a tape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Those in files, by what they are less the load bias.
    pub files: BTreeMap<File, BTreeSet<u64>>,
    /// Those that lie in no file, such as code that was made by a program, by process.
    pub elsewhere: BTreeMap<ProcessNumber, BTreeSet<u64>>,
}

impl Places {
    /// Those of all processes of a tape. `progress` is told how many events were read.
    pub fn of(tape: &Tape, progress: &mut dyn FnMut(u64)) -> Result<Places, Error> {
        let (mut places, mut callers) = (Places::default(), Callers::new(tape));
        for process in &tape.summary().processes {
            let addresses = addresses(tape, process.number, progress)?;
            let modules = callers.modules(process.number)?;
            for address in addresses.into_iter().filter(|&a| a != 0) {
                let mut is_known = false;
                for place in modules.ever_call(address) {
                    is_known = true;
                    let (path, build_id) =
                        (place.module.path.clone(), place.module.build_id.clone());
                    let file = File { path, build_id };
                    places.files.entry(file).or_default().insert(place.offset);
                }
                if !is_known {
                    places.elsewhere.entry(process.number).or_default().insert(address);
                }
            }
        }
        Ok(places)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        let (files, elsewhere) = (self.files.values(), self.elsewhere.values());
        files.chain(elsewhere).map(BTreeSet::len).sum()
    }
}

/// The addresses that calls of a process came from, and those of its stacks.
fn addresses(
    tape: &Tape,
    process: ProcessNumber,
    progress: &mut dyn FnMut(u64),
) -> Result<HashSet<u64>, Error> {
    let mut all = HashSet::new();
    for (_, site) in tape.sites(process)?.iter() {
        all.extend(site.frames.iter().copied().filter(|&frame| interpreted_of(frame).is_none()));
    }
    let columns = Columns { caller: true, ..Columns::REPLAY };
    let mut items = tape.events_with(process, 0..u64::MAX, columns)?;
    let mut met: HashSet<CallerNumber> = HashSet::new();
    while let Some(item) = items.lend()? {
        let Lent::Event(event) = item else { continue };
        progress(1);
        // Callers have numbers, so that most events cost a look at a small one.
        if event.caller.is_none_or(|number| met.insert(number)) {
            all.insert(event.event.caller);
        }
    }
    Ok(all)
}
