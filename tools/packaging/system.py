# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""What .deb and .rpm have in common: the tree that they install, and what stops the services when it is removed."""
import gzip
import os
import shutil
import subprocess

import release
import tree

DESCRIPTION = """memtrace-bpf attaches to a running PyTorch process and shows which Python line,
nn.Module and phase holds its memory, on CUDA and CPU. The process is not
restarted, stopped or changed: eBPF probes on PyTorch's own allocators see
every allocation and every free. It needs Linux 5.10 or newer with BTF."""

# As root, before the package's files go. Instances of memtrace-bpf-watch@ have links of their own.
STOP_SERVICES = """if [ -d /run/systemd/system ] && command -v systemctl >/dev/null; then
	systemctl stop memtrace-bpf-serve.service 'memtrace-bpf-watch@*.service' || true
fi
for link in /etc/systemd/system/*.wants/memtrace-bpf-serve.service /etc/systemd/system/*.wants/memtrace-bpf-watch@*.service; do
	[ ! -L "$link" ] || rm -f "$link"
done
"""


def static_only(what):
    """Packages are for many distributions: refuse a build that needs this machine's libraries."""
    lines = tree.beyond(os.path.join(release.stage(), "usr"))
    if lines:
        release.die(f"make {what} needs STATIC=1: this build needs libraries of this machine:\n  " + "\n  ".join(lines))


def glibc():
    """The version of glibc that the libraries for users' programs need, as "2.17", or None. The program itself needs none."""
    versions = [tree.needs(path)[1].get("GLIBC", ()) for _, path, _ in tree.files(release.stage()) if tree.is_elf(path)]
    return ".".join(map(str, max(versions))) if any(versions) else None


def write(path, content, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(content)
    os.chmod(path, mode)


def compressed(content):
    return gzip.compress(content, 9, mtime=0)


def compress(path):
    with open(path, "rb") as f:
        write(path + ".gz", compressed(f.read()))
    os.unlink(path)


def prepare(root):
    """Copies the staged tree to root/usr: manual pages compressed, modes and times fixed by seal()."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(os.path.join(release.stage(), "usr"), os.path.join(root, "usr"), symlinks=True)
    for name, path, mode in tree.files(root):
        if name.startswith("usr/share/man/"):
            compress(path)
        elif not os.path.islink(path):
            os.chmod(path, mode)


def seal(root):
    """Gives each file and folder the release's time, and folders their mode. Nothing is written below root afterwards."""
    for folder, folders, names in os.walk(root, topdown=False):
        for name in names + folders:
            os.utime(os.path.join(folder, name), (release.epoch(), release.epoch()), follow_symlinks=False)
        os.chmod(folder, 0o755)
    os.utime(root, (release.epoch(), release.epoch()))


def execute(*command):
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(release.epoch()), "LC_ALL": "C.UTF-8", "TZ": "UTC", "DPKG_DEB_THREADS_MAX": "1"}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        release.die(f"{command[0]} failed:\n{done.stdout}")
