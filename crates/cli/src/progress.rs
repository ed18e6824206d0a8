//! How far a long pass over events has come, on stderr when that is a terminal and nowhere else.

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Events between two looks at the clock.
const STEP: u64 = 1 << 16;

const TEMPLATE: &str = "{wide_bar} {human_pos} of {human_len} events, {rate}, {eta} left";

/// A line that shows the events done, how many a second, and the time left.
pub(crate) struct Progress {
    bar: ProgressBar,
    since: u64,
}

impl Progress {
    /// One for so many events; `shown` says whether anybody wants to see it.
    pub(crate) fn new(events: u64, shown: bool) -> Progress {
        let target =
            if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(events), target);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style.with_key("rate", write_rate));
        }
        Progress { bar, since: 0 }
    }

    /// One more is done.
    pub(crate) fn event(&mut self) {
        self.events(1);
    }

    /// So many more are done.
    pub(crate) fn events(&mut self, more: u64) {
        self.since += more;
        if self.since >= STEP {
            self.bar.inc(self.since);
            self.since = 0;
        }
    }
}

fn write_rate(state: &ProgressState, out: &mut dyn std::fmt::Write) {
    // A terminal that takes no more text is no reason to stop.
    let _ = write!(out, "{}/s", HumanCount(state.per_sec() as u64));
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
