#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
The last step of `make release`: next to the packages it puts the program itself, this version's part of the change log, and
SHA256SUMS of all. It fails if a file that docs/guide/install.md names is missing. `collect.py check` is the first step: it refuses
changes that are not committed.
"""
import fnmatch
import hashlib
import os
import re
import shutil
import sys

import release


def changes():
    """The section of this version; if this is no release, that of changes since the last."""
    with open(os.path.join(release.ROOT, "CHANGELOG.md"), encoding="utf-8") as f:
        sections = dict(re.findall(r"^## (\S+)[^\n]*\n(.*?)(?=^## |\Z)", f.read(), re.M | re.S))
    text = sections.get(release.version() if release.tagged() else "Unreleased")
    if not text:
        release.die(f"CHANGELOG.md has no section '## {release.version() if release.tagged() else 'Unreleased'}'")
    return f"# memtrace-bpf {release.pep440()}\n\n{text.strip()}\n"


def write(path, content, mode=0o644):
    with open(path, "wb") as f:
        f.write(content)
    os.chmod(path, mode)


def sums(folder):
    lines = []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and name != "SHA256SUMS":
            with open(path, "rb") as f:
                lines.append(f"{hashlib.sha256(f.read()).hexdigest()}  {name}\n")
    return "".join(lines)


def missing(folder):
    """The names of files in the guide, such as `memtrace-bpf-*.tar.xz`, that no file in the folder has."""
    with open(os.path.join(release.ROOT, "docs/guide/install.md"), encoding="utf-8") as f:
        names = set(re.findall(r"`(memtrace[-_]bpf[-_](?:\*\.[\w.]+|VERSION-x86_64))`", f.read()))
    if not names:
        release.die("docs/guide/install.md names no file of a release")
    patterns = {name: name.replace("VERSION", release.pep440()).replace("x86_64", release.arch()) for name in names}
    return sorted(name for name, pattern in patterns.items() if not fnmatch.filter(os.listdir(folder), pattern))


def check():
    if release.git("rev-parse", "HEAD") is None:
        release.die("make release needs the repository: the source tarball comes from it")
    if release.changed():
        release.die("make release refuses changes that are not committed: git status")


def main():
    if sys.argv[1:] == ["check"]:
        return check()
    folder = release.packages_dir()
    with open(os.path.join(release.stage(), "usr/bin/memtrace-bpf"), "rb") as f:
        write(os.path.join(folder, f"memtrace-bpf-{release.pep440()}-{release.arch()}"), f.read(), 0o755)
    write(os.path.join(folder, f"CHANGES-{release.pep440()}.md"), changes().encode())
    for name in ("deb", "rpm", "stage"):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    if missing(folder):
        release.die(f"docs/guide/install.md names files that are not in {folder}: {', '.join(missing(folder))}")
    text = sums(folder)
    write(os.path.join(folder, "SHA256SUMS"), text.encode())
    print(f"The release is in {folder}:\n{text}", end="")


main()
