#!/usr/bin/env python3
"""What a recording costs, side by side: in the program, for the whole tree, at start-up, on the tape; and what
reading it costs.

    bench/record.py [--quick] [--heaptrack]

Runs each pair of commands in turn (A B A B …), so that a machine whose speed drifts changes both, and
prints medians. Builds the release binary first. Needs gcc, g++ and python3; heaptrack for --heaptrack.
"""

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = 5
NUMBER = re.compile(r"\d+\.\d+")


def build(directory):
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    programs = ROOT / "bench" / "programs"
    subprocess.run(["gcc", "-O2", "-pthread", programs / "churn.c", "-o", directory / "churn"], check=True)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", programs / "empty.c", "-o", directory / "empty.so"], check=True)
    subprocess.run(["gcc", "-O2", programs / "crowd.c", "-o", directory / "crowd"], check=True)
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    return Path(target) / "release" / "heaptape"


def run(command, env=None, cwd=None):
    """Seconds of CPU (the whole tree) and of wall time, and what was printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    done = subprocess.run([str(c) for c in command], env={**os.environ, **(env or {})}, cwd=cwd, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wall = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{command} failed: {done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, wall, done.stdout


def in_turn(variants, runs=RUNS):
    """Each variant once a round; all results by name."""
    results = {name: [] for name in variants}
    for _ in range(runs):
        for name, command in variants.items():
            results[name].append(run(*command) if isinstance(command, tuple) else run(command))
    return results


def median(values):
    return statistics.median(values)


def added_per_call(binary, directory, tape, threads, calls, heaptrack):
    churn = [directory / "churn", threads, calls]
    few = calls // 10  # heaptrack takes a stack at each call
    variants = {
        "plain": (churn,),
        "empty hook": (churn, {"LD_PRELOAD": str(directory / "empty.so")}),
        "heaptape": ([binary, "record", "--quiet", "-o", tape, "--", *churn],),
    }
    if heaptrack:
        slow = [directory / "churn", threads, few]
        variants["plain, fewer"] = (slow,)
        variants["heaptrack"] = (["heaptrack", *slow], None, directory)

    def per_call(output):
        return statistics.mean(float(line) for line in output.splitlines() if NUMBER.fullmatch(line))

    results = in_turn(variants)
    print(f"\n{threads} thread(s), {calls} calls, no stacks (heaptrack: {few}, with stacks)")
    for name, rows in results.items():
        if name == "plain, fewer":
            continue
        base = results["plain, fewer" if name == "heaptrack" else "plain"]
        count = few if name == "heaptrack" else calls
        each, plain = (median(per_call(out) for _, _, out in r) for r in (rows, base))
        cpu, plain_cpu = (median(cpu for cpu, _, _ in r) for r in (rows, base))
        print(f"  {name:12} {each:8.1f} ns a call in the program ({each - plain:+.1f}); "
              f"whole tree {(cpu - plain_cpu) / count * 1e9:+.1f} ns of CPU a call")


def start_up(binary, tape, heaptrack, directory):
    variants = {
        "plain": ["/bin/true"],
        "heaptape": [binary, "record", "--quiet", "-o", tape, "--", "/bin/true"],
    }
    if heaptrack:
        variants["heaptrack"] = (["heaptrack", "/bin/true"], None, directory)
    results = in_turn(variants, runs=15)
    print("\nstart-up: /bin/true")
    for name, rows in results.items():
        print(f"  {name:12} {median(wall for _, wall, _ in rows) * 1000:8.1f} ms")


def tape_sizes(binary, tape, quick):
    source = ROOT / "tests" / "programs" / "heavy.cpp"
    script = "import json; d=[{'id': i, 'name': 'n%d' % i, 'tags': ['t%d' % (i % 97)]*3} for i in range(COUNT)]; json.loads(json.dumps(d))"
    workloads = {
        "g++ -O2": ["g++", "-O2", "-std=c++20", "-c", source, "-o", "/dev/null"],
        "python3": ["/usr/bin/python3", "-c", script.replace('COUNT', '20000' if quick else '200000')],
    }
    print("\ntapes of real programs")
    for name, command in workloads.items():
        options = ["--python-malloc"] if name == "python3" else []
        # Compared with the same allocator calls, not with Python's own small-object allocator.
        plain_cpu, plain_wall, _ = run(command, {"PYTHONMALLOC": "malloc"})
        cpu, wall, _ = run([binary, "record", "--quiet", *options, "-o", tape, "--", *command])
        info = json.loads(subprocess.run([binary, "info", "--json", tape], stdout=subprocess.PIPE, check=True).stdout)
        events = info["events"]
        print(f"  {name:12} {events} events, {info['bytes_per_event']:.3f} byte/event, lost {info['lost']}, "
              f"order faults {info['order_faults']}; whole tree {(cpu - plain_cpu) / events * 1e9:+.1f} ns of CPU a call, "
              f"wall {wall / plain_wall:.2f} of plain")


def reading(binary, directory, quick):
    """CPU time and memory of the commands that read a whole tape, of three tapes."""
    calls = 1_000_000 if quick else 10_000_000
    # Few live blocks; very many, any of which dies next; a real program and its children.
    programs = {
        "churn": [directory / "churn", 1, calls],
        "crowd": [directory / "crowd", calls * 11 // 10, calls // 10],
        "g++ -O2": ["g++", "-O2", "-std=c++20", "-c", ROOT / "tests" / "programs" / "heavy.cpp", "-o", "/dev/null"],
    }
    print("\nreading a tape: CPU time, events/s, memory")
    for name, program in programs.items():
        tape = directory / "read.tape"
        run([binary, "record", "--quiet", "-o", tape, "--", *program])
        events = json.loads(run([binary, "info", "--json", tape])[2])["events"]
        early, late = (f"{tape}@{events * part // 10}" for part in (4, 8))
        commands = {
            "events --histogram": ["events", "--histogram", tape],
            "report": ["report", tape],
            "leaks": ["leaks", tape],
            "live": ["live", tape],
            "diff of two moments": ["diff", early, late],
        }
        if name == "g++ -O2":
            del commands["diff of two moments"]  # its events are of several processes
        for what, arguments in commands.items():
            rows = [cpu_and_memory([binary, *arguments]) for _ in range(RUNS)]
            cpu, memory = median(row[0] for row in rows), median(row[1] for row in rows)
            print(f"  {name:8} {events:9} events  {what:20} {cpu:6.2f} s {events / cpu / 1e6:6.1f} million/s {memory:6.0f} MiB")


def cpu_and_memory(command):
    """Seconds of CPU, and MiB resident at the most, of one command."""
    with subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command} failed")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the calls")
    parser.add_argument("--heaptrack", action="store_true", help="measure heaptrack, too, if it is installed")
    options = parser.parse_args()
    heaptrack = options.heaptrack and shutil.which("heaptrack")
    if options.heaptrack and not heaptrack:
        print("heaptrack is not installed (Debian: heaptrack); measuring without it")
    calls = 2_000_000 if options.quick else 20_000_000
    with tempfile.TemporaryDirectory(prefix="heaptape-bench-") as name:
        directory = Path(name)
        binary = build(directory)
        tape = directory / "bench.tape"
        added_per_call(binary, directory, tape, 1, calls, heaptrack)
        added_per_call(binary, directory, tape, 2, calls, heaptrack)
        start_up(binary, tape, heaptrack, directory)
        tape_sizes(binary, tape, options.quick)
        reading(binary, directory, options.quick)


if __name__ == "__main__":
    main()
