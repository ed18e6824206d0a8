"""Builds, writes and reads JSON; usage: objects.py RECORDS."""
import json
import sys


def record(i):
    return {
        "number": i,
        "name": f"name-{i:07d}",
        "labels": [f"l{i % 97}", f"m{i % 89}"],
        "place": [i * 0.5, i * 1.25],
        "inner": {"even": i % 2 == 0, "none": None, "text": str(i * 31)},
    }


records = [record(i) for i in range(int(sys.argv[1]))]
text = json.dumps(records)
del records
again = json.loads(text)
print(len(text), len(again), sum(r["number"] for r in again))
print("done", file=sys.stderr)
sys.exit(4)
