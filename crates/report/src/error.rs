//! Why a text is no size, or a picture could not be drawn.

/// What is wrong with it, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It has no number, or something that is no unit behind it.
    #[error(
        "'{0}' is not a size: give a number of bytes, or one with a unit, such as 512K or 1.5GB."
    )]
    Nonsense(String),
    /// It is below zero.
    #[error("'{0}' is a negative size: it must be zero or more.")]
    Negative(String),
    /// It is beyond [`crate::size::MAX_SIZE`].
    #[error("'{0}' is too large a size: the largest is 9223372036854775807 bytes.")]
    TooLarge(String),
    /// A range of sizes whose end is below its beginning.
    #[error("The range of sizes '{0}' ends before it begins.")]
    Backwards(String),
    /// No stack has anything of what was asked for.
    #[error("There is nothing to draw: nothing was {measured}.")]
    Nothing {
        /// What was asked for, in words.
        measured: String,
    },
    /// The plotting library failed.
    #[error("The picture could not be drawn: {0}.")]
    Draw(String),
}
