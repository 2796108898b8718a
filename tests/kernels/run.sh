#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# The built program on another kernel, under emulation: attaches to a process that calls the hooks a known number of
# times, and counts. Needs virtme-ng (PyPI) and qemu-system-x86 (Debian), and a kernel image with its modules:
#
#   apt-get install qemu-system-x86 linux-image-amd64; pip install virtme-ng
#   tests/kernels/run.sh /boot/vmlinuz-6.1.0-*-amd64
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$(cd "$here/../.." && pwd)/${OUTPUT:-.output}/memtrace-bpf

inside() { # the part that runs on that kernel
	local dir=$1 python pid
	python=$(command -v /usr/bin/python3.11 || command -v python3)
	uname -r
	"$python" "$here/target.py" "$dir/libc10.so" 20 >"$dir/target.log" &
	pid=$!
	sleep 8 # everything takes its time under emulation
	"$program" check -p $pid || true
	"$program" record -p $pid -o "$dir/k.mtr"
	"$program" report "$dir/k.mtr" --format json >"$dir/report.json"
	"$python" - "$dir/report.json" <<-'PYTHON'
		import json, sys
		d = json.load(open(sys.argv[1]))
		dev, rows = d["devices"][0], d["rows"]
		got = dev["allocs"], dev["frees"], d["capture"]["lost"], dev["peak_allocated"], [r["function"] for r in rows]
		print(got)
		assert got[:3] == (250, 125, 0) and got[4] == ["allocate"], "not what the target did"
		print("PASS")
	PYTHON
}

if [ "${1:-}" = --inside ]; then
	inside "$2"
	exit
fi
[ $# -gt 0 ] || { sed -n '4,9p' "$0" >&2; exit 64; }
for kernel in "$@"; do
	dir=$(mktemp -d)
	gcc -O2 -shared -fPIC -o "$dir/libc10.so" "$here/c10.c"
	vng --disable-kvm --run "$kernel" --user root --rwdir="$dir" -m 2G --cpus 2 -- \
		"$here/run.sh" --inside "$dir" >"$dir/log" 2>&1 || true
	if grep -q '^PASS' "$dir/log"; then
		echo "PASS $kernel"
		rm -rf "$dir"
	else
		echo "FAIL $kernel: $dir/log"
		exit 1
	fi
done
