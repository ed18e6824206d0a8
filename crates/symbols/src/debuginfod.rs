//! Debug files from servers, by the program `debuginfod-find`, which knows where they are and keeps what it got.

use std::collections::HashMap;
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const PROGRAM: &str = "debuginfod-find";

/// What was asked for so far.
#[derive(Default)]
pub(crate) struct Servers {
    known: HashMap<Vec<u8>, Option<PathBuf>>,
    /// Why none can be asked.
    trouble: Option<String>,
}

impl Servers {
    /// The debug file of a build id, if a server has it.
    pub(crate) fn find(&mut self, build_id: &[u8]) -> Option<PathBuf> {
        if build_id.is_empty() || self.trouble.is_some() {
            return None;
        }
        if let Some(known) = self.known.get(build_id) {
            return known.clone();
        }
        let found = self.ask(build_id);
        self.known.insert(build_id.to_vec(), found.clone());
        found
    }

    /// Why none can be asked, as a sentence.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    fn ask(&mut self, build_id: &[u8]) -> Option<PathBuf> {
        let mut digits = String::new();
        for byte in build_id {
            let _ = write!(digits, "{byte:02x}");
        }
        let mut command = Command::new(PROGRAM);
        command.args(["debuginfo", &digits]).stdin(Stdio::null()).stderr(Stdio::null());
        match command.output() {
            Ok(output) if output.status.success() => {
                let path = String::from_utf8(output.stdout).ok()?;
                let path = PathBuf::from(path.trim_end_matches('\n'));
                path.is_absolute().then_some(path)
            }
            Ok(_) => None,
            Err(error) => {
                let why = match error.kind() {
                    ErrorKind::NotFound => "is not installed".to_owned(),
                    _ => format!("could not be started: {error}"),
                };
                self.trouble = Some(format!(
                    "No server is asked for debug files, as the program {PROGRAM} {why}."
                ));
                None
            }
        }
    }
}
