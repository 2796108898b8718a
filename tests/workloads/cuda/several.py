# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Jobs of this folder, one after the other in one process, which keeps what each of them has left: several.py mlp,graphs."""
import importlib

from common import oracle

# What a job's own options are where the command line has none.
DEFAULTS = {"unit": 4, "only_ask": False, "count": 200, "batch": 4, "context": 128, "width": 256, "heads": 8, "layers": 4, "vocab": 5000}


def job(args):
    running = []
    for name in args.jobs.split(","):
        running.append(importlib.import_module(name).job(args))
        for _ in range(args.turns):
            next(running[-1])
    while True:
        yield


if __name__ == "__main__":
    parser = oracle.arguments(__doc__, steps=1)
    parser.add_argument("jobs")
    parser.add_argument("--turns", type=int, default=5, help="steps of each job")
    parser.set_defaults(**DEFAULTS)
    oracle.main(job, parser.parse_args())
