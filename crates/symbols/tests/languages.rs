//! Names in the languages whose compilers are here, with and without debug information.
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr)] // what is not tried is said

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use heaptape_symbols::{ModuleId, Names, Search};
use tempfile::TempDir;

/// Compiles a source; `None`, which is said, where there is no compiler.
fn built(folder: &Path, name: &str, source: &str, command: &[&str]) -> Option<PathBuf> {
    let (from, to) = (folder.join(name), folder.join("program"));
    fs::write(&from, source).unwrap();
    let (compiler, flags) = command.split_first().unwrap();
    let mut compile = Command::new(compiler);
    compile.current_dir(folder).args(flags).arg("-o").arg(&to).arg(&from);
    // Go keeps what it has built.
    compile.env("GOCACHE", folder.join("cache")).env("GOFLAGS", "-mod=mod");
    let Ok(output) = compile.output() else {
        eprintln!("{compiler} is not installed: nothing is tried");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(to)
}

/// Where `nm` has each symbol that is asked for.
fn addresses(program: &Path, symbols: &[&str]) -> Vec<u64> {
    let output = Command::new("nm").arg(program).output().expect("nm");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let find = |symbol: &&str| {
        let line = text.lines().find(|line| line.splitn(3, ' ').nth(2) == Some(*symbol));
        let line = line.unwrap_or_else(|| panic!("no {symbol} in {text}"));
        u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
    };
    symbols.iter().map(find).collect()
}

/// The function at each symbol, and the line that it begins in.
fn named(program: &Path, symbols: &[&str]) -> Vec<(String, Option<u32>)> {
    let now = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    let notes = Command::new("readelf").arg("-n").arg(program).output().expect("readelf");
    let notes = String::from_utf8_lossy(&notes.stdout).into_owned();
    let hex = notes.split("Build ID: ").nth(1).map_or("", |t| t.split_whitespace().next().unwrap());
    let byte = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
    let build_id = (0..hex.len() / 2).map(byte).collect();
    let id = ModuleId { path: program.to_str().unwrap().to_owned(), build_id };
    let mut names = Names::new(Search::default().since(now));
    let mut at = |address: u64| {
        let frames = names.frames(&id, address + 1);
        let last = frames.last().expect("a frame");
        (last.function.to_string(), last.line)
    };
    addresses(program, symbols).into_iter().map(&mut at).collect()
}

/// The names are right with lines and, where the table of symbols tells them too, without.
fn check(name: &str, source: &str, commands: [&[&str]; 2], right: &[(&str, &str, u32)]) {
    for (command, has_lines) in commands.into_iter().zip([true, false]) {
        let folder = TempDir::new().unwrap();
        let Some(program) = built(folder.path(), name, source, command) else { return };
        let symbols: Vec<_> = right.iter().map(|r| r.0).collect();
        let found = named(&program, &symbols);
        for (found, right) in found.into_iter().zip(right) {
            let line = has_lines.then_some(right.2);
            assert_eq!(found, (right.1.to_owned(), line), "{command:?}");
        }
    }
}

#[test]
fn fortran() {
    let source = "module heat\ncontains\nsubroutine grow(n)\ninteger :: n\nn = n + 1\nend subroutine\nend module\n\
        subroutine solve(n)\ninteger :: n\nn = n * 2\nend subroutine\n\
        program main\nuse heat\ninteger :: n\nn = 1\ncall grow(n)\ncall solve(n)\nprint *, n\nend program\n";
    let plain = ["gfortran", "-g0", "-fno-inline"];
    let lines = ["gfortran", "-g", "-fno-inline"];
    let right = [("__heat_MOD_grow", "heat::grow", 3), ("solve_", "solve", 8)];
    check("heat.f90", source, [&lines, &plain], &right);
}

#[test]
fn go() {
    let source = "package main\n\ntype Shelf struct{ items [][]byte }\n\n//go:noinline\nfunc (s *Shelf) Grow(n int) {\n\
        \ts.items = append(s.items, make([]byte, n))\n}\n\n//go:noinline\nfunc stock(n int) *Shelf {\n\ts := &Shelf{}\n\
        \ts.Grow(n)\n\tfunc() { s.Grow(n) }()\n\treturn s\n}\n\nfunc main() { println(len(stock(5).items)) }\n";
    let right = [("main.(*Shelf).Grow", "main.(*Shelf).Grow", 6), ("main.stock", "main.stock", 11)];
    let (lines, plain) = (["go", "build"], ["go", "build", "-ldflags=-w"]);
    check("shelf.go", source, [&lines, &plain], &right);
}

#[test]
fn d() {
    let source = "module shop.stock;\nclass Shelf { int[] items;\nvoid grow(int n) { items.length += n; } }\n\
        T twice(T)(T n)\n{ return n + n; }\nvoid main() { auto s = new Shelf; s.grow(twice(2)); }\n";
    let right = [
        ("_D4shop5stock5Shelf4growMFiZv", "shop.stock.Shelf.grow", 3),
        ("_D4shop5stock__T5twiceTiZQjFNaNbNiNfiZi", "shop.stock.twice!(int).twice", 4),
    ];
    check("stock.d", source, [&["gdc", "-g"], &["gdc"]], &right);
}
