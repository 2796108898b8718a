# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The machine: what it is, and how busy it is with work of others while we measure. /proc only."""
import os
import platform
import re
import time

# Above these, no ratio is printed.
OTHERS_LIMIT = 0.15  # of all cores: CPU time of processes that the benchmark did not start
STEAL_LIMIT = 0.03  # of all cores: time that the hypervisor gave to others
FLOOR_LIMIT = 0.10  # noise floor: the untraced job against itself

HZ = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count()


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def describe():
    """What results of two runs must have in common to be compared. No names of hosts."""
    info = read("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", info)
    memory = int(re.search(r"MemTotal:\s+(\d+) kB", read("/proc/meminfo"))[1])
    return {"cpu": model[1].strip() if model else platform.machine(), "cores": CORES, "memory_gib": round(memory / 2**20),
            "kernel": platform.release(), "virtual": bool(re.search(r"^flags\s*:.*\bhypervisor\b", info, re.M))}


def words(m):
    return "%s, %d cores, %d GiB, %skernel %s" % (m["cpu"], m["cores"], m["memory_gib"], "virtual, " if m["virtual"] else "", m["kernel"])


def own_ticks():
    """CPU time of this process, of all that it started, and of those that these waited for."""
    parents, ticks = {}, {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = read("/proc/%s/stat" % name).rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(name)], ticks[int(name)] = int(fields[1]), sum(int(x) for x in fields[11:15])

    def ours(pid):
        while pid and pid != os.getpid():
            pid = parents.get(pid, 0)
        return bool(pid)

    return sum(t for pid, t in ticks.items() if ours(pid))


def now():
    user, nice, system, _, _, irq, softirq, steal = (int(x) for x in read("/proc/stat").split("\n")[0].split()[1:9])
    return {"time": time.monotonic(), "busy": user + nice + system + irq + softirq, "steal": steal, "ours": own_ticks()}


def since(before):
    """{"others", "steal"}: shares of all cores since then; "load": the load average of a minute."""
    after = now()
    cores = max(after["time"] - before["time"], 1e-9) * HZ * CORES
    others = (after["busy"] - before["busy"]) - (after["ours"] - before["ours"])
    return {"others": max(others, 0) / cores, "steal": (after["steal"] - before["steal"]) / cores, "load": os.getloadavg()[0]}


def look(seconds=1.0):
    before = now()
    time.sleep(seconds)
    return since(before)


def too_busy(sample, floor=None):
    """[reason]: why ratios would be noise. floor: the noise floor of this part, None if it has none."""
    reasons = []
    if sample["others"] > OTHERS_LIMIT:
        reasons.append("other programs use %.2f of %d cores (limit %.2f)" % (sample["others"] * CORES, CORES, OTHERS_LIMIT * CORES))
    if sample["steal"] > STEAL_LIMIT:
        reasons.append("the hypervisor took %.1f %% of the cores' time (limit %.0f %%)" % (100 * sample["steal"], 100 * STEAL_LIMIT))
    if floor is not None and floor > FLOOR_LIMIT:
        reasons.append("the untraced job differs from itself by up to %.0f %% (limit %.0f %%)" % (100 * floor, 100 * FLOOR_LIMIT))
    return reasons


def said(sample):
    return "others %.2f cores, steal %.1f %%, load %.1f" % (sample["others"] * CORES, 100 * sample["steal"], sample["load"])
