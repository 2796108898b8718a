# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Reads every format of `export` twice: with code here that follows the format's rules, and with another project's program for the
format. Each reader returns figures by device, which must equal those of report, to the byte.

A figure is (device, name); names: peak, end, total (bytes allocated in all), allocs, frees, peak_reserved, end_reserved.
"""
import csv
import gzip
import json
import os
import pickle
import re
import shutil
import struct
import subprocess
import tempfile
from collections import defaultdict

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
FOREIGN = os.path.join(REPO, "tests", "foreign")
SUFFIX = {"html": ".html", "flamegraph": ".html", "folded": ".collapsedstack.txt", "speedscope": ".speedscope.json", "timeline": ".json",
          "perfetto": ".perfetto.json", "pprof": ".pb.gz", "otlp": ".otlp.pb", "snapshot": ".pickle", "tensorboard": ".tfevents",
          "openmetrics": ".om.txt", "csv": ".csv", "ndjson": ".ndjson"}
LARGE = 64 << 20  # bytes; readers that load whole files skip larger ones


class Wrong(Exception):
    """The file is wrong."""


class Missing(Exception):
    """The reader is not installed, or does not support this file."""


def must(condition, message, *args):
    if not condition:
        raise Wrong(message % args if args else message)


def run(*command, seconds=300, **kwargs):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=seconds, check=False, **kwargs)
    if done.returncode == 77:
        raise Missing((done.stderr or done.stdout).strip())
    must(done.returncode == 0, "%s: exit %d: %s", os.path.basename(str(command[0])), done.returncode, (done.stderr or done.stdout)[-800:])
    return done.stdout


def deps(*args):
    done = subprocess.run([os.path.join(REPO, "tools", "deps.sh"), *args], capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout.strip():
        raise Missing(done.stderr.strip().split("\n")[-1] or "not installed")
    return done.stdout.strip()


def node(script, *args, **kwargs):
    """Runs a script of tests/foreign with the packages that it needs."""
    if not shutil.which("node"):
        raise Missing("node is not here")
    folder = tempfile.mkdtemp(prefix="readers.")
    try:
        os.symlink(os.path.join(deps("foreign"), "node_modules"), os.path.join(folder, "node_modules"))
        for name in os.listdir(FOREIGN):
            if name.endswith(".mjs"):
                shutil.copy(os.path.join(FOREIGN, name), folder)
        return run("node", os.path.join(folder, script), *args, **kwargs)
    finally:
        shutil.rmtree(folder)


def in_venv(role, name, path):
    """Output of foreign/read_formats.py for the file, in an environment of deps.sh."""
    told = json.loads(run(deps("python", role), os.path.join(FOREIGN, "read_formats.py"), name, path))
    return {tuple(k.rsplit(" ", 1)): v for k, v in told.items()}


# ---- readers written from each format's rules -----------------------------------------------------------------------

def html(path):
    if os.path.getsize(path) > LARGE:
        raise Missing("too large a page for a test")
    data = os.path.join(REPO, "user", "export", "page", "data.js")

    def ask(*questions):
        return json.loads(run("node", os.path.join(FOREIGN, "page_data.mjs"), data, path, input=json.dumps(questions)))

    if not shutil.which("node"):
        raise Missing("node is not here")
    devices, figures = ask({"ask": "head"})[0]["devices"], {}
    for i, d in enumerate(devices):
        at = ask(*({"ask": "live", "device": i, "moment": m, "by": []} for m in (d["peak_moment"], d["moments"] - 1)))
        for name, told in zip(("peak", "end"), at):
            must(told["bytes"] + told["unknown"] == told["allocated"], "html: the rows of the %s are not all", name)
            figures[d["name"], name] = told["allocated"]
        figures[d["name"], "total"], figures[d["name"], "allocs"] = d["total_allocated"], d["allocs"]
    return figures


def flamegraph(path):
    import check_exports
    return {(device, view): v for (device, view), v in check_exports.read_flamegraph(check_exports.Path(path)).items()
            if view in ("peak", "end", "total")}


def folded(path):
    import check_exports
    return {(device, "peak"): v for device, v in check_exports.read_folded(check_exports.Path(path)).items()}


def speedscope(path):
    import check_exports
    names = {"peak": "peak", "end": "end", "total": "total", "allocations": "allocs"}
    return {(device, names[view]): v for (device, view), v in check_exports.read_speedscope(check_exports.Path(path)).items()}


def timeline(path):
    import check_exports
    figures = {}
    for d in check_exports.read_timeline(check_exports.Path(path), real=False)["summary"]["devices"]:
        for name, key in (("peak", "peak_allocated"), ("end", "end_allocated"), ("total", "total_allocated"), ("allocs", "total_allocations"),
                          ("frees", "total_deallocations")):
            figures[d["device"], name] = d[key]
    return figures


def check_trace_event(e, open_spans, last):
    ph = e.get("ph")
    must(ph in ("M", "C", "B", "E", "X", "i") and isinstance(e.get("name"), str) and e["name"], "perfetto: %r", e)
    must(isinstance(e.get("pid"), int) and e["pid"] > 0, "perfetto: pid of %r", e)
    if ph == "M":
        must(e["name"] in ("process_name", "thread_name") and isinstance(e["args"]["name"], str), "perfetto: %r", e)
        return
    must(isinstance(e.get("ts"), float) and e["ts"] >= 0, "perfetto: ts of %r", e)
    if ph == "X":
        must(e["dur"] >= 0 and isinstance(e["tid"], int), "perfetto: %r", e)
    elif ph == "i":
        must(e.get("s") in ("g", "p"), "perfetto: %r", e)
    elif ph == "C":  # one track per key, one key per event: readers would add up overlapping ones
        must(len(e["args"]) == 1 and all(isinstance(v, int) for v in e["args"].values()), "perfetto: %r", e)
    else:
        stack = open_spans[e["tid"]]
        must(e["ts"] >= last[e["tid"]], "perfetto: time goes back on thread %d", e["tid"])
        last[e["tid"]] = e["ts"]
        if ph == "B":
            stack.append(e["name"])
        else:
            must(stack and stack.pop() == e["name"], "perfetto: %r ends, but it is not what was begun last", e["name"])


def perfetto(path):
    with open(path, encoding="utf-8") as f:
        doc = json.load(f, parse_constant=lambda c: must(False, "perfetto: %s", c))
    open_spans, last, figures = defaultdict(list), defaultdict(float), defaultdict(int)
    last_of = {}
    for e in doc["traceEvents"]:
        check_trace_event(e, open_spans, last)
        if e["ph"] == "C":
            device, what = e["name"].split(" ", 1)
            name = {"allocated": "peak", "reserved": "peak_reserved"}.get(what)
            if name:
                figures[device, name] = max(figures[device, name], e["args"]["bytes"])
                last_of[device, {"peak": "end", "peak_reserved": "end_reserved"}[name]] = e["args"]["bytes"]
    must(not any(open_spans.values()), "perfetto: a span is not ended")
    return {**figures, **last_of}


def fields(data):
    """(number, value) of a protocol buffers message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            n = varint()
            must(at + n <= len(data), "a field is cut short")
            yield key >> 3, data[at:at + n]
            at += n
        else:
            n = {1: 8, 5: 4}[key & 7]
            yield key >> 3, struct.unpack("<d" if n == 8 else "<f", data[at:at + n])[0]
            at += n


