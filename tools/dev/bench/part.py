# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A part of a run: measured and printed on a quiet machine, and refused on a busy one."""
from bench import machine, stats

TIMES = ("bpf",)  # These print times that the kernel counts on the core that runs the program, and no ratios: on a busy machine, too.


def noise_of(name, doc):
    """The ratio of the untraced job to itself in this part, of several jobs the worst; None: the part has none."""
    if name.startswith("peers") or name == "clock":
        found = [d["noise"] for d in doc.values() if d["noise"]]
        return max(found, key=lambda n: stats.floor_of(n) or 0) if found else None
    return doc.get("noise")


def measure(args, name, do, show, doc):
    """Measures a part and prints it, or why it prints no ratio. Adds to doc: the part, what the machine did meanwhile, and the reasons
    against it in "busy"."""
    before = machine.look()
    reasons = machine.too_busy(before)
    for _ in range(int(args.wait)):
        if not reasons or name in TIMES:
            break
        before = machine.look()
        reasons = machine.too_busy(before)
    if reasons and not args.anyway and name not in TIMES:
        doc["busy"][name] = reasons
        print("\n%s: not measured, the machine is too busy: %s" % (name, "; ".join(reasons)))
        return
    start = machine.now()
    found = do()
    during = machine.since(start)
    noise = noise_of(name, found)
    floor = stats.floor_of(noise) if noise else None
    reasons = machine.too_busy(during, floor)
    doc[name], doc["during"][name] = found, during
    if reasons:
        doc["busy"][name] = reasons
    print("\n== %s (%s%s)" % (name, machine.said(during), "; untraced against itself: %s" % stats.text(noise, 3) if noise else ""))
    if reasons and name in TIMES:
        print("BUSY: %s" % "; ".join(reasons))
        show(found)
    elif reasons and not args.anyway:
        print("no ratio: the machine is too busy: %s. --anyway prints them" % "; ".join(reasons))
    else:
        if reasons:
            print("BUSY, the ratios may be noise: %s" % "; ".join(reasons))
        show(found)
