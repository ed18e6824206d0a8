//! Programs built with a sanitizer, whose runtime is a library with an allocator of its own.
//!
//! Such a runtime is behind ours as any preloaded allocator is. It must not be asked for sizes while
//! it starts (it ends the program then); its blocks have no slack in any case. And it must be told
//! that it does not stand first.

use core::ffi::{CStr, c_char};

/// Names of the runtimes' files begin so.
const RUNTIMES: [&[u8]; 4] = [b"libasan.so", b"liblsan.so", b"libtsan.so", b"libclang_rt."];

/// Whether a module is a sanitizer's runtime.
pub fn is_runtime(path: &[u8]) -> bool {
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
    RUNTIMES.iter().any(|prefix| name.starts_with(prefix))
}

/// The address sanitizer asks the program for its options by this function, before it looks into
/// `ASAN_OPTIONS`. It would not start with any other library before it; that the hooks of this one hand
/// on to its own is as good to it.
#[unsafe(no_mangle)]
pub extern "C" fn __asan_default_options() -> *const c_char {
    const OPTIONS: &CStr = c"verify_asan_link_order=0";
    OPTIONS.as_ptr()
}