def pprof(path):
    with gzip.open(path) as f:
        profile = list(fields(f.read()))
    strings = [v.decode("utf-8") for k, v in profile if k == 6]
    must(strings[0] == "", "pprof: the first string is %r", strings[0])
    types = [{k: strings[v] for k, v in fields(t)} for n, t in profile if n == 1]
    must([(t[1], t[2]) for t in types] == [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"),
                                           ("inuse_space", "bytes")], "pprof: value types %r", types)
    locations = {dict(fields(v))[1] for k, v in profile if k == 4}
    functions = {dict(fields(v))[1] for k, v in profile if k == 5}
    must(0 not in locations and len(locations) == sum(k == 4 for k, _ in profile), "pprof: numbers of locations")
    for k, v in profile:
        if k == 4:
            must(dict(fields(dict(fields(v))[4]))[1] in functions, "pprof: a location without its function")
    figures = defaultdict(int)
    for number, sample in profile:
        if number != 2:
            continue
        parts = list(fields(sample))
        must(all(v in locations for k, v in parts if k == 1), "pprof: a location that is not there")
        labels = {strings[dict(fields(v))[1]]: dict(fields(v)).get(2) for k, v in parts if k == 3}
        values = [v for k, v in parts if k == 2]
        must(len(values) == 4, "pprof: %d values", len(values))
        for name, v in zip(("allocs", "total", None, "peak"), values):
            if name:
                figures[strings[labels["device"]], name] += v
    return dict(figures)


