#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Fresh Debian systems in folders, for tools/dev/distros.sh and tests/packages. A base system of each suite is made once, by debootstrap,
# and copied. Needs root. Other scripts source this file for its functions.
#
#   tools/dev/chroot.sh new SUITE              prints the folder of a new system
#   tools/dev/chroot.sh in FOLDER COMMAND ...  runs a command in it; what it started ends with it
#   tools/dev/chroot.sh remove FOLDER
set -euo pipefail

SYSTEMS=${MEMTRACE_VENVS:-${HOME:-/root}/.cache/memtrace-bpf}/distros

chroot_die() {
	printf 'chroot: %s\n' "$*" >&2
	exit 1
}

# The mirror of Debian that apt uses here; security and third parties' archives have other paths.
mirror() {
	apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null | grep -E '/debian/?$' | head -1
}

# A minimal system, unpacked once. debootstrap has no script of a suite that is newer than itself: all are alike.
base_system() { # suite
	local suite=$1 base=$SYSTEMS/$1 site script=()
	[ ! -e "$base/.complete" ] || return 0
	site=$(mirror)
	[ -n "$site" ] || chroot_die "apt has no archive of Debian here: run apt-get update"
	mkdir -p "$SYSTEMS"
	exec 8>"$base.lock" # held until the end of this process
	flock 8
	[ ! -e "$base/.complete" ] || return 0
	[ -e "/usr/share/debootstrap/scripts/$suite" ] || script=(/usr/share/debootstrap/scripts/sid)
	rm -rf "$base"
	debootstrap --variant=minbase "$suite" "$base" "$site" "${script[@]}" >"$base.debootstrap.log" 2>&1 ||
		chroot_die "debootstrap $suite failed: see $base.debootstrap.log"
	touch "$base/.complete"
}

# What this machine needs to reach its package archives holds in the system too.
copy_network_settings() { # root
	local file
	cp -L /etc/resolv.conf "$1/etc/resolv.conf"
	for file in /etc/hosts /etc/pip.conf /etc/npmrc; do
		[ ! -e "$file" ] || cp -L "$file" "$1$file"
	done
	if [ -d /usr/local/share/ca-certificates ]; then
		mkdir -p "$1/usr/local/share"
		cp -rL /usr/local/share/ca-certificates "$1/usr/local/share/"
	fi
}

# Prints the folder of a new system.
new_system() { # suite
	local root
	base_system "$1"
	root=$(mktemp -d "$SYSTEMS/$1.XXXXXX")
	cp -a "$SYSTEMS/$1/." "$root/"
	copy_network_settings "$root"
	echo "$root"
}

# Everything that a command starts ends with it: it is process 1 of its namespace. In a chroot the kernel would make no user
# namespaces, hence pivot_root. Mounts go with the namespace, so that files are all that is left to remove.
in_root() { # root command...
	unshare --mount --pid --fork --kill-child --propagation slave bash -c '
		root=$1; shift
		mount --bind "$root" "$root" && mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" && mount --rbind /dev "$root/dev" &&
			mkdir -p "$root/.outside" && cd "$root" && pivot_root . .outside && cd / && umount -l .outside || exit 1
		exec "$@"' in_root "$@" </dev/null
}

[ "${BASH_SOURCE[0]}" = "$0" ] || return 0
[ "$(id -u)" = 0 ] || chroot_die "needs root"
case ${1:-} in
new) new_system "$2" ;;
in) in_root "${@:2}" ;;
remove)
	case $2 in
	"$SYSTEMS"/*.??????) rm -rf "$2" ;;
	*) chroot_die "$2 is not a system that 'new' has made" ;;
	esac
	;;
*) chroot_die "usage: chroot.sh new SUITE | in FOLDER COMMAND ... | remove FOLDER" ;;
esac
