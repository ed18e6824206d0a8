//! What of a covered process's calls passes the capture library by, as the library itself has found
//! when it was loaded, as its file shows, and because of libraries that came later. Such a process is named on the tape, whatever else is recorded of it.

use heaptape_tape::{Error, Uncovered};
use heaptape_wire::process::{Gap, ProcessSlot};

use crate::recorder::Recorder;

/// What the library has said in the process's slot, as one phrase. (What an executable's own `malloc`
/// hides, its file shows as well, and more precisely.)
pub(crate) fn said(slot: &ProcessSlot) -> Option<String> {
    let (gap, module) = slot.gap()?;
    let module = String::from_utf8_lossy(&module.collect::<Vec<u8>>()).into_owned();
    match gap {
        Gap::OtherFirst if module.is_empty() => None,
        Gap::OtherFirst => Some(format!(
            "{module} defines malloc and comes before heaptape's library: only what it hands on is seen"
        )),
        Gap::Replaced => Some(format!(
            "valgrind runs it and puts functions of its own in the place of every malloc ({module}): its heap calls are not seen"
        )),
        Gap::SizeUnknown => Some(format!(
            "{module} defines malloc and no malloc_usable_size: its calls are seen, and the slack of its blocks counts as 0"
        )),
    }
}

impl Recorder {
    /// Names a process that has ended, if calls of it were not seen, once its file has been looked at.
    pub(crate) fn name_gap(&mut self, place: usize) -> Result<(), Error> {
        let process = &mut self.processes[place];
        if process.is_being_inspected {
            return Ok(());
        }
        let reasons = [process.said.take(), process.gap.take(), process.apart.take_reason()];
        let why = reasons.into_iter().flatten().collect::<Vec<_>>().join("; ");
        if why.is_empty() {
            return Ok(());
        }
        let (pid, command) = (process.start.pid, process.start.command.clone());
        self.name_uncovered(&Uncovered { pid, command, why })
    }
}
