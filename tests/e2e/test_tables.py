#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""`export parquet`: DuckDB, pyarrow and polars read the tables, and their sums are the report's, to the byte."""
import glob
import json
import os
import re
import shutil
import subprocess

import harness
from harness import REPO, check, equal, installed, nightly, run, scratch, tool
from mtr_writer import Writer

GUIDE = os.path.join(REPO, "tests", "data", "guide")
FLEET = os.path.join(REPO, "docs", "guide", "fleet.md")
TABLES = ("events", "blocks", "rows", "steps", "scopes", "devices")
# Sums: lists of [recording, device, ...].
QUERIES = {
    "rows": "SELECT recording, device, moment, CAST(sum(bytes) AS BIGINT) AS n, count(*) AS c FROM rows GROUP BY recording, device, moment",
    "live": "SELECT recording, device, CAST(sum(size) AS BIGINT) AS n, count(*) AS c FROM blocks WHERE freed_ns IS NULL GROUP BY recording, device",
    "allocs": "SELECT recording, device, CAST(sum(size) AS BIGINT) AS n, count(*) AS c FROM events WHERE event = 'alloc' GROUP BY recording, device",
    "events": "SELECT recording, CAST(max(number) AS BIGINT) AS n, count(*) AS c FROM events GROUP BY recording",
    "devices": "SELECT recording, device, peak_allocated, allocated, total_allocated, allocs, frees FROM devices",
    "steps": "SELECT recording, device, max(step) AS n, CAST(max(peak_allocated) AS BIGINT) AS p FROM steps GROUP BY recording, device",
    "partitions": "SELECT recording, job, CAST(date AS VARCHAR) AS d FROM devices GROUP BY recording, job, date",
    "hosts": "SELECT DISTINCT host, rank FROM devices",
    "names": "SELECT DISTINCT function, file, module, line FROM rows WHERE line IS NOT NULL",
}
# Prints them for each engine.
READ = """
import json, sys
import duckdb, polars, pyarrow.dataset as dataset
folder, queries = sys.argv[1], json.load(sys.stdin)
tables = %r
arrow = {t: dataset.dataset(folder + "/" + t, partitioning="hive").to_table() for t in tables}
db = duckdb.connect()
for t in tables:
    db.execute("CREATE VIEW %%s AS SELECT * FROM read_parquet('%%s/%%s/**/*.parquet')" %% (t, folder, t))
of_arrow = duckdb.connect()
for t in tables:
    of_arrow.register(t, arrow[t])
sql = polars.SQLContext({t: polars.scan_parquet(folder + "/" + t + "/**/*.parquet", hive_partitioning=True) for t in tables})
answers = {}
for name, query in queries.items():
    answers[name] = {
        "DuckDB": [list(r) for r in db.execute(query).fetchall()],
        "pyarrow": [list(r) for r in of_arrow.execute(query).fetchall()],
        "polars": [list(r) for r in sql.execute(query.replace("VARCHAR", "TEXT"), eager=True).rows()],
    }
json.dump({"answers": answers, "rows": {t: arrow[t].num_rows for t in tables}, "types": {t: {f.name: str(f.type) for f in arrow[t].schema} for t in tables}}, sys.stdout)
""" % (TABLES,)


# Runs the queries of the guide in two engines.
QUERY = """
import json, sys
import duckdb, polars
folder, queries = sys.argv[1], json.load(sys.stdin)
db = duckdb.connect()
for t in %r:
    db.execute("CREATE VIEW %%s AS SELECT * FROM read_parquet('%%s/%%s/**/*.parquet')" %% (t, folder, t))
sql = polars.SQLContext({t: polars.scan_parquet(folder + "/" + t + "/**/*.parquet", hive_partitioning=True) for t in %r})
def texts(rows):
    return [["" if v is None else v if isinstance(v, str) else "%%.9g" %% float(v) for v in r] for r in rows]
answers = []
for q in queries:
    found = db.execute(q)
    names = [d[0] for d in found.description]
    answers.append([names, texts(found.fetchall()), texts(sql.execute(q, eager=True).rows())])
json.dump(answers, sys.stdout)
""" % (TABLES, TABLES)


def environment():
    return installed("python", "tables", step="tables")


def read(folder):
    """What the engines, which agree, answer."""
    done = subprocess.run([environment(), "-c", READ, folder], input=json.dumps(QUERIES), capture_output=True, text=True, check=False, timeout=120)
    equal(done.returncode, 0, "the engines: %s" % done.stderr[-1500:])
    found = json.loads(done.stdout)
    for name, by_engine in found["answers"].items():
        first = sorted(by_engine["DuckDB"], key=repr)
        for engine, rows in by_engine.items():
            equal(sorted(rows, key=repr), first, "%s by %s" % (name, engine))
        found["answers"][name] = first
    return found


def export(folder, *args):
    code, _, err = tool("export", "parquet", *args, "-o", folder)
    equal(code, 0, "export parquet %s: %s" % (args, err))
    return folder


