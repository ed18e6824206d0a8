//! `report`: what happened, as a picture.

use std::process::ExitCode;

use anyhow::{Result, bail};

use super::plot;
use crate::args::Report;
use crate::terminal::Terminal;

/// Draws the plot that is asked for.
pub(crate) fn run(args: &Report, terminal: &Terminal) -> Result<ExitCode> {
    match &args.plot.plot {
        Some(out) => plot::run(&args.files, args.process, out, &args.plot, terminal),
        None => bail!("nothing is asked for: --plot OUT.svg draws the curves"),
    }
}
