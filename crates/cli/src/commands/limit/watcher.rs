//! What is said while a job is counted.

use heaptape_collect::{CountWatch, Holding, Refusal, Watch};
use heaptape_ledger::{OnLimit, Over, Process};
use heaptape_report::limit;

use super::asker::Asker;
use super::bars::Bars;
use crate::commands::running::Teller;

/// Says what the user should know at once.
pub(super) struct Watcher {
    pub(super) teller: Teller,
    pub(super) asker: Asker,
    on_limit: OnLimit,
    bars: Option<Bars>,
}

impl Watcher {
    pub(super) fn new(teller: Teller, on_limit: OnLimit, bars: Option<Bars>) -> Watcher {
        Watcher { teller, asker: Asker::new(), on_limit, bars }
    }

    /// The job is over: nothing is shown any more.
    pub(super) fn close(&mut self) {
        self.bars = None;
    }

    fn say(&self, sentence: &str) {
        match &self.bars {
            Some(bars) => bars.aside(|| self.teller.error(sentence)),
            None => self.teller.error(sentence),
        }
    }
}

impl Watch for Watcher {
    fn notice(&mut self, sentence: &str) {
        self.say(sentence);
    }

    fn waiting(&mut self, pids: &[u32]) {
        let tell = || self.teller.waiting(pids, "counting");
        self.bars.as_ref().map_or_else(tell, |bars| bars.aside(tell));
    }
}

impl CountWatch for Watcher {
    fn refused(&mut self, refusal: &Refusal<'_>) {
        let (first, function) = self.asker.look_up(refusal);
        // Who is killed is told why, whatever else is not to be said.
        if self.teller.quiet && self.on_limit == OnLimit::Fail {
            return;
        }
        let process = Process {
            pid: refusal.pid,
            rank: refusal.rank,
            host: refusal.host.to_owned(),
            command: refusal.command.to_vec(),
            ..Process::default()
        };
        let what = match self.on_limit {
            OnLimit::Fail => "refused",
            OnLimit::Kill => "killing the job for the request of",
            OnLimit::Stop => "stopping the job for the request of",
        };
        let who = limit::refusal(&first, Some(&process), Some(refusal.limit), function);
        self.say(&format!("{what} {who}"));
    }

    fn over(&mut self, over: &Over) {
        let what = if self.on_limit == OnLimit::Stop { "stopping" } else { "killing" };
        self.say(&format!("{what} the job: {}", limit::over(over)));
    }

    fn stopped(&mut self, pids: &[u32]) {
        self.say(&format!(
            "the job is stopped, and stays so until you say otherwise: {}",
            limit::how_to_go_on(pids)
        ));
    }

    fn still_stopped(&mut self, pids: &[u32]) {
        self.say(&format!(
            "the command has ended, and waits for what it has left stopped: {}",
            limit::how_to_go_on(pids)
        ));
    }

    fn goes_on(&mut self, processes: &[Holding<'_>], charged: u64) {
        if let Some(bars) = &mut self.bars {
            bars.show(processes, charged);
        }
    }
}
