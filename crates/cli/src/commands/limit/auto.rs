//! `limit auto`: the limit is what this job was given on this node.

use heaptape_proc::Allotments;
use heaptape_report::limit::auto::{advice, nothing, taken};

use crate::args::{self, Size};
use crate::commands::running::Teller;

/// The limit in bytes; what was taken for `auto` is said, and kept for the report. Commands that join say nothing: there
/// are many, and one report.
///
/// # Errors
/// A sentence, where there is nothing to take, or it is no limit.
pub(super) fn sized(args: &mut args::Limit, teller: &Teller) -> Result<u64, String> {
    if let Size::Bytes(bytes) = args.size {
        return Ok(bytes);
    }
    let found = Allotments::here(|name| std::env::var(name).ok());
    let Some(least) = found.least() else {
        return Err(format!("auto: {}. {}", nothing(&found), advice(found.batch)));
    };
    let bytes = args::limit(&least.bytes.to_string())
        .map_err(|why| format!("auto: {}: {why}", taken(least)))?;
    if !teller.quiet && !args.counting.join {
        teller.error(&format!("auto: {}", taken(least)));
    }
    args.counting.source = Some(least.source.clone());
    Ok(bytes)
}
