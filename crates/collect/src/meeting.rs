//! Where the commands of one job meet on a host: an abstract socket whose name follows from the user,
//! the directory, the host's name and the job. Who binds it first starts the recording; the others are told its session.
//!
//! ```text
//! wrapper ──its command line, its stderr──▶ recording
//!         ◀──session, or why there is none──
//! ```
//!
//! A caller may also ask for the process that has started it, or wait for what comes of the limit.
//!
//! The name lives as long as the socket: nothing is left behind by whoever dies.

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::Error;

/// Wrappers that may wait to be answered.
const BACKLOG: i32 = 4096;
/// How long a recording may take to answer.
const ANSWER: Duration = Duration::from_secs(20);
/// Bytes of a message at the most.
const MESSAGE: usize = 8 << 10;
/// What a wrapper says when it could not become its command.
const FAILED: &[u8] = b"failed";
/// What a wrapper says that will wait for the end of the counting.
const WAITS: &[u8] = b"waits";
/// What it says when it can't wait any longer.
const ASKS: &[u8] = b"asks";

/// The place of a job on this host.
pub(crate) struct Place {
    address: SocketAddrUnix,
    directory: PathBuf,
}

/// One end of a conversation.
pub(crate) struct Line(OwnedFd);

/// Who is to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The caller, which is about to become its command.
    Itself,
    /// The process that has started the caller, and is its command already.
    Parent,
}

/// What a wrapper is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The session to join.
    Session(PathBuf),
    /// The recording has ended already, for this reason; the command is to go on without it.
    Over(String),
    /// There is no recording, for this reason.
    Refused(String),
    /// Whether the whole job stayed within its limit; `None` as long as it may.
    Within(Option<bool>),
}

/// What a recording hears from a wrapper.
pub(crate) enum Heard {
    /// Nothing yet.
    Nothing,
    /// Who, its command line, and its standard error.
    Joins(Who, Vec<String>, Option<OwnedFd>),
    /// It waits for a child, which will join, and for what comes of the limit.
    Waits,
    /// It asks what has come of the limit by now.
    Asks,
    /// It could not become its command.
    Failed,
    /// It has become its command, or is gone.
    Left,
}

fn system(what: &'static str) -> impl Fn(Errno) -> Error {
    move |error| Error::System { what, source: error.into() }
}

fn socket(flags: SocketFlags) -> Result<OwnedFd, Error> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::socket_with(family, kind, flags | SocketFlags::CLOEXEC, None)
        .map_err(system("socket"))
}

impl Place {
    /// The place of the job `job` whose tapes go to `directory`, which must be there.
    pub(crate) fn new(directory: &Path, job: &str) -> Result<Place, Error> {
        let meta = directory
            .metadata()
            .map_err(|source| Error::Output { path: directory.to_owned(), source })?;
        // Containers may be hosts of their own, with names of their own, and share one network.
        let host = heaptape_proc::read::hostname().unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        (meta.dev(), meta.ino(), host, job, env!("CARGO_PKG_VERSION")).hash(&mut hasher);
        let uid = rustix::process::getuid().as_raw();
        let name = format!("heaptape-join-{uid}-{:016x}", hasher.finish());
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes())
            .map_err(system("a socket's name"))?;
        Ok(Place { address, directory: directory.to_owned() })
    }

    /// Takes the place, unless somebody has it.
    pub(crate) fn take(&self) -> Result<Option<OwnedFd>, Error> {
        let socket = socket(SocketFlags::NONBLOCK)?;
        match rustix::net::bind(&socket, &self.address) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => return Ok(None),
            Err(error) => return Err(system("bind")(error)),
        }
        rustix::net::listen(&socket, BACKLOG).map_err(system("listen"))?;
        Ok(Some(socket))
    }

    /// Calls whoever has the place, if anybody listens there.
    pub(crate) fn call(&self) -> Result<Option<Line>, Error> {
        let socket = socket(SocketFlags::empty())?;
        match rustix::net::connect(&socket, &self.address) {
            Ok(()) => {}
            Err(Errno::CONNREFUSED | Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(system("connect")(error)),
        }
        let line = Line(socket);
        match line.peer() {
            Some(_) => Ok(Some(line)),
            None => Err(Error::Joined(format!(
                "cannot join the recording in {}: the socket of this job is held by another user; nothing was started",
                self.directory.display()
            ))),
        }
    }
}

