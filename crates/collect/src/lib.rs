//! From running processes to a tape: launches a command with the capture library, drains the shared
//! arena, merges the threads of each process into one ordered stream, watches processes come and go,
//! and hands everything to the tape's writer.
//!
//! ```text
//! launch ──▶ processes ──chunks──▶ drain ──lanes──▶ merge ──events──▶ tape::Writer ──frames──▶ sink ──▶ file
//!                 ▲                                                        ▲
//!                 └──── supervise: registrations, deaths, execs, samples ──┘
//! ```
//!
//! Nothing here prints, looks up symbols or computes figures. What it reads from shared memory it
//! checks: an index or a length from there is never trusted.

mod admit;
mod apart;
mod arch;
mod arena;
mod belonging;
mod budget;
mod caller;
mod cgroup;
mod clock;
mod count;
mod counter;
mod depart;
mod detach;
mod drain;
mod enclosure;
mod error;
mod exit;
mod gaps;
mod gather;
mod halt;
mod heirs;
mod holdings;
mod image;
mod inspect;
mod intents;
mod join;
mod killer;
mod launch;
mod ledger;
mod limits;
mod meeting;
mod merge;
mod namespace;
mod obstacle;
mod output;
mod patched;
mod probe;
mod process;
mod record;
mod recorder;
mod refusal;
mod refused;
mod resident;
mod room;
mod sample;
mod segments;
mod sentinel;
mod signals;
mod sink;
mod stacks;
mod strays;
mod tasks;
mod thread;
mod threads;
mod together;
mod treasury;
mod unaccounted;
mod usage;
mod vigil;

pub use caller::Waiting;
pub use count::{CountWatch, Counting, Holding, Refusal, count, exempt_fit};
pub use detach::collects_for_others;
pub use error::Error;
pub use exit::Exit;
pub use heaptape_wire::process::LAUNCHERS;
pub use heaptape_wire::session::{LIMIT_VARIABLE, VERSION as SESSION_VERSION};
pub use heaptape_wire::site::MAX_DEPTH;
pub use join::{Came, Joining, JoiningCount, join, join_count, join_count_for_parent};
pub use launch::Launch;
pub use limits::was_open;
pub use output::Output;
pub use probe::{SHARED_BYTES, features};
pub use record::{Outcome, Recording, Watch, record};
