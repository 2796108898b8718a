# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Results that must be equal on every kernel: counts, lines and stacks of target.py's allocations, children forked during a
capture, a killed tracer. usage: golden.py TOOL LIBRARY FOLDER [quick]; prints "RESULT" and JSON, or "REFUSED" and the reason; and "COST" and
what an event costs in ns."""
import glob
import json
import os
import signal
import subprocess
import sys
import time

tool, library, folder = sys.argv[1:4]
quick = sys.argv[4:] == ["quick"]
here = os.path.dirname(os.path.abspath(__file__))
recording = os.path.join(folder, "golden.mtr")
CALLS, TRIES = 5000, 5
sys.path.insert(0, os.path.join(os.path.dirname(here), "e2e"))
import code_bytes  # noqa: E402

target = subprocess.Popen([sys.executable, os.path.join(here, "target.py"), library], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(line):
    target.stdin.write(line + "\n")
    target.stdin.flush()
    return target.stdout.readline().strip()


def attach(*options):
    p = subprocess.Popen([tool, "record", "-p", str(target.pid), "-o", recording, "-f", *options], stderr=subprocess.PIPE, text=True)
    said = []
    for line in p.stderr:
        said.append(line)
        if "attached to PID" in line:
            return p
    if p.wait() == 3:
        print("REFUSED", "".join(said).strip().replace("\n", "; "))
        target.kill()
        sys.exit(0)
    sys.exit("record ended with %d: %s" % (p.returncode, "".join(said)))


def stop(p):
    p.send_signal(signal.SIGINT)
    p.stderr.read()
    if p.wait():
        sys.exit("record ended with %d after Ctrl-C" % p.returncode)


def report(by, path=recording, *options):
    done = subprocess.run([tool, "report", "--format", "json", "--at", "end", "--by", by, *options, path], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def counts():
    attached = attach()
    said = ask("work")
    stop(attached)
    doc, stacks = report("line"), report("stack")
    dev = doc["devices"][0]
    return {
        "said": said,
        "allocs, frees, lost": [dev["allocs"], dev["frees"], doc["capture"]["lost"]],
        "bytes at the end": sum(r["bytes"] for r in doc["rows"]),
        "lines": sorted({"%s:%s" % (r["function"], r["line"]) for r in doc["rows"]}),
        "modules": sorted({r["module"] or "none" for r in doc["rows"]}),
        "modules entered": doc["capture"]["counters"]["modules.entered"],
        "stacks": sorted({" > ".join(f.split(" ")[0] + f[f.rindex(":"):-1] for f in r["stack"] if "/target.py:" in f) for r in stacks["rows"]}),
    }


def backward():
    """Nodes on a thread without Python: their allocations belong to the line that made them."""
    attached = attach()
    said = ask("backward")
    stop(attached)
    doc = report("line")
    count = doc["capture"]["counters"]
    return {
        "backward": said,
        "nodes run, joined": [count["autograd.run"], count["autograd.joined"]],
        "lines of nodes": sorted({"%s:%s %s %s" % (r["function"], r["line"], r["source"], r.get("node_class")) for r in doc["rows"]}),
        "bytes of nodes": sum(r["bytes"] for r in doc["rows"]),
    }


def children():
    attached = attach()
    said = ask("fork 20")
    stop(attached)
    doc = report("line")
    return {"children": said, "of others in the recording": sum(d["allocs"] for d in doc["devices"])}


def followed():
    """With --children each child has a recording of its own."""
    attached = attach("--children")
    said = ask("fork 5")
    stop(attached)
    of_children = []
    for path in sorted(glob.glob(recording[:-4] + ".*.mtr")):
        of_children += [[d["allocs"], d["frees"]] for d in report("line", path)["devices"]]
        os.unlink(path)
    return {"followed": said, "allocs, frees of each child": of_children}


def host():
    """Memory mapped from the kernel, by line. Prints which programs saw the calls."""
    attached = attach("--host")
    said = ask("maps 16")
    stop(attached)
    doc = report("line", recording, "--device", "host")
    print("HOST", doc["capture"].get("host"), flush=True)
    return {"maps": said, "bytes of maps": [r["bytes"] for r in doc["rows"] if r["function"] == "maps" and r["bytes"] >= 1 << 20]}


def cost():
    """Nanoseconds that an allocation's event adds, by a walk of three frames and a record: the least of several tries."""
    def once():
        return min(int(ask("calls %d" % CALLS).split()[1]) / CALLS for _ in range(TRIES))

    alone = once()
    attached = attach()
    probed = once()
    stop(attached)
    return round(probed - alone)


def killed(times):
    """Kills the tracer at different times of attaching or recording, while the target calls the hooks."""
    bad = []
    for i in range(times):
        if ask("run") != "runs":
            sys.exit("the target does not run")
        p = subprocess.Popen([tool, "record", "-p", str(target.pid), "-o", recording, "-f"], stderr=subprocess.DEVNULL)
        time.sleep(0.15 * i)
        p.kill()
        p.wait()
        limit = time.monotonic() + 20
        while code_bytes.differing(target.pid, ("libc10.so", "python3")) and time.monotonic() < limit:
            time.sleep(0.05)
        left = code_bytes.differing(target.pid, ("libc10.so", "python3"))
        target.stdin.write("\n")
        target.stdin.flush()
        said = [target.stdout.readline().strip()]
        if left or said != ["done some rounds"]:
            bad.append("%d bytes, %s" % (left, said))
    return {"killed": times, "wrong": bad}


if target.stdout.readline() != "ready\n":
    sys.exit("the target did not start")
result = {**counts(), **backward()}
if not quick:
    result |= {**host(), **children(), **followed(), **killed(4)}
    result["counts again"] = counts()["allocs, frees, lost"]
    print("COST", cost(), flush=True)
target.stdin.close()
result["target"] = target.wait()
print("RESULT", json.dumps(result, sort_keys=True), flush=True)
