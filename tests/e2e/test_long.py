#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: nightly=long long probes-all
"""record --rolling: a folder that never exceeds its size; dropped parts are reported and totals stay exact, whatever happens to
it."""
import glob
import json
import os
import re
import shlex
import signal
import subprocess
import threading

import harness
from harness import Skip, check, device, equal, finish, own, python, record, report, run, scratch, spawn, sudo, tool, workload

SIZE = 1 << 20
SECONDS = 7


def taken(folder):
    """Bytes of its files on disk, with temporary ones."""
    total = 0
    for name in os.listdir(folder):
        try:
            total += (os.stat(os.path.join(folder, name)).st_size + 4095) // 4096 * 4096
        except FileNotFoundError:
            pass
    return total


class Watcher(threading.Thread):
    """The folder's largest size, sampled some hundred times per second."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder, self.most, self.looks, self.done = folder, 0, 0, threading.Event()
        self.start()

    def run(self):
        while not self.done.wait(0.003):
            if os.path.isdir(self.folder):
                self.most = max(self.most, taken(self.folder))
                self.looks += 1

    def end(self):
        self.done.set()
        self.join(5)
        return self.most


def index_of(folder):
    own(folder)
    return harness.read_json(os.path.join(folder, "index.json"))


def lines_of(rows):
    found = {}
    for row in rows:
        entry = found.setdefault(row["line"], [0, 0])
        entry[0] += row["count"]
        entry[1] += row["bytes"]
    return found


def lines_alive(truth):
    found = {}
    for _, size, line, _ in truth["live"]:
        entry = found.setdefault(line, [0, 0])
        entry[0] += 1
        entry[1] += size
    return found


def churn(seconds=SECONDS):
    target = workload("churn.py", "--seconds", str(seconds), "--rate", "60000", "--threads", "3")
    target.wait_line("^ready", 120)
    return target


def test_rolls():
    folder, whole = scratch("run"), scratch("whole.mtr")
    target = churn()
    recorders = [record(target.popen.pid, whole), record(target.popen.pid, folder + "/", "--rolling", "1M", "--cost", "off")]
    watcher = Watcher(folder)
    target.send()
    truth = json.loads(target.wait_line("^{", SECONDS + 60))
    for recorder in recorders:
        finish(recorder)
    most = watcher.end()
    check(SIZE // 2 < most <= SIZE, "the folder took %d bytes of %d (%d looks)", most, SIZE, watcher.looks)

    index = index_of(folder)
    segments = index["recordings"]
    equal([os.path.basename(p) for p in sorted(glob.glob(os.path.join(folder, "*.mtr")))], [s["file"] for s in segments], "files")
    equal({s["kind"] for s in segments}, {"segment"}, "kinds")
    check(segments[0]["file"] > "segment-000001.mtr" and len(segments) > 3, "nothing was dropped: %s", [s["file"] for s in segments])
    equal(len(index["gaps"]), 1, "gaps")
    gap = index["gaps"][0]
    check(gap["to"] <= segments[0]["from"] and gap["events"] > 0, "gap %s before %s", gap, segments[0])

    # Equal totals as in a recording of everything.
    doc, totals = report(whole), harness.read_json(os.path.join(folder, "totals.json"))
    cpu, all_of_it = device(doc), totals["whole"]
    of_cpu = [d for d in all_of_it["devices"] if d["device"] == "cpu"][0]
    equal(all_of_it["lost"], 0, "lost")
    equal(sum(s["events"] for s in segments) + gap["events"], all_of_it["events"], "events of segments and gap")
    equal((of_cpu["allocs"], of_cpu["frees"]), (truth["allocs"], truth["frees"]), "allocations and frees")
    equal((of_cpu["peak_allocated"], of_cpu["total_allocated"], of_cpu["allocated"]),
          (cpu["peak_allocated"], cpu["total_allocated"], cpu["allocated"]), "peak, sum and end")
    for series in totals["series"]:
        column = series["columns"].index("events" if series["of"] == "process" else "allocs")
        want = all_of_it["events"] if series["of"] == "process" else of_cpu["allocs"]
        equal([sum(row[column] for row in level["rows"]) for level in series["levels"]], [want] * 5, "sums of " + series["of"])

    # Each part can be read alone; the last has all live blocks with their lines; most blocks are older.
    for s in segments:
        one = report(os.path.join(folder, s["file"]))
        equal(one["allocated"], device(s, "cpu")["allocated"], "end of " + s["file"])
        equal(sum(r["bytes"] for r in one["rows"]), one["allocated"], "rows of " + s["file"])
    end = report(folder)
    equal(lines_of(end["rows"]), lines_alive(truth), "blocks and bytes alive by line")
    equal(end["rolling"]["segment"], segments[-1]["file"], "segment of the end")
    equal(end["rolling"]["dropped_events"], gap["events"], "dropped")
    peak = report(folder, at="peak")
    highest = max(device(s, "cpu")["peak_allocated"] for s in segments)
    equal((peak["allocated"], peak["rolling"]["peak_dropped"]), (highest, highest < of_cpu["peak_allocated"]), "highest that is there")
    code, out, err = tool("report", folder)
    check(code == 0 and "are dropped" in out and "From here on of segment-" in out, "report: %d %s %s", code, out[:800], err)
    code, _, err = tool("report", "--at", "0.001", folder)
    check(code == 2 and "was dropped" in err, "a moment that is gone: %d %s", code, err)
    number = int(segments[2]["file"][8:14])
    code, out, err = tool("report", "--format", "json", "%s#%d" % (folder, number))
    equal((code, json.loads(out)["capture"]["events"] if out else err), (0, report(os.path.join(folder, segments[2]["file"]))
                                                                       ["capture"]["events"]), "FOLDER#N")
    equal(tool("report", folder + "#1")[0], 64, "a segment that is gone")
    code, _, err = tool("export", "folded", folder, "-o", "-")
    check(code == 64 and "#%d" % number in err, "export of a folder: %d %s", code, err)
    code, out, err = tool("compare", folder)
    check(code == 0 and len(re.findall(r"(?m)^run#\d+ ", out)) == len(segments), "compare: %d %s %s", code, out, err)


def test_killed():
    folder = scratch("killed")
    target = churn(600)
    recorder = record(target.popen.pid, folder, "--rolling", "1M")
    target.send()
    harness.until(lambda: len(glob.glob(os.path.join(folder, "segment-*.mtr"))) >= 3 and os.path.exists(os.path.join(folder, "totals.json")), "segments")
    recorder.signal(signal.SIGKILL)
    recorder.wait(10)
    segments = index_of(folder)["recordings"]
    # The newest part is not listed until it has the earlier blocks.
    files, listed = sorted(os.path.basename(p) for p in glob.glob(os.path.join(folder, "*.mtr"))), sorted(s["file"] for s in segments)
    check(listed in (files, files[:-1]), "index: %s, of %s", listed, files)
    # Between the end of a part and the start of the next, all listed parts have ended.
    check([s["file"] for s in segments if not s.get("ended")] in ([segments[-1]["file"]], []), "not ended: %s", segments)
    for s in segments:
        doc = report(os.path.join(folder, s["file"]))
        check(doc["rows"], "no rows: %s", s["file"])  # each listed part has the earlier blocks
        equal(sum(r["bytes"] for r in doc["rows"]), doc["allocated"], "rows of " + s["file"])
        if s is not segments[-1]:  # it may be complete and not listed yet
            check(doc["capture"]["complete"], "not complete: %s", s["file"])
    check(report(folder)["rows"], "no rows")
    # Its content is not trusted.
    path = os.path.join(folder, "totals.json")
    good = harness.read_json(path)
    for bad in ("[]", '{"whole": 1}', "{" * 5000, json.dumps({**good, "whole": {**good["whole"], "devices": [
            {**good["whole"]["devices"][0], "device": "\x1b[2J"}]}}), json.dumps({**good, "whole": {**good["whole"], "events": -1}})):
        with open(path, "w", encoding="utf-8") as f:
            f.write(bad)
        code, out, err = tool("report", folder)
        check(code == 2 and not out and "totals.json" in err and "\x1b" not in err, "%.40s: %d %s %s", bad, code, out[:300], err)
    for odd in ({"series": 1}, {"series": [{"of": "cpu", "levels": [7, {"rows": [[1], 2, ["x"]]}]}]}, {}):
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"whole": good["whole"], **odd}, f)
        code, out, err = tool("report", folder)
        check(code == 0 and "From here on of" in out, "%s: %d %s", odd, code, err)
    # A later capture does not write into existing files.
    code, _, err = tool("record", "-p", str(target.popen.pid), "--rolling", "1M", "-o", folder, root=True)
    check(code == 1 and "recordings in it" in err, "a folder that is taken: %d %s", code, err)
    check(target.alive(), "the target ended")


def test_disk_full():
    mount, folder = scratch("small"), scratch("small/run")
    os.mkdir(mount)
    if subprocess.run(sudo(["mount", "-t", "tmpfs", "-o", "size=600k", "none", mount]), capture_output=True, check=False).returncode:
        raise Skip("no tmpfs can be mounted here")
    try:
        target = churn(600)
        recorder = record(target.popen.pid, folder, "--rolling", "2M", "--segment", "128K")
        target.send()
        equal(recorder.wait(40), 1, "exit code of record")
        check("the disk is full" in recorder.stderr(), "no word of the disk: %s", recorder.stderr())
        check(target.alive(), "the target ended")
        segments = index_of(folder)["recordings"]
        check(len(segments) > 1, "segments: %s", segments)
        for s in segments[:-1]:
            doc = report(os.path.join(folder, s["file"]))
            check(doc["capture"]["complete"] and doc["rows"], "%s is not whole", s["file"])
        harness.stop_all()
    finally:
        subprocess.run(sudo(["umount", "-l", mount]), check=True)


def rolled(folder, truth):
    """A whole folder, of which the last segment has what is live, and nothing is missing in the totals."""
    segments, totals = index_of(folder)["recordings"], harness.read_json(os.path.join(folder, "totals.json"))
    equal({s["kind"] for s in segments}, {"segment"}, "kinds in " + folder)
    check(taken(folder) <= SIZE, "%s takes %d bytes", folder, taken(folder))
    cpu = [d for d in totals["whole"]["devices"] if d["device"] == "cpu"][0]
    equal((cpu["allocs"], cpu["frees"]), (truth["allocs"], truth["frees"]), "allocations and frees of " + folder)
    equal(lines_of(report(folder)["rows"]), lines_alive(truth), "blocks and bytes alive by line in " + folder)
    return totals["pid"]


def test_of_several():
    """Each process has a folder of its own, which takes no more than SIZE: in the one of -o by name, otherwise next to the others."""
    folder = scratch("several")
    targets = [churn(3), churn(3)]
    where = scratch()
    chosen = [option for target in targets for option in ("-p", str(target.popen.pid))]
    recorders = [spawn([harness.TOOL, "record", *chosen, "--rolling", "1M", "--cost", "off", *output], root=True, cwd=where) for output in (("-o", folder), ())]
    for recorder in recorders:
        recorder.wait_line("2 processes are traced", 60, stream="err")
    for target in targets:
        target.send()
    truth = {target.popen.pid: json.loads(target.wait_line("^{", 90)) for target in targets}
    for recorder in recorders:
        finish(recorder)
    own(folder)
    equal(sorted(os.listdir(folder)), sorted(["index.json", *("churn-%d" % pid for pid in truth)]), "what is in the folder")
    index = index_of(folder)["recordings"]
    equal(sorted((e["kind"], e["file"], e["pid"]) for e in index), sorted(("rolling", "churn-%d" % pid, pid) for pid in truth), "index")
    for pid, of_it in truth.items():
        equal(rolled(os.path.join(folder, "churn-%d" % pid), of_it), pid, "PID")
        one = glob.glob(os.path.join(where, "memtrace-%d-*" % pid))
        equal(len(one), 1, "folders of PID %d without -o" % pid)
        equal(rolled(one[0], of_it), pid, "PID")
    pids = sorted(truth)
    docs = json.loads(tool("report", "--format", "json", "--at", "end", folder)[1])
    equal(sorted(doc["target"]["pid"] for doc in docs), pids, "reports of the folder")
    check(all(doc["rolling"]["segment"].startswith("segment-") for doc in docs), "not of segments: %s", [doc.get("rolling") for doc in docs])
    one = "%s#churn-%d" % (folder, pids[0])
    equal(json.loads(tool("report", "--format", "json", one)[1])["target"]["pid"], pids[0], "report of one of them")
    code, out, err = tool("compare", "--format", "json", folder)
    segments = [s for pid in pids for s in index_of(os.path.join(folder, "churn-%d" % pid))["recordings"]]
    equal((code, len(json.loads(out)["captures"])), (0, len(segments)), err)
    code, _, err = tool("export", "folded", one, "-o", "-")
    check(code == 64 and "which one?" in err, "export of a folder: %d %s", code, err)
    code, _, err = tool("record", *chosen, "--rolling", "1M", "-o", os.path.join(folder, "index.json"), root=True)
    check(code == 1 and "it is a file" in err, "a file: %d %s", code, err)


def test_of_children():
    folder = scratch("children")
    loop = [python(), os.path.join(harness.WORKLOADS, "churn.py"), "--seconds", "3", "--rate", "60000", "--threads", "3"]
    script = "RANK=5 WORLD_SIZE=6 %s; true" % " ".join(map(shlex.quote, loop))
    p = spawn([harness.TOOL, "run", "--children", "--rolling", "1M", "-o", folder, "--", "sh", "-c", script], root=True)
    p.wait_line("^ready", 120)
    p.send()
    truth = json.loads(p.wait_line("^{", 90))
    p.popen.stdin.close()
    equal(p.wait(60), 0, "exit code: %s" % p.stderr()[-500:])
    own(folder)
    equal(sorted(os.listdir(folder)), ["index.json", "rank-5"], "what is in the folder")
    one = os.path.join(folder, "rank-5")
    cpu = [d for d in harness.read_json(os.path.join(one, "totals.json"))["whole"]["devices"] if d["device"] == "cpu"][0]
    equal((cpu["allocs"], cpu["frees"], cpu["allocated"]), (truth["allocs"], truth["allocs"], 0), "all until its end, when it frees what is left")
    equal(report(folder)["target"]["rank"], 5, "rank in the report of the folder")
    check("report %s\n" % folder in p.stderr(), "what to do next: %s", p.stderr()[-500:])


def test_soak():
    """Generated records through the program itself, with a flight recorder: exact, and within the folder's size."""
    p = spawn([os.path.join(harness.OUT, "tests", "tools", "soak"), "-n", "2500000", "-s", "4M", "-F", "-w", scratch("soak")])
    code = p.wait(120)
    check(code == 0 and "exact: 2500000 events" in p.stdout(), "%d: %s %s", code, p.stdout()[-1500:], p.stderr()[-500:])
    check(" 0 gone" not in p.stdout().splitlines()[-3], "nothing was dropped: %s", p.stdout()[-500:])


if __name__ == "__main__":
    run(globals())
