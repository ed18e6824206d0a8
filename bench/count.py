#!/usr/bin/env python3
"""What counting costs, side by side with the plain run: a pair of calls, and whole programs.

    bench/count.py [--quick] [--programs]

Runs each pair of commands in turn (A B A B …), so that a machine whose speed drifts changes both, and
prints medians. Builds the release binary first. Needs gcc, g++, python3; for --programs also sqlite3,
redis-server with redis-benchmark, and Open MPI.
"""

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = 7


def build(directory):
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    for program in ["pair", "churn"]:
        source = ROOT / "bench" / "programs" / f"{program}.c"
        subprocess.run(["gcc", "-O2", "-pthread", source, "-o", directory / program], check=True)
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    return Path(target) / "release" / "heaptape"


def run(command, cwd=None):
    """Seconds of wall time, and what was printed."""
    start = time.monotonic()
    done = subprocess.run([str(c) for c in command], cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wall = time.monotonic() - start
    if done.returncode:
        sys.exit(f"{command} failed with {done.returncode}: {done.stderr}")
    return wall, done.stdout


def in_turn(variants, runs=RUNS):
    """Each variant once a round; all results by name."""
    results = {name: [] for name in variants}
    for _ in range(runs):
        for name, command in variants.items():
            results[name].append(run(command))
    return results


def counted(binary, command):
    quiet = ["--output", "/dev/null"]
    return {
        "plain": command,
        "stat --brief": [binary, "stat", "--brief", *quiet, "--", *command],
        "stat": [binary, "stat", *quiet, "--", *command],
        "limit": [binary, "limit", "1TB", *quiet, "--", *command],
        "limit --exact": [binary, "limit", "1TB", "--exact", *quiet, "--", *command],
    }


def pairs(binary, directory, quick):
    calls = 2_000_000 if quick else 20_000_000
    for threads, processes in [(1, 1), (2, 1), (1, 2)]:
        results = in_turn(counted(binary, [directory / "pair", threads, processes, calls]))
        report(f"malloc(64) and free, hot; {threads} thread(s), {processes} process(es)", results, 1)
    # A step of churn is a pair; it prints nanoseconds a call.
    for threads in [1, 2]:
        results = in_turn(counted(binary, [directory / "churn", threads, calls]))
        report(f"malloc and free of 10,000 live blocks, with cache misses; {threads} thread(s)", results, 2)


def report(title, results, calls_a_pair):
    def each(output):
        numbers = [float(word) for line in output.splitlines() for word in line.split() if "." in word]
        return statistics.mean(numbers) * calls_a_pair

    print(f"\n{title}")
    base = statistics.median(each(out) for _, out in results["plain"])
    for name, rows in results.items():
        nanoseconds = statistics.median(each(out) for _, out in rows)
        print(f"  {name:14} {nanoseconds:8.1f} ns a pair ({nanoseconds - base:+.1f})")


def programs(binary, directory):
    heavy = ROOT / "tests" / "programs" / "heavy.cpp"
    json = "import json; d=[{'id': i, 'tags': ['t%d' % (i % 97)]*3} for i in range(200000)]; json.loads(json.dumps(d))"
    table = ("create table t(a integer primary key, b text);"
             "with recursive c(x) as (select 1 union all select x+1 from c where x<400000)"
             "insert into t select x, hex(randomblob(20)) from c; select count(distinct substr(b,1,3)) from t;")
    workloads = {
        "g++ -O2": ["g++", "-O2", "-std=c++20", "-c", heavy, "-o", "/dev/null"],
        "python3": ["/usr/bin/python3", "-c", json],
        "sqlite3": ["sqlite3", ":memory:", table],
    }
    if shutil.which("mpirun") and shutil.which("mpicc"):
        ranks = directory / "ranks"
        subprocess.run(["mpicc", "-O2", ROOT / "tests" / "programs" / "ranks.c", "-o", ranks], check=True)
        workloads["4 ranks"] = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4", ranks]
    for name, command in workloads.items():
        if not shutil.which(str(command[0])):
            print(f"\n{name}: {command[0]} is not installed")
            continue
        variants = {"plain": command, "limit": [binary, "limit", "1TB", "--output", "/dev/null", "--", *command]}
        results = in_turn(variants)
        ratios = [slow / fast for (slow, _), (fast, _) in zip(results["limit"], results["plain"])]
        print(f"\n{name}: {statistics.median(ratios):.3f} of the plain run ({min(ratios):.3f} to {max(ratios):.3f})")
    if shutil.which("redis-server") and shutil.which("redis-benchmark"):
        redis(binary)


def redis(binary):
    def throughput(prefix):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        server = subprocess.Popen([str(word) for word in [*prefix, "redis-server", "--port", port, "--save", ""]],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(100):
                if subprocess.run(["redis-cli", "-p", port, "ping"], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL).returncode == 0:
                    break
                time.sleep(0.05)
            done = subprocess.run(["redis-benchmark", "-p", port, "-t", "set,lpush", "-n", "200000", "-q", "--csv"],
                                  text=True, stdout=subprocess.PIPE, check=True)
            rates = [float(line.split(",")[1].strip('"')) for line in done.stdout.splitlines()[1:]]
            return statistics.mean(rates)
        finally:
            subprocess.run(["redis-cli", "-p", port, "shutdown", "nosave"], stderr=subprocess.DEVNULL)
            server.wait()

    plain, limited = [], []
    for _ in range(RUNS):
        plain.append(throughput([]))
        limited.append(throughput([binary, "limit", "1TB", "--output", "/dev/null", "--"]))
    ratios = [fast / slow for fast, slow in zip(plain, limited)]
    print(f"\nredis: {statistics.median(ratios):.3f} of the plain run's time a request "
          f"({min(ratios):.3f} to {max(ratios):.3f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the calls")
    parser.add_argument("--programs", action="store_true", help="whole programs, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="heaptape-bench-") as name:
        directory = Path(name)
        binary = build(directory)
        pairs(binary, directory, options.quick)
        if options.programs:
            programs(binary, directory)


if __name__ == "__main__":
    main()
