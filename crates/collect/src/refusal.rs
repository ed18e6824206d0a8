//! Why a program that has loaded the library is not recorded, in its own words: what the library has left in
//! the arena's file, as one phrase.

use heaptape_wire::session::{Arena, Why};

use crate::namespace::Who;

const MIB: u64 = 1 << 20;

/// What a process has left, if it has.
pub(crate) fn told(arena: Arena, who: Who) -> Option<String> {
    let ((pid, namespace), why) = arena.refusal(who.pid).read()?;
    let is_its = pid == who.pid && (namespace == who.namespace || namespace == 0);
    is_its.then(|| phrase(why))
}

fn phrase(why: Why) -> String {
    match why {
        Why::Limit { is_data, bytes, ours, roomy } => {
            let (what, name, option) = match is_data {
                true => ("data", "RLIMIT_DATA", "ulimit -d"),
                false => ("address space", "RLIMIT_AS", "ulimit -v"),
            };
            format!(
                "its {what} is limited to {} MiB ({name}), of which the capture library would take {}, and \
                 the limit may not be raised; it needs one of at least {} MiB ({option} {})",
                bytes / MIB,
                ours.div_ceil(MIB),
                roomy.div_ceil(MIB),
                roomy.div_ceil(1024),
            )
        }
        Why::Call { number, error } => {
            let call = match number {
                9 => "mmap".to_owned(),
                28 => "madvise".to_owned(),
                other => format!("call {other}"),
            };
            let error = std::io::Error::from_raw_os_error(error.cast_signed());
            format!("the capture library could not start in it: {call} failed: {error}")
        }
    }
}
