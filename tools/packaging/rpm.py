#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Makes the .rpm from the staged tree: `make STATIC=1 rpm` calls it. Any rpmbuild will do, also that of Debian's package rpm."""
import os
import shutil

import release
import system
import tree

DOCUMENTS = "/usr/share/doc/memtrace-bpf"
LICENSES = "/usr/share/licenses/memtrace-bpf"
# Folders that are this package's own: removed with it.
OWN = ("/usr/lib/memtrace-bpf", DOCUMENTS, LICENSES)
# Time, host and compression are fixed. Old rpm, as in Amazon Linux 2, reads xz. The files are complete: nothing is added, stripped or
# compressed, and no dependencies are looked for, since the program needs no library.
MACROS = {
    "_topdir": "@TOP@", "_tmppath": "@TOP@", "_rpmdir": "@TOP@", "_buildrootdir": "@TOP@", "_buildhost": "localhost", "_build_id_links": "none",
    "use_source_date_epoch_as_buildtime": "1", "source_date_epoch_from_changelog": "0", "clamp_mtime_to_source_date_epoch": "1",
    "_binary_payload": "w6.xzdio", "_binary_filedigest_algorithm": "8", "debug_package": "%{nil}", "__os_install_post": "%{nil}",
    "_build_name_fmt": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm", "_dbpath": "@TOP@/db",
}
SPEC = """Name: memtrace-bpf
Version: {version}
Release: 1
Summary: {summary}
License: {license}
AutoReqProv: no

%description
{description}

%install
cp -a {root}/. %{{buildroot}}/

%preun -p <lua>
if arg[2] == "0" or arg[2] == 0 then
	if posix.access("/bin/sh", "x") then
		os.execute([==[
{stop}]==])
	end
end

%files
%defattr(-, root, root)
{files}
"""


def fill(root):
    system.prepare(root)
    for name in ("BSD-2-Clause.txt", "GPL-2.0.txt"):
        target = root + os.path.join(LICENSES, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(os.path.join(release.ROOT, "LICENSES", name), target)
    shutil.copyfile(os.path.join(release.ROOT, "CHANGELOG.md"), os.path.join(root + DOCUMENTS, "CHANGELOG.md"))
    system.seal(root)


def listed(root):
    """Lines of %files: each file, and the folders that are the package's own."""
    own = sorted("/" + os.path.relpath(folder, root) for folder, _, _ in os.walk(root))
    lines = [f"%dir %attr(0755, root, root) {folder}" for folder in own if any((folder + "/").startswith(o + "/") for o in OWN)]
    for name, path, mode in tree.files(root):
        kind = "%doc " if f"/{name}".startswith(("/usr/share/man/", DOCUMENTS)) else "%license " if f"/{name}".startswith(LICENSES) else ""
        lines.append(f"{kind}/{name}" if os.path.islink(path) else f"{kind}%attr({mode:04o}, root, root) /{name}")
    return "\n".join(lines)


def main():
    system.static_only("rpm")
    if not shutil.which("rpmbuild"):
        release.die("there is no rpmbuild: install the package rpm, or rpm-build (tools/deps.sh packaging)")
    top = os.path.join(release.packages_dir(), "rpm")
    shutil.rmtree(top, ignore_errors=True)
    root = os.path.join(top, "tree")
    fill(root)
    spec = os.path.join(top, "memtrace-bpf.spec")
    text = SPEC.format(version=release.rpm(), summary=release.SUMMARY, license=release.LICENSE_WITH_LIBRARIES, description=system.DESCRIPTION, root=root,
                       stop=system.STOP_SERVICES, files=listed(root))
    system.write(spec, text.encode())
    defines = [word for name, value in MACROS.items() for word in ("--define", f"{name} {value.replace('@TOP@', top)}")]
    system.execute("rpmbuild", "-bb", "--target", f"{release.arch()}-linux", *defines, spec)
    name = f"memtrace-bpf-{release.rpm()}-1.{release.arch()}.rpm"
    path = os.path.join(release.packages_dir(), name)
    os.replace(os.path.join(top, name), path)
    release.made(path)


main()
