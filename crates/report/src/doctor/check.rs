//! One line of a diagnosis: what was looked at, what was found, what to do.

use std::fmt;

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Worth knowing; recordings work.
    Note,
    /// Something will not work.
    Problem,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Ok => "ok",
            Verdict::Note => "note",
            Verdict::Problem => "problem",
        })
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How good that is.
    pub verdict: Verdict,
    /// What was found.
    pub finding: String,
    /// What to do, as a sentence.
    pub advice: Option<String>,
    /// Whether nothing can be recorded because of it.
    pub is_fatal: bool,
}

impl Check {
    /// All is well.
    pub fn ok(name: &'static str, finding: impl Into<String>) -> Check {
        let (finding, advice) = (finding.into(), None);
        Check { name, verdict: Verdict::Ok, finding, advice, is_fatal: false }
    }

    /// Worth knowing.
    pub fn note(name: &'static str, finding: impl Into<String>) -> Check {
        Check { verdict: Verdict::Note, ..Check::ok(name, finding) }
    }

    /// Something will not work; `advice` says what to do.
    pub fn problem(
        name: &'static str,
        finding: impl Into<String>,
        advice: impl Into<String>,
    ) -> Check {
        Check { verdict: Verdict::Problem, ..Check::ok(name, finding) }.advise(advice)
    }

    /// With what to do.
    pub fn advise(self, advice: impl Into<String>) -> Check {
        Check { advice: Some(advice.into()), ..self }
    }

    /// Nothing can be recorded because of it.
    pub fn fatal(self) -> Check {
        Check { is_fatal: true, ..self }
    }
}