def document(path, *options):
    code, out, err = tool("report", "--format", "json", *options, path)
    equal(code, 0, "report %s: %s" % (path, err))
    return json.loads(out)


def made(*kind):
    return harness.made("tables%s.mtr" % "-".join(("", *kind)), *kind)


def agree(found, paths):
    """Sums of the tables and of report."""
    rows = {(r, d, m): n for r, d, m, n, _ in found["rows"]}
    live = {(r, d): n for r, d, n, _ in found["live"]}
    allocs = {(r, d): (n, c) for r, d, n, c in found["allocs"]}
    devices = {(r, d): rest for r, d, *rest in found["devices"]}
    steps = {(r, d): n for r, d, n, _ in found["steps"]}
    numbers = {r: (n, c) for r, n, c in found["events"]}
    compared = 0
    for path in paths:
        doc = document(path)
        name = doc["memtrace"]["recording"]
        equal(numbers[name], (doc["capture"]["events"],) * 2, "events of %s" % name)
        for d in doc["devices"]:
            key = (name, d["device"])
            equal(devices[key], [d[k] for k in ("peak_allocated", "allocated", "total_allocated", "allocs", "frees")], "device %s of %s" % key)
            equal(allocs.get(key, (0, 0)), (d["total_allocated"], d["allocs"]), "allocations on %s of %s" % key)
            for moment in ("peak", "end"):
                at = document(path, "--at", moment, "--device", d["device"])
                equal(rows.get((*key, moment), 0), sum(r["bytes"] for r in at["rows"]), "rows of %s at the %s" % (key, moment))
                compared += 1
            anonymous = sum(r.get("anonymous", 0) for r in at["rows"])
            equal(live.get(key, 0) + anonymous, sum(r["bytes"] for r in at["rows"]), "live blocks of %s" % (key,))
            if key in steps:
                check(steps[key] < doc["capture"]["steps"] + 2, "steps of %s: %d", key, steps[key])
    return compared


@nightly("programs")
def test_sums_are_those_of_report():
    job = os.path.join(GUIDE, "job")
    paths = [made("tiny"), made("leak"), *(os.path.join(GUIDE, f + ".mtr") for f in ("base", "checkpoint", "leak", "oom"))]
    folder = export(scratch("lake"), job, *paths)
    equal(sorted(os.listdir(folder)), sorted(TABLES), "tables")
    found = read(folder)
    compared = agree(found["answers"], [*paths, *sorted(glob.glob(job + "/*.mtr"))])
    check(compared >= 36, "%d sums were compared", compared)
    jobs = {r: (j, d) for r, j, d in found["answers"]["partitions"]}
    equal((jobs["rank-2"], jobs["base"]), (("job", "2026-11-23"), ("base", "2026-11-23")), "partitions")
    for table, types in found["types"].items():
        equal(list(types)[:4], ["recording", "host", "rank", "pid"], "first columns of %s" % table)


