#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Other projects' code in what is built: the libraries whose files the linker took into the program, as its map says, and the
JavaScript libraries in pages. `linked.py notices` prints their licences, for the documents of every package.
"""
import json
import os
import re
import subprocess
import sys
import textwrap
from typing import NamedTuple

import release

BUNDLES = (("page", "user/export/page"), ("docs", "user/serve/web/docs"))


class Part(NamedTuple):
    name: str
    version: str       # "" if it is not known
    source: str        # the source package, or where it comes from
    licences: str      # names as its authors or its packagers write them, "" if not known
    text: str          # of the licence
    purl: str


def archives():
    """Static libraries that the linker took members of, sorted. None for a program of shared libraries but for the compiler's."""
    path = os.path.join(os.environ.get("OUTPUT", ".output"), "memtrace-bpf.map")
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            begin = re.split(r"^(?:Discarded input sections|Memory Configuration)", f.read(), maxsplit=1, flags=re.M)[0]
    except OSError as e:
        release.die(f"cannot read the linker's map: {e.strerror}: {path}. Build the program again.")
    return sorted({os.path.realpath(p) for p in re.findall(r"^(/\S+\.a)\(", begin, re.M) if not p.endswith("libmemtrace.a")})


def owner(path):
    """The Debian package of a file, or None. Packages may know it below /lib or below /usr/lib."""
    for name in (path, path.removeprefix("/usr")):
        try:
            found = subprocess.run(["dpkg-query", "-S", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError:
            return None
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    return None


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def named(text):
    """Licences that a copyright file names; both of Debian's forms."""
    names = re.findall(r"^License: *(\S.*?)\s*$", text, re.M) or re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", text)
    return ", ".join(sorted(set(names)))


def unpacked(path):
    """A library of the folder that tools/deps.sh arm64 unpacks, which lists the packages of its libraries; None for another."""
    root, usr, rest = path.partition("/usr/lib/")
    for line in read(root + "/static-libraries").splitlines():
        name, package, version, source, source_version = line.split("\t")
        if name in (usr + rest, "/lib/" + rest):
            text = read(f"{root}/usr/share/doc/{package}/copyright")
            return Part(package, version, f"Debian source package {source} {source_version}", named(text), text, f"pkg:deb/debian/{package}@{version}?arch=arm64")
    return None


def packaged(package):
    fields = subprocess.run(["dpkg-query", "-W", "-f", "${Version}\t${source:Package}\t${source:Version}", package], check=True, stdout=subprocess.PIPE, text=True).stdout
    version, source, source_version = fields.split("\t")
    text = read(f"/usr/share/doc/{package}/copyright")
    return Part(package, version, f"Debian source package {source} {source_version}", named(text), text, f"pkg:deb/debian/{package}@{version}")


def built(path):
    """A library that tools/packaging/static_libs.sh has built from a Debian source package, whose documents it keeps."""
    documents, name = os.path.join(os.path.dirname(os.path.dirname(path)), "share", "doc"), os.path.basename(path)[:-2]
    for source in (name, name.removeprefix("lib")):
        version = read(os.path.join(documents, source, "version")).strip()
        if version:
            text = read(os.path.join(documents, source, "copyright"))
            return Part(name, version, f"built from Debian source package {source} {version}", named(text), text, f"pkg:deb/debian/{source}@{version}?arch=source")
    release.die(f"{path} belongs to no package, and {documents} does not name its version")


def libraries():
    parts = {}
    for path in archives():
        package = owner(path)
        part = packaged(package) if package else unpacked(path) or built(path)
        parts[part.name] = part
    return [parts[name] for name in sorted(parts)]


def bundle(name):
    """The folder node_modules of a bundle."""
    return os.path.join(subprocess.run(["tools/deps.sh", name], check=True, stdout=subprocess.PIPE, text=True, cwd=release.ROOT).stdout.strip(), "node_modules")


def scripts():
    """JavaScript libraries that pages contain, as their lock files and package.json say."""
    parts = []
    for name, folder in BUNDLES:
        with open(os.path.join(release.ROOT, folder, "package.json"), encoding="utf-8") as f:
            wanted = sorted(json.load(f)["dependencies"])
        with open(os.path.join(release.ROOT, folder, "package-lock.json"), encoding="utf-8") as f:
            locked = json.load(f)["packages"]
        for package in wanted:
            entry = locked[f"node_modules/{package}"]
            text = read(os.path.join(bundle(name), package, "LICENSE"))
            parts.append(Part(package, entry["version"], "npm", entry.get("license", ""), text, f"pkg:npm/{package}@{entry['version']}"))
    return parts


def notices():
    intro = """Other projects' code in this build of memtrace-bpf, and its licences. The program's source, with what it takes to link it with other
        versions of these libraries, is in the source tarball of the same release."""
    lines = textwrap.wrap(" ".join(intro.split()), 100) + [""]
    parts = libraries() + scripts()
    lines += [f"  {p.name} {p.version} ({p.source})" for p in parts]
    for p in parts:
        lines += ["", "=" * 100, f"{p.name} {p.version}", "=" * 100, "", p.text.rstrip() or f"Licence: {p.licences or 'not known'}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] != ["notices"]:
        release.die("usage: linked.py notices")
    sys.stdout.write(notices())
