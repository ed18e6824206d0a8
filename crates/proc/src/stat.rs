//! `/proc/PID/stat`: when a process started and how it ended.
//!
//! Source: proc_pid_stat(5). The command's name may itself hold blanks and parentheses; it ends at
//! the last `)` of the line.

use crate::Error;

/// The fields that we use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The process id.
    pub pid: u32,
    /// The command's name, at most 15 bytes of it.
    pub comm: String,
    /// The state's letter, as in [`crate::Status::state`].
    pub state: char,
    /// The parent's id.
    pub ppid: u32,
    /// The process group.
    pub pgrp: i32,
    /// The session.
    pub session: i32,
    /// Page faults of it and of the children it waited for: minor, major.
    pub faults: [u64; 2],
    /// Processor time of it and of the children it waited for, in clock ticks: in programs, in the kernel.
    pub times: [u64; 2],
    /// Its threads.
    pub threads: u64,
    /// When it started, in clock ticks since boot. With the pid it names a process for good.
    pub starttime: u64,
    /// The exit status as waitpid(2) gives it; `None` on kernels before 3.5, 0 without permission.
    pub exit_code: Option<i32>,
}

/// Reads the line. An unexpected form is [`Error::Malformed`].
pub fn parse(text: &[u8]) -> Result<Stat, Error> {
    try_parse(text).ok_or_else(|| Error::malformed("/proc/PID/stat", text))
}

fn try_parse(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|&b| b == b'(')?;
    let close = text.iter().rposition(|&b| b == b')')?;
    let pid = std::str::from_utf8(text.get(..open)?).ok()?.trim().parse().ok()?;
    let comm = String::from_utf8_lossy(text.get(open + 1..close)?).into_owned();
    let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
    // Field 3 of the manual page is the first one here.
    let rest: Vec<&str> = rest.split_whitespace().collect();
    let field = |number: usize| rest.get(number - 3).copied();
    let sum = |own: usize, children: usize| {
        let of = |number| field(number)?.parse::<u64>().ok();
        of(own)?.checked_add(of(children)?)
    };
    Some(Stat {
        pid,
        comm,
        state: field(3)?.chars().next()?,
        ppid: field(4)?.parse().ok()?,
        pgrp: field(5)?.parse().ok()?,
        session: field(6)?.parse().ok()?,
        faults: [sum(10, 11)?, sum(12, 13)?],
        times: [sum(14, 16)?, sum(15, 17)?],
        threads: field(20)?.parse().ok()?,
        starttime: field(22)?.parse().ok()?,
        exit_code: field(52).and_then(|v| v.parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = "S 42 4711 4711 0 -1 4194560 1 10 2 20 3 4 30 40 20 0 1 0 987654 1000 200 \
        18446744073709551615 1 2 3 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 1 2 3 4 5 6 7 256\n";

    #[test]
    fn names_with_blanks_and_parentheses() {
        for name in ["bash", "tmux: server", "a) S 1 (b", "((", ""] {
            let s = parse(format!("4711 ({name}) {REST}").as_bytes()).unwrap();
            assert_eq!((s.pid, s.comm.as_str(), s.state), (4711, name, 'S'));
            assert_eq!((s.ppid, s.pgrp, s.session), (42, 4711, 4711));
            assert_eq!((s.starttime, s.exit_code), (987_654, Some(256)));
            assert_eq!((s.faults, s.times, s.threads), ([11, 22], [33, 44], 1));
        }
    }

    #[test]
    fn a_name_that_is_no_text() {
        let mut line = b"7 (\xff) ".to_vec();
        line.extend_from_slice(REST.as_bytes());
        assert_eq!(parse(&line).unwrap().comm, "\u{fffd}");
    }

    #[test]
    fn cut_lines_are_malformed() {
        for text in ["", "7", "7 (", "7 (a", "7 (a)", ")(", "7 (a) S 1 2 3", "x (a) S"] {
            assert!(matches!(parse(text.as_bytes()), Err(Error::Malformed { .. })), "{text:?}");
        }
    }
}
