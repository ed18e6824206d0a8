//! The part of `heaptape.limit/1` on functions that somebody has patched.

use heaptape_ledger::{Patch, Patched};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct PatchPart<'a> {
    what: &'static str,
    module: &'a str,
    by: Option<&'a str>,
    functions: &'a [String],
    /// Whether calls still come to the wrappers, whatever is patched.
    counted: bool,
    /// The places in `processes`.
    processes: &'a [usize],
}

impl<'a> PatchPart<'a> {
    pub(super) fn of(patch: &'a Patch) -> PatchPart<'a> {
        PatchPart {
            what: match patch.what {
                Patched::Libc => "libc",
                Patched::Wrapper => "heaptape",
                Patched::Entry => "entries",
            },
            module: &patch.module,
            by: patch.by.as_deref(),
            functions: &patch.functions,
            counted: patch.what == Patched::Libc,
            processes: &patch.processes,
        }
    }
}
