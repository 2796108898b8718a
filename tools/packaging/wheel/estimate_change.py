# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Estimates the memory of a training script before and after a change, and prints the difference as Markdown: in CI for each pull request,
or by hand. Both sides run in worktrees of git, by `memtrace-bpf estimate`: no GPU and no root.

    python -m memtrace_bpf.estimate_change --base origin/main --vram 24G --max-growth 10% -- python train.py

Exit status: 0 within the limits, 4 a limit is exceeded, 2 not known, 1 failed, 64 usage.
"""
import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from memtrace_bpf.sizes import in_units, parse_size

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "memtrace-bpf")
OK, FAILED, UNKNOWN, EXCEEDED, USAGE = 0, 1, 2, 4, 64
PARTS = (("weights", "parameters and buffers"), ("gradients", "gradients"), ("optimizer_state", "optimizer state"), ("activations", "activations"),
         ("inputs", "inputs"), ("temporary", "temporary"), ("other", "no role found"))
VERDICTS = {"fits": "fits", "does_not_fit": "**does not fit**", "unknown": "not known"}
NOTHING = {"verdict": "unknown", "lower_bound": False, "lower_bound_why": [], "on": None}
TITLES = {OK: "", EXCEEDED: ": limit exceeded", UNKNOWN: ": not known"}
LINES = 10  # lines of code in the table
TEXT = 120  # characters of a name


class Failure(Exception):
    """What failed, and why."""


# ---- sizes ----

def size(text):
    try:
        return parse_size(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


def growth(text):
    """("%", 10.0) of 10%, or ("B", bytes) of 500M."""
    found = re.match(r"(\d+(?:\.\d+)?)%\Z", text)
    return ("%", float(found.group(1))) if found else ("B", size(text))


def change(old, new):
    """+1.16 GiB (+86.0 %)"""
    if old == new:
        return "no change"
    sign = "+" if new > old else "-"
    percent = " (%s%.1f %%)" % (sign, 100 * abs(new - old) / old) if old else ""
    return sign + in_units(abs(new - old)) + percent


# ---- both sides ----

def git(*words):
    done = subprocess.run(["git", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise Failure("git %s failed: %s" % (words[0], done.stderr.decode("utf-8", "replace").strip()))
    return os.fsdecode(done.stdout).strip()


def commit_of(name):
    if name.startswith("-"):
        raise Failure("%r is not the name of a commit" % name)
    return git("rev-parse", "--verify", name + "^{commit}")


@contextlib.contextmanager
def worktree(commit, path):
    """A worktree with the commit, which is removed at the end. Yields the folder in it that this one is."""
    inside = git("rev-parse", "--show-prefix")
    git("worktree", "add", "--detach", path, commit)
    try:
        yield os.path.join(path, inside)
    finally:
        git("worktree", "remove", "--force", path)


class Side:
    """The estimate of one side."""

    def __init__(self, name, commit, arguments, folder):
        self.name, self.commit = name, commit
        self.recording = os.path.join(folder, name + ".mtr")
        with worktree(commit, os.path.join(folder, name)) as tree:
            if not os.path.isdir(tree):
                raise Failure("%s (%s) has no folder %s" % (name, commit[:12], tree))
            if arguments.prepare and subprocess.run(arguments.prepare, shell=True, cwd=tree, stdout=sys.stderr, stdin=subprocess.DEVNULL).returncode:
                raise Failure("--prepare failed in %s (%s)" % (name, commit[:12]))
            words = [PROGRAM, "estimate", "--format", "json", "--no-search", "-f", "-o", self.recording]
            for option in ("vram", "device", "devices", "steps", "max_time"):
                if getattr(arguments, option):
                    words += ["--" + option.replace("_", "-"), getattr(arguments, option)]
            done = subprocess.run(words + ["--"] + arguments.words, cwd=tree, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.messages = done.stderr.decode("utf-8", "replace").strip()
        try:
            self.document = json.loads(done.stdout)
        except ValueError:
            if done.returncode == UNKNOWN:  # the command ended before it used PyTorch
                self.document, self.devices = NOTHING, {}
                return
            raise Failure("the estimate of %s (%s) failed with exit status %d:\n%s" % (name, commit[:12], done.returncode, self.messages[-2000:])) from None
        self.devices = {d["device"]: d for d in self.document["devices"]}

    @property
    def known(self):
        return self.document["verdict"] != "unknown" and bool(self.devices)


def lines_that_changed(base, head):
    """[(place, old, new)] of the device with the highest peak, the largest change first."""
    if not os.path.exists(base.recording) or not os.path.exists(head.recording):
        return []
    done = subprocess.run([PROGRAM, "diff", "--format", "json", base.recording, head.recording], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    if done.returncode:
        raise Failure("memtrace-bpf diff failed: %s" % done.stderr.decode("utf-8", "replace").strip())
    sums = {}
    for row in json.loads(done.stdout)["rows"]:
        where = row["new"] or row["old"]
        file = where.get("file") or ""
        place = "%s:%d (%s)" % (os.path.basename(file), where["line"], where["function"]) if file else row["module"] or row["category"]
        old, new = sums.get(place, (0, 0))
        sums[place] = old + row["old_bytes"], new + row["new_bytes"]
    rows = sorted(((place, old, new) for place, (old, new) in sums.items() if old != new), key=lambda r: (-abs(r[2] - r[1]), r[0]))
    return rows[:LINES]


# ---- Markdown ----

def code(text):
    """Any text as code in a cell of a table: without control characters, and nothing of it is Markdown."""
    clean = "".join(c if c.isprintable() else " " for c in text).replace("`", "'")
    clean = clean if len(clean) <= TEXT else clean[:TEXT - 3] + "..."
    return "`%s`" % clean.replace("|", "\\|") if clean.strip() else ""


def table(headings, rows):
    sides = ["---"] + ["---:"] * (len(headings) - 1)
    return ["| %s |" % " | ".join(cells) for cells in [headings, sides, *rows]]


def judge(base, head, arguments):
    """(exit status, sentences about the limits)."""
    said, status = [], OK
    for name, new in sorted(head.devices.items()):
        old = base.devices.get(name)
        peak = new["peak_allocated"]
        if arguments.max_peak and peak > arguments.max_peak:
            said.append("%s: the peak of %s exceeds the limit of %s." % (name, in_units(peak), in_units(arguments.max_peak)))
            status = EXCEEDED
        if arguments.max_growth and old and base.known:
            kind, most = arguments.max_growth
            grown = peak - old["peak_allocated"]
            bound = old["peak_allocated"] * most / 100 if kind == "%" else most
            if grown > bound:
                said.append("%s: the peak grows by %s, the limit is %s." % (name, in_units(grown), "%g %%" % most if kind == "%" else in_units(most)))
                status = EXCEEDED
    if head.document["verdict"] == "does_not_fit":
        said.append("The job does not fit.")
        status = EXCEEDED
    if status:
        return status, said
    for side in (base, head):
        if not side.known:
            said.append("The memory of %s is not known: its script failed, used no CUDA, or was stopped." % side.name)
            status = UNKNOWN
        elif side.document["lower_bound"] and (arguments.max_growth or arguments.max_peak):
            said.append("The memory of %s is a lower bound, so the limits cannot be judged." % side.name)
            status = UNKNOWN
    return status, said


def figures(base, head):
    """Rows of the table of figures."""
    rows = [["Verdict"] + [VERDICTS[s.document["verdict"]] for s in (base, head)] + [""]]
    for name in sorted(set(base.devices) | set(head.devices)):
        old, new = base.devices.get(name), head.devices.get(name)
        for key, label in (("needs", "needs"), ("peak_allocated", "peak allocated"), ("peak_reserved", "peak reserved")):
            cells = [d[key] if d else None for d in (old, new)]
            rows.append(["**%s** %s" % (name, label)] + ["not known" if c is None else in_units(c) for c in cells]
                        + ["" if None in cells else "**%s**" % change(*cells) if key == "peak_allocated" else change(*cells)])
        for key, label in PARTS:
            cells = [d["parts"][key] if d else 0 for d in (old, new)]
            if old and new and cells[0] != cells[1]:
                rows.append([label] + [in_units(c) for c in cells] + [change(*cells)])
    return rows


def markdown(base, head, arguments, status, said):
    lines = ["### Memory of %s%s" % (code(" ".join([os.path.basename(arguments.words[0])] + arguments.words[1:])), TITLES[status]), ""]
    lines += ["%s  " % sentence for sentence in said]
    lines += ([""] if said else []) + table(["", "base %s" % code(base.commit[:10]), "head %s" % code(head.commit[:10]), "change"], figures(base, head))
    rows = lines_that_changed(base, head) if base.known and head.known else []
    if rows:
        lines += ["", "<details><summary>Lines that changed at the peak</summary>", ""]
        lines += table(["line", "base", "head", "change"],
                       [[code(place), in_units(old), in_units(new), change(old, new)] for place, old, new in rows])
        lines += ["", "</details>"]
    for side in (base, head):
        for why in side.document["lower_bound_why"]:
            lines += ["", "%s is a lower bound: %s" % (side.name, code(why))]
    on = head.document["on"] or base.document["on"]
    if on:
        lines += ["", "Estimated by memtrace-bpf for %s of %s, without a GPU. \"Needs\" includes CUDA's context and the cache of PyTorch's allocator."
                  % ("1 device" if on["devices"] == 1 else "%d devices" % on["devices"], in_units(on["vram"]))]
    return "\n".join(lines) + "\n"


def parse(words):
    p = argparse.ArgumentParser(prog="estimate_change", allow_abbrev=False, usage="%(prog)s --base COMMIT [OPTION...] -- COMMAND [ARGUMENT...]",
                                description="Estimate the memory of a script before and after a change, and print the difference as Markdown.",
                                epilog="Exit status: 0 within the limits, 4 a limit is exceeded or the job does not fit, 2 not known, 1 failed, 64 usage.")
    p.error = lambda message: p.exit(USAGE, "estimate_change: %s; see --help\n" % message)
    p.add_argument("--base", metavar="COMMIT", required=True, help="the side before the change: a branch, a tag or a commit")
    p.add_argument("--head", metavar="COMMIT", default="HEAD", help="the side after it (default HEAD)")
    p.add_argument("--vram", metavar="SIZE", help="memory of each device, such as 24G")
    p.add_argument("--device", metavar="KIND", help="the device, such as h100")
    p.add_argument("--devices", metavar="N", help="number of devices")
    p.add_argument("--steps", metavar="N", help="stop after N optimizer steps")
    p.add_argument("--max-time", metavar="TIME", help="stop after TIME")
    p.add_argument("--max-growth", metavar="LIMIT", type=growth, help="exit with 4 if the peak of a device grows by more: 10%%, 500M")
    p.add_argument("--max-peak", metavar="SIZE", type=size, help="exit with 4 if the peak of a device is higher")
    p.add_argument("--prepare", metavar="COMMAND", help="a shell command that runs in each worktree before, such as 'pip install -e .'")
    p.add_argument("--command", metavar="COMMAND", help="the command in one word, instead of -- COMMAND")
    p.add_argument("-o", "--output", metavar="FILE", help="write the Markdown to FILE instead of standard output")
    p.add_argument("words", nargs="*", metavar="COMMAND", help="the command that is estimated")
    arguments = p.parse_args(words)
    if arguments.command:
        try:
            arguments.words = shlex.split(arguments.command) + arguments.words
        except ValueError as e:
            p.error("--command: %s" % e)
    if not arguments.words:
        p.error("no command given: -- python train.py")
    return arguments


def main(words=None):
    arguments = parse(words)
    folder = tempfile.mkdtemp(prefix="memtrace-change-")
    try:
        base, head = [Side(name, commit_of(commit), arguments, folder) for name, commit in (("base", arguments.base), ("head", arguments.head))]
        status, said = judge(base, head, arguments)
        text = markdown(base, head, arguments, status, said)
        if arguments.output:
            with open(arguments.output, "w", encoding="utf-8") as f:
                f.write(text)
        else:
            sys.stdout.buffer.write(text.encode())
        for side in (base, head):
            if not side.known:
                sys.stderr.write("estimate_change: %s: %s\n" % (side.name, side.messages[-2000:]))
    except (Failure, OSError) as e:
        sys.stderr.write("estimate_change: %s\n" % e)
        return FAILED
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
