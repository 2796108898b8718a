#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# vmlinux.h for the BPF programs: from the running kernel's BTF where it shows one and is for the same machine, else the
# committed minimal header. usage: gen_vmlinux.sh ARCH OUT
set -eu
arch=$1
out=$2
btf=${MEMTRACE_BTF:-/sys/kernel/btf/vmlinux}
committed=$(dirname "$0")/../../vmlinux/$arch/vmlinux.h
bpftool=$(command -v bpftool || echo /usr/sbin/bpftool)
if [ "$arch" != "$(uname -m)" ] && [ -z "${MEMTRACE_BTF:-}" ]; then
	cp "$committed" "$out"
elif [ -r "$btf" ] && "$bpftool" btf dump file "$btf" format c >"$out.tmp" 2>/dev/null && [ -s "$out.tmp" ]; then
	mv "$out.tmp" "$out"
else
	rm -f "$out.tmp"
	echo "gen_vmlinux.sh: no BTF at $btf, using the committed header for $arch" >&2
	cp "$committed" "$out"
fi
