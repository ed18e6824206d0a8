//! Tests of tapes as a whole: one binary, one subject a file.

mod arbitrary;
mod bounds;
mod crowd;
mod early;
mod forks;
mod format_page;
mod golden;
mod model;
mod names;
mod reseal;
mod round_trip;
mod story;
mod verify;
mod verify_file;
mod wanted;
