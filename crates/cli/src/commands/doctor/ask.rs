//! Asks a program for its version or settings, and does not wait for ever.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// More than such a program prints, in bytes.
const MOST: u64 = 1 << 20;

/// What `program ARGUMENTS` prints; `None` when it can't be run or does not come to an end.
pub(super) fn output(program: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let stdout = child.stdout.take()?;
    let reader = std::thread::Builder::new().spawn(move || {
        let mut text = Vec::new();
        let _ = stdout.take(MOST).read_to_end(&mut text);
        text
    });
    let Ok(reader) = reader else {
        end(&mut child);
        return None;
    };
    let start = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if start.elapsed() > PATIENCE {
            end(&mut child);
            return None;
        }
        sleep(Duration::from_millis(2));
    }
    let text = reader.join().ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

fn end(child: &mut Child) {
    // It may have ended just now.
    let _ = child.kill();
    let _ = child.wait();
}