/// The next wrapper that calls, if one waits.
pub(crate) fn accept(listener: &OwnedFd) -> Option<Line> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::accept_with(listener, flags).ok().map(Line)
}

impl Line {
    /// The process at the other end, if it is of the same user.
    pub(crate) fn peer(&self) -> Option<u32> {
        let peer = rustix::net::sockopt::socket_peercred(&self.0).ok()?;
        (peer.uid == rustix::process::getuid()).then_some(peer.pid.as_raw_nonzero().get() as u32)
    }

    /// Wrapper: asks to join.
    pub(crate) fn ask(
        &self,
        who: Who,
        command: &[String],
        stderr: Option<BorrowedFd<'_>>,
    ) -> Option<()> {
        let text = command.join("\0");
        let text = &text.as_bytes()[..text.len().min(MESSAGE - 1)];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<BorrowedFd<'_>> = stderr.into_iter().collect();
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        }
        let kind = if who == Who::Itself { b"J" } else { b"P" };
        let parts = [IoSlice::new(kind), IoSlice::new(text)];
        rustix::net::sendmsg(&self.0, &parts, &mut ancillary, SendFlags::NOSIGNAL).ok().map(|_| ())
    }

    /// Wrapper: the answer; `None` when the other end has gone instead.
    pub(crate) fn answer(&self) -> Result<Option<Reply>, Error> {
        let mut poll = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        let timeout = rustix::time::Timespec { tv_sec: ANSWER.as_secs() as i64, tv_nsec: 0 };
        if rustix::event::poll(&mut poll, Some(&timeout)) == Ok(0) {
            return Err(Error::Joined(
                "the recording of this job does not answer; nothing was started".into(),
            ));
        }
        let mut buffer = [0u8; MESSAGE];
        let mut receive = || rustix::net::recv(&self.0, &mut buffer, RecvFlags::empty());
        let received = match receive() {
            // It has gone without hearing all that was said; what it said before comes next.
            Err(Errno::CONNRESET) => receive(),
            received => received,
        };
        Ok(received.ok().and_then(|(len, _)| Reply::decode(buffer.get(..len)?)))
    }

    /// Wrapper: it will wait for what comes of the limit. Whether it is heard.
    pub(crate) fn wait(&self) -> Result<Option<Reply>, Error> {
        match rustix::net::send(&self.0, WAITS, SendFlags::NOSIGNAL) {
            Ok(_) => self.answer(),
            Err(_) => Ok(None),
        }
    }

    /// Wrapper: what has come of the limit, if that shows by now.
    pub(crate) fn outcome_by_now(&self) -> Option<bool> {
        // What was told before is there all the same.
        let _ = rustix::net::send(&self.0, ASKS, SendFlags::NOSIGNAL);
        match self.answer() {
            Ok(Some(Reply::Within(within))) => within,
            _ => None,
        }
    }

    /// Wrapper: what has come of the limit, within so many milliseconds; `Err` when nobody will tell.
    pub(crate) fn outcome_within(&self, milliseconds: i64) -> Result<Option<bool>, ()> {
        let mut poll = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
        match rustix::event::poll(&mut poll, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => Ok(None),
            _ => match self.answer() {
                Ok(Some(Reply::Within(within))) => Ok(within),
                _ => Err(()),
            },
        }
    }

    /// Wrapper: it could not become its command. Returns once the recording knows, so that it does not
    /// see a process go that it waits for.
    pub(crate) fn tell_failed(&self) {
        if rustix::net::send(&self.0, FAILED, SendFlags::NOSIGNAL).is_ok() {
            let _ = self.answer();
        }
    }

    /// Recording: what the wrapper says.
    pub(crate) fn hear(&self) -> Heard {
        let mut buffer = [0u8; MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let len = match rustix::net::recvmsg(&self.0, &mut parts, &mut ancillary, flags) {
            Ok(received) => received.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Heard::Nothing,
            Err(_) => return Heard::Left,
        };
        let stderr = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        match buffer.get(..len).unwrap_or_default() {
            [] => Heard::Left,
            WAITS => Heard::Waits,
            ASKS => Heard::Asks,
            [kind @ (b'J' | b'P'), command @ ..] => {
                let words = command.split(|&byte| byte == 0);
                let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
                let who = if *kind == b'J' { Who::Itself } else { Who::Parent };
                Heard::Joins(who, words.collect(), stderr)
            }
            _ => Heard::Failed,
        }
    }

    /// Recording: answers.
    pub(crate) fn tell(&self, reply: &Reply) {
        let _ = rustix::net::send(&self.0, &reply.encode(), SendFlags::NOSIGNAL);
    }
}

