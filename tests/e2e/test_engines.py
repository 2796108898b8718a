#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=programs long
"""Spark and ClickHouse read the tables of `export parquet` as DuckDB does, to the byte, and answer the guide's queries. Needs
`tools/deps.sh engines`."""
import glob
import json
import os
import re
import subprocess

import test_tables
from harness import equal, installed, run, scratch

# Prints the answers of one engine.
SPARK = """
import json, sys
from pyspark.sql import SparkSession
folder, queries = sys.argv[1], json.load(sys.stdin)
options = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "1g",
           "spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "1", "spark.sql.warehouse.dir": sys.argv[2]}
spark = SparkSession.builder.master("local[1]").config(map=options).getOrCreate()
for t in %r:
    spark.read.parquet(folder + "/" + t).createOrReplaceTempView(t)
answers = [[list(r) for r in spark.sql(q.replace("VARCHAR", "STRING")).collect()] for q in queries]
spark.stop()
json.dump(answers, sys.stdout, default=float)
""" % (test_tables.TABLES,)
CLICKHOUSE = """
import json, sys
from chdb import session
folder, queries = sys.argv[1], json.load(sys.stdin)
s = session.Session(sys.argv[2])
for t in %r:
    s.query("CREATE VIEW %%s AS SELECT * FROM file('%%s/%%s/**/*.parquet', Parquet) SETTINGS use_hive_partitioning = 1" %% (t, folder, t))
ask = lambda q: json.loads(str(s.query(q.rstrip() + " SETTINGS output_format_json_quote_64bit_integers = 0", "JSONCompact")))["data"]
json.dump([ask(q) for q in queries], sys.stdout)
""" % (test_tables.TABLES,)
ENGINES = {"Spark": SPARK, "ClickHouse": CLICKHOUSE}


def ask(engine, folder, queries):
    """The rows of each query."""
    done = subprocess.run([installed("python", "engines", step="engines"), "-c", ENGINES[engine], folder, scratch(engine + folder.replace("/", "-"))], input=json.dumps(queries), capture_output=True,
                          text=True, check=False, timeout=300)
    equal(done.returncode, 0, "%s: %s" % (engine, done.stderr[-3000:]))
    return json.loads(done.stdout)


def texts(rows):
    return [["" if v is None else v if isinstance(v, str) else "%.9g" % float(v) for v in r] for r in rows]


def test_sums():
    """The sums in which DuckDB, pyarrow, polars and report agree."""
    paths = [test_tables.made("tiny"), test_tables.made("leak"), *(os.path.join(test_tables.GUIDE, f + ".mtr") for f in ("base", "checkpoint", "leak", "oom"))]
    folder = test_tables.export(scratch("lake"), os.path.join(test_tables.GUIDE, "job"), *paths)
    found = test_tables.read(folder)["answers"]
    test_tables.agree(found, [*paths, *sorted(glob.glob(test_tables.GUIDE + "/job/*.mtr"))])
    for engine in ENGINES:
        for name, rows in zip(test_tables.QUERIES, ask(engine, folder, list(test_tables.QUERIES.values()))):
            equal(sorted(rows, key=repr), found[name], "%s by %s" % (name, engine))


def test_queries_of_the_guide():
    _, blocks, folder = test_tables.of_the_guide()
    for engine in ENGINES:
        for (query, shown), rows in zip(blocks, ask(engine, folder, [q for q, _ in blocks])):
            names = re.split("  +", shown.splitlines()[0].strip())
            equal(test_tables.table(names, texts(rows)), shown, "%s: %s" % (engine, query))


if __name__ == "__main__":
    run(globals())
