#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Makes the wheel from the staged tree: `make wheel` calls it. The package memtrace_bpf has the program, its libraries and documents
laid out as below PREFIX, so that the program finds them relative to itself. Two console scripts execute it.
"""
import base64
import hashlib
import os
import time
import zipfile

import release
import tree

HERE = os.path.dirname(os.path.abspath(__file__))
INSTALLED = ("bin/memtrace-bpf", "sbin/", "lib/memtrace-bpf/", "share/")
MODULES = ("__main__.py", "estimate_change.py", "figures.py", "phases.py", "pytest_plugin.py", "sizes.py")
CLASSIFIERS = ("Environment :: Console", "Framework :: Pytest", "Intended Audience :: Developers", "Intended Audience :: Science/Research",
               "Operating System :: POSIX :: Linux", "Programming Language :: Python :: 3", "Programming Language :: C",
               "Topic :: Scientific/Engineering :: Artificial Intelligence", "Topic :: Software Development :: Debuggers",
               "Topic :: System :: Monitoring")
SCRIPTS = "[console_scripts]\nmemtrace-bpf = memtrace_bpf.__main__:main\nmemtrace-bpf-token = memtrace_bpf.__main__:token\n"
PLUGINS = "\n[pytest11]\nmemtrace = memtrace_bpf.pytest_plugin\n"


def read(*path):
    with open(os.path.join(*path), "rb") as f:
        return f.read()


def platform():
    """manylinux2014, if that is true; otherwise the tag of wheels that suit the machine they were built on."""
    beyond = tree.beyond(release.stage(), tree.MANYLINUX2014)
    if not beyond:
        return "manylinux2014_" + release.arch()
    print("wheel: this build is for machines like this one, and not manylinux2014 (STATIC=1 is):")
    print("".join(f"wheel:   {line}\n" for line in beyond), end="")
    return "linux_" + release.arch()


def metadata():
    lines = ["Metadata-Version: 2.1", "Name: memtrace-bpf", f"Version: {release.pep440()}", f"Summary: {release.SUMMARY}",
             f"License: {release.LICENSE_WITH_LIBRARIES}", "Keywords: pytorch,memory,profiler,ebpf,cuda,leak", "Requires-Python: >=3.8",
             *(f"Classifier: {c}" for c in CLASSIFIERS), "Description-Content-Type: text/markdown", "License-File: BSD-2-Clause.txt",
             "License-File: GPL-2.0.txt", ""]
    return "\n".join(lines).encode() + b"\n" + read(HERE, "wheel", "README.md")


def content(path):
    """What a file has in it. A wheel has no links: that to a library becomes a linker script, since compilers look for this name."""
    if os.path.islink(path):
        return f"INPUT({os.readlink(path)})\n".encode()
    return read(path)


def package():
    """[(name in the wheel, content, mode)] of the package."""
    usr = os.path.join(release.stage(), "usr")
    init = read(HERE, "wheel", "__init__.py.in").replace(b"@VERSION@", release.pep440().encode())
    entries = [("memtrace_bpf/__init__.py", init, 0o644)]
    entries += [(f"memtrace_bpf/{name}", read(HERE, "wheel", name), 0o644) for name in MODULES]
    for name, path, mode in tree.files(usr):
        if name.startswith(INSTALLED):
            entries.append((f"memtrace_bpf/{name}", content(path), mode))
    return entries


def dist_info(tag):
    wheel = f"Wheel-Version: 1.0\nGenerator: memtrace-bpf tools/packaging/wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n"
    entries = [("METADATA", metadata(), 0o644), ("WHEEL", wheel.encode(), 0o644), ("entry_points.txt", (SCRIPTS + PLUGINS).encode(), 0o644),
               ("top_level.txt", b"memtrace_bpf\n", 0o644)]
    for name in ("BSD-2-Clause.txt", "GPL-2.0.txt"):
        entries.append((f"licenses/{name}", read(release.ROOT, "LICENSES", name), 0o644))
    return [(f"memtrace_bpf-{release.pep440()}.dist-info/{name}", content, mode) for name, content, mode in entries]


def record(entries):
    name = f"memtrace_bpf-{release.pep440()}.dist-info/RECORD"
    lines = [f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip('=')},{len(content)}\n" for n, content, _ in entries]
    return name, ("".join(lines) + f"{name},,\n").encode(), 0o644


def write(path, entries):
    when = time.gmtime(max(release.epoch(), 315532800))[:6]  # zip begins with 1980
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for name, content, mode in entries:
            info = zipfile.ZipInfo(name, when)
            info.create_system = 3  # Unix: the mode is in external_attr
            info.external_attr = (0o100000 | mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(info, content)


def main():
    tag = f"py3-none-{platform()}"
    entries = package() + dist_info(tag)
    path = os.path.join(release.packages_dir(), f"memtrace_bpf-{release.pep440()}-{tag}.whl")
    write(path, entries + [record(entries)])
    release.made(path)


main()
