//! Tapes that are written by hand, for what no program does.

use heaptape_tape::{
    Call, Event, FrameWriter, Header, Note, NoteKind, Origin, ProcessNumber, ProcessStart, Writer,
};
use std::fs::File;
use std::path::Path;

/// A tape that is written by hand.
pub(crate) struct Hand {
    pub(crate) tape: Writer<FrameWriter<File>>,
}

impl Hand {
    pub(crate) fn begin(file: &Path, header: &Header) -> Hand {
        let sink = FrameWriter::new(File::create(file).expect("a file")).expect("a sink");
        Hand { tape: Writer::new(sink, header).expect("a writer") }
    }

    pub(crate) fn start(
        &mut self,
        pid: u32,
        parent: Option<ProcessNumber>,
        origin: Origin,
    ) -> ProcessNumber {
        let command = vec!["prog".into()];
        let start = ProcessStart { pid, parent, origin, time: 0, rank: None, command };
        self.tape.start_process(&start).expect("a process")
    }

    pub(crate) fn call(&mut self, process: u32, call: Call, address: u64, size: u64, old: u64) {
        let (thread, time, caller, slack, align) = (0, 50, 0x4010, 8, 0);
        let event = Event { call, thread, time, caller, address, size, slack, align, old };
        self.tape.event(ProcessNumber(process), &event).expect("an event");
    }

    pub(crate) fn module(&mut self, path: &[u8]) {
        let note = |kind, args: &[u64], text| Note {
            thread: 0,
            time: 0,
            caller: 0,
            kind,
            args: args.to_vec(),
            text,
        };
        let text = [&[0; 21][..], path].concat();
        let notes = [
            note(NoteKind::Module, &[0x4000, 0x4000, 0x5000], text),
            note(NoteKind::ModulesEnd, &[], Vec::new()),
        ];
        notes.iter().for_each(|n| self.tape.note(ProcessNumber(0), n).expect("a note"));
    }

    pub(crate) fn finish(self) {
        self.tape.finish(None).expect("a tape");
    }
}
