#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Makes the .deb from the staged tree: `make STATIC=1 deb` calls it."""
import email.utils
import hashlib
import os

import release
import system
import tree

MAINTAINER = os.environ.get("MAINTAINER") or "memtrace-bpf developers <memtrace-bpf@example.org>"
DOCUMENTS = "usr/share/doc/memtrace-bpf"
# It is one static file on purpose: it starts on any distribution.
OVERRIDES = """memtrace-bpf: embedded-library *
memtrace-bpf: statically-linked-binary *
memtrace-bpf: maintainer-script-calls-systemctl *
memtrace-bpf: initial-upload-closes-no-bugs *
"""


def read(*path):
    with open(os.path.join(*path), "rb") as f:
        return f.read()


def paragraphs(text):
    """As a field of many lines."""
    return "\n".join(" " + (line or ".") for line in text.splitlines())


def copyright_file():
    bsd = paragraphs(read(release.ROOT, "LICENSES", "BSD-2-Clause.txt").decode())
    return ("Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: memtrace-bpf\n"
            "Comment: THIRD-PARTY.txt.gz has the licences of linked libraries.\n\n"
            "Files: *\nCopyright: memtrace-bpf developers\nLicense: GPL-2.0-only or BSD-2-Clause\n\n"
            "License: GPL-2.0-only\n On Debian systems the text is in /usr/share/common-licenses/GPL-2.\n\n"
            f"License: BSD-2-Clause\n{bsd}\n").encode()


def changelog(version):
    date = email.utils.format_datetime(release.day())
    return f"memtrace-bpf ({version}) unstable; urgency=medium\n\n  * changelog.gz lists the changes.\n\n -- {MAINTAINER}  {date}\n".encode()


def control(root, version):
    needed = system.glibc()
    size = sum(-(-os.path.getsize(path) // 1024) for _, path, _ in tree.files(root))
    return ("Package: memtrace-bpf\n"
            f"Version: {version}\nArchitecture: {release.DEBIAN_ARCH[release.arch()]}\nMaintainer: {MAINTAINER}\nInstalled-Size: {size}\n"
            + (f"Depends: libc6 (>= {needed})\n" if needed else "")
            + "Section: devel\nPriority: optional\n"
            f"Description: memory of running PyTorch processes, by line and module\n{paragraphs(system.DESCRIPTION)}\n").encode()


def fill(root, version):
    system.prepare(root)
    documents = os.path.join(root, DOCUMENTS)
    system.write(os.path.join(documents, "copyright"), copyright_file())
    system.write(os.path.join(documents, "changelog.Debian.gz"), system.compressed(changelog(version)))
    system.write(os.path.join(documents, "changelog.gz"), system.compressed(read(release.ROOT, "CHANGELOG.md")))
    system.compress(os.path.join(documents, "THIRD-PARTY.txt"))
    system.write(os.path.join(root, "usr/share/lintian/overrides/memtrace-bpf"), OVERRIDES.encode())
    sums = "".join(f"{hashlib.md5(read(path), usedforsecurity=False).hexdigest()}  {name}\n"
                   for name, path, _ in tree.files(root) if not os.path.islink(path))
    fields = control(root, version)
    system.write(os.path.join(root, "DEBIAN/md5sums"), sums.encode())
    system.write(os.path.join(root, "DEBIAN/control"), fields)
    stop = 'if [ "$1" = remove ]; then\n' + "".join(f"\t{line}\n" for line in system.STOP_SERVICES.splitlines()) + "fi\n"
    system.write(os.path.join(root, "DEBIAN/prerm"), f"#!/bin/sh\nset -e\n{stop}".encode(), 0o755)
    system.seal(root)


def main():
    system.static_only("deb")
    version = release.debian() + "-1"
    root = os.path.join(release.packages_dir(), "deb")
    path = os.path.join(release.packages_dir(), f"memtrace-bpf_{version}_{release.DEBIAN_ARCH[release.arch()]}.deb")
    fill(root, version)
    system.execute("dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, path)
    release.made(path)


main()
