//! Why a figure could not be had.

use heaptape_tape::Error as TapeError;

/// What went wrong, as a sentence.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tape could not be read.
    #[error(transparent)]
    Tape(#[from] TapeError),
    /// A text names no process.
    #[error("'{0}' names no process: give a process id, rank:R, #N for the Nth to start, or all.")]
    ProcessText(String),
    /// A text is no range of indexes.
    #[error("'{0}' is no range of indexes: give A..B (B excluded), A.., ..B, or one index.")]
    SpanText(String),
    /// A text is no part of a run.
    #[error(
        "'{0}' is no part of a run: give A..B (B excluded), A.. or ..B, as indexes or as times such as 1.5s..3s."
    )]
    WindowText(String),
    /// Fractions where indexes are meant.
    #[error(
        "Indexes are whole numbers: give a range such as 1000..2000, or times such as 1.5s..3s."
    )]
    FractionalIndexes,
    /// A range of time was given for curves over the index, or the other way round.
    #[error("The range is one of time, and the curves run over the index: leave --over index out.")]
    TimeOverIndex,
    /// No call is in the range of what is to be drawn.
    #[error(
        "There is nothing in this range: there are {calls} calls, counted from 0, and B is excluded."
    )]
    OutsideCalls {
        /// How many there are.
        calls: u64,
    },
    /// The run is not in the range of time that is to be drawn.
    #[error(
        "There is nothing in this range: the run is from {}.{:03} s to {}.{:03} s.",
        from / 1000, from % 1000, to / 1000, to % 1000
    )]
    OutsideTime {
        /// Milliseconds since the recording began, at the start.
        from: u64,
        /// The same at the end.
        to: u64,
    },
    /// A range of indexes begins after its end.
    #[error("The range '{0}' ends before it begins.")]
    Backwards(String),
    /// A text is no moment.
    #[error("'{0}' is no moment: give an index, peak, end, or a time such as 12.5s.")]
    MomentText(String),
    /// A text is no part of a run.
    #[error(
        "'{0}' is no part of a run: give percent of the events such as 10%, a number of events, or a time such as 2s."
    )]
    PartText(String),
    /// A line of a suppression file is none.
    #[error(
        "Line {line} is no suppression: '{text}'; it must be leak:PATTERN, empty, or a comment after #."
    )]
    Suppression {
        /// Its number, from 1.
        line: usize,
        /// What it says.
        text: String,
    },
    /// A suppression file is no text.
    #[error("It is a binary file, and no list of suppressions.")]
    NoSuppressions,
    /// A line is no folded stack.
    #[error(
        "'{line}' is no folded stack: give frames between semicolons, a blank and bytes, or bytes/blocks."
    )]
    NotFolded {
        /// What it says.
        line: String,
    },
    /// An index was given where there are several processes.
    #[error(
        "An index counts the calls of one process: choose one with --process, or give peak, end, or a time such as 12.5s."
    )]
    IndexOfSeveral,
    /// There is nothing to choose from.
    #[error("There is no process on this tape.")]
    NoProcesses,
    /// The choice means no process of this tape.
    #[error("There is no process {choice} on this tape; it has {there}.")]
    NoProcess {
        /// The choice as it was written.
        choice: String,
        /// The processes that there are.
        there: String,
    },
}
