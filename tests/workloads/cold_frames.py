# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
churn.py far down: each thread makes its tensors below a hundred large Python frames that nothing ever touches again,
so that their pages can be taken out of memory and stay out. Options and answers are churn.py's.
"""
import churn

DEPTH = 100

# Some 90 locals in a frame: a hundred of them fill 20 pages.
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
