//! Debian's allocators for preloading, where they are installed.

use super::skip;
use std::fs;
use std::path::PathBuf;

const ALLOCATORS: [&str; 5] = [
    "libjemalloc.so.2",
    "libtcmalloc_minimal.so.4",
    "libtcmalloc.so.4",
    "libmimalloc.so.2.0",
    "libtbbmalloc_proxy.so.2",
];

/// The file of the allocator of this name; where there is none, that is said.
pub(crate) fn allocator(name: &str) -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok);
    let found = folders.map(|folder| folder.path().join(name)).find(|file| file.exists());
    if found.is_none() {
        skip(&format!("{name} is not installed"));
    }
    found
}

/// All that are installed.
pub(crate) fn installed() -> Vec<PathBuf> {
    ALLOCATORS.into_iter().filter_map(allocator).collect()
}
