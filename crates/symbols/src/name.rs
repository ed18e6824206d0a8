//! A symbol as a person reads it.
//!
//! Symbols come from foreign files. Demangling repeats what a symbol refers back to, so that a short one
//! may unfold without end: what becomes too long stays as it is.

use std::fmt::{self, Write};
use std::sync::Arc;

use cpp_demangle::DemangleOptions;

/// Longer symbols are not demangled.
const LONGEST_SYMBOL: usize = 64 << 10;

/// Nor is what would become longer than this.
const LONGEST_NAME: usize = 256 << 10;

/// The name of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// As its source has it, for C++ with the types of its parameters and for Rust with its path.
    pub function: Arc<str>,
    /// As the symbol table has it, without a version.
    pub symbol: Arc<str>,
}

impl Name {
    /// The name that a symbol stands for. What is no UTF-8 is replaced.
    pub(crate) fn of(symbol: &[u8]) -> Option<Name> {
        let symbol = String::from_utf8_lossy(without_version(symbol));
        // `$x` and `$d` mark code and data for a debugger.
        if symbol.is_empty() || symbol.starts_with('$') {
            return None;
        }
        let symbol: Arc<str> = symbol.into();
        let function = demangled(&symbol).map_or_else(|| Arc::clone(&symbol), Arc::from);
        Some(Name { function, symbol })
    }
}

/// `memcpy` of `memcpy@@GLIBC_2.14`, as linkers write it into the whole table.
fn without_version(symbol: &[u8]) -> &[u8] {
    match symbol.iter().position(|&b| b == b'@') {
        Some(at) if at > 0 => symbol.get(..at).unwrap_or(symbol),
        _ => symbol,
    }
}

/// Orders aliases: first what is seen outside of its object file, then what has fewer underscores in
/// front, as these mark what is internal; then the shorter.
pub(crate) fn rank(local: bool, symbol: &[u8]) -> impl Ord + '_ {
    let symbol = without_version(symbol);
    let underscores = symbol.iter().take_while(|&&b| b == b'_').count();
    (local, underscores, symbol.len(), symbol)
}

fn demangled(symbol: &str) -> Option<String> {
    if symbol.len() > LONGEST_SYMBOL {
        return None;
    }
    let mut name = Bounded::default();
    match rustc_demangle::try_demangle(symbol) {
        // The alternate form leaves out the hash.
        Ok(rust) => write!(name, "{rust:#}").ok()?,
        Err(_) => {
            let options = DemangleOptions::new().no_return_type();
            let cpp = cpp_demangle::Symbol::new(symbol.as_bytes()).ok()?;
            cpp.structured_demangle(&mut name, &options).ok()?;
        }
    }
    Some(name.text).filter(|t| !t.is_empty())
}

/// A text that takes no more than the longest name.
#[derive(Default)]
struct Bounded {
    text: String,
}

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.text.len() + more.len() > LONGEST_NAME {
            return Err(fmt::Error);
        }
        self.text.push_str(more);
        Ok(())
    }
}
