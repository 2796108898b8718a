# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""What a user of a GPU sees: a step of a GPU-bound and of a launch-bound job on the dry run with its virtual clock, untraced and traced.
The durations of GPU work are modelled (docs/internals/DRYRUN.md, "The clock")."""
from bench import peers, stats
from bench.common import spread
from bench.tools import AGAIN

JOBS = ("GPU-bound", "launch-bound")
TOOLS = (AGAIN, "no backward", "all", "PyTorch's recorder")


def bench(args, python):
    return {job: peers.measure(args, python, None, job, "clock " + job, TOOLS) for job in JOBS}


def show(doc):
    print("\nA step of a GPT as a user of a GPU sees it; durations of GPU work are modelled, not measured\n")
    print("| job | untraced, ms | | step / untraced | added, ms | added CPU time, ms |\n|---|---|---|---|---|---|")
    for job, d in doc.items():
        alone = spread(x for t in d["tools"].values() for x in t["wall_alone"]["values"])
        for name, t in d["tools"].items():
            print("| %s | %s | %s | %s | %s | %s |" % (job, stats.text(alone), name, stats.text(t["wall_ratio"], 3),
                                                     stats.text(t["wall_added"]), stats.text(t["cpu_added"])))