impl Reply {
    fn encode(&self) -> Vec<u8> {
        let (kind, text): (u8, &[u8]) = match self {
            Reply::Session(path) => (b'S', path.as_os_str().as_bytes()),
            Reply::Over(why) => (b'O', why.as_bytes()),
            Reply::Refused(why) => (b'R', why.as_bytes()),
            Reply::Within(None) => (b'W', b"?"),
            Reply::Within(Some(true)) => (b'W', b"yes"),
            Reply::Within(Some(false)) => (b'W', b"no"),
        };
        [&[kind], &text[..text.len().min(MESSAGE - 1)]].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Reply> {
        let (kind, text) = bytes.split_first()?;
        let sentence = || String::from_utf8_lossy(text).into_owned();
        match kind {
            b'S' => Some(Reply::Session(OsStr::from_bytes(text).to_owned().into())),
            b'O' => Some(Reply::Over(sentence())),
            b'R' => Some(Reply::Refused(sentence())),
            b'W' => Some(Reply::Within((text != b"?").then_some(text == b"yes"))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_takes_the_place_and_the_others_are_answered() {
        let directory = std::env::temp_dir();
        let job = format!("meeting-test-{}", std::process::id());
        let place = Place::new(&directory, &job).unwrap();
        assert!(place.call().unwrap().is_none(), "nobody is there yet");
        let listener = place.take().unwrap().expect("the place is free");
        assert!(place.take().unwrap().is_none(), "and then it is not");
        let elsewhere = Place::new(&directory, &format!("{job}-2")).unwrap();
        assert!(elsewhere.call().unwrap().is_none(), "another job meets elsewhere");

        let caller = place.call().unwrap().expect("somebody listens");
        let command = ["./a.out".to_owned(), "two words".to_owned()];
        caller.ask(Who::Itself, &command, Some(rustix::stdio::stderr())).unwrap();
        let line = accept(&listener).expect("a caller");
        assert_eq!(line.peer(), Some(std::process::id()));
        let Heard::Joins(Who::Itself, words, Some(_)) = line.hear() else {
            panic!("it asks to join")
        };
        assert_eq!(words, command);
        assert!(matches!(line.hear(), Heard::Nothing));
        line.tell(&Reply::Session("/dev/shm/x y".into()));
        assert_eq!(caller.answer().unwrap(), Some(Reply::Session("/dev/shm/x y".into())));
        drop(caller);
        assert!(matches!(line.hear(), Heard::Left));

        let early = place.call().unwrap().expect("somebody listens");
        drop(listener);
        assert_eq!(early.answer().unwrap(), None, "it has gone without an answer");
        assert!(place.take().unwrap().is_some(), "nothing is left behind");
    }

    #[test]
    fn what_was_told_is_heard_though_the_other_end_has_gone_meanwhile() {
        let job = format!("meeting-end-{}", std::process::id());
        let place = Place::new(&std::env::temp_dir(), &job).unwrap();
        let listener = place.take().unwrap().expect("the place is free");
        let caller = place.call().unwrap().expect("somebody listens");
        let line = accept(&listener).expect("a caller");
        line.tell(&Reply::Within(Some(false)));
        rustix::net::send(&caller.0, ASKS, SendFlags::NOSIGNAL).unwrap();
        drop(line);
        assert_eq!(caller.outcome_by_now(), Some(false));
        assert_eq!(caller.outcome_within(0), Err(()), "and there is no more");
    }

    #[test]
    fn replies_come_as_they_were_sent() {
        for reply in [
            Reply::Session("/proc/7/fd/9".into()),
            Reply::Over("it is full".into()),
            Reply::Refused("cannot write".into()),
            Reply::Within(None),
            Reply::Within(Some(true)),
            Reply::Within(Some(false)),
        ] {
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
        assert_eq!(Reply::decode(b""), None);
        assert_eq!(Reply::decode(b"?x"), None);
    }
}
