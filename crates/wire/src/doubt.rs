//! Bytes that are granted for calls which may still fail. They are held against the limit like all others, and stand in the
//! peak from when the call has succeeded.
//!
//! One word has the bytes that are in doubt, and above them how often it was changed. They come into it after they were
//! granted and leave it before they are given back, so nobody takes out of a peak what was not in it. Who finds the word
//! changed during a draw takes nothing out: between two of these steps a peak may have too much, never too little.

use crate::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use crate::budget::{Budget, Machine, Refused, TOO_LARGE};
use crate::purse::Purse;

const BYTES: u64 = CHANGED - 1;
const CHANGED: u64 = 1 << 48;
/// From here on nothing is in doubt: somebody never came back from such a call.
const GIVEN_UP: u64 = 1 << 63;

fn bytes(word: u64) -> u64 {
    if word & GIVEN_UP == 0 { word & BYTES } else { 0 }
}

/// What is in doubt in a whole job.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Doubts(AtomicU64);

impl Doubts {
    pub(crate) fn look(&self) -> u64 {
        self.0.load(SeqCst)
    }

    /// What certainly was in doubt since `before`.
    pub(crate) fn since(&self, before: u64) -> u64 {
        if self.look() == before { bytes(before) } else { 0 }
    }

    /// So many bytes, which were just granted, are in doubt; whether they are now.
    pub(crate) fn begin(&self, more: u64) -> bool {
        self.change(|word| {
            let sum = (word & BYTES) + more;
            (word & GIVEN_UP == 0 && sum <= BYTES).then_some(sum)
        })
    }

    fn end(&self, less: u64) {
        self.change(|word| Some((word & BYTES).saturating_sub(less)));
    }

    /// Sets the bytes that a word leads to, if it leads to any.
    fn change(&self, bytes: impl Fn(u64) -> Option<u64>) -> bool {
        let mut word = self.look();
        while let Some(bytes) = bytes(word) {
            let count = (word & !(BYTES | GIVEN_UP)).wrapping_add(CHANGED) & !GIVEN_UP;
            let changed = word & GIVEN_UP | count | bytes;
            match self.0.compare_exchange(word, changed, SeqCst, SeqCst) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }
}

impl Budget {
    /// Spends for a call that may fail, or refuses what does not fit; how much of it is in doubt until
    /// [`Budget::confirm`] or [`Budget::doubt_no_more`].
    pub fn spend_in_doubt(
        &self,
        purse: &Purse,
        bytes: u64,
        machine: &impl Machine,
    ) -> Result<u64, Refused> {
        if purse.is_exempt() {
            return Ok(0);
        }
        if bytes >= TOO_LARGE || bytes > self.limit() {
            return Err(Refused { granted: self.granted() });
        }
        self.spend_slowly(purse, (bytes, bytes), machine)
    }

    /// The call has succeeded: what was in doubt of it stands in the peak.
    pub fn confirm(&self, bytes: u64) {
        if bytes > 0 {
            self.doubts().end(bytes);
            let before = self.doubts().look();
            let granted = self.granted();
            self.raise_peak(granted.saturating_sub(self.doubts().since(before)));
        }
    }

    /// The call has failed, and what it was granted is about to be given back.
    pub fn doubt_no_more(&self, bytes: u64) {
        if bytes > 0 {
            self.doubts().end(bytes);
        }
    }

    /// Supervisor: a call never comes back. From here on all that is granted stands in the peak at once.
    pub fn give_up_doubts(&self) {
        self.doubts().0.fetch_or(GIVEN_UP, SeqCst);
        self.raise_peak(self.granted());
    }

    pub(crate) fn raise_peak(&self, bytes: u64) {
        if self.peak() < bytes {
            self.peak_word().fetch_max(bytes, Relaxed);
        }
    }
}
