//! Events in, columns out: resolves every address against the live set and counts as it goes.

use crate::format::RawFrame;
use crate::{
    Ended, Error, Event, ForkPoint, Header, Note, ProcessEnd, ProcessNumber, ProcessStart, Sample,
    Uncovered,
};

/// Where finished frames go, in order. The collector's hands them to its writing thread.
pub trait BlockSink {
    /// Takes the next frame.
    fn frame(&mut self, frame: RawFrame) -> Result<(), Error>;
}

/// Writes a tape. One thread feeds it; frames leave through the sink.
pub struct Writer<S: BlockSink> {
    sink: S,
}

#[allow(unused_variables)] // signatures first
impl<S: BlockSink> Writer<S> {
    /// Starts a tape: the header goes to the sink at once.
    pub fn new(sink: S, header: &Header) -> Result<Writer<S>, Error> {
        Ok(Writer { sink })
    }

    /// Starts a process and gives it the next number.
    pub fn start_process(&mut self, start: &ProcessStart) -> Result<ProcessNumber, Error> {
        Ok(ProcessNumber(0))
    }

    /// Remembers the live set of `parent` as it is now, until the point is dropped and the last
    /// child that was started from it (and its heirs) has ended.
    pub fn fork_point(&mut self, parent: ProcessNumber) -> Result<ForkPoint, Error> {
        Ok(ForkPoint(0))
    }

    /// No more children will be started from `point`.
    pub fn drop_fork_point(&mut self, point: ForkPoint) -> Result<(), Error> {
        Ok(())
    }

    /// Writes the next event of a process and returns its index.
    pub fn event(&mut self, process: ProcessNumber, event: &Event) -> Result<u64, Error> {
        Ok(0)
    }

    /// Writes that a reallocation by `thread` has given `address` up; its event comes later from
    /// the same thread. The old size counts until then.
    pub fn release(
        &mut self,
        process: ProcessNumber,
        thread: u32,
        time: u64,
        address: u64,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Writes a note; it stands before the next event.
    pub fn note(&mut self, process: ProcessNumber, note: &Note) -> Result<(), Error> {
        Ok(())
    }

    /// Writes a sample; its index is set to the number of events so far.
    pub fn sample(&mut self, process: ProcessNumber, sample: &Sample) -> Result<(), Error> {
        Ok(())
    }

    /// Names the MPI rank of a process once it is known.
    pub fn set_rank(&mut self, process: ProcessNumber, rank: u32) -> Result<(), Error> {
        Ok(())
    }

    /// Ends a process.
    pub fn end_process(&mut self, process: ProcessNumber, end: &ProcessEnd) -> Result<(), Error> {
        Ok(())
    }

    /// Names a process that could not be recorded.
    pub fn uncovered(&mut self, uncovered: &Uncovered) -> Result<(), Error> {
        Ok(())
    }

    /// Sends what is buffered of every process to the sink, so that a tape cut here holds it.
    pub fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// The sink, to ask it how it fares.
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// Counts so far: events and order faults of all processes.
    pub fn counts(&self) -> (u64, u64) {
        (0, 0)
    }

    /// Ends the tape: the last blocks, the index and the trailer go to the sink, which is given
    /// back. `ended` says why the recording stopped before the job did.
    pub fn finish(self, ended: Option<Ended>) -> Result<S, Error> {
        Ok(self.sink)
    }
}