@nightly("programs")
def test_options_and_names():
    folder = export(scratch("named"), "--job", "a/b c=ü%", "--host", "node 7", made("tiny"))
    found = read(folder)
    equal([j for _, j, _ in found["answers"]["partitions"]], ["a/b c=ü%"], "the job's name in the path")
    code, _, err = tool("export", "parquet", made("tiny"), "--job", "a/b c=ü%", "-o", folder)
    check(code == 1 and "exists" in err, "a second export without -f: %d: %s", code, err)
    code, _, err = tool("export", "parquet", made("tiny"), "--job", "a/b c=ü%", "-f", "-o", folder)
    equal(code, 0, "a second export with -f: %s" % err)
    left = [f for f in glob.glob(folder + "/**/*", recursive=True) + glob.glob(folder + "/**/.*", recursive=True) if os.path.isfile(f)]
    equal(len(left), len(TABLES), "files: %s" % left)
    job = scratch("hosts")
    shutil.copytree(os.path.join(GUIDE, "job"), job)
    with open(os.path.join(job, "index.json"), encoding="utf-8") as f:
        index = json.load(f)
    for i, entry in enumerate(index["recordings"]):
        entry["host"] = "node-%d" % i
    with open(os.path.join(job, "index.json"), "w", encoding="utf-8") as f:
        json.dump(index, f)
    hosts = read(export(scratch("of-hosts"), job))["answers"]["hosts"]
    equal(sorted(h for h, _ in hosts), ["node-%d" % i for i in range(4)], "hosts of a folder's index")
    ranks = harness.made("ranks", "9", by="make_fleet")
    hosts = read(export(scratch("of-ranks"), ranks))["answers"]["hosts"]
    equal(sorted((r, h) for h, r in hosts), [(i, "node%d" % (i // 8)) for i in range(9)], "hosts of the recordings")
    for args, said in ((("csv", "--job", "x", made("tiny")), "for the format parquet"), (("parquet", made("tiny"), "-o", "-"), "folder"),
                       (("csv", made("tiny"), made("tiny")), "one recording")):
        code, _, err = tool("export", *args)
        check(code == 64 and said in err, "export %s: %d: %s", args, code, err)
    code, _, err = tool("export", "parquet", made("tiny"), "-o", made("tiny"))
    check(code == 1 and "cannot create" in err, "a file as folder: %d: %s", code, err)
    code, _, err = tool("export", "parquet", os.path.join(GUIDE, "job", "index.json"), "-o", scratch("none"))
    equal(code, 2, "of no recording: %s" % err)


@nightly("programs")
def test_many_events_and_hostile_names():
    """More than one row group, and names that no program should have."""
    path = scratch("hostile.mtr")
    names = ["", "=1+1", "a\nb\tc", "é\u202e漢字🙂", "x" * 3000, "'; DROP TABLE rows;--"]
    w = Writer(path, {"comm": "python", "pid": "7", "rank": "3", "start": "2026-02-28T23:59:59.999Z"})
    for k, name in enumerate(names):
        w.block(27000, size=512 + k, stack=w.stack(name or "f.py", name, k + 1, name, name), compress=True, noise=True)
    w.close()
    found = read(export(scratch("hostile"), "--job", "7", path))
    equal(found["rows"]["events"], 6 * 27000, "events")
    equal(found["answers"]["events"], [["hostile", 162000, 162000]], "numbers")
    equal(agree(found["answers"], [path]), 2, "sums")
    functions = {f for f, _, _, _ in found["answers"]["names"]}
    check({n for n in names if n} <= functions, "functions: %s", [f for f in functions if f not in names])
    equal(found["answers"]["partitions"], [["hostile", 7, "2026-02-28"]], "partitions; engines take a job of digits as a number")
    w = Writer(scratch("dateless.mtr"), {"start": "2026-02-29T99:00:00Z"})
    w.block(3)
    w.close()
    folder = export(scratch("dateless"), scratch("dateless.mtr"))
    equal(os.listdir(os.path.join(folder, "rows", "job=dateless")), ["date=__HIVE_DEFAULT_PARTITION__"], "the date of a recording without one")


def table(names, rows):
    """Columns as text, numbers to the right."""
    widths = [max(len(r[i]) for r in [names, *rows]) for i in range(len(names))]
    right = [all(re.fullmatch(r"[-0-9.e+]*", r[i]) for r in rows) for i in range(len(names))]
    return "".join("  ".join(v.rjust(w) if r else v.ljust(w) for v, w, r in zip(row, widths, right)).rstrip() + "\n" for row in [names, *rows])


def of_the_guide():
    """The guide's text, its queries with their outputs, and a folder with its tables."""
    with open(FLEET, encoding="utf-8") as f:
        text = f.read()
    blocks = re.findall(r"```sql\n(.*?)```\n\n```text\n(.*?)```", text, re.S)
    equal(len(blocks), 10, "queries")
    folder = scratch("fleet")
    done = subprocess.run([harness.TOOL, "export", "parquet", "job/", "base.mtr", "checkpoint.mtr", "leak.mtr", "oom.mtr", "-o", folder], cwd=GUIDE, check=False,
                          capture_output=True, text=True, timeout=60)
    equal(done.returncode, 0, "export: %s" % done.stderr)
    return text, blocks, folder


@nightly("programs")
def test_queries_of_the_guide():
    """UPDATE=1 writes the outputs into the guide."""
    text, blocks, folder = of_the_guide()
    done = subprocess.run([environment(), "-c", QUERY, folder], input=json.dumps([q for q, _ in blocks]), capture_output=True, text=True, check=False, timeout=120)
    equal(done.returncode, 0, "the engines: %s" % done.stderr[-1500:])
    for (query, shown), (names, duckdb, polars) in zip(blocks, json.loads(done.stdout)):
        equal(polars, duckdb, "polars and DuckDB: %s" % query)
        check(duckdb, "no rows: %s", query)
        made_now = table(names, duckdb)
        if os.environ.get("UPDATE"):
            text = text.replace("```sql\n%s```\n\n```text\n%s```" % (query, shown), "```sql\n%s```\n\n```text\n%s```" % (query, made_now))
        else:
            equal(shown, made_now, "output of %s" % query)
    if os.environ.get("UPDATE"):
        with open(FLEET, "w", encoding="utf-8") as f:
            f.write(text)


def test_memory_is_constant():
    """Ten times as many events need as much memory."""
    most = []
    for n in (20000, 200000):
        path = harness.made("events-%d.mtr" % n, str(n), by="make_events")
        done = subprocess.run(["/usr/bin/env", "python3", "-c", "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stderr=subprocess.DEVNULL);"
                               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)", harness.TOOL, "export", "parquet", path, "-f", "-o", scratch("constant")],
                              capture_output=True, text=True, check=True, timeout=120)
        most.append(int(done.stdout) // 1024)
    check(most[1] < most[0] + 60, "MiB for 20,000 and 200,000 events: %s", most)


if __name__ == "__main__":
    run(globals())
