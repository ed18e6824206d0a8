#!/usr/bin/env python3
"""Random jobs of honest and cheating programs under a limit: none may get a wrong verdict.

    bench/escapes.py [RUNS] [SEED]

A job is a shell that runs one to three programs of tests/programs, one after another or together, of which one may cheat: by
a way from the table in crates/cli/tests/escapes.rs, which also says what verdicts are right. What an honest job holds fits in
its limit; what a cheating one takes does not. Each job runs under `limit` alone or with `--strict`, which gives it a control
group where one can be made. Prints a row for each way, and every wrong verdict; the exit status is 1 if there was any. Builds the
release binary, unless HEAPTAPE names one; needs a C compiler.
"""

import collections
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "tests/programs"
PROGRAMS = ["bypass", "elsewhere", "runaway", "forger"]
FLAGS = ["-std=gnu17", "-O1", "-fno-builtin", "-fno-optimize-sibling-calls", "-pthread"]
MIB = 1 << 20
TOGETHER = 2
# Ways that an honest program goes as well: what fits is granted.
HONEST = [("bypass", "blocks"), ("bypass", "mapping"), ("bypass", "sbrk"), ("elsewhere", "mapped-tmpfs"),
          ("elsewhere", "mapped-file"), ("runaway", "cleared"), ("runaway", "unset"), ("runaway", "clone"),
          ("runaway", "clone-by-hand"), ("runaway", "daemon"), ("runaway", "bomb"), ("elsewhere", "passed-mapped")]
# Ways that end heaptape's parent, the shell, or that need more words, are for the tests.
LEFT_OUT = {"plug-in", "words"}


def built(folder):
    for name in PROGRAMS:
        subprocess.run(["cc", *FLAGS, SOURCES / f"{name}.c", "-o", folder / name, "-ldl"], check=True)


def binary():
    if os.environ.get("HEAPTAPE"):
        return os.environ["HEAPTAPE"]
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    return str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "heaptape")


def ways():
    """From the tests: the program, its word, whether it takes very much, and the right verdicts without and with a group."""
    text = (ROOT / "crates/cli/tests/escapes.rs").read_text()
    pattern = r'\w+: "(\w+)" "([\w-]+)" (\w+), \[(.*?)\], \[(.*?)\];'
    found = [(program, way, size == "TOO_MUCH", re.findall(r"\w+", alone), re.findall(r"\w+", strict))
             for program, way, size, alone, strict in re.findall(pattern, text)]
    assert len(found) > 30, "the table of ways has changed its form"
    return [way for way in found if way[1] not in LEFT_OUT]


def has_group(heaptape):
    doctor = subprocess.run([heaptape, "doctor", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return isinstance(json.loads(doctor.stdout)["system"]["cgroup"]["job_group"], str)


class Job:
    """A job: its limit in MiB, its script, and the verdicts that are right."""

    def __init__(self, chance, folder, all_ways, group):
        self.limit = chance.choice([32, 48, 64])
        self.strict = chance.random() < 0.6
        self.way = None
        lines = []
        room = self.limit * 3 // 4 - 6
        for _ in range(chance.randint(1, 3)):
            program, way = chance.choice(HONEST)
            mib = chance.randint(1, max(1, room // 3))
            lines.append(f"{folder}/{program} {way} {mib} {chance.randint(0, 300)}")
        self.right = ["within"]
        if chance.random() < 0.5:
            program, way, very, alone, strict = chance.choice(all_ways)
            enclosed = self.strict and group
            right = strict if enclosed else alone
            # What the kernel's limit ends, in any case; else a third more than may be unaccounted.
            mib = 3 * self.limit + 64 + 300 if very else 2 * self.limit + chance.randint(24, 60)
            # A stack is charged as far as there is room, which another may ask for then.
            self.way, self.right = way, right + ["refused"] * (way == "stack")
            lines.insert(chance.randint(0, len(lines)), f"{folder}/{program} {way} {mib} 2500")
        # A job goes on for others while one cheats: then all that they hold still fits.
        joint = " & " if chance.random() < 0.5 else "; "
        self.script = joint.join(lines) + "; wait; exit 0"

    def run(self, heaptape, folder, number):
        report = folder / f"{number}.json"
        command = [heaptape, "limit", "--quiet", "--json", report, *(["--strict"] if self.strict else []),
                   str(self.limit * MIB), "--", "sh", "-c", self.script]
        try:
            done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, timeout=120)
        except subprocess.TimeoutExpired:
            return self, "hangs", None, ""
        try:
            document = json.loads(report.read_text())
        except (OSError, ValueError):
            return self, "none", done.returncode, done.stderr[-300:]
        return self, document["verdict"], done.returncode, ""

    def is_right(self, verdict, status):
        if verdict not in self.right:
            return False
        if verdict == "tampered" and not self.strict:
            # What a program does to others of its job is its own affair.
            return True
        return status == (3 if self.strict and verdict != "within" else 0)


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    heaptape = binary()
    group = has_group(heaptape)
    started = time.monotonic()
    counts, wrong = collections.defaultdict(collections.Counter), []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(TOGETHER) as pool:
        folder = Path(folder)
        built(folder)
        chance, all_ways = random.Random(seed), ways()
        jobs = [Job(chance, folder, all_ways, group) for _ in range(runs)]
        for job, verdict, status, text in pool.map(lambda at: at[1].run(heaptape, folder, at[0]), enumerate(jobs)):
            how = ("strict, with a group" if group else "strict") if job.strict else "alone"
            counts[(job.way or "(honest)", how)][verdict] += 1
            if not job.is_right(verdict, status):
                wrong.append(f"{verdict} (status {status}) and not {' or '.join(job.right)}: limit {job.limit} MiB, {how}: "
                             + job.script.replace(f"{folder}/", "") + (f" [{text}]" if text else ""))
    width = max(len(way) for way, _ in counts)
    for (way, how), verdicts in sorted(counts.items()):
        print(f"{way:{width}}  {how:21} " + ", ".join(f"{verdict} {count}" for verdict, count in sorted(verdicts.items())))
    print(f"{runs} jobs in {time.monotonic() - started:.0f} s, seed {seed}: {len(wrong)} wrong verdicts")
    for line in wrong:
        print("WRONG:", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