def otlp(path):
    """A profile of OpenTelemetry, by the numbers of profiles.proto: entry 0 of each table is empty, and each number has its entry."""
    with open(path, "rb") as f:
        resources, tables = (list(fields(v)) for _, v in sorted(fields(f.read())))
    table = {n: [v for k, v in tables if k == n] for n in range(1, 8)}
    must(all(not table[n][0] for n in table), "otlp: the first entries are not empty")
    must(all(len(set(table[n])) == len(table[n]) for n in (5, 6, 7)), "otlp: an entry twice")
    strings = [s.decode("utf-8") for s in table[5]]

    def numbers(packed):
        """The varints of a packed list: as fields without a key of their own."""
        found, value, shift = [], 0, 0
        for byte in packed:
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                found.append(value)
                value = shift = 0
        return found

    def attribute(number):
        parts = dict(fields(table[6][number]))
        return strings[parts[1]], dict(fields(parts[2]))[1].decode("utf-8")

    for stack in table[7][1:]:
        locations = numbers(dict(fields(stack))[1])
        must(locations and all(0 < n < len(table[2]) for n in locations), "otlp: a stack without its locations")
    for location in table[2][1:]:
        must(0 < dict(fields(dict(fields(location))[3]))[1] < len(table[3]), "otlp: a location without its function")
    figures, types = defaultdict(int), []
    for profile in (list(fields(v)) for k, v in fields(dict(resources)[2]) if k == 2):
        of = dict(fields(dict(profile)[1]))
        types.append((strings[of[1]], strings[of[2]]))
        for sample in (dict(fields(v)) for k, v in profile if k == 2):
            must(0 < sample[1] < len(table[7]), "otlp: a sample without its stack")
            if types[-1][0] == "inuse_space":
                figures[dict(map(attribute, numbers(sample[2])))["device"], "peak"] += sum(numbers(sample[4]))
    must(types == [("inuse_space", "bytes"), ("inuse_objects", "count")], "otlp: profiles %r", types)
    return dict(figures)


def snapshot(path):
    import snapshots
    doc = snapshots.read(path)
    notes = doc["memtrace_bpf"]
    figures = {}
    for device, (_, total, _, allocated) in snapshots.sums(doc).items():
        if len(doc["device_traces"]) == 1 or not notes["bytes_without_address"] + notes["bytes_cut"]:
            figures["cuda:%d" % device, "end"] = allocated + notes["bytes_without_address"] + notes["bytes_cut"]
        if not notes["bytes_of_unknown_segments"]:
            figures["cuda:%d" % device, "end_reserved"] = total
    return figures


def crc32c(data, table=[]):
    if not table:
        for i in range(256):
            c = i
            for _ in range(8):
                c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
            table.append(c)
    c = 0xFFFFFFFF
    for byte in data:
        c = c >> 8 ^ table[(c ^ byte) & 255]
    return c ^ 0xFFFFFFFF


