//! The first line of a script, as execve(2) reads it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The first line of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The program that reads the script.
    pub interpreter: PathBuf,
    /// The one argument that the line may give, such as `python3` of `#!/usr/bin/env python3`.
    pub argument: Option<OsString>,
}

/// Reads the beginning of a file; `None` when it does not begin with `#!` and a name.
pub(super) fn parse(head: &[u8]) -> Option<Script> {
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|&b| b == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(line.len());
    let (interpreter, rest) = line.split_at(end);
    if interpreter.is_empty() {
        return None;
    }
    let argument = rest.trim_ascii();
    Some(Script {
        interpreter: OsString::from_vec(interpreter.to_vec()).into(),
        argument: (!argument.is_empty()).then(|| OsString::from_vec(argument.to_vec())),
    })
}

impl Script {
    /// The program that `env` starts, where the script names one by `#!/usr/bin/env NAME`.
    pub fn through_env(&self) -> Option<&str> {
        if self.interpreter.file_name()? != "env" {
            return None;
        }
        // Options such as -S, and settings, stand before the program.
        let words = self.argument.as_ref()?.to_str()?.split_ascii_whitespace();
        let mut names = words.filter(|word| !word.starts_with('-') && !word.contains('='));
        names.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Option<(String, Option<String>)> {
        let s = parse(text.as_bytes())?;
        let text = |s: OsString| s.into_string().unwrap();
        Some((text(s.interpreter.into()), s.argument.map(text)))
    }

    #[test]
    fn scripts() {
        assert_eq!(script("#!/bin/sh\nexit"), Some(("/bin/sh".into(), None)));
        assert_eq!(
            script("#! /usr/bin/env  -S python3 -u \n"),
            Some(("/usr/bin/env".into(), Some("-S python3 -u".into())))
        );
        assert_eq!(script("#!\n"), None);
        assert_eq!(script("exit 0\n"), None);
        assert_eq!(script(""), None);
    }

    #[test]
    fn env_is_seen_through() {
        let through = |text: &str| parse(text.as_bytes())?.through_env().map(str::to_owned);
        assert_eq!(through("#!/usr/bin/env python3\n").as_deref(), Some("python3"));
        assert_eq!(through("#!/bin/env -S A=b perl -w\n").as_deref(), Some("perl"));
        assert_eq!(through("#!/usr/bin/env\n"), None);
        assert_eq!(through("#!/bin/sh x\n"), None);
    }
}
