//! A symbol as a person reads it.
//!
//! Symbols come from foreign files. Demangling repeats what a symbol refers back to, so that a short one
//! may unfold without end: what becomes too long stays as it is.

use std::fmt::{self, Write};
use std::sync::Arc;

use cpp_demangle::DemangleOptions;

use crate::{dlang, fortran};

/// Longer symbols are not demangled.
const LONGEST_SYMBOL: usize = 64 << 10;

/// Nor is what would become longer than this.
const LONGEST_NAME: usize = 256 << 10;

/// What C++ symbols start with.
const CPP: [&str; 3] = ["_Z", "__Z", "_GLOBAL_"];

/// The name of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// As its source has it, for C++ with the types of its parameters and for Rust with its path.
    pub function: Arc<str>,
    /// As the symbol table has it, without a version.
    pub symbol: Arc<str>,
}

impl Name {
    /// The name that a symbol stands for; `is_fortran` where the file has code of a Fortran compiler. What is
    /// no UTF-8 is replaced.
    pub(crate) fn of(symbol: &[u8], is_fortran: bool) -> Option<Name> {
        let symbol = String::from_utf8_lossy(without_version(symbol));
        // `$x` and `$d` mark code and data for a debugger.
        if symbol.is_empty() || symbol.starts_with('$') {
            return None;
        }
        let symbol: Arc<str> = symbol.into();
        let others =
            || dlang::demangled(&symbol).or_else(|| fortran::demangled(&symbol, is_fortran));
        let function = demangled(&symbol).or_else(others);
        let function = function.map_or_else(|| Arc::clone(&symbol), Arc::from);
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

/// Whether a name says itself where it belongs.
pub(crate) fn is_mangled(name: &str) -> bool {
    CPP.iter().chain(&["_R", "_D"]).any(|start| name.starts_with(start)) || name.contains("_MOD_")
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
            // Other symbols are no C++; the library would read a plain `i` as the type `int`.
            if !CPP.iter().any(|start| symbol.starts_with(start)) {
                return None;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn function(symbol: &[u8]) -> String {
        Name::of(symbol, false).unwrap().function.to_string()
    }

    #[test]
    fn names_of_several_languages() {
        for (symbol, name) in [
            ("main", "main"),
            ("i", "i"),
            ("Pv", "Pv"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            (
                "_ZN2ns5parseIiEEvRKSt6vectorIT_SaIS2_EE",
                "ns::parse<int>(std::vector<int, std::allocator<int> > const&)",
            ),
            ("_ZN12_GLOBAL__N_14growEm", "(anonymous namespace)::grow(unsigned long)"),
            ("_ZN4tool5parse17h0123456789abcdefE", "tool::parse"),
            ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
            ("_ZN2ns4coldEv.cold", "ns::cold() [clone .cold]"),
            ("__mod_MOD_grow", "mod::grow"),
            ("_Znonsense", "_Znonsense"),
            ("_Z", "_Z"),
        ] {
            assert_eq!(function(symbol.as_bytes()), name);
        }
    }

    #[test]
    fn what_is_no_name() {
        for symbol in [&b""[..], b"$x", b"$d.1"] {
            assert_eq!(Name::of(symbol, false), None);
        }
    }

    #[test]
    fn any_bytes_are_handed_on() {
        assert_eq!(function(b"a\x1b[2J\n\xff"), "a\u{1b}[2J\n\u{fffd}");
        let long = "x".repeat(100_000);
        assert_eq!(function(long.as_bytes()), long);
    }

    /// Each parameter is a pair of the one before: the name would have more characters than there are atoms.
    #[test]
    fn a_short_symbol_of_an_endless_name() {
        let digit = |n: usize| char::from_digit(n as u32, 36).unwrap().to_ascii_uppercase();
        let pairs = (0..34).map(|n| format!("S_IS{0}_S{0}_E", digit(n)));
        let symbol = format!("_Z1fSt4pairIiiE{}", pairs.collect::<String>());
        assert_eq!(function(symbol.as_bytes()), symbol);
        // It does unfold as far as it may.
        assert!(function(b"_Z1fSt4pairIiiES_IS0_S0_E").contains("std::pair<std::pair<int, int>,"));
    }

    #[test]
    fn deep_symbols_are_no_danger() {
        for piece in
            ["P", "N", "I", "S_I", "St4pairI", "1aI", "DTcl", "X", "F", "M", "_ZN", "Z", "RKSt"]
        {
            for times in [10, 1_000, LONGEST_SYMBOL / piece.len() - 1] {
                let symbol = format!("_Z1f{}i", piece.repeat(times));
                assert!(!function(symbol.as_bytes()).is_empty());
                let symbol = format!("_R{}", piece.repeat(times));
                assert!(!function(symbol.as_bytes()).is_empty());
            }
        }
    }

    #[test]
    fn of_aliases_the_plainest() {
        let best = |names: &[(bool, &'static str)]| {
            names
                .iter()
                .min_by(|a, b| rank(a.0, a.1.as_bytes()).cmp(&rank(b.0, b.1.as_bytes())))
                .unwrap()
                .1
        };
        assert_eq!(best(&[(false, "_IO_puts"), (false, "puts")]), "puts");
        assert_eq!(best(&[(false, "__libc_malloc"), (true, "m"), (false, "malloc")]), "malloc");
    }
}
