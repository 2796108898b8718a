#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The ledger of host memory of processes whose malloc is gperftools' tcmalloc: it agrees with tcmalloc's own figures. Needs Debian's
libtcmalloc-minimal4, and libgoogle-perftools4 for the other libraries."""
import ctypes.util
import json
import os
import re
import shutil
import subprocess

from harness import PROGRAMS, Skip, check, equal, nightly, run, scratch, spawn, tool

MIB = 1 << 20


def built(*options):
    """tests/programs/tcmalloc_mix.c as a program."""
    path = scratch("tcmalloc_mix" + "".join(options[:1]).replace("/", "_"))
    if not os.path.exists(path):
        if not shutil.which("cc"):
            raise Skip("no C compiler")
        done = subprocess.run(["cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-o", path, os.path.join(PROGRAMS, "tcmalloc_mix.c"),
                               *options, "-lpthread"], capture_output=True, text=True, check=False)
        check(done.returncode == 0, "tcmalloc_mix.c: %s", done.stderr)
    return path


def library(name):
    found = ctypes.util.find_library(name)
    if not found:
        raise Skip("no lib%s: apt-get install libgoogle-perftools-dev" % name)
    return found


class Mix:
    """A running tcmalloc_mix. own: tcmalloc's figures, bytes."""

    def __init__(self, preload, *args, program=None, env=()):
        self.what = "%s %s" % (preload or program, " ".join(args))
        self.p = spawn([program or built(), *args], env=dict(os.environ, LD_PRELOAD=preload, **dict(env)))
        self.times = 0
        self.read_figures()

    def read_figures(self):
        self.times += 1
        self.p.wait_line("^ready %d$" % self.times, 120)
        self.own = {name: int(n) for name, n in re.findall(r"^[a-z]+\.([a-z_]+) (\d+)$", self.p.stdout(), re.M)}
        self.own["free_blocks"] = sum(self.own[name + "_cache_free_bytes"] for name in ("central", "transfer", "thread"))

    def return_pages(self):
        self.p.send("return\n")
        self.read_figures()

    def dump(self):
        code, out, err = tool("dump", "-p", str(self.p.pid), "--device", "host", "--format", "json", root=True)
        check(code == 0, "dump of %s ended with %d: %s", self.what, code, err[-800:])
        return json.loads(out)["processes"][0]