def masked(data):
    c = crc32c(data)
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF


def bytes_of_mib(v):
    """A float has 24 bits: its value is known to 1 in 16 million. Most sizes are multiples of 512."""
    return ("MiB", struct.pack("<f", v))


def tensorboard(path):
    with open(path, "rb") as f:
        raw = f.read()
    at, figures, version, steps = 0, {}, None, []
    while at < len(raw):
        length, check_length = struct.unpack_from("<QI", raw, at)
        data = raw[at + 12:at + 12 + length]
        must(check_length == masked(raw[at:at + 8]) and len(data) == length, "tensorboard: length of a record")
        must(struct.unpack_from("<I", raw, at + 12 + length)[0] == masked(data), "tensorboard: checksum of a record")
        at += length + 16
        event = dict(fields(data))
        version = version or event.get(3)
        for _, value in fields(event.get(5, b"")):
            tag, v = (lambda d: (d[1].decode(), d[2]))(dict(fields(value)))
            match = re.fullmatch(r"(by_second/)?([^/]+)/(peak|reserved|allocated)_MiB", tag)
            if not match:
                continue
            key = match[2], {"peak": "peak", "reserved": "peak_reserved", "allocated": "end"}[match[3]]
            figures[key] = v if key[1] == "end" else max(v, figures.get(key, 0))
            if not match[1] and event[2] not in steps[-1:]:
                steps.append(event[2])
    must(version == b"brain.Event:2", "tensorboard: version %r", version)
    must(steps == list(range(1, len(steps) + 1)), "tensorboard: steps %r", steps[:5])
    return {key: bytes_of_mib(v) for key, v in figures.items()}


def openmetrics(path):
    with open(path, encoding="utf-8", newline="") as f:
        text = f.read()
    must(text.endswith("\n# EOF\n") and "\r" not in text and "\n\n" not in text, "openmetrics: its end, or an empty line")
    figures, seen = defaultdict(int), set()
    names = {"memtrace_device_peak_allocated_bytes": "peak", "memtrace_device_allocated_bytes": "end",
             "memtrace_device_allocation_bytes_total": "total", "memtrace_device_allocations_total": "allocs",
             "memtrace_device_frees_total": "frees", "memtrace_device_peak_reserved_bytes": "peak_reserved",
             "memtrace_device_reserved_bytes": "end_reserved"}
    groups = defaultdict(int)
    for line in text.split("\n")[:-2]:
        if line.startswith("# "):
            continue
        match = re.fullmatch(r'(\w+)((?:\{(?:\w+="(?:[^"\\]|\\[\\"n])*",?)*\})?) (-?[\d.]+)', line)
        must(match and (match[1], match[2]) not in seen, "openmetrics: %r", line)
        seen.add((match[1], match[2]))
        device = re.match(r'\{device="([^"]*)"', match[2])
        if device and match[1] in names:
            figures[device[1], names[match[1]]] = int(match[3])
        elif device and match[1] in ("memtrace_moment_line_bytes", "memtrace_moment_category_bytes", "memtrace_moment_phase_bytes"):
            groups[device[1], match[1]] += int(match[3])
    for (device, name), v in groups.items():
        must(v == figures[device, "peak"], "openmetrics: %s of %s add up to %d, not to %d", name, device, v, figures[device, "peak"])
    must(len(seen) < 400, "openmetrics: %d samples", len(seen))
    return dict(figures)


def of_events(rows):
    """rows: (event, device, size, allocated, reserved), numbers or None."""
    figures = defaultdict(int)
    for event, device, size, allocated, reserved in rows:
        if not device:
            continue
        if allocated is not None:
            figures[device, "peak"] = max(figures[device, "peak"], allocated)
            figures[device, "end"] = allocated
        if reserved is not None:
            figures[device, "peak_reserved"] = max(figures[device, "peak_reserved"], reserved)
            figures[device, "end_reserved"] = reserved
        if event == "alloc":
            figures[device, "allocs"] += 1
            figures[device, "total"] += size
        elif event == "free":
            figures[device, "frees"] += 1
    return dict(figures)


