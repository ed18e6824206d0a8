#!/usr/bin/env python3
"""The guide's questions in SQL, asked with DuckDB and with Spark: both must give the same answers, and the right ones.

    bench/sql.py [--keep FOLDER] [--heaptape FILE] [--no-spark]

Records bench/programs/market.cpp and tests/programs/children64.c, exports both tables as Parquet, and runs every query
that docs/guide.md has in a block marked `sql`. The answers of DuckDB and Spark must agree; sums over the tables must be
those of `info --json`, `report --json` and of the program itself. Spark then reads the tables of several tapes at once.
What the queries print is printed here, so that the guide can show it.

Makes a virtual environment below the working folder and installs duckdb and pyspark into it from PyPI. Spark needs
Java: where there is none and this is root, Debian's default-jre-headless is installed. Builds the release binary first,
unless --heaptape names one. The exit status is 1 if anything was wrong.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from decimal import Decimal
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WRONG = []


def check(what, found, wanted):
    good = found == wanted
    print(f"{'ok   ' if good else 'WRONG'} {what}: {found}" + ("" if good else f", not {wanted}"))
    if not good:
        WRONG.append(what)


def run(*words, **options):
    words = [str(word) for word in words]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, **options).stdout.decode()


def enter_environment(folder, spark):
    """Runs this script again with the Python of an environment that has duckdb and pyspark."""
    python = folder / "venv/bin/python"
    if Path(sys.prefix) == python.parent.parent:
        return
    if not python.exists():
        run(sys.executable, "-m", "venv", folder / "venv")
    wanted = ["duckdb", "pyspark"] if spark else ["duckdb"]
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted)
    if spark and not shutil.which("java"):
        if os.getuid() != 0 or not shutil.which("apt-get"):
            sys.exit("Spark needs Java: install default-jre-headless, or give --no-spark.")
        run("apt-get", "update", "-qq")
        run("apt-get", "install", "-y", "-qq", "--no-install-recommends", "default-jre-headless",
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    sys.stdout.flush()
    os.execv(python, [str(python), __file__, *sys.argv[1:], "--keep", str(folder)])


def record(heaptape, folder, name, source, compiler):
    """Records a program; gives its tape's name and what it printed."""
    program = folder / name
    run(compiler, "-O1", "-pthread", "-o", program, source)
    printed = run(heaptape, "record", "--quiet", "-o", folder / f"{name}.tape", "--", program)
    for table in ("calls", "blocks"):
        run(heaptape, "export", folder / f"{name}.tape", "--table", table, "--to", "parquet",
            "-o", folder / f"{name}.{table}.parquet")
    return printed


