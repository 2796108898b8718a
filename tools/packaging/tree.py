# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""What is in a staged tree: files in a fixed order and with fixed modes, and what its ELF files need from the host."""
import os
import re
import subprocess

# glibc's own libraries: what links only these runs wherever that glibc or a newer one is.
GLIBC = re.compile(r"(libc|libm|libdl|libpthread|librt)\.so\.\d+|ld-linux.*\.so\.\d+")


def files(root):
    """[(path relative to root, whole path, mode)] of all files, sorted by path. Links to files count as what they lead to."""
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            found.append((os.path.relpath(path, root), path, 0o755 if os.access(path, os.X_OK) and is_program(path) else 0o644))
    return sorted(found)


def is_program(path):
    """True if the file is meant to be executed: a script, or an ELF file that is not a library."""
    with open(path, "rb") as f:
        begin = f.read(4)
    return begin[:2] == b"#!" or (begin == b"\x7fELF" and ".so" not in os.path.basename(path))


def is_elf(path):
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


def needs(path):
    """(libraries, glibc) of an ELF file: the names of the libraries that it links, and the newest glibc version it needs, as (2, 17)."""
    text = subprocess.run(["readelf", "-dVW", path], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "LC_ALL": "C"}).stdout
    versions = [tuple(int(n) for n in v.split(".")) for v in re.findall(r"Name: GLIBC_([0-9.]+)", text)]
    return sorted(set(re.findall(r"Shared library: \[([^\]]+)\]", text))), max(versions, default=None)


def beyond(root, glibc):
    """Lines that name each ELF file below root that needs more than that version of glibc: () of (2, 17)."""
    lines = []
    for name, path, _ in files(root):
        if not is_elf(path):
            continue
        libraries, newest = needs(path)
        foreign = [lib for lib in libraries if not GLIBC.fullmatch(lib)]
        if foreign:
            lines.append(f"{name} needs {', '.join(foreign)}")
        elif newest and newest > glibc:
            lines.append(f"{name} needs glibc {newest[0]}.{newest[1]}")
    return lines