def csv_(path):
    def number(text):
        return int(text) if text else None

    with open(path, encoding="utf-8", newline="") as f:
        rows = csv.DictReader(f, strict=True)
        figures = of_events((r["event"], r["device"], number(r["size"]), number(r["allocated"]), number(r["reserved"])) for r in rows
                            if must(None not in r and None not in r.values(), "csv: %r", r) or True)
    return figures


def ndjson(path):
    stacks = set()

    def rows():
        with open(path, encoding="utf-8") as f:
            for line in f:
                r = json.loads(line)
                if r["event"] == "stack":
                    must(r["stack"] not in stacks and r["frames"], "ndjson: a stack is told twice, or is empty")
                    stacks.add(r["stack"])
                    continue
                must("stack" not in r or r["stack"] in stacks, "ndjson: a stack that was not told of")
                yield r["event"], r.get("device"), r.get("size", 0), r.get("allocated"), r.get("reserved")

    return of_events(rows())


# ---- other projects' programs ---------------------------------------------------------------------------------------

def chromium_page(path):
    with tempfile.TemporaryDirectory(prefix="readers.") as folder:
        node("check_page.mjs", path, os.path.join(folder, "answers.json"))
    return {}


def chromium_flamegraph(path):
    node("check_flamegraph.mjs", path)
    return {}


def flamegraph_pl(path):
    script = shutil.which("flamegraph.pl") or "/usr/share/perl5/Devel/NYTProf/flamegraph.pl"
    if not os.path.exists(script) or not shutil.which("perl"):
        raise Missing("no flamegraph.pl (package libdevel-nytprof-perl)")
    svg = run("perl", script, "--countname=bytes", path)
    figures = {}
    for name, size in re.findall(r"<title>([^<]*?) \(([\d,]+) bytes", svg):
        if re.fullmatch(r"cpu|\w+:\d+", name):  # the root frame of a device
            figures[name, "peak"] = figures.get((name, "peak"), 0) + int(size.replace(",", ""))
    must(figures, "flamegraph.pl drew no device")
    return figures


def speedscope_js(path):
    node("check_speedscope.mjs", path)
    return {}


def trace_processor(path):
    for name in ("trace_processor_shell", "trace_processor"):
        if shutil.which(name):
            out = run(name, "-q", "/dev/stdin", path, input="select name, cast(max(value) as int) from counter join counter_track "
                      "on counter.track_id = counter_track.id group by name;")
            found = re.findall(r'"(\S+) (allocated|reserved) bytes",(\d+)', out)
            must(found, "trace_processor found no counter: %s", out[:200])
            return {(d, "peak" if w == "allocated" else "peak_reserved"): int(v) for d, w, v in found}
    raise Missing("trace_processor is not here, and no package has it")


def go_pprof(path):
    command = [shutil.which("pprof")] if shutil.which("pprof") else ["go", "tool", "pprof"] if shutil.which("go") else None
    if not command:
        raise Missing("neither pprof nor go is here")
    figures = {}
    tags = run(*command, "-tags", "-unit=B", path)
    block = re.search(r"^ *device: Total.*\n((?: +\S.*\n)+)", tags, re.M)
    must(block, "pprof: no label device: %s", tags[:300])
    for device in re.findall(r"\): (\S+)$", block[1], re.M):
        for index, name in (("alloc_objects", "allocs"), ("alloc_space", "total"), ("inuse_space", "peak")):
            figures[device, name] = sum_of_top(command, path, index, device)
    return figures