def plain(value):
    """A cell as both engines have it: whole numbers as int."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def show(columns, rows):
    cells = [columns] + [["" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(columns))]
    number = [all(isinstance(row[at], (int, float)) or row[at] is None for row in rows) for at in range(len(columns))]
    for row in cells:
        print("    " + "  ".join(c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, number)).rstrip())


class Duck:
    """DuckDB over the two tables of a tape."""

    def __init__(self):
        import duckdb
        self.connection = duckdb.connect()

    def open(self, stem):
        for table in ("calls", "blocks"):
            self.connection.execute(f"CREATE OR REPLACE VIEW {table} AS FROM '{stem}.{table}.parquet'")

    def ask(self, query):
        result = self.connection.execute(query)
        columns = [about[0] for about in result.description]
        return columns, [tuple(plain(cell) for cell in row) for row in result.fetchall()]


class Spark:
    """Spark over the same."""

    def __init__(self):
        from pyspark.sql import SparkSession
        settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
                    "spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR",
                    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        builder = SparkSession.builder.master("local[2]").appName("heaptape")
        for key, value in settings.items():
            builder = builder.config(key, value)
        self.session = builder.getOrCreate()

    def open(self, stem):
        for table in ("calls", "blocks"):
            self.session.read.parquet(f"{stem}.{table}.parquet").createOrReplaceTempView(table)

    def ask(self, query):
        result = self.session.sql(query)
        return result.columns, [tuple(plain(cell) for cell in row) for row in result.collect()]


def sums(engine, stem, info, report, name):
    """Sums over the tables against what the tape says of itself."""
    engine.open(stem)
    one = lambda query: engine.ask(query)[1][0]
    check(f"{name}: events", one("SELECT count(*) FROM calls")[0], info["events"])
    kinds = dict(engine.ask("SELECT call, count(*) FROM calls GROUP BY call")[1])
    told = {}
    for process in info["processes"]:
        for call, count in process["calls"].items():
            if count and call != "free_null":
                told[call] = told.get(call, 0) + count
    check(f"{name}: calls by kind", dict(sorted(kinds.items())), dict(sorted(told.items())))
    left = one("SELECT count(*), sum(size) FROM blocks WHERE ended = 'left'")
    ends = [process["end"] for process in info["processes"]]
    check(f"{name}: left", left, (sum(e["blocks"] for e in ends), sum(e["requested"] for e in ends)))
    twice = one("SELECT count(*) FROM (SELECT process, block FROM blocks GROUP BY process, block HAVING count(*) > 1) t")
    check(f"{name}: blocks that come twice", twice[0], 0)
    made = one("SELECT count(*), sum(size) FROM blocks WHERE birth_process = process")
    total = report["lives"]["made"]
    check(f"{name}: made, as the report has it", made, (total["blocks"], total["bytes"]))


def queries():
    """The guide's queries."""
    guide = (ROOT / "docs/guide.md").read_text()
    return re.findall(r"```sql\n(.*?)```", guide, re.DOTALL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="work there, and leave everything there")
    parser.add_argument("--heaptape", type=Path)
    parser.add_argument("--no-spark", action="store_true")
    args = parser.parse_args()
    folder = (args.keep or Path(tempfile.mkdtemp(prefix="heaptape-sql-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    enter_environment(folder, not args.no_spark)
    heaptape = args.heaptape.resolve() if args.heaptape else ROOT / "target/release/heaptape"
    if not args.heaptape:
        run("cargo", "build", "--release", "--quiet", "-p", "heaptape", cwd=ROOT)

    programs = {"market": (ROOT / "bench/programs/market.cpp", "c++"),
                "children": (ROOT / "tests/programs/children64.c", "cc")}
    engines = [Duck()] + ([] if args.no_spark else [Spark()])
    for name, (source, compiler) in programs.items():
        printed = record(heaptape, folder, name, source, compiler)
        info = json.loads(run(heaptape, "info", "--json", folder / f"{name}.tape"))
        report = json.loads(run(heaptape, "report", "--json", folder / f"{name}.tape"))
        for engine in engines:
            label = f"{name} in {type(engine).__name__}"
            sums(engine, folder / name, info, report, label)
            peaks(engine, info, label)
            if name == "market":
                market(engine, json.loads(printed), label)
    for query in queries():
        print(f"\n{query}")
        for engine in engines:
            engine.open(folder / "market")
        answers = [engine.ask(query) for engine in engines]
        show(*answers[0])
        check("the engines agree", all(answer[1] == answers[0][1] for answer in answers), True)
    if not args.no_spark:
        many(engines[1], folder, list(programs))
    if not args.keep:
        shutil.rmtree(folder)
    print(f"\n{len(WRONG)} wrong")
    return 1 if WRONG else 0


def peaks(engine, info, label):
    """The guide's last query gives the peak of every process, and where it was."""
    rows = {process: (index, requested) for process, index, requested in engine.ask(queries()[-1])[1]}
    # What was inherited stands at -1 in the query, and at 0 in the document.
    found = {process: (max(index, 0), requested) for process, (index, requested) in rows.items()}
    told = {p["number"]: (p["peak"]["at"], p["peak"]["requested"]) for p in info["processes"] if p["events"]}
    check(f"{label}: peaks of {len(told)} processes", found == told, True)


def market(engine, truth, label):
    """What the program knows of itself."""
    notes = engine.ask("SELECT count(*), sum(size) FROM blocks WHERE function LIKE 'remember_order%' AND ended = 'left'")
    check(f"{label}: notes", notes[1][0], (truth["notes"], truth["note_bytes"]))
    shipped = engine.ask("SELECT count(*), sum(size) FROM blocks WHERE birth_thread <> death_thread"
                         " AND function LIKE 'make_order%'")
    check(f"{label}: shipped by another thread", shipped[1][0], (truth["shipped"], truth["shipped_bytes"]))


def many(spark, folder, names):
    """Several tapes as one table, as the guide shows it."""
    print("\nSpark, all tapes at once")
    blocks = spark.session.read.parquet(*[str(folder / f"{name}.blocks.parquet") for name in names])
    blocks.createOrReplaceTempView("blocks")
    columns, rows = spark.ask("SELECT element_at(split(input_file_name(), '/'), -1) AS file, count(DISTINCT process) AS"
                              " processes, count(*) AS blocks, sum(size) AS bytes FROM blocks GROUP BY 1 ORDER BY 1")
    show(columns, rows)
    check("files", len(rows), len(names))


if __name__ == "__main__":
    sys.exit(main())
