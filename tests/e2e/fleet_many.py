#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
64 ranks on 8 simulated hosts with wrong clocks, fetched and reported: two hosts answer late, one server restarts, one rank is
different, and three more hosts are down, have another token, or another certificate. `make fleet`; test_fetch.py is the small
form of CI.
"""
import os
import threading
import time

import fleet
import harness
import server
from harness import Skip, check, equal, read_json, run, scratch

HOSTS, EACH, ODD = (int(n) for n in os.environ.get("FLEET", "8,8,37").split(","))
SECOND = 1_000_000_000
LEAD = 100 * HOSTS * EACH // 64 + 5  # s: on a small machine, all recorders attach at once


def test_job():
    if not harness.IS_ROOT:
        raise Skip("needs root")
    server.needs_serve()
    begun = time.monotonic()
    spaces = fleet.has_namespaces()
    stranger, other = fleet.Host(HOSTS, namespace=spaces), fleet.Host(HOSTS + 1, namespace=spaces)
    f = fleet.Fleet(HOSTS, EACH, odd=ODD, skews=[(n % 3 - 1) * (n + 1) * 1_234_567_890 for n in range(HOSTS)], more=[stranger.address])
    late = [fleet.Late(f.hosts[n].address, fleet.PORT, 0.5) for n in (1, 2)]
    token = scratch("another-token")
    with open(os.open(token, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
        file.write("another-horse-battery-staple\n")
    stranger.serve([token, *f.files[1:]])
    other.serve([f.files[0], *(fleet.make_certificate("other", [other.address]) if len(f.files) > 1 else [])])
    urls = [(h.url(), h.name) for h in f.hosts]
    for n, proxy in zip((1, 2), late):
        urls[n] = ("%s://127.0.0.1:%d" % (urls[0][0].split(":")[0], proxy.port), f.hosts[n].name)
    urls += [(stranger.url(), "stranger"), ("http://127.0.0.1:1", "down")] + ([(other.url(), "other")] if len(f.files) > 1 else [])
    restarted = f.hosts[HOSTS - 1]

    def restart():
        restarted.wait_window(3)
        restarted.server.stop()
        restarted.serve(f.files)

    thread = threading.Thread(target=restart)
    thread.start()
    folder = scratch("job")
    print("     %d ranks and %d servers after %.0f s" % (HOSTS * EACH, HOSTS + 2, time.monotonic() - begun), flush=True)
    code, out, err = f.fetch(folder + "/", urls, "-d", "6s", "--lead", "%ds" % LEAD, "--timeout", "100s", "--insecure", seconds=600)
    thread.join()
    print(out)
    equal(code, 2, "exit code: %s %s" % (out, err))
    index = read_json(os.path.join(folder, "index.json"))
    equal(sorted(e["rank"] for e in index["recordings"]), list(range(HOSTS * EACH)), "ranks: %s %s" % (out, err))
    equal({m["host"] for m in index["missing"]}, {"stranger", "down", "other"} if len(f.files) > 1 else {"stranger", "down"}, "missing")
    lengths = {e["rank"]: e["to"] - e["from"] for e in index["recordings"]}
    last = range(EACH * (HOSTS - 1), EACH * HOSTS)
    check(all(lengths[n] < 5.9 for n in last), "ranks of the restarted server: %s", lengths)
    code, text, err = harness.tool("report", folder, prefix=("env", "COLUMNS=110"))
    print(text)
    equal(code, 0, "report: %s" % err)
    for words in ("ranks 0-%d of %d" % (HOSTS * EACH - 1, HOSTS * EACH), "stranger: the server answers 401", "down: ", "rank %d on node%d: 48.00 MiB more" % (ODD, ODD // EACH),
                  "(odd)", "Clocks of the hosts differ by up to"):
        check(words in text, "%r is not in the report", words)
    check(text.count("MiB more") == 2, "the report names other ranks, too")
    f.end()
    for h in (stranger, other):
        h.server.stop()
        h.remove()
    for proxy in late:
        proxy.close()


if __name__ == "__main__":
    run(globals())
