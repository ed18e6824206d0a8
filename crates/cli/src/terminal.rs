//! Where output goes: stdout for what was asked for, stderr for what is said beside it.

use std::env;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;

use heaptape_report::Style;
use heaptape_report::table::UNLIMITED;
use heaptape_report::text;

use crate::args::Color;
use crate::output::{Named, Stdout};
use crate::progress::Progress;

/// How stdout and stderr look, and whether stderr is wanted.
pub(crate) struct Terminal {
    style: Style,
    color: Color,
    quiet: bool,
}

impl Terminal {
    /// Looks at stdout, unless the colour is told.
    pub(crate) fn new(color: Color, quiet: bool) -> Terminal {
        Terminal { style: style(color, &io::stdout()), color, quiet }
    }

    /// Whether only errors are wanted on stderr.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// The width and colour of tables.
    pub(crate) fn style(&self) -> Style {
        self.style
    }

    /// The same of what goes to stderr, which is another one at the end of a job that was joined.
    pub(crate) fn style_of_stderr(&self) -> Style {
        style(self.color, &io::stderr())
    }

    /// Stdout, buffered; it must be flushed at the end.
    pub(crate) fn out(&self) -> BufWriter<Named<Stdout>> {
        BufWriter::with_capacity(1 << 16, Named::new("stdout", Stdout::get()))
    }

    /// A progress line, if stderr is a terminal that is not wanted quiet. Where stdout is one too,
    /// what is printed there shows the progress.
    pub(crate) fn progress(&self, events: u64, printing: bool) -> Progress {
        let in_the_way = printing && io::stdout().is_terminal();
        Progress::new(events, !self.quiet && !in_the_way)
    }

    /// Says something on stderr, unless `--quiet` was given.
    pub(crate) fn say(&self, sentence: &str) {
        if !self.quiet {
            self.error(sentence);
        }
    }

    /// Says what went wrong on stderr.
    pub(crate) fn error(&self, sentence: &str) {
        // There is nobody left to tell when stderr is closed.
        let _ = writeln!(io::stderr(), "heaptape: {}", text::plain(sentence));
    }
}

/// What a stream shows.
fn style(color: Color, stream: &(impl IsTerminal + AsFd)) -> Style {
    let color = match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            let refused = env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
            stream.is_terminal() && !refused
        }
    };
    let size = terminal_size::terminal_size_of(stream);
    let width = width(size.map(|(width, _)| width.0), env::var("COLUMNS").ok().as_deref());
    Style { width, color }
}

/// The terminal's own width; else what `COLUMNS` says; else none.
fn width(terminal: Option<u16>, columns: Option<&str>) -> u16 {
    let told = || columns?.trim().parse().ok().filter(|&width| width > 0);
    terminal.filter(|&width| width > 0).or_else(told).unwrap_or(UNLIMITED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths() {
        assert_eq!(width(Some(200), Some("80")), 200);
        assert_eq!(width(None, Some("80")), 80);
        for nonsense in [None, Some(""), Some("0"), Some("wide")] {
            assert_eq!(width(None, nonsense), UNLIMITED);
        }
    }
}
