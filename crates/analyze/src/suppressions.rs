//! Suppressions in the form of LeakSanitizer's files: callers whose blocks somebody knows of.
//!
//! A line is `leak:PATTERN`; blanks around it and around the pattern, empty lines, and lines that begin with `#` mean nothing. A pattern
//! matches a text that holds it; `*` stands for anything, `^` at the beginning for the text's beginning, `$` at the
//! end for its end. Which texts a caller has is told by who asks.

use crate::Error;
use crate::lives::Load;

/// So many characters of a line are repeated that is no suppression.
const ECHO: usize = 60;

/// A line of a file, and what it matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suppression {
    pattern: String,
    line: usize,
    matched: Load,
    callers: u64,
}

impl Suppression {
    /// The pattern, as it is written.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The number of the line, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// What the callers that it matched had left.
    pub fn matched(&self) -> Load {
        self.matched
    }

    /// How many callers it matched; one of several processes counts in each.
    pub fn callers(&self) -> u64 {
        self.callers
    }
}

/// The suppressions of a file.
#[derive(Clone, Debug, Default)]
pub struct Suppressions {
    list: Vec<Suppression>,
}

impl Suppressions {
    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<Suppressions, Error> {
        if text.contains('\0') {
            return Err(Error::NoSuppressions);
        }
        let mut list = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let pattern = text.strip_prefix("leak:").map(str::trim_start);
            let pattern = pattern.filter(|pattern| !pattern.is_empty());
            let pattern = pattern.ok_or_else(|| Error::Suppression { line, text: echo(text) })?;
            let pattern = pattern.to_owned();
            list.push(Suppression { pattern, line, matched: Load::default(), callers: 0 });
        }
        Ok(Suppressions { list })
    }

    /// Whether one of them matches one of a caller's texts; the first that does is said to have matched what
    /// the caller left.
    pub fn take(&mut self, texts: &[&str], left: Load) -> bool {
        let fits = |s: &&mut Suppression| texts.iter().any(|text| matches(&s.pattern, text));
        let Some(found) = self.list.iter_mut().find(fits) else { return false };
        found.matched.join(left);
        found.callers += 1;
        true
    }

    /// All of them, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Suppression> {
        self.list.iter()
    }
}

/// The beginning of a line, fit to stand in a sentence.
fn echo(text: &str) -> String {
    let mut chars = text.chars();
    let mut echo = String::new();
    for c in chars.by_ref().take(ECHO) {
        if c.is_control() { echo.extend(c.escape_default()) } else { echo.push(c) }
    }
    if chars.next().is_some() {
        echo.push('…');
    }
    echo
}

/// Whether a pattern matches a text. No pattern matches the empty text.
fn matches(pattern: &str, text: &str) -> bool {
    if text.is_empty() {
        return false;
    }
    let (at_start, pattern) = cut(pattern.strip_prefix('^'), pattern);
    let (at_end, pattern) = cut(pattern.strip_suffix('$'), pattern);
    let mut pieces = pattern.split('*');
    // `split` gives one piece at the least.
    let first = pieces.next().unwrap_or_default();
    let last = pieces.next_back();
    let mut rest = text;
    let Some(last) = last else { return whole(first, text, at_start, at_end) };
    for (piece, fixed) in std::iter::once((first, at_start)).chain(pieces.map(|p| (p, false))) {
        // The first place where a piece stands leaves the most for those that come after.
        let place = if fixed { rest.starts_with(piece).then_some(0) } else { rest.find(piece) };
        match place {
            Some(place) => rest = &rest[place + piece.len()..],
            None => return false,
        }
    }
    if at_end { rest.ends_with(last) } else { rest.contains(last) }
}

fn cut<'a>(stripped: Option<&'a str>, whole: &'a str) -> (bool, &'a str) {
    stripped.map_or((false, whole), |rest| (true, rest))
}

/// Whether a pattern without `*` matches.
fn whole(pattern: &str, text: &str, at_start: bool, at_end: bool) -> bool {
    match (at_start, at_end) {
        (true, true) => text == pattern,
        (true, false) => text.starts_with(pattern),
        (false, true) => text.ends_with(pattern),
        (false, false) => text.contains(pattern),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, matching, others) in [
            ("foo", &["foo", "a foo b", "xfoox"][..], &["fo", "FOO", ""][..]),
            ("^foo", &["foo", "foobar"], &["a foo", "xfoo"]),
            ("foo$", &["foo", "barfoo", "foofoo"], &["foobar"]),
            ("^foo$", &["foo"], &["foofoo", "foo ", " foo"]),
            ("f*r", &["foobar", "fr", "a f b r c"], &["rf", "oof"]),
            ("^f*r$", &["foobar", "fr", "frxr"], &["xfr", "frx", "f"]),
            ("*", &["x"], &[""]),
            ("^*$", &["x"], &[""]),
            ("lib*.so.1", &["/lib/libx.so.1+0x5", "lib.so.1"], &["libx.so.2"]),
            ("^ab*ba$", &["abba", "abxba"], &["aba"]),
            ("a**b", &["ab", "axb"], &["ba"]),
            ("a*b*c", &["a c b c", "abc"], &["acb"]),
            ("ä*ß", &["ä…ß"], &["äs"]),
        ] {
            for text in matching {
                assert!(matches(pattern, text), "{pattern} should match {text}");
            }
            for text in others {
                assert!(!matches(pattern, text), "{pattern} should not match {text}");
            }
        }
    }

    #[test]
    fn the_first_that_matches_counts() {
        let text = "# known\n\n  leak:libx.so \r\nleak:^main$\nleak:x\n";
        let mut file = Suppressions::parse(text).unwrap();
        let load = Load { bytes: 10, blocks: 2 };
        assert!(file.take(&["f", "/lib/libx.so"], load));
        assert!(file.take(&["f", "/lib/libx.so"], load));
        assert!(file.take(&["x", "/bin/y"], load));
        assert!(!file.take(&["domain", "/bin/y", ""], load));
        let counts: Vec<_> =
            file.iter().map(|s| (s.line(), s.pattern(), s.callers(), s.matched().bytes)).collect();
        assert_eq!(counts, [(3, "libx.so", 2, 20), (4, "^main$", 0, 0), (5, "x", 1, 10)]);
    }

    #[test]
    fn a_line_that_is_none_is_told() {
        for (text, line) in [("leak:a\nrace:b", 2), ("leak:", 1), ("#\n leak a", 2), ("leak: ", 1)]
        {
            let error = Suppressions::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("Line {line} is no suppression")), "{error}");
        }
        assert_eq!(Suppressions::parse("").unwrap().iter().count(), 0);
    }

    #[test]
    fn blanks_around_a_pattern_are_none_of_it() {
        let file = Suppressions::parse("leak: a b\t\n \tleak:\t ^c$ \r\nleak:d").unwrap();
        assert_eq!(file.iter().map(Suppression::pattern).collect::<Vec<_>>(), ["a b", "^c$", "d"]);
    }

    #[test]
    fn no_more_of_a_wrong_line_is_told_than_is_read() {
        let error = |text: &str| Suppressions::parse(text).unwrap_err().to_string();
        let long = error(&format!("\u{1b}[2J{}", "ä".repeat(100_000)));
        assert!(long.contains("\\u{1b}[2Jää") && long.contains("ä…'"), "{long}");
        assert!(long.chars().count() < 200 && !long.chars().any(char::is_control), "{long}");
        assert!(error("leak:a\n\u{7f}ELF\0\0").contains("binary"));
        assert!(!error(&"x".repeat(ECHO)).contains('…'));
    }
}
