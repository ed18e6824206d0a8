#!/bin/sh
# Programs whose allocator nothing can stand in front of, plain and recorded: rustc, cargo, a Rust program with
# tikv-jemallocator, the go command, Go programs with C and without, clang and its sanitizers.
#
#     bench/foreign.sh
#
# Builds the release binary first, and installs Go and clang when they are missing and we are root. Each program must do
# the same both times; each tape must have lost nothing, and name its program. Prints what the tapes say. Ends with an
# error when anything is wrong. The light ones are tests as well (crates/cli/tests/foreign.rs).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
missing=
command -v go >/dev/null 2>&1 || missing="$missing golang-go"
command -v clang >/dev/null 2>&1 || missing="$missing clang libclang-rt-14-dev"
if [ -n "$missing" ]; then
    # shellcheck disable=SC2086
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; } >/dev/null
fi
(cd "$root" && cargo build --release --quiet)
heaptape=${CARGO_TARGET_DIR:-$root/target}/release/heaptape
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$root/bench/programs/jemalloced" "$work/jemalloced"
cd "$work"
export GOCACHE="$work/go" GOFLAGS=-mod=mod CARGO_TARGET_DIR="$work/built"
programs=$root/tests/programs
failed=0

# WORD COMMAND…: the word stands in the reason for which the command, or a program that it starts, is named.
try() {
    word=$1
    shift
    plain=0 recorded=0
    "$@" >plain.out 2>plain.err || plain=$?
    "$heaptape" record --quiet -o x.tape -- "$@" >recorded.out 2>recorded.err || recorded=$?
    if ! "$heaptape" info --json x.tape >info.json; then
        failed=1
        sed 's/^/    /' recorded.err
        return
    fi
    "$heaptape" info x.tape >info.txt
    verdict=ok
    [ "$plain" = "$recorded" ] || verdict="status $recorded and not $plain"
    cmp -s plain.out recorded.out || verdict="other output"
    for fact in complete:true lost:0 order_faults:0; do
        grep -q "^  \"${fact%:*}\": ${fact#*:}," info.json || verdict="not ${fact}"
    done
    grep -q "\"why\": .*$word" info.json || verdict="not named: $word"
    [ "$verdict" = ok ] || failed=1
    printf '%-12s %s\n' "$verdict" "$*"
    sed -n -e '/^It holds/s/^/             /p' info.txt
    rm -f x.tape
}

sysroot=$(rustc --print sysroot)
(cd jemalloced && cargo build --release --quiet)
echo 'fn main() { println!("{}", vec![1; 9].len()); }' >x.rs
try 'it defines malloc itself' "$sysroot/bin/rustc" -O x.rs
mkdir small
printf '[package]\nname = "small"\nversion = "0.0.0"\n[[bin]]\nname = "small"\npath = "../x.rs"\n[workspace]\n' >small/Cargo.toml
try 'it defines malloc itself' sh -c 'rm -rf again; cargo build --quiet --manifest-path small/Cargo.toml --target-dir again'
try 'jemalloc linked in under private names' "$work/built/release/jemalloced"
try 'written in Go' go build -o plain "$programs/plain.go"
try 'written in Go and statically linked' ./plain
go build -o calling "$programs/calling.go"
try 'written in Go' ./calling
for sanitizer in address leak thread memory; do
    clang -g -fsanitize=$sanitizer -o "$sanitizer" "$programs/sanitized.c"
    try 'it defines malloc itself' "./$sanitizer"
    try 'it defines malloc itself' "./$sanitizer" fault
done
exit "$failed"