def sum_of_top(command, path, index, device):
    out = run(*command, "-top", "-nodecount=100000000", "-nodefraction=0", "-unit=B" if "space" in index else "-unit=count",
              "-sample_index=" + index, "-tagfocus=device=^%s$" % device, path)
    return sum(int(v) for v in re.findall(r"^ *(\d+)B? +[\d.e-]+% +[\d.e-]+% +\d+B? ", out, re.M))


def memory_viz(path):
    if os.path.getsize(path) > LARGE:
        raise Missing("too large a file for a test")
    return in_venv("main", "snapshot", path)


def memory_viz_js(path):
    """Its timeline begins with the file's first event: sums equal report's only if the file has all events."""
    viewer = os.environ.get("MEMORYVIZ_JS", "")
    if not os.path.exists(viewer):
        raise Missing("MEMORYVIZ_JS names no torch/utils/viz/MemoryViz.js")
    told = json.loads(node("check_memoryviz.mjs", viewer, path))
    with open(path, "rb") as f:
        notes = pickle.load(f)["memtrace_bpf"]
    figures = {}
    for i, d in enumerate(told["devices"]):
        if notes["bytes_of_unknown_segments"]:
            continue
        figures["cuda:%d" % i, "end_reserved"] = d["reserved"]
    return figures


def from_readers(name):
    return lambda path: in_venv("readers", name, path)


def otlp_py(path):
    return in_venv("loggers", "otlp", path)


def tensorboard_py(path):
    return {k: bytes_of_mib(v) for k, v in in_venv("readers", "tensorboard", path).items()}


def pandas_small(name):
    def read(path):
        if os.path.getsize(path) > 8 * LARGE:
            raise Missing("too large a file for a test")
        return in_venv("readers", name, path)
    return read


OWN = {"html": html, "flamegraph": flamegraph, "folded": folded, "speedscope": speedscope, "timeline": timeline, "perfetto": perfetto,
       "pprof": pprof, "otlp": otlp, "snapshot": snapshot, "tensorboard": tensorboard, "openmetrics": openmetrics, "csv": csv_, "ndjson": ndjson}
THEIRS = {
    "html": {"Chromium": chromium_page},
    "flamegraph": {"Chromium": chromium_flamegraph},
    "folded": {"flamegraph.pl": flamegraph_pl, "speedscope": speedscope_js},
    "speedscope": {"speedscope": speedscope_js},
    "timeline": {"pandas": pandas_small("timeline")},
    "perfetto": {"trace_processor": trace_processor},
    "pprof": {"go tool pprof": go_pprof},
    "snapshot": {"_memory_viz.py": memory_viz, "MemoryViz.js": memory_viz_js},
    "otlp": {"opentelemetry-proto": otlp_py},
    "tensorboard": {"tensorboard": tensorboard_py},
    "openmetrics": {"prometheus_client": from_readers("openmetrics")},
    "csv": {"pandas": pandas_small("csv")},
    "ndjson": {"pandas": pandas_small("ndjson")},
}


def expected(tool, recording):
    """The figures of report."""
    doc = json.loads(run(tool, "report", "--format", "json", "--at", "end", recording))
    figures = {}
    for d in doc["devices"]:
        names = {"peak": "peak_allocated", "end": "allocated", "total": "total_allocated", "allocs": "allocs", "frees": "frees"}
        if d["drift"] is not None:
            names.update(peak_reserved="peak_reserved", end_reserved="reserved")
        for name, key in names.items():
            figures[d["device"], name] = d[key]
    return figures


def same(got, want):
    if isinstance(got, (tuple, list)):
        return bytes_of_mib(want / 2**20)[1] == got[1]
    return got == want


def accept(format_, reader, path, want):
    """Number of matching figures; raises Wrong or Missing."""
    import check_exports
    import harness
    try:
        got = reader(path)
    except (check_exports.Failure, harness.Failure) as why:
        raise Wrong(str(why)) from None
    for key, v in got.items():
        must(key in want and same(v, want[key]), "%s: %s of %s is %r, report has %r", format_, key[1], key[0], v, want.get(key))
    return len(got)
