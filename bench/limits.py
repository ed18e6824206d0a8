#!/usr/bin/env python3
"""What ways to limit the memory of a job admit: four processes that take all they can get, up to 1 GiB each.

    bench/limits.py

The limit is 1 GiB for all together. Builds the release binary first. Needs gcc; Debian's libmimalloc2.0 for
its row, and root and a memory controller for that of a cgroup.
"""

import glob
import os
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 1 << 30
PROCESSES = 4


def run(command, env=None, before=None):
    done = subprocess.run([str(word) for word in command], env={**os.environ, **(env or {})}, preexec_fn=before,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return done.stdout.strip() or f"nothing was printed; status {done.returncode}"


def in_cgroup(command):
    """Version 2 or 1 of the memory controller, whichever is there."""
    for parent, file in [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")]:
        group = Path(parent) / f"heaptape-bench-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if not (group / file).exists():
                continue
            (group / file).write_text(str(LIMIT))
            return run(command, before=lambda: (group / "cgroup.procs").write_text(str(os.getpid())))
        except OSError:
            continue
        finally:
            group.rmdir()
    return "not possible here"


def main():
    with tempfile.TemporaryDirectory(prefix="heaptape-bench-") as name:
        directory = Path(name)
        subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
        binary = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "heaptape"
        hog = directory / "hog"
        subprocess.run(["gcc", "-O2", ROOT / "bench" / "programs" / "hog.c", "-o", hog], check=True)
        greedy = [hog, PROCESSES, LIMIT >> 20]
        rows = {"no limit": run(greedy)}
        rows["ulimit -v 1 GiB"] = run(["sh", "-c", f"ulimit -v {LIMIT >> 10}; exec {hog} {PROCESSES} {LIMIT >> 20}"])
        for library in glob.glob("/usr/lib/*/libmimalloc.so.2.0")[:1]:
            options = {"MIMALLOC_RESERVE_OS_MEMORY": "1GiB", "MIMALLOC_LIMIT_OS_ALLOC": "1", "LD_PRELOAD": library}
            rows["mimalloc, reserve and limit options"] = run(greedy, options)
        rows["cgroup, 1 GiB"] = in_cgroup(greedy)
        rows["heaptape limit 1GiB"] = run([binary, "limit", "1GiB", "--quiet", "--", *greedy])
        rows["heaptape limit 1GiB --on-limit kill"] = run(
            [binary, "limit", "1GiB", "--quiet", "--on-limit", "kill", "--", *greedy])
        for way, result in rows.items():
            print(f"{way:36} {result}")


if __name__ == "__main__":
    main()
