# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""churn.py with deep stacks: each thread allocates below a hundred large Python frames that are never used again, so that their
pages can be paged out and stay out. Same options and output as churn.py."""
import churn

DEPTH = 100

# 90 locals per frame: a hundred frames fill 20 pages.
NAMES = ", ".join("v%d" % i for i in range(90))
scope = {}
exec(compile("def sink(depth, then):\n    %s = range(90)\n    return sink(depth - 1, then) if depth else then()\n" % NAMES,
             __file__, "exec"), scope)


class Worker(churn.Worker):
    def run(self):
        scope["sink"](DEPTH, super().run)


if __name__ == "__main__":
    churn.Worker = Worker
    churn.main()
