# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Records one training job and compares the recorded owners of memory with the job's own data (tests/workloads/attribution.py):
in backward, node by node; for blocks from before attach, block by block."""
import collections
import os

import mtr_reader
from harness import WORKLOADS, check, own, python, read_json, record, scratch, spawn_job
from test_backward import Judge
from truth import dry_run

WORKLOAD = os.path.join(WORKLOADS, "attribution.py")
JOBS = ("gpt", "resnet", "checkpointed", "amp", "ddp", "fsdp2", "function", "compiled_eager", "compiled_aot", "compiled_inductor",
        "llama", "accumulation", "second_derivative")
CATEGORIES = ("unknown", "parameter", "buffer", "gradient", "optimizer_state", "activation")
READ_AT_ATTACH = 64  # flag of a tensor or a census


class Live:
    """
    Blocks from before attach, judged by the first census: bytes, and errors in words.

    right: name and category match. unheld: nothing that the job can find holds it. unnamed: the rest.
    """

    def __init__(self, recording, truth, device):
        self.name = "cpu" if device == 0 else "cuda:0"
        self.truth = {int(key.split()[1]): t for key, t in truth.items() if key.split()[0] == self.name}
        self.attributes = tuple(t["name"] + "." for t in self.truth.values() if t["category"] == "parameter" and t["name"])
        self.bytes, self.wrong, self.missed, self.first = collections.Counter(), [], [], False
        told, blocks = {}, {}
        with open(recording, "rb") as stream:
            r = mtr_reader.Recording(stream)
            for e in r.events():
                if e["type"] != device:
                    continue
                if e["kind"] == mtr_reader.BLOCK:
                    blocks[e["addr"]] = e["size"]
                elif e["kind"] == mtr_reader.TENSOR and e["flags"] & READ_AT_ATTACH:
                    told[e["addr"]] = (r.strings[e["name"]], CATEGORIES[e["category"]])
                elif e["kind"] == mtr_reader.CENSUS and e["flags"] & READ_AT_ATTACH:
                    self.first = True
        for addr, size in (blocks or {a: t["size"] for a, t in self.truth.items()}).items():
            self.block(size, self.truth.get(addr), told.pop(addr, None))
        for addr, (name, category) in told.items():
            if name or category != "unknown":
                self.wrong.append("%s %s at %#x, where there is none" % (category, name, addr))

    def block(self, size, want, got):
        name, category = got or ("", "unknown")
        if not want:
            if name or category != "unknown":
                self.wrong.append("%d bytes are %s %s, which PyTorch does not know" % (size, category, name))
            self.bytes["unheld"] += size
        elif not got:
            self.unnamed(size, want, "not told")
        elif self.fits(name, want) and category == want["category"]:
            self.bytes["right"] += size
        elif not name and category in ("unknown", want["category"]):
            self.unnamed(size, want, "reported as %s" % category)
        else:
            self.wrong.append("%d bytes are %s %s, not %s %s" % (
                size, category, name, want["category"], want["name"] or want.get("any")))

    def fits(self, name, want):
        """If several nodes of the graph keep a block, any of them may be reported; a block without a name may have a variable's, or
        that of a parameter's attribute, such as a DTensor's mesh."""
        if not want["name"] and name.startswith(("local ", "global ", *self.attributes)):
            return True
        return name.split(" and ")[0] in want["any"] if "any" in want else name == want["name"]

    def unnamed(self, size, want, why):
        self.bytes["unnamed"] += size
        self.missed.append("%s %s, %s" % (want["category"], want["name"] or want.get("any"), why))

    def all(self):
        return sum(self.bytes.values())

    def share(self):
        """Share of the blocks that the job can find."""
        held = self.bytes["right"] + self.bytes["unnamed"]
        return self.bytes["right"] / held if held else 0


def environment(device):
    env = dry_run() if device != "cpu" else dict(os.environ, PYTHONUTF8="1", PYTHONUNBUFFERED="1")
    return dict(env, TORCHINDUCTOR_COMPILE_THREADS="1", OMP_NUM_THREADS="1")


def attached(job, device, at, role="main"):
    """Attaches in the middle, between two steps or in a backward: (Judge's verdict, Live)."""
    what = "%s-%s-%s" % (job, device, at)
    recording, nodes, live = (scratch(what + end) for end in (".mtr", ".jsonl", ".json"))
    target = spawn_job([python(role), WORKLOAD, job, device, nodes, "--live", live, "--at", at], env=environment(device))
    target.wait_line("^paused", 180)
    recorder = record(target.popen.pid, recording, "-v")
    recorder.wait_line("storages named .* at attach", 60, stream="err")
    target.send()
    code = target.wait(180)
    check(code == 0, "%s ended with %s: %s", what, code, target.stderr()[-600:])
    code = recorder.wait(60)
    check(code == 0, "record of %s ended with %s: %s", what, code, recorder.stderr()[-600:])
    own(recording)
    number = 0 if device == "cpu" else 1
    return Judge(recording, nodes, number).verdict, Live(recording, read_json(live), number)
