#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Tests the tests: plants one fault at a time into a copy of the last commit, builds it, and runs the tests until one fails. First ring
1, the tests next to the fault before the others; if ring 1 finds nothing, the files of ring 2 that touch what is faulty.

    tests/mutate.py                  all faults; ends with the table of tests/README.md
    tests/mutate.py wrong-line ...   these faults
    tests/mutate.py --tree DIR ...   in a copy that stays, so that the next run builds less

Exits with 1 if more than TOLERATED of the faults are not found. A test that finds a fault has to pass without it: the end of a run
checks that. Tests of the code's form, and of this table, do not count.
"""
import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile

import run as runner

REPO = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOLERATED = 2
NOT_COUNTED = ("test_lint", "test_mutate")

# what: the fault in words; old occurs once in file; tests: files of tests/e2e that touch it, of ring 1 or 2.
Fault = collections.namedtuple("Fault", "name what file old new tests")
FAULTS = [
    Fault("decoder-end", "the decoder of machine code refuses an instruction that ends with the bytes it has",
          "user/inspect/process/insn.c", "if (cursor->size - cursor->pos < n)", "if (cursor->size - cursor->pos <= n)",
          "test_sites test_generated_code test_harm"),
    Fault("lost-not-counted", "a record that finds no room in the ring is dropped and not counted",
          "bpf/memtrace.bpf.c", "\tif (!record)\n\t\tcount_and_notify(MT_CNT_RING_LOST + type);\n\treturn record;", "\treturn record;",
          "test_lossless test_errors test_many"),
    Fault("wrong-line", "at the first instruction of a line, the line before is named (CPython 3.11 and newer)",
          "user/inspect/python/pyline.c", "if (at < entry_end)", "if (at <= entry_end)",
          "test_exact test_walk test_attribution"),
    Fault("missing-bound", "a block of a recording may name more devices than the decoder has room for",
          "user/record/mtr/mtr_decode.c", "if (v == MTR_MAX_BLOCK_DEVICES || rest->end - rest->at < 2)", "if (rest->end - rest->at < 2)",
          "test_hostile test_upgrade"),
    Fault("wrong-unit", "a kB of smaps counts as 1000 bytes",
          "user/inspect/hostmem/host_smaps.c", "*to += kb * 1024;", "*to += kb * 1000;",
          "test_host test_host_ledger"),
    Fault("swapped-columns", "peak and end of a step are swapped in the Parquet tables",
          "user/export/tables/tables.c", "\tparquet__uint(p, /*known=*/true, step->peak);\n\tparquet__uint(p, /*known=*/true, step->end_allocated);",
          "\tparquet__uint(p, /*known=*/true, step->end_allocated);\n\tparquet__uint(p, /*known=*/true, step->peak);",
          "test_tables"),
    Fault("wrong-sign", "diff shows growth in percent as negative",
          "user/report/diff/diff.c", "((double)to - (double)from)", "((double)from - (double)to)",
          "test_diff test_widths"),
    Fault("lost-close", "each look at a process leaves a file open",
          "user/inspect/process/proc.c", "\tclose(fd);\n\treturn got < 0 ? (int)got : 0;", "\treturn got < 0 ? (int)got : 0;",
          "test_scan test_watch http_api"),
    Fault("wrong-clock", "fetch takes the time of an answer from the monotonic clock",
          "user/serve/fetch/http.c", "c->answer.answered = clock__read(CLOCK_REALTIME);", "c->answer.answered = clock__read(CLOCK_MONOTONIC);",
          "test_fetch test_clock"),
    Fault("filter-inverted", "size>N keeps what is smaller",
          "user/report/recording/filter.c", "v->op[0] == '>' ? r->median > v->bytes : r->median < v->bytes",
          "v->op[0] == '>' ? r->median < v->bytes : r->median > v->bytes",
          "test_filter test_values"),
    Fault("probe-missing", "nothing is attached to PyTorch's report of an out-of-memory error",
          "user/capture/session/session_attach.c", "first_hooks[] = { HOOK_CODE_GONE, MT_ALLOCATOR_HOOKS(HOOK_ID) };",
          "first_hooks[] = { HOOK_CODE_GONE, HOOK_CPU_DELETE, HOOK_CPU_NEW, HOOK_REPORT };",
          "test_errors test_on_oom test_exact"),
    Fault("wrong-thread", "a record has the process's number instead of the thread's",
          "bpf/memtrace.bpf.c", "header->tid = pid_ns ? thread_here() : kernel_tid();", "header->tid = pid_ns ? thread_here() : current_process();",
          "test_exact test_values test_calls"),
    Fault("wrong-window", "growth that began in the middle is looked for in the first half",
          "user/model/heap/trend.c", "judge_values(v + n / 2, n - n / 2, &two_tests, &half);", "judge_values(v, n - n / 2, &two_tests, &half);",
          "test_leaks"),
    Fault("page-escape", "a name with `</script>` ends the script of an exported page",
          "user/base/json.c", "\telse if (code == '/' && prev == '<')\n\t\tfputs(\"\\\\/\", out);\n", "",
          "test_hostile test_page_data test_hostile_names"),
    Fault("no-authorization", "requests that only read need no token",
          "user/serve/web/auth.c", "if (!g->wants_token || r->flags & ROUTE_OPEN || has_session(g, r))",
          "if (!g->wants_token || !(r->flags & ROUTE_CHANGES) || has_session(g, r))",
          "http_safety http_api"),
    Fault("name-cut", "the name of a thread loses its last byte if it is as long as names may be",
          "user/inspect/process/proc.c", "snprintf(buf, size, \"%s\", text);", "snprintf(buf, size - 1, \"%s\", text);",
          "test_exact test_values"),
    Fault("wrong-sum", "the tree of modules counts memory from before attach as outside of modules",
          "user/report/recording/modules.c", "rest = &t->before;", "rest = &t->outside;",
          "test_figures_agree test_values test_widths"),
    Fault("option-ignored", "export ignores --device",
          "user/cmd/export.c", "\to.job.device = o.shown.device;\n", "",
          "test_cli test_formats test_errors"),
    Fault("wrong-exit", "run exits with the number of the signal that ended the command, without 128",
          "user/capture/save/run_command.c", "return EXIT_SIGNALLED + WTERMSIG(status);", "return WTERMSIG(status);",
          "test_run"),
    Fault("child-forgotten", "only a process's own children are searched for PyTorch, not their children",
          "user/inspect/process/descendants.c", "\t\t\tn++;\n\t\t}\n\t\tadd_children(list.pid[i], &list);\n", "\t\t\tn++;\n\t\t}\n",
          "test_run test_children test_torchrun"),
]


class Broken(Exception):
    """The fault cannot be planted, or does not compile."""


def planted(fault, top):
    """The text of the fault's file, without it and with it."""
    with open(os.path.join(top, fault.file), encoding="utf-8") as f:
        text = f.read()
    if text.count(fault.old) != 1:
        raise Broken("%s: %s has its text %d times and not once: %r" % (fault.name, fault.file, text.count(fault.old), fault.old))
    return text, text.replace(fault.old, fault.new)


