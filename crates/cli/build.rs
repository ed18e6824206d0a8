//! Builds the capture library and hands it to the compiler as bytes, so that one file is the whole
//! program.
//!
//! A nested cargo builds it, in a target directory of its own: in this workspace, feature unification
//! would switch std on under it.

#[path = "build/hide.rs"]
mod hide;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = manifest.join("../..");
    let capture = root.join("capture");
    for path in [
        "capture/src",
        "capture/Cargo.toml",
        "capture/Cargo.lock",
        "crates/wire",
        "crates/cli/build",
    ] {
        println!("cargo:rerun-if-changed={}", root.join(path).display());
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let library = build(&capture, &out.join("capture"));
    let bytes = std::fs::read(&library).expect("the library was just built");
    std::fs::write(out.join("libheaptape.so"), hide::mapping_calls(bytes))
        .expect("cargo's directory can be written");
}

fn build(capture: &Path, target: &Path) -> PathBuf {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--release", "--locked", "--manifest-path"])
        .arg(capture.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        // What is meant for this build (sanitizers, coverage, a linter in the compiler's place) must
        // not reach the library.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET");
    let status = command.status().expect("cargo runs, since it runs this");
    assert!(status.success(), "the capture library did not build");
    target.join("release/libheaptape_capture.so")
}
