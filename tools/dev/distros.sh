#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Runs the README's first command, tools/demo.sh, on fresh Debian systems: in a minimal chroot each, from a clean copy of the
# last commit, with warnings as errors. Then records a job on Debian's own PyTorch (python3-torch), as root and as a user with a BPF
# token. Prints a line for each system: compilers, libbpf, the result. Needs root, and about 7 GB of disk, which it gives back.
#
#   tools/dev/distros.sh                   bookworm (12), trixie (13) and sid
#   tools/dev/distros.sh trixie ...        these suites of the mirror that apt uses here
#
# With MATRIX=1 in the environment the results go to tests/data/matrix/systems.json, too.
# KEEP=1 keeps the systems, for a look inside. Output of each: .output/distros/SUITE.log
set -euo pipefail
cd "$(dirname "$0")/../.."

. tools/dev/chroot.sh
OUTPUT=${OUTPUT:-.output}
LOGS=$OUTPUT/distros
root= # of the system at hand

die() {
	printf 'distros: %s\n' "$*" >&2
	exit 1
}

[ "$(id -u)" = 0 ] || die "chroots need root: sudo $0"
[ $# -gt 0 ] || set -- bookworm trixie sid
mkdir -p "$LOGS"

remove_system() {
	[ -z "$root" ] || [ -n "${KEEP:-}" ] || rm -rf "$root"
	root=
}
trap remove_system EXIT

in_system() { in_root "$root" "$@"; }

version() { # package
	in_system dpkg-query -W -f='${Version}' "$1" 2>/dev/null | sed 's/^[0-9]*://; s/[-+~].*//'
}

# Records three steps on the suite's own PyTorch, from its first allocation on. Prints its version, or what failed.
record_own_torch() {
	local torch
	in_system env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends python3-torch >&2 ||
		{ echo "cannot be installed" && return 1; }
	torch=$(in_system /usr/bin/python3 -c 'import torch; print(torch.__version__)') || { echo "cannot be imported" && return 1; }
	in_system bash -c '
		cd /root/memtrace-bpf &&
		.output/memtrace-bpf run -f -o /tmp/own.mtr -- /usr/bin/python3 tests/workloads/train_gpt.py --steps 3 >&2 &&
		.output/memtrace-bpf report /tmp/own.mtr >/tmp/own.txt && cat /tmp/own.txt >&2 &&
		grep -q "^  optimizer state " /tmp/own.txt && grep -q "model.py:[0-9]* (" /tmp/own.txt' ||
		{ echo "$torch, whose recording lacks lines or categories" && return 1; }
	echo "$torch"
}

# The same by a user without rights, in a user namespace with a BPF token; libbpf before 1.4 has none. Prints the result.
record_with_token() {
	in_system bash -c '
		useradd -m alice && cp -r /root/memtrace-bpf/tests/workloads /home/alice/ && cd /home/alice &&
		install /root/memtrace-bpf/.output/memtrace-bpf /root/memtrace-bpf/.output/memtrace-bpf-token /usr/local/bin/ || exit 1
		said=$(memtrace-bpf-token alice memtrace-bpf check)
		case $said in
		*"has no BPF tokens"*) echo "no tokens" && exit 0 ;;
		esac
		memtrace-bpf-token alice memtrace-bpf run -f -o token.mtr -- /usr/bin/python3 workloads/train_gpt.py --steps 3 >&2 &&
		[ "$(stat -c %U token.mtr)" = alice ] && memtrace-bpf report token.mtr >/tmp/token.txt && cat /tmp/token.txt >&2 &&
		grep -q "^  optimizer state " /tmp/token.txt && grep -q "model.py:[0-9]* (" /tmp/token.txt && echo recorded' || echo FAILED
}

failed=0
try_suite() {
	local suite=$1 log=$LOGS/$1.log begin=$SECONDS result=passed clang own token gcc python
	root=$(new_system "$suite")
	mkdir -p "$root/root/memtrace-bpf"
	git archive HEAD | tar -x -C "$root/root/memtrace-bpf"
	in_system env HOME=/root WERROR=1 OUTPUT=.output /root/memtrace-bpf/tools/demo.sh 3 >"$log" 2>&1 || result="FAILED, see $log"
	grep -q ' peak .* allocated' "$log" || result="FAILED: no report, see $log"
	grep -q '^  parameter ' "$log" || result="$result; tensors have no names there"
	own=$(record_own_torch 2>>"$log") || result="FAILED: Debian's PyTorch $own, see $log"
	token=$(record_with_token 2>>"$log")
	[ "$token" != FAILED ] || result="FAILED: by a user with a BPF token, see $log"
	clang=$(in_system clang -dumpversion 2>/dev/null) || clang=none
	gcc=$(in_system gcc -dumpfullversion 2>/dev/null) || gcc=none
	python=$(in_system python3 -c 'import platform; print(platform.python_version())' 2>/dev/null) || python=none
	[ -z "${MATRIX:-}" ] || tools/dev/matrix.py add systems "$(printf '{"suite":"%s","libc":"glibc %s","gcc":"%s","clang":"%s","libbpf":"%s","python":"%s","torch":"%s","token":"%s","result":"%s"}' \
		"$suite" "$(version libc6)" "$gcc" "$clang" "$(version libbpf-dev)" "$python" "$own" "$token" "${result/FAILED/failed}")"
	printf '%-10s gcc %-8s clang %-8s libbpf %-7s Python %-7s PyTorch of Debian %-10s BPF token: %-9s %s (%d s)\n' "$suite" "$gcc" "$clang" "$(version libbpf-dev)" "$python" "$own" "$token" "$result" \
		$((SECONDS - begin))
	case $result in
	passed*) ;;
	*) failed=$((failed + 1)) ;;
	esac
	remove_system
}

for suite; do
	try_suite "$suite"
done
[ $failed = 0 ]