def near(got, most, what):
    check(most - 2 * MIB <= got <= most + MIB // 2, "%s: %d, tcmalloc's figures add up to %d", what, got, most)


def compare(mix):
    """The process waits, so each figure is tcmalloc's own, to the byte. Returns the document of the process."""
    p = mix.dump()
    check(len(p["allocators"]) == 1, "%s: %s", mix.what, p["allocators"])
    a, own, parts = p["allocators"][0], mix.own, p["parts"]
    equal(a["name"], "tcmalloc", mix.what)
    equal(a["live"], own["current_allocated_bytes"], "%s: live" % mix.what)
    equal(a["free_blocks"], own["free_blocks"], "%s: free blocks" % mix.what)
    equal(a["purgeable"], own["pageheap_free_bytes"], "%s: free pages" % mix.what)
    equal(a["retained"], own["pageheap_unmapped_bytes"], "%s: pages without memory" % mix.what)
    equal(sum(x["bytes"] for x in parts.values() if x["of_rss"]), p["rss"], "%s: sum of the parts" % mix.what)
    equal(p["adjusted"], 0, "%s: claims without resident memory" % mix.what)
    check(parts["unknown"]["bytes"] <= p["rss"] // 100 + MIB // 8, "%s: %d bytes unknown, of %d", mix.what, parts["unknown"]["bytes"], p["rss"])
    # The program wrote to all its blocks. Of the free pages, those at the end of the last piece from the system may be untouched.
    free = a["free_blocks"] + a["purgeable"]
    near(parts["malloc"]["bytes"], a["live"] + free + a["tables"], "%s: resident memory of malloc" % mix.what)
    near(parts["malloc"]["second"], free, "%s: resident free memory" % mix.what)
    return p


def test_live_and_free():
    """Blocks of all sizes on several threads, of which every second is freed; then tcmalloc returns its free pages."""
    mix = Mix(library("tcmalloc_minimal"), "64", "3")
    before = compare(mix)
    mix.return_pages()
    after = compare(mix)
    equal(after["allocators"][0]["live"], before["allocators"][0]["live"], "live blocks stay")
    returned = before["allocators"][0]["purgeable"]
    check(returned > MIB and before["rss"] - after["rss"] > returned * 9 // 10, "returned %d: RSS %d, then %d", returned, before["rss"],
          after["rss"])


def test_small_blocks():
    """Nearly all free memory is between live blocks: no page can be returned."""
    a = compare(Mix(library("tcmalloc_minimal"), "64", "2", "100"))["allocators"][0]
    check(a["free_blocks"] > 10 * MIB and a["purgeable"] < MIB, "%s", a)


def test_text():
    mix = Mix(library("tcmalloc_minimal"), "16", "1")
    code, out, err = tool("dump", "-p", str(mix.p.pid), "--device", "host", root=True)
    check(code == 0, "dump ended with %d: %s", code, err)
    check(re.search(r"tcmalloc \(libtcmalloc_minimal\.so\.[0-9.]+\): [0-9.]+ MiB live", out), "no row of tcmalloc: %s", out)


def test_sampler():
    """tcmalloc's own sampler is on: live memory by stack, which adds up to the live blocks but for the sampler's error."""
    mix = Mix(library("tcmalloc"), "64", "2", "20000", program=built("-g"), env={"TCMALLOC_SAMPLE_PARAMETER": "65536"}.items())
    p = mix.dump()
    equal(p["allocators"][0]["live"], mix.own["current_allocated_bytes"], "live")
    s = p["samples"]
    equal((s["sampler"], s["period"]), ("tcmalloc", 65536), "sampler")
    check(s["samples"] > 100 and abs(s["bytes"] / mix.own["current_allocated_bytes"] - 1) < 0.4, "%s; live: %s", s, mix.own)
    largest = s["stacks"][0]
    check(largest["bytes"] > s["bytes"] // 2, "two threads run the same function: %s", s)
    with open(os.path.join(PROGRAMS, "tcmalloc_mix.c"), encoding="utf-8") as f:
        line = 1 + [n for n, text in enumerate(f) if "malloc(size)" in text][0]
    first = largest["frames"][0]
    equal((first["function"], os.path.basename(first["file"]), first["line"]), ("allocate", "tcmalloc_mix.c", line), "innermost frame")
    check("run" in [f["function"] for f in largest["frames"]], "no caller: %s", largest)
    code, out, err = tool("dump", "-p", str(mix.p.pid), "--device", "host", root=True)
    check(code == 0 and "allocate (tcmalloc_mix.c:%d) from run (tcmalloc_mix.c:" % line in out, "%s %s", out, err)
    equal(Mix(library("tcmalloc"), "1", "1").dump()["samples"], None, "without the sampler")


def test_google_is_named():
    """Google's tcmalloc is a part of the program, in a section of its own. Its tables are not read, so its figures are unknown."""
    path = scratch("google_malloc")
    source = ("#include <stdio.h>\n__attribute__((section(\"google_malloc\"))) int f(void) { return getchar(); }\n"
              "int main(void) { puts(\"ready\"); fflush(stdout); return f(); }")
    subprocess.run(["cc", "-x", "c", "-", "-o", path], input=source, text=True, check=True)
    p = spawn([path])
    p.wait_line("^ready")
    code, out, err = tool("dump", "-p", str(p.pid), "--device", "host", "--format", "json", root=True)
    check(code == 0, "%s", err)
    (a,) = json.loads(out)["processes"][0]["allocators"]
    equal((a["name"], a["file"], a["live"]), ("tcmalloc", "google_malloc", None), "allocator")


@nightly("programs")
def test_other_libraries():
    """The same tables in all libraries of gperftools, with its sampler, with many threads, and as a part of the program."""
    for name in ("tcmalloc", "tcmalloc_and_profiler"):
        compare(Mix(library(name), "32", "2"))
    compare(Mix(library("tcmalloc"), "32", "2", env={"TCMALLOC_SAMPLE_PARAMETER": "65536"}.items()))
    compare(Mix(library("tcmalloc_minimal"), "32", "100", "3000"))
    found = subprocess.run(["cc", "-print-file-name=libtcmalloc_minimal.a"], capture_output=True, text=True, check=False).stdout.strip()
    if not os.path.isabs(found):
        raise Skip("no libtcmalloc_minimal.a: apt-get install libgoogle-perftools-dev")
    program = built("-rdynamic", "-Wl,--whole-archive", found, "-Wl,--no-whole-archive", "-lstdc++", "-lm")
    compare(Mix("", "32", "2", program=program))


if __name__ == "__main__":
    run(globals())
