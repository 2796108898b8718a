# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""What is in a staged tree: files in a fixed order and with fixed modes, and what its ELF files need from the host."""
import os
import re
import subprocess

# Libraries of the host that a file may link: glibc's, and the C++ library, which PyTorch needs as well.
COMMON = re.compile(r"(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s)\.so\.\d+|ld-linux.*\.so\.\d+")
# Newest symbol versions that manylinux2014 permits (PEP 599).
MANYLINUX2014 = {"GLIBC": (2, 17), "GLIBCXX": (3, 4, 19), "CXXABI": (1, 3, 7), "GCC": (4, 8, 0)}


def files(root):
    """[(path relative to root, whole path, mode)] of all files, sorted by path. Links to files count as what they lead to."""
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            found.append((os.path.relpath(path, root), path, 0o755 if is_program(path) else 0o644))
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
    """(libraries, versions) of an ELF file: names of the libraries that it links, and by symbol version's name the newest: {"GLIBC": (2, 17)}."""
    text = subprocess.run(["readelf", "-dVW", path], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "LC_ALL": "C"}).stdout
    newest = {}
    for name, version in re.findall(r"Name: ([A-Z]+)_([0-9.]+)", text):
        newest[name] = max(newest.get(name, ()), tuple(int(n) for n in version.split(".")))
    return sorted(set(re.findall(r"Shared library: \[([^\]]+)\]", text))), newest


def beyond(root, permitted=None):
    """Lines that name each ELF file below root that needs uncommon libraries, or newer symbol versions than permitted."""
    lines = []
    for name, path, _ in files(root):
        if not is_elf(path) or os.path.islink(path):
            continue
        libraries, newest = needs(path)
        wanted = [lib for lib in libraries if not COMMON.fullmatch(lib)]
        wanted += [f"{kind} {'.'.join(map(str, newest[kind]))}" for kind in sorted(permitted or {}) if newest.get(kind, ()) > permitted[kind]]
        if wanted:
            lines.append(f"{name} needs {', '.join(wanted)}")
    return lines
