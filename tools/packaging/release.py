#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""
Which release a build is, for the scripts that make packages. They are called by tools/packaging/packages.mk, which sets VERSION,
ARCH, OUTPUT and STAGE.

    tools/packaging/release.py epoch|commit|pep440|debian|rpm       prints one word

The version comes from the Makefile. When HEAD is not the tag vVERSION, the packages' versions name the commit. A source tarball has
no repository; its file RELEASE says which commit it is.
"""
import datetime
import functools
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SUMMARY = "Attach to a running PyTorch process and see which line holds its memory"
LICENSE = "GPL-2.0-only OR BSD-2-Clause"
# Of what the packages contain: the static program has wolfSSL in it.
LICENSE_WITH_LIBRARIES = f"({LICENSE}) AND GPL-2.0-or-later"
DEBIAN_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}


def die(text):
    sys.exit(f"{os.path.basename(sys.argv[0])}: {text}")


def git(*args):
    """The output of git, or None: no git, no repository, or no answer."""
    if not os.path.exists(os.path.join(ROOT, ".git")):
        return None
    try:
        return subprocess.run(["git", "-C", ROOT, *args], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


@functools.lru_cache(maxsize=None)
def tarball():
    """What the file RELEASE of a source tarball says, "NAME=VALUE" a line; {} in a repository."""
    try:
        with open(os.path.join(ROOT, "RELEASE"), encoding="utf-8") as f:
            return dict(line.strip().split("=", 1) for line in f if "=" in line)
    except OSError:
        return {}


@functools.lru_cache(maxsize=None)
def version():
    if os.environ.get("VERSION"):
        return os.environ["VERSION"]
    with open(os.path.join(ROOT, "Makefile"), encoding="utf-8") as f:
        return re.search(r"^VERSION := (\S+)$", f.read(), re.M).group(1)


@functools.lru_cache(maxsize=None)
def commit():
    """The commit's first 10 digits, or ""."""
    return git("rev-parse", "--short=10", "HEAD") or tarball().get("commit", "")


@functools.lru_cache(maxsize=None)
def epoch():
    """The time that every file of every package has, in seconds: SOURCE_DATE_EPOCH, or when the commit was made."""
    value = os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct") or tarball().get("epoch")
    if not value:
        die("there is no repository and no file RELEASE: set SOURCE_DATE_EPOCH")
    return int(value)


def day():
    return datetime.datetime.fromtimestamp(epoch(), datetime.timezone.utc)


@functools.lru_cache(maxsize=None)
def changed():
    """True if tracked files differ from the commit."""
    return bool(git("status", "--porcelain", "--untracked-files=no"))


@functools.lru_cache(maxsize=None)
def tagged():
    if tarball() and git("rev-parse", "HEAD") is None:
        return tarball().get("tagged") == "1"
    tag = git("rev-parse", "--verify", "--quiet", f"v{version()}^{{commit}}")
    return tag is not None and tag == git("rev-parse", "HEAD") and not changed()


def pep440():
    if tagged() or not commit():
        return version()
    return f"{version()}+g{commit()}" + (".dirty" if changed() else "")


def debian():
    """In Debian's and in rpm's order, as in PEP 440's: after the release of this version, before the next."""
    if tagged() or not commit():
        return version()
    return f"{version()}+git{day():%Y%m%d}.{commit()}" + (".dirty" if changed() else "")


rpm = debian


def arch():
    return os.environ.get("ARCH") or os.uname().machine


def packages_dir():
    path = os.path.join(os.environ.get("OUTPUT", os.path.join(ROOT, ".output")), "packages")
    os.makedirs(path, exist_ok=True)
    return path


def stage():
    """The folder that `make install` has filled, with usr/ in it."""
    path = os.environ.get("STAGE") or die("STAGE is not set: run make wheel, deb, rpm, image or release")
    if not os.path.exists(os.path.join(path, "usr/bin/memtrace-bpf")):
        die(f"there is no program in {path}")
    return path


def made(path):
    """Says what was made: the last line of each script."""
    print(f"{path}  {os.path.getsize(path):,} bytes")


if __name__ == "__main__":
    WORDS = {"epoch": epoch, "commit": commit, "pep440": pep440, "debian": debian, "rpm": rpm}
    if len(sys.argv) != 2 or sys.argv[1] not in WORDS:
        die("give one of: " + " ".join(WORDS))
    print(WORDS[sys.argv[1]]())
