#!/usr/bin/env python3
"""What call stacks cost: nanoseconds a stack in the program, bytes an event on the tape, seconds to name them.

    bench/stacks.py [--quick]

Each program runs plain, recorded without stacks and recorded with them, in turn; what is printed are differences of
medians. CPU time is the program's alone (the collector's is in "whole tree"). Needs gcc, g++ and python3.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = 5


def run(command):
    """Seconds of CPU of the whole tree, seconds of wall time, and the last line of what was said to stderr."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{command} failed: {done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall, done.stderr.strip().splitlines()[-1]


def timed(command):
    """A command that tells its own CPU time, its children's included."""
    return ["bash", "-c", 'TIMEFORMAT="%U %S"; time "$@"', "bash", *command]


def build(directory):
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    deep = ROOT / "bench" / "programs" / "deep.cpp"
    subprocess.run(["g++", "-O2", "-pthread", deep, "-o", directory / "deep"], check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "heaptape"


def programs(directory, quick):
    """Name: command, options of both recordings, options of that with stacks."""
    rounds = 20_000 if quick else 200_000
    compiler = subprocess.run(["g++", "-print-prog-name=cc1plus"], text=True, stdout=subprocess.PIPE, check=True)
    source = ROOT / "tests" / "programs" / "heavy.cpp"
    script = ("import json; d=[{'id': i, 'name': 'n%d' % i, 'tags': ['t%d' % (i % 97)]*3} for i in range(COUNT)]; "
              "[json.loads(json.dumps(d)) for _ in range(3)]").replace("COUNT", "20000" if quick else "100000")
    python = ["/usr/bin/python3", "-c", script]
    return {
        "g++ -O2 (cc1plus)": ([compiler.stdout.strip(), "-quiet", "-D_GNU_SOURCE", "-std=c++20", "-O2", source,
                               "-o", "/dev/null"], [], ["--stacks"]),
        "C++, 30 deep": ([directory / "deep", 1, rounds], [], ["--stacks"]),
        "C++, two threads": ([directory / "deep", 2, rounds], [], ["--stacks"]),
        "python3, with lines": (python, ["--python-malloc"], ["--stacks"]),
    }


def measure(binary, directory, name, command, options, stacks):
    tapes = {"flat": directory / "flat.tape", "stacks": directory / "stacks.tape"}
    record = [binary, "record", "--quiet", *options]
    variants = {
        "plain": timed(command),
        "flat": [*record, "-o", tapes["flat"], "--", *timed(command)],
        "stacks": [*record, *stacks, "-o", tapes["stacks"], "--", *timed(command)],
    }
    rows = {variant: [] for variant in variants}
    for _ in range(RUNS):
        for variant, words in variants.items():
            rows[variant].append(run(words))
    inside = {v: statistics.median(sum(map(float, said.split())) for _, _, said in r) for v, r in rows.items()}
    tree = {v: statistics.median(cpu for cpu, _, _ in r) for v, r in rows.items()}
    wall = {v: statistics.median(wall for _, wall, _ in r) for v, r in rows.items()}
    info = {v: json.loads(subprocess.run([binary, "info", "--json", t], stdout=subprocess.PIPE, check=True).stdout)
            for v, t in tapes.items()}
    made = allocations(binary, tapes["stacks"])
    events = info["stacks"]["events"]
    column = info["stacks"]["bytes_per_event"] - info["flat"]["bytes_per_event"]
    print(f"  {name:20} {made:9} stacks: {(inside['stacks'] - inside['flat']) / made * 1e9:+6.1f} ns each in the program, "
          f"whole tree {(tree['stacks'] - tree['flat']) / made * 1e9:+6.1f}; wall {wall['stacks'] / wall['plain']:.2f} "
          f"of plain ({wall['flat'] / wall['plain']:.2f} without stacks); {events} events, "
          f"{info['stacks']['bytes_per_event']:.3f} byte each ({column:+.3f} for stacks), "
          f"lost {info['stacks']['lost']}, order faults {info['stacks']['order_faults']}")


def allocations(binary, tape):
    """Calls that made a block: each has a stack."""
    tree = subprocess.run([binary, "tree", "--json", "--metric", "count", "--depth", "1", tape],
                          text=True, stdout=subprocess.PIPE, check=True)
    return json.loads(tree.stdout)["whole"]["blocks"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="heaptape-bench-") as name:
        directory = Path(name)
        binary = build(directory)
        for title, (command, both, stacks) in programs(directory, options.quick).items():
            measure(binary, directory, title, command, both, stacks)


if __name__ == "__main__":
    main()