def write(top, file, text):
    with open(os.path.join(top, file), "w", encoding="utf-8") as f:
        f.write(text)


class Copy:
    """A clone of the last commit, with a build of its own."""

    def __init__(self, top):
        self.top = top
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MEMTRACE_RING"))}
        self.env["OUTPUT"] = ".output"
        if not os.path.isdir(os.path.join(top, ".git")):
            subprocess.run(["git", "clone", "-q", "--shared", REPO, top], check=True)
        subprocess.run(["git", "fetch", "-q", REPO, "HEAD"], cwd=top, check=True)
        subprocess.run(["git", "checkout", "-q", "--force", "FETCH_HEAD"], cwd=top, check=True)

    def build(self, *targets):
        cc = ["CC=ccache gcc"] if shutil.which("ccache") else []
        done = subprocess.run(["make", "-j%d" % runner.CORES, *cc, *targets], cwd=self.top, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Broken("make fails:\n" + done.stderr[-3000:])

    def run(self, ring, names):
        """The first test of these files that fails in the ring, and fails again by itself; None: none does."""
        found = self.run_once(ring, names)
        while found and not self.run_once(ring, [file_of(found)]):
            names = [name for name in names if name != file_of(found)]
            found = self.run_once(ring, names)
        return found

    def run_once(self, ring, names):
        if not names:
            return None
        env = dict(self.env, MEMTRACE_RING=ring, **({"MEMTRACE_TORCH_PYTHONS": ""} if ring == "check" else {}))
        done = subprocess.run([sys.executable, "tests/run.py", "--first-failure", *names], cwd=self.top, env=env, capture_output=True,
                              text=True, check=False)
        found = re.search(r"^FAIL ([^\s:]+)", done.stdout, re.M)
        if done.returncode and not found and not re.search(r"^0 passed, 0 failed", done.stdout, re.M):
            raise Broken("tests/run.py: %s" % (done.stderr or done.stdout)[-3000:])
        return found and found[1]


def file_of(test):
    return test.partition(".")[0]


def files_of(top):
    """The files of ring 1, and those of ring 2, in the copy."""
    here = os.getcwd()
    os.chdir(top)
    runner.OUT = ".output"
    try:
        jobs = runner.find()
        return [[job.name for job in runner.of_ring(jobs, ring) if job.name not in NOT_COUNTED] for ring in ("check", "test")]
    finally:
        os.chdir(here)


def unit_folder(fault):
    """Where the unit tests next to the fault are: those of its folder of user/, or of bpf/."""
    folder = os.path.dirname(fault.file)
    return "unit/%s/" % folder.removeprefix("user/")


def find(copy, fault, ring1, ring2):
    """The ring and the test that found the fault, or None."""
    nearest = [name for name in ring1 if name.startswith(unit_folder(fault))]
    touching = fault.tests.split()
    without, with_it = planted(fault, copy.top)
    write(copy.top, fault.file, with_it)
    try:
        if nearest:
            copy.build(*[".output/tests/" + name for name in nearest])
        found = copy.run("check", nearest)
        if found:
            return 1, found
        copy.build("all", "tests")
        rest = [name for name in ring1 if name not in nearest]
        found = copy.run("check", sorted(rest, key=lambda name: name not in touching))
        if found:
            return 1, found
        found = copy.run("test", [name for name in touching if name in ring2])
        return found and (2, found)
    finally:
        write(copy.top, fault.file, without)


def check_finders(copy, results):
    """Each test that found a fault passes without it."""
    copy.build("all", "tests")
    for found in sorted({found for found in results.values() if found}):
        ring, test = found
        if copy.run_once("check" if ring == 1 else "test", [file_of(test)]):
            for name in [name for name in results if results[name] == found]:
                print("%s: %s fails without the fault, too" % (name, test), flush=True)
                results[name] = None


def table(faults, results):
    """For tests/README.md."""
    print("\n| fault | found by | ring |\n|---|---|---|")
    for fault in faults:
        ring, test = results[fault.name] or ("", "not found")
        print("| %s | %s | %s |" % (fault.what, "`%s`" % test if ring else test, ring))
    rings = [found[0] for found in results.values() if found]
    print("\n%d of %d faults found: %d by ring 1, %d by ring 2" % (len(rings), len(faults), rings.count(1), rings.count(2)))
    return len(faults) - len(rings)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", metavar="DIR")
    parser.add_argument("names", nargs="*", metavar="FAULT", help=", ".join(fault.name for fault in FAULTS))
    args = parser.parse_args()
    unknown = set(args.names) - {fault.name for fault in FAULTS}
    if unknown:
        parser.error("no such fault: %s" % ", ".join(sorted(unknown)))
    faults = [fault for fault in FAULTS if fault.name in args.names or not args.names]
    os.nice(10)
    results = {}
    with tempfile.TemporaryDirectory(prefix="memtrace-mutate-") as folder:
        try:
            copy = Copy(os.path.abspath(args.tree or folder))
            for fault in faults:
                planted(fault, copy.top)
            copy.build("all", "tests")
            rings = files_of(copy.top)
            for fault in faults:
                results[fault.name] = find(copy, fault, *rings)
                print("%-18s %s" % (fault.name, "ring %d: %s" % results[fault.name] if results[fault.name] else "not found"), flush=True)
            check_finders(copy, results)
        except Broken as e:
            sys.exit("tests/mutate.py: %s" % e)
    sys.exit(table(faults, results) > TOLERATED)


if __name__ == "__main__":
    main()
