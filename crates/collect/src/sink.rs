//! The writing thread: compresses frames and writes them, while the collector goes on draining.
//!
//! When the file can't grow any more, by the user's limit or the file system's, it says so once and
//! takes no more events; the tape ends at its last whole frame.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use heaptape_tape::{BlockSink, Ended, Error, RawFrame};
use heaptape_wire::session::Arena;
use rustix::fs::FallocateFlags;

use crate::room::{self, Room};

/// Frames that may wait for the writing thread.
const QUEUE: usize = 8;
/// How long a file that takes nothing is waited for.
const STALLED: Duration = Duration::from_secs(30);

/// The end of the queue that the tape's writer feeds.
pub(crate) struct Sink {
    sender: Option<SyncSender<RawFrame>>,
    thread: Option<JoinHandle<u64>>,
    state: Arc<Mutex<State>>,
    max_size: Option<u64>,
    /// Events in the blocks that were queued.
    items: u64,
    arena: Arena,
}

/// What the writing thread says.
#[derive(Debug, Default)]
struct State {
    ended: Option<Ended>,
    room: Room,
}

impl Sink {
    /// Starts the thread. `max_size`: bytes after which the tape ends.
    pub(crate) fn start(
        file: File,
        max_size: Option<u64>,
        arena: Arena,
    ) -> Result<Sink, crate::Error> {
        let (sender, receiver) = sync_channel(QUEUE);
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        let out = FrameFile::new(file, max_size, shared)?;
        let thread = crate::thread::start(move || out.write_all(&receiver))?;
        Ok(Sink { sender: Some(sender), thread: Some(thread), state, max_size, items: 0, arena })
    }

    /// Why the tape has to end, if it has to.
    pub(crate) fn ended(&self) -> Option<Ended> {
        lock(&self.state).ended.clone()
    }

    /// Waits until everything is written; the length of the file in bytes, and why it had to end.
    pub(crate) fn close(mut self) -> (u64, Option<Ended>) {
        self.sender = None;
        let bytes = self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or(0);
        (bytes, self.ended())
    }
}

impl BlockSink for Sink {
    /// Queues a frame. While the queue is full the collector is still alive and says so.
    fn frame(&mut self, frame: RawFrame) -> Result<(), Error> {
        let Some(sender) = &self.sender else { return Ok(()) };
        let started = Instant::now();
        self.items += frame.items();
        let mut frame = frame;
        loop {
            match sender.try_send(frame) {
                Ok(()) | Err(TrySendError::Disconnected(_)) => return Ok(()),
                Err(TrySendError::Full(back)) => frame = back,
            }
            if started.elapsed() > STALLED {
                lock(&self.state).ended.get_or_insert(Ended::Other("output-stalled".into()));
                return Ok(());
            }
            self.arena.session().beat();
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn room(&self) -> Option<u64> {
        let room = lock(&self.state).room;
        let most = self.max_size.into_iter().chain(room.disk).min()?;
        Some(room.items_left(most, self.items - room.items))
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file behind the queue.
struct FrameFile {
    file: File,
    encoder: heaptape_tape::Encoder,
    buffer: Vec<u8>,
    written: u64,
    max_size: Option<u64>,
    state: Arc<Mutex<State>>,
    failed: Option<Ended>,
}

impl FrameFile {
    fn new(
        file: File,
        max_size: Option<u64>,
        state: Arc<Mutex<State>>,
    ) -> Result<FrameFile, Error> {
        let encoder = heaptape_tape::Encoder::new()?;
        lock(&state).room.disk = room::of_disk(&file, 0);
        Ok(FrameFile {
            file,
            encoder,
            buffer: Vec::new(),
            written: 0,
            max_size,
            state,
            failed: None,
        })
    }

    fn write_all(mut self, frames: &Receiver<RawFrame>) -> u64 {
        for frame in frames {
            // After a failure only the last frame is still wanted: it says why there are no more.
            let frame = match (&self.failed, frame.is_last()) {
                (Some(_), false) => continue,
                (Some(why), true) => RawFrame::last(why.clone()),
                (None, _) => frame,
            };
            if let Err(error) = self.write(frame) {
                self.fail(&error);
            }
        }
        self.written
    }

    fn write(&mut self, frame: RawFrame) -> Result<(), Error> {
        self.buffer.clear();
        let items = frame.items();
        frame.encode(&mut self.encoder, &mut self.buffer)?;
        if self.is_too_long() {
            self.give_up(Ended::MaxSize);
            return Ok(());
        }
        self.reserve().and_then(|()| self.file.write_all(&self.buffer)).map_err(Error::Write)?;
        self.written += self.buffer.len() as u64;
        self.tell(items);
        Ok(())
    }

    /// Says what is taken, after a frame with so many events.
    fn tell(&self, items: u64) {
        let room = &mut lock(&self.state).room;
        room.taken = self.written + self.encoder.last_frame_bytes();
        room.disk = room::of_disk(&self.file, self.written);
        room.items += items;
        room.block_bytes += if items > 0 { self.buffer.len() as u64 } else { 0 };
    }

    /// Whether this frame, with the last one behind it, would pass the limit.
    fn is_too_long(&self) -> bool {
        let length = self.written + self.buffer.len() as u64 + self.encoder.last_frame_bytes();
        self.failed.is_none() && self.max_size.is_some_and(|max| length > max)
    }

    /// Takes room for this frame and, behind it, for the last one, so that a tape on a full disk can
    /// still end whole. File systems that can't do that take their chance.
    fn reserve(&self) -> io::Result<()> {
        if self.failed.is_some() {
            return Ok(());
        }
        let length = self.buffer.len() as u64 + self.encoder.last_frame_bytes();
        let keep = FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(self.file.as_fd(), keep, self.written, length) {
            Err(error @ (rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT)) => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn end(&self, why: Ended) {
        lock(&self.state).ended.get_or_insert(why);
    }

    fn fail(&mut self, error: &Error) {
        self.give_up(match error {
            Error::Write(error) if is_full(error) => Ended::DiskFull,
            other => Ended::Other(other.to_string()),
        });
    }

    /// Cuts the file back to its last whole frame; from here on only the last frame is written.
    fn give_up(&mut self, why: Ended) {
        self.encoder.take_back();
        let _ = self.file.set_len(self.written);
        let _ = self.file.seek(SeekFrom::Start(self.written));
        self.failed.get_or_insert(why.clone());
        self.end(why);
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
