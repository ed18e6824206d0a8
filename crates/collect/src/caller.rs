//! Who calls at the meeting place of a job, and how each stands with the job: who joins, itself or for the
//! process that has started it, and who waits for what comes of the limit.

use heaptape_proc::lineage;

use crate::meeting::{Line, Reply, Who};

/// A caller that was accepted.
pub(crate) struct Caller {
    pub(crate) line: Line,
    pub(crate) pid: u32,
    pub(crate) standing: Standing,
}

/// How a caller stands with the job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has said nothing yet.
    New,
    /// It, or the process that has started it, has joined.
    Joined,
    /// It waits for what comes of the limit; its command is still to join.
    WaitsFirst,
    /// It waits, and its command has joined.
    Waits,
}

impl Standing {
    /// Whether nobody more joins for its sake.
    pub(crate) fn is_settled(self) -> bool {
        matches!(self, Standing::Joined | Standing::Waits)
    }
}

/// Those who wait for what comes of the limit.
pub struct Waiting(pub(crate) Vec<Line>);

impl Waiting {
    /// Tells them whether the whole job stayed within it, and all of that could be told to the user.
    pub fn tell(self, is_within: bool) {
        let reply = Reply::Within(Some(is_within));
        self.0.iter().for_each(|line| line.tell(&reply));
    }
}

impl Caller {
    /// The process that joins when this one asks for it.
    pub(crate) fn of(&self, who: Who) -> Option<u32> {
        match who {
            Who::Itself => Some(self.pid),
            Who::Parent => lineage(self.pid).nth(1),
        }
    }
}
