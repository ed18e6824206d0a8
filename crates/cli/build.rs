//! Builds the capture library with a cargo of its own and leaves it where the program embeds it from.
//!
//! The library is no dependency: it defines `malloc`, and a program that linked it would get that
//! `malloc` itself. It has a workspace, a lock file and a target directory of its own.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let capture = root.join("capture");
    for path in ["src", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", capture.join(path).display());
    }
    println!("cargo::rerun-if-changed={}", root.join("crates/wire").display());

    let system = (env::var("CARGO_CFG_TARGET_OS")?, env::var("CARGO_CFG_TARGET_ARCH")?);
    if (system.0.as_str(), system.1.as_str()) != ("linux", "x86_64") {
        return Err(
            format!("heaptape runs on x86-64 Linux, not on {} {}", system.1, system.0).into()
        );
    }
    let target = out.join("capture");
    let status = cargo()?
        .args(["build", "--release", "--locked", "--manifest-path"])
        .arg(capture.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .status()?;
    if !status.success() {
        return Err("the capture library did not build; its errors stand above".into());
    }
    let built = target.join("release/libheaptape_capture.so");
    fs::copy(&built, out.join("libheaptape_capture.so"))?;
    Ok(())
}

/// A cargo without what the outer one was told: wrappers such as clippy's, flags for coverage or
/// sanitizers, other targets.
fn cargo() -> Result<Command, Box<dyn Error>> {
    let mut cargo = Command::new(env::var_os("CARGO").ok_or("CARGO is not set")?);
    for name in [
        "CARGO_BUILD_TARGET",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTFLAGS",
    ] {
        cargo.env_remove(name);
    }
    Ok(cargo)
}
