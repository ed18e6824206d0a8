//! Processes of a job that ended by SIGKILL which heaptape has not sent, and what the kernel says about them.

/// What is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Felled {
    /// Those that ended so, the first first; empty where only the kernel tells of a kill.
    pub victims: Vec<Victim>,
    /// What the job held when the first of them ended.
    pub moment: Moment,
    /// Processes that the kernel has killed for want of memory in the meantime.
    pub kills: Kills,
    /// What its log says of such kills, or why it says nothing.
    pub log: Result<Vec<Line>, String>,
    /// The limit on memory of the control groups that heaptape runs in: the smallest, and the group that has it.
    pub ceiling: Option<(u64, String)>,
}

/// A process that ended by SIGKILL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Victim {
    /// Its place in the job's list; none of the command where it was not counted.
    pub place: Option<usize>,
    /// Its process id.
    pub pid: Option<u32>,
    /// Its command line.
    pub command: Vec<String>,
}

/// A job at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since the job began; `None` where it was not seen.
    pub time: Option<u64>,
    /// Bytes that were charged to it.
    pub charged: Option<u64>,
    /// The same of each process that was there, by its place.
    pub each: Vec<(usize, u64)>,
    /// Bytes that were resident at the last look, and milliseconds since that.
    pub resident: Option<(u64, u64)>,
}

/// Processes that the kernel has killed for want of memory; `None` where it does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kills {
    /// In the control group of the job, or in the one that heaptape runs in.
    pub group: Option<u64>,
    /// On this machine.
    pub machine: Option<u64>,
}

/// A kill in the kernel's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The victim's place in the list of victims, where it is one.
    pub victim: Option<usize>,
    /// The message.
    pub message: String,
}

/// Whose doing it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The kernel, for want of memory: its log says so.
    Logged,
    /// The same: it has counted such a kill in the group.
    Counted,
    /// Nobody can tell.
    Unknown,
    /// Somebody who sent the signal: the kernel has killed nobody of them.
    Sent,
}

impl Felled {
    /// Whose doing it was, as far as is known.
    pub fn cause(&self) -> Cause {
        let is_logged = |lines: &Vec<Line>| lines.iter().any(|line| line.victim.is_some());
        let logged = self.log.as_ref().map_or(0, |lines| lines.len() as u64);
        // Kills that are counted, and whose victims the log does not name.
        let nameless = |count: Option<u64>| Some(count?.saturating_sub(logged));
        let Kills { group, machine } = self.kills;
        match &self.log {
            Ok(lines) if is_logged(lines) => Cause::Logged,
            _ if nameless(group) > Some(0) => Cause::Counted,
            // A process may have gone to another group.
            _ if nameless(machine) == Some(0) => Cause::Sent,
            Ok(_) if machine.is_none() => Cause::Sent,
            _ => Cause::Unknown,
        }
    }

    /// Whether the kernel has killed a process of the job.
    pub fn is_by_kernel(&self) -> bool {
        !self.victims.is_empty() && matches!(self.cause(), Cause::Logged | Cause::Counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn felled(group: Option<u64>, machine: Option<u64>, log: Result<Vec<Line>, String>) -> Felled {
        Felled {
            victims: vec![Victim::default()],
            moment: Moment::default(),
            kills: Kills { group, machine },
            log,
            ceiling: None,
        }
    }

    #[test]
    fn the_kernel_is_named_only_where_it_says_so() {
        let closed = || Err("closed".to_owned());
        let line = |victim| vec![Line { victim, message: "Killed".into() }];
        for (group, machine, log, cause) in [
            (None, None, Ok(line(Some(0))), Cause::Logged),
            (Some(1), Some(1), Ok(line(None)), Cause::Sent),
            (Some(2), Some(2), Ok(line(None)), Cause::Counted),
            (None, Some(2), Ok(line(None)), Cause::Unknown),
            (None, None, Ok(Vec::new()), Cause::Sent),
            (Some(0), Some(0), Ok(Vec::new()), Cause::Sent),
            (Some(1), Some(1), closed(), Cause::Counted),
            (Some(0), Some(0), closed(), Cause::Sent),
            (None, Some(0), closed(), Cause::Sent),
            (Some(0), Some(3), closed(), Cause::Unknown),
            (None, None, closed(), Cause::Unknown),
        ] {
            let felled = felled(group, machine, log);
            assert_eq!(felled.cause(), cause, "{felled:?}");
            let is_kernel = matches!(cause, Cause::Logged | Cause::Counted);
            assert_eq!(felled.is_by_kernel(), is_kernel);
        }
    }
}
