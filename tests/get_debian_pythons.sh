#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Fetches the CPythons of $versions from Debian's unstable archive into a directory, without installing
# anything and without root, and writes DESTDIR/python3.13 and so on, which run them with
# their own libc. Exit status 77, with the reason, where that cannot be done here.
#
# usage: tests/get_debian_pythons.sh DESTDIR
set -u
versions="3.13 3.14 3.15"

skip()
{
	echo "get_debian_pythons.sh: skipped: $*" >&2
	exit 77
}

if [ $# -ne 1 ]; then
	echo "usage: $0 DESTDIR" >&2
	exit 2
fi
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}

[ "$(uname -m)" = x86_64 ] || skip "x86-64 only"
for tool in apt-get dpkg-deb; do
	command -v $tool >/dev/null || skip "no $tool: this needs a Debian system"
done
[ -r $keyring ] || skip "no $keyring to check the archive's signature with"

mkdir -p "$1/apt/lists/partial" "$1/apt/cache/archives/partial" "$1/deb" "$1/root" || exit 1
dest=$(cd "$1" && pwd) || exit 1
echo "deb [arch=amd64 signed-by=$keyring] $mirror sid main" >"$dest/apt/sources.list"

apt()
{
	apt-get -q -oDir::Etc::SourceList="$dest/apt/sources.list" -oDir::Etc::SourceParts=/dev/null \
		-oDir::State::Lists="$dest/apt/lists" -oDir::Cache="$dest/apt/cache" \
		-oAPT::Architecture=amd64 -oAPT::Architectures::=amd64 -oAPT::Sandbox::User=root \
		-oAcquire::Languages=none -oAcquire::Retries=2 -oAPT::Update::Error-Mode=any "$@"
}

apt update >"$dest/apt/log" 2>&1 || skip "$mirror is not reachable: $(tail -n 1 "$dest/apt/log")"
packages="libc6 libexpat1 zlib1g libffi8"
for v in $versions; do
	packages="$packages python$v-minimal libpython$v-minimal libpython$v-stdlib"
done
# shellcheck disable=SC2086
(cd "$dest/deb" && apt download $packages) >>"$dest/apt/log" 2>&1 ||
	skip "packages cannot be had: $(tail -n 1 "$dest/apt/log")"
for deb in "$dest"/deb/*.deb; do
	dpkg-deb -x "$deb" "$dest/root" || exit 1
done

for v in $versions; do
	cat >"$dest/python$v" <<EOF
#!/bin/sh
export PYTHONHOME='$dest/root/usr' PYTHONDONTWRITEBYTECODE=1
exec '$dest/root/usr/lib64/ld-linux-x86-64.so.2' --library-path \\
	'$dest/root/usr/lib/x86_64-linux-gnu' '$dest/root/usr/bin/python$v' "\$@"
EOF
	chmod +x "$dest/python$v"
	"$dest/python$v" -c 'import sys; print(sys.version)' || exit 1
done
