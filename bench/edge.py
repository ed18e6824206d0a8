#!/usr/bin/env python3
"""A limit of 1 GiB at its edge: what jobs of every shape are granted, by their own count.

    bench/edge.py [--quick]

A row for each number of processes and of threads in each, a column for each size of block. Every thread takes blocks
until it is refused, twice; between, one gives a block back and takes it again, and asks for one more (see
tests/programs/edge.c). A cell is what was missing of the limit when all were refused. It fails where more than the
limit was granted, where one block more would have fitted, or where a block that was given back was not granted
again. A sample of the cells is run with other allocators preloaded,
those that are installed. Builds the release binary first, unless HEAPTAPE names one. Needs gcc, and no memory to speak of:
of a block a word is touched.
"""

import glob
import itertools
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 1 << 30
KIB, MIB = 1 << 10, 1 << 20
PROCESSES = [1, 2, 4, 8, 16]
THREADS = [1, 2, 4, 8]
BLOCKS = {"1 KiB": KIB, "7 KiB": 7 * KIB, "64 KiB": 64 * KIB, "1 MiB": MIB, "100 MiB": 100 * MIB, "500 MiB": 500 * MIB}
# Of a process: data of its libraries (jemalloc's is 2.3 MiB), stacks, the reserve, and what libc takes for threads.
BESIDE = 4 * MIB
ALLOCATORS = {
    "jemalloc": "libjemalloc.so.2",
    "tcmalloc": "libtcmalloc_minimal.so.4",
    "mimalloc": "libmimalloc.so.2.0",
    "tbbmalloc": "libtbbmalloc_proxy.so.2",
}
SAMPLE = [(1, 1, "7 KiB"), (4, 2, "64 KiB"), (2, 4, "1 MiB"), (16, 1, "1 MiB"), (2, 1, "100 MiB")]


def build(directory):
    binary = os.environ.get("HEAPTAPE")
    if not binary:
        subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
        binary = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "heaptape"
    edge = directory / "edge"
    subprocess.run(["gcc", "-O2", "-pthread", ROOT / "tests" / "programs" / "edge.c", "-o", edge], check=True)
    return binary, edge


def cell(binary, edge, processes, threads, block, preload=None):
    """What was missing of the limit, in bytes, and what is wrong with that."""
    command = [binary, "limit", "--quiet", str(LIMIT), "--"]
    command += ["env", f"LD_PRELOAD={preload}"] if preload else []
    command += [edge, processes, threads, block, LIMIT, 2]
    job = subprocess.Popen([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, start_new_session=True)
    try:
        out, err = job.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
        return 0, "it did not end"
    words = out.split()
    if len(words) != 8:
        return 0, f"status {job.returncode}: {out}{err}"
    least, most, over, wrong = (int(number) for number in words[1::2])
    missing = LIMIT - least
    if job.returncode != 0 or over or wrong or most > LIMIT:
        return missing, out.strip()
    if missing >= block + processes * BESIDE:
        return missing, f"{missing} bytes were left"
    return missing, None


def shown(missing, block):
    return f"{missing / MIB:8.2f}" if block >= MIB else f"{missing / KIB:7.0f}K"


def library(name):
    found = sorted(glob.glob(f"/usr/lib/*/{name}") + glob.glob(f"/usr/local/lib/{name}"))
    return found[0] if found else None


def main():
    is_quick = "--quick" in sys.argv[1:]
    failed = []
    with tempfile.TemporaryDirectory(prefix="heaptape-bench-") as name:
        binary, edge = build(Path(name))
        print("What is missing of 1 GiB when all threads were refused, in MiB, or in KiB where there is a K.\n")
        print("processes  threads" + "".join(f"{name:>10}" for name in BLOCKS))
        for processes, threads in itertools.product(PROCESSES, THREADS):
            if is_quick and processes * threads not in (1, 8, 128):
                continue
            row = f"{processes:9}  {threads:7}"
            for label, block in BLOCKS.items():
                missing, fault = cell(binary, edge, processes, threads, block)
                row += f"{shown(missing, block):>10}"
                if fault:
                    failed.append(f"{processes} processes, {threads} threads, blocks of {label}: {fault}")
            print(row, flush=True)
        print()
        for allocator, file in ALLOCATORS.items():
            path = library(file)
            if not path:
                print(f"{allocator:10} is not installed")
                continue
            row = f"{allocator:10}"
            for processes, threads, label in SAMPLE:
                missing, fault = cell(binary, edge, processes, threads, BLOCKS[label], path)
                row += f"  {processes}x{threads} {label}:{shown(missing, BLOCKS[label])}"
                if fault:
                    failed.append(f"{allocator}: {processes} processes, {threads} threads, blocks of {label}: {fault}")
            print(row, flush=True)
    for fault in failed:
        print(f"failed: {fault}")
    print(f"\n{len(failed)} cells failed" if failed else "\nall cells are right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
