#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Makes the source tarball of HEAD: `make source` calls it. Besides the repository's files it has bundles/ with what pages contain of
other projects, so that it builds without a network, and the file RELEASE, which says what the repository would. BUNDLE_page and
BUNDLE_docs list the files of each bundle, relative to node_modules.
"""
import hashlib
import io
import lzma
import os
import subprocess
import tarfile

import linked
import release


def add(tar, name, content):
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = len(content), release.epoch(), 0o644
    info.uname = info.gname = "root"
    tar.addfile(info, io.BytesIO(content))


def bundles():
    """[(name, content)]: folders named as tools/deps.sh looks for them."""
    entries = []
    for name, folder in linked.BUNDLES:
        with open(os.path.join(release.ROOT, folder, "package-lock.json"), "rb") as f:
            target = f"bundles/{name}-{hashlib.sha256(f.read()).hexdigest()[:12]}"
        for file in sorted(os.environ[f"BUNDLE_{name}"].split()):
            with open(os.path.join(linked.bundle(name), file), "rb") as f:
                entries.append((f"{target}/node_modules/{file}", f.read()))
        entries.append((f"{target}/.complete", b""))
    return entries


def main():
    if release.git("rev-parse", "HEAD") is None:
        release.die("this is not a repository: the source tarball is made in one")
    if release.changed():
        print("source: changes that are not committed are left out")
    name = f"memtrace-bpf-{release.pep440().removesuffix('.dirty')}"
    said = f"commit={release.commit()}\nepoch={release.epoch()}\ntagged={int(release.tagged())}\n"
    tar = subprocess.run(["git", "-C", release.ROOT, "-c", "tar.umask=0022", "archive", "--format=tar", f"--prefix={name}/", "HEAD"],
                         check=True, stdout=subprocess.PIPE).stdout
    out = io.BytesIO(tar)
    with tarfile.open(fileobj=out, mode="a", format=tarfile.PAX_FORMAT) as archive:
        for file, content in [("RELEASE", said.encode()), *bundles()]:
            add(archive, f"{name}/{file}", content)
    path = os.path.join(release.packages_dir(), f"{name}.tar.xz")
    with lzma.open(path, "wb", preset=6) as f:
        f.write(out.getvalue())
    release.made(path)


main()
