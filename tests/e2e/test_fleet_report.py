#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: check
"""One report of many ranks, from made-up recordings: groups that allocate alike, the odd ranks with their lines, steps, clocks,
who is missing, and the time and memory for 4,096 of them."""
import json
import os
import re
import subprocess
import time

from harness import REPO, TOOL, check, equal, made, read_json, run, scratch, tool
from mtr_writer import Writer

MIB = 1 << 20


def fleet(ranks):
    folder = scratch("fleet-%d" % ranks)
    if not os.path.exists(folder):
        made(folder, str(ranks), by="make_fleet")
    return folder


def document(folder, *options):
    code, out, err = tool("report", "--together", "--format", "json", folder, *options)
    equal(code, 0, "exit code (%s)" % err)
    return json.loads(out)


def test_groups():
    """Four stages of 16; rank 21 keeps more, the steps of rank 32 are longer."""
    doc = document(fleet(64))
    stages = [list(range(0, 16)), [n for n in range(16, 32) if n != 21], [21], list(range(32, 48)), list(range(48, 64))]
    equal([g["recordings"] for g in doc["groups"]], stages, "groups")
    equal([g["compared_with"] for g in doc["groups"]], [None, None, 1, None, None], "what they are compared with")
    sizes = [doc["recordings"][g["recordings"][0]]["allocated"] for g in doc["groups"]]
    equal([[g["allocated"][k] for k in ("min", "median", "max")] for g in doc["groups"]], [[n] * 3 for n in sizes], "memory of groups")
    equal(sizes[2] - sizes[1], 300 * MIB, "what rank 21 has more")
    rows = [(doc["rows"][o["row"]]["file"], doc["rows"][o["row"]]["line"]) if o["row"] is not None else None for o in doc["outliers"]]
    equal([(o["recording"], o["difference"], row) for o, row in zip(doc["outliers"], rows)],
          [(21, 300 * MIB, None), (21, 300 * MIB, ("odd.py", 42))], "outliers")
    equal([o["recording"] for o in doc["step_outliers"]], [32], "longer steps")
    slow = doc["step_outliers"][0]
    check(0.2 <= slow["step_time"] <= 0.204 and 0.1 <= slow["others_median"] <= 0.104, "step times: %s", slow)
    for n, k in enumerate(doc["recordings"]):
        equal((k["rank"], k["host"]), (n, "node%d" % (n // 8)), "where rank %d is" % n)
        equal((k["clock_offset_ns"], k["clock_offset_error_ns"]), (n // 8 * 10**9, 50000), "clock of rank %d" % n)
        equal(k["begin_ns"], doc["recordings"][0]["begin_ns"], "begin of rank %d on one clock" % n)
        equal(doc["groups"][k["group"]]["recordings"].count(n), 1, "group of rank %d" % n)
    equal(doc["missing"], [], "missing")


def test_outliers():
    """`--outliers`: the document without the rows in which all are alike."""
    whole, doc = document(fleet(64)), document(fleet(64), "--outliers")
    odd, = doc["rows"]
    row = whole["rows"][odd.pop("index")]
    del row["recordings"]
    equal(odd, row, "the row of the outlier")
    doc.pop("rows_left_out")
    equal({**doc, "rows": 0}, {**whole, "rows": 0}, "everything else")
    for options in (("--outliers",), ("--outliers", "--together"), ("--format", "html", "--apart"), ("--format", "html", "--by", "stack")):
        equal(tool("report", *options, fleet(64))[0], 64, "exit code of %s" % (options,))


def test_text():
    code, out, err = tool("report", fleet(64), prefix=("env", "COLUMNS=100", "LC_ALL=C.UTF-8"))
    equal((code, err), (0, ""), "report")
    for words in ("5 groups of ranks that allocate alike\n", "ranks 16-20, 22-31\n", "median of the others in their group:\n",
                  "  rank 21 on node2: 300.00 MiB more at odd.py:42 (cache): 300.00 MiB", "  rank 32 on node4: 0.20 s a step, 100 % longer",
                  "Clocks of the hosts differ by up to 7.00 s, measured to within 50.0 µs"):
        check(words in out, "%r is not in %s", words, out)
    check("Missing" not in out, "somebody is missing: %s", out)
    code, out, _ = tool("report", "--top", "0", fleet(64))
    check(code == 0 and out.count("\nrank ") == 64 and "groups" not in out, "--top 0 does not list all: %s", out[:3000])


def test_hosts_of_the_index():
    """The names that fetch was given, rather than those that the hosts have for themselves."""
    folder = fleet(32)
    path = os.path.join(folder, "index.json")
    index = read_json(path)
    for e in index["recordings"]:
        e["host"] = "gpu-%d\x1b" % (e["rank"] // 8) if e["rank"] < 24 else ""
    with open(path, "w", encoding="utf-8") as f:
        json.dump(index, f)
    code, out, err = tool("report", folder)
    check(code == 0 and "  rank 10 on gpu-1\\x1b: 300.00 MiB more at odd.py:42" in out, "report: %d %s %s", code, out, err)
    equal([r["host"] for r in document(folder)["recordings"]], ["gpu-%d\x1b" % (n // 8) if n < 24 else "node3" for n in range(32)], "in JSON")


def test_page():
    """The page of ranks has the rows of the text: by line, over roles and phases, with the same figures."""
    folder = os.path.join(REPO, "tests", "data", "guide", "job")
    code, html, err = tool("report", "--format", "html", folder)
    equal((code, err), (0, ""), "page")
    page = json.loads(html.split('id="head">', 1)[1].split("</script>", 1)[0])
    code, out, err = tool("report", folder, prefix=("env", "COLUMNS=200"))
    equal((code, err), (0, ""), "text")
    said = [line for line in re.findall("^  rank .*", out, re.M) if " more (" in line or " less (" in line or " more at" in line or " less at" in line]
    check(len(said) >= 2, "text:\n%s", out)
    equal(len(page["outliers"]), len(said), "differences in page and text")
    rows = {r["index"]: r for r in page["rows"]}
    for o, line in zip(page["outliers"], said):
        check(line.startswith("  rank %d" % page["recordings"][o["recording"]]["rank"]), "order: %s, %s", o, line)
        figures = [f for f in (abs(o["difference"]), o["bytes"], o["others_median"])]
        equal([amount(b) for b in figures], re.findall(r"\d+(?:\.\d+)? (?:B|[KMG]iB)", line), "figures of %s" % line)
        row = rows.get(o["row"])
        check(" in all: " in line if row is None else "%s:%d (" % (os.path.basename(row["file"]), row["line"]) in line, "row %s: %s", row, line)
        check(row is None or not {"phase", "category", "module"} & set(row), "keys: %s", row)


def amount(n):
    if n < 1024:
        return "%d B" % n
    return "%.1f KiB" % (n / 1024) if n < MIB else "%.2f MiB" % (n / MIB) if n < 1024 * MIB else "%.2f GiB" % (n / MIB / 1024)


def test_order_of_ranks():
    """compare and diff take ranks in their order, whenever each began."""
    job = os.path.join(REPO, "tests", "data", "guide", "job")
    began = [e["rank"] for e in read_json(os.path.join(job, "index.json"))["recordings"]]
    check(began != sorted(began), "the ranks began in their order: %s", began)
    names = [c["name"] for c in json.loads(tool("compare", "--format", "json", job)[1])["captures"]]
    equal(names, ["rank-0", "rank-1", "rank-2", "rank-3"], "rows of compare")
    equal([json.loads(tool("diff", "--format", "json", job)[1])[side]["recording"] for side in ("old", "new")], ["rank-0", "rank-3"], "first and last")


def job_without_folder(name, launcher_has_memory):
    """What `run --children -o NAME` writes: a launcher, its two ranks, and files of another run."""
    path, extension = os.path.splitext(scratch(name))
    launcher = {"pid": "10", "process_started": "1000", "cmdline": '["torchrun"]'}
    files = {"": launcher}
    for rank, pid in enumerate((12, 11)):
        ancestors = [{"pid": 5, "started": 900, "title": "sh"}, {"pid": 10, "started": 1000, "title": "torchrun"}]
        files[".%d" % pid] = {"pid": str(pid), "process_started": str(1000 + pid), "rank": str(rank), "world_size": "2", "parent": "10",
                              "cmdline": '["python", "train.py"]', "ancestors": json.dumps(ancestors)}
    files[".13"] = {**files[".12"], "pid": "13", "ancestors": '[{"pid": 10, "started": 7}]'}  # an older run
    files[".14"] = {**files[".12"], "pid": "14", "ancestors": "[[]]"}
    for suffix, facts in files.items():
        w = Writer(path + suffix + extension, facts)
        if suffix or launcher_has_memory:
            w.block(4, 1 << 20, w.stack("/a/train.py", "main", 5))
        w.close()
    with open(path + ".15" + extension, "wb") as f:
        f.write(b"no recording")
    return path + extension


def test_launcher():
    """The name that -o got gives the whole job, if the launcher itself has no memory."""
    for name in ("ddp", "job.mtr"):
        path = job_without_folder(name, False)
        code, out, err = tool("report", path)
        check((code, err) == (0, "") and out.startswith("2 recordings of one job, ranks 0-1 of 2: python train.py\n"), "%s: %s %s", name, out, err)
        code, out, err = tool("diagnose", path)
        check(err == "" and "ranks 0-1 of 2" in out, "diagnose: %s %s", out, err)
        code, out, err = tool("report", path, path)
        check("2 recordings" not in out.splitlines()[0], "two arguments: %s", out)


def test_process_with_children():
    """A process with memory is reported by itself, and a line names the recordings of those that it started."""
    path = job_without_folder("with children.mtr", True)
    code, out, err = tool("report", path)
    check(code == 0 and "recordings" not in out, "report: %s", out)
    equal(err, "memtrace-bpf: %s: recordings of processes that it started, 2 in all: '%s'.*.mtr\n" % (path, path[:-4]), "hint")
    code, out, err = tool("export", path, "-o", scratch("one.html"))
    check(code == 0 and "2 in all" in err, "export: %d %s", code, err)
    equal(tool("report", path.replace(".mtr", ".11.mtr"))[2], "", "hint of a process without children")


def test_two_scripts():
    """compare and diff say that two recordings are of different scripts."""
    paths = [os.path.join(REPO, "tests", "data", *where) for where in (("guide", "base.mtr"), ("recordings", "v6-started.mtr"))]
    check("v6-started: it ran leak.py, the first ran train.py" in tool("compare", *paths)[1], "compare")
    check("two programs: train.py and leak.py" in tool("diff", *paths)[1], "diff")
    check("two programs" not in tool("diff", paths[0], paths[0])[1], "diff of one")


def test_missing():
    """Ranks without a recording are named, and so is why."""
    folder = fleet(33)
    path = os.path.join(folder, "index.json")
    index = read_json(path)
    index["recordings"] = [e for e in index["recordings"] if e["rank"] not in (3, 7, 8, 32)]
    index["missing"] = [{"host": "node0", "pid": 1003, "rank": 3, "why": "its capture failed"}, {"host": "node9\x1b[2J", "why": "no answer"}]
    with open(path, "w", encoding="utf-8") as f:
        json.dump(index, f)
    code, out, err = tool("report", folder)
    check(code == 0 and "Missing: ranks 3, 7-8, 32\n  node0: rank 3, PID 1003: its capture failed\n  node9\\x1b[2J: no answer\n" in out,
          "missing: %d %s %s", code, out[:600], err)
    equal(document(folder)["missing"], [{"host": "node0", "pid": 1003, "rank": 3, "why": "its capture failed"},
                                        {"host": "node9\x1b[2J", "pid": None, "rank": None, "why": "no answer"}], "in JSON")
    for wrong in ({}, [1], [{"host": 1}], [{"rank": -1}]):
        index["missing"] = wrong
        with open(path, "w", encoding="utf-8") as f:
            json.dump(index, f)
        code, _, err = tool("report", folder)
        check(code == 2 and "index.json" in err, "%s: %d %s", wrong, code, err)


def measured(folder):
    """Output, seconds, and KiB of memory."""
    begun = time.monotonic()
    p = subprocess.Popen([TOOL, "report", folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out = p.stdout.read()
    _, status, used = os.wait4(p.pid, 0)
    p.returncode = status
    equal(status, 0, "exit code: %s" % p.stderr.read())
    return out, time.monotonic() - begun, used.ru_maxrss


def test_thousands():
    few, _, before = measured(fleet(256))
    many, seconds, after = measured(fleet(4096))
    check("ranks 0-255 of 256" in few and "ranks 0-4095 of 4096" in many, "titles")
    for words in ("5 groups of ranks", "rank 1365 on node170: 300.00 MiB more at odd.py:42", "rank 2048 on node256: 0.20 s a step"):
        check(words in many, "%r is not in %s", words, many)
    check(seconds < 60, "4,096 ranks take %.0f s", seconds)
    each = (after - before) / (4096 - 256)
    print("     4,096 ranks: %.1f s, %d MiB, %.1f KiB for each" % (seconds, after >> 10, each), flush=True)
    check(each < 32, "%.1f KiB for each rank", each)


if __name__ == "__main__":
    run(globals())
