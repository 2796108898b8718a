#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Installs what this machine lacks; quick when nothing is missing.
#
#   tools/deps.sh build          compiler, libraries and tools that the program is built with
#   tools/deps.sh torch          a Python environment with PyTorch, for the demo and the benchmarks
#   tools/deps.sh test           what `make test` needs: the same, Debian's own PyTorch, shells, what make lint checks code with
#   tools/deps.sh nightly        what `tests/run.py --ring nightly` needs besides; each of these is a part of it:
#   tools/deps.sh versions       other versions of PyTorch (26 GB)
#   tools/deps.sh pages          Chromium, and the programs of tests/foreign that open pages and exports
#   tools/deps.sh guests         gVisor, images that squashfuse mounts, and musl
#   tools/deps.sh golden         what tests/e2e/test_kernels.py emulates: the oldest kernel, and one for aarch64
#   tools/deps.sh formats        what reads our exports in make formats, besides: TensorBoard, pandas, prometheus_client, flamegraph.pl
#   tools/deps.sh api            clients of the HTTP API: requests, schemathesis, openapi-spec-validator
#   tools/deps.sh tables         what reads tables, schemas and traces: DuckDB, pyarrow, polars, jsonschema, MCP's client, Perfetto
#   tools/deps.sh engines        Spark and ClickHouse, which query tables, too (1.5 GiB)
#   tools/deps.sh fleet          Prometheus, pprof, and what metrics and manifests have to suit
#   tools/deps.sh charts         the same, and Helm and kubeconform, which are built here (three minutes)
#   tools/deps.sh collector      an OpenTelemetry collector, which is built here (three minutes)
#   tools/deps.sh lint           what make lint checks code with: clang-format, shellcheck, ruff, and actionlint if go is here to build it
#   tools/deps.sh browsers       Firefox, which make browsers opens pages in, besides Chromium
#   tools/deps.sh fuzz           libFuzzer, for the clang that is there
#   tools/deps.sh estimate       libraries whose training scripts make estimate-truth estimates: transformers, accelerate, torchvision
#   tools/deps.sh zoo            libraries that people train with, for make zoo
#   tools/deps.sh loggers        what step figures are sent to: TensorBoard, W&B, MLflow
#   tools/deps.sh pytest         the newest pytest and the oldest that our plugin supports, each with pytest-xdist
#   tools/deps.sh bench          other tools that make bench compares with; what cannot be had is named and left out
#   tools/deps.sh kernels        an emulator, and other kernels' images, which are not installed but unpacked
#   tools/deps.sh distros        debootstrap
#   tools/deps.sh packaging      what make release and make test-packages need: rpmbuild, debootstrap, lintian, skopeo
#   tools/deps.sh arm64          a cross compiler, an emulator, and what an aarch64 program is built and run with, unpacked in a folder
#   tools/deps.sh kernels-arm64  the same for aarch64
#   tools/deps.sh torch-arm64    PyTorch for aarch64, unpacked in a folder
#   tools/deps.sh kernel-images  prints the paths of those, one a line; kernel-images-arm64 the others
#   tools/deps.sh python ROLE    prints the interpreter of an environment: main, debian, newest, middle, old, oldest, cu12, bench, estimate, zoo, pytest, pytest-oldest, readers, tables, engines, api, fleet or loggers
#   tools/deps.sh arm64-root     prints the folder with Debian for aarch64; arm64-torch that with PyTorch
#   tools/deps.sh pythons        prints all CPythons that are here, one of each version, separated by colons
#   tools/deps.sh foreign        prints the folder with node_modules of the foreign readers
#   tools/deps.sh page           prints the folder with node_modules of the page that is exported; gets it if it is not there
#   tools/deps.sh docs           likewise, of the documentation that serve shows
#   tools/deps.sh prometheus     prints the folder with prometheus and promtool
#   tools/deps.sh alertmanager   prints the path of prometheus-alertmanager
#   tools/deps.sh pprof          prints the path of Go's pprof
#   tools/deps.sh helm           prints the folder with helm, kubeconform and the schemas of the Prometheus operator
#   tools/deps.sh otelcol        prints the path of the OpenTelemetry collector
#   tools/deps.sh ruff           prints the path of ruff; actionlint that of actionlint
#   tools/deps.sh zig            prints the path of zig, a C compiler that links for older C libraries; gets it if it is not there
#   tools/deps.sh packages P ... installs Debian packages
#   tools/deps.sh source P DIR   downloads the source of a Debian package, as this distribution has it; a suite may follow
#
# The environments lie in MEMTRACE_VENVS (default ~/.cache/memtrace-bpf) and are used again.
set -euo pipefail
cd "$(dirname "$0")/.."

VENVS=${MEMTRACE_VENVS:-${HOME:-/root}/.cache/memtrace-bpf}
MAIN_TORCH=2.11.0
OLD_TORCH=2.1.2
OLDEST_TORCH=1.13.1 # the oldest that is supported
CU12_TORCH=2.4.1 # for CUDA 12
MIDDLE_TORCH=2.8.0
MEMRAY=1.20.0
NEED_MIB=6144 # of disk, for one environment

# PACKAGE, or PACKAGE:COMMAND where another package may provide the command as well.
BUILD_PACKAGES=(make:make gcc:gcc g++:g++ clang:clang llvm libbpf-dev bpftool:bpftool libelf-dev libdw-dev zlib1g-dev libzstd-dev
	libjansson-dev libncurses-dev libcmocka-dev python3:python3 ca-certificates)
[ "${SERVE:-1}" = 0 ] || BUILD_PACKAGES+=(libmicrohttpd-dev libcurl4-gnutls-dev libgnutls28-dev libseccomp-dev)
TORCH_PACKAGES=(python3:python3 python3-venv util-linux)
DEBIAN_PACKAGES=(python3-torch python3-numpy)
TEST_PACKAGES=(curl:curl mandoc:mandoc util-linux python3-pyte python3-jsonschema zsh:zsh fish:fish libjemalloc-dev libmimalloc-dev
	libgoogle-perftools-dev musl-tools:musl-gcc)
PAGES_PACKAGES=(nodejs:node npm:npm chromium:chromium fonts-dejavu-core)
GUESTS_PACKAGES=(runsc:runsc squashfuse:squashfuse squashfs-tools:mksquashfs musl-tools:musl-gcc)
LINT_PACKAGES=(clang-format:clang-format shellcheck:shellcheck python3-venv)
RUFF=0.17.6
ACTIONLINT=1.7.12
ZIG=0.17.1
FORMATS_PACKAGES=(python3-venv perl:perl libdevel-nytprof-perl) # the last has flamegraph.pl in it
PACKAGING_PACKAGES=(git:git binutils:readelf dpkg:dpkg-deb rpm:rpmbuild xz-utils:xz python3:python3 python3-venv util-linux debootstrap:debootstrap
	lintian:lintian skopeo:skopeo)
BENCH_PACKAGES=(bpftrace:bpftrace heaptrack:heaptrack gdb:gdb)

say() { printf 'deps: %s\n' "$*" >&2; }
die() {
	say "$*"
	exit 1
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		die "not root, and there is no sudo: as root, run: $*"
	fi
}

# ---- packages ---------------------------------------------------------------------------------------------

have_package() {
	case $1 in
	*:*) ! PATH=$PATH:/usr/sbin command -v "${1#*:}" >/dev/null || return 0 ;;
	esac
	[ "$(dpkg-query -W -f='${db:Status-Status}' "${1%%:*}" 2>/dev/null)" = installed ]
}

packages() {
	local missing=() p
	for p in "$@"; do
		have_package "$p" || missing+=("${p%%:*}")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	command -v apt-get >/dev/null || die "this is not Debian or Ubuntu; install the equivalents of: ${missing[*]}"
	say "installing ${missing[*]}"
	# The lists may be old or absent: only then is an update needed.
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2 ||
		{
			as_root apt-get update -q >&2
			as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2
		} || die "apt-get could not install ${missing[*]}"
}

# clang's runtime is packaged apart from it, by version; where it came from elsewhere it has its own with it.
fuzz_packages() {
	local clang=${CLANG:-clang} lib version
	lib=$("$clang" -print-runtime-dir)/libclang_rt.fuzzer-$(uname -m).a
	[ ! -e "$lib" ] || return 0
	version=$("$clang" -dumpversion)
	packages "libclang-rt-${version%%.*}-dev"
}

# Debian's kernels for the cloud: small, and all that is needed is built in. PACKAGE, or PACKAGE@SUITE for one of another suite. One
# without uprobe.multi (before 6.6), one with, one that allocates task storage otherwise (from 6.19 on).
KERNEL_PACKAGES=(linux-image-cloud-amd64@bullseye linux-image-cloud-amd64 linux-image-6.12-cloud-amd64 linux-image-cloud-amd64@forky)

# apt, but with another suite's lists, in a folder of their own: this machine's are not touched.
#   suite_apt FOLDER apt-cache depends PACKAGE
suite_apt() {
	local dir=$1 command=$2
	shift 2
	APT_CONFIG="$dir/apt.conf" "$command" -q -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$dir/lists" \
		-o Dir::State::status=/dev/null -o Dir::Cache="$dir/cache" -o Acquire::Languages=none "$@"
}

# The lists of a suite, for this machine's architecture or another, from the mirror that apt has Debian from. Prints the folder; fails
# where there is none.
#   suite_lists SUITE [ARCHITECTURE]
suite_lists() {
	local suite=$1 dir=$VENVS/apt-$1${2:+-$2} mirror
	mirror=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' | sed -n 's/^Debian Debian //p' | head -1)
	[ -n "$mirror" ] || return 1
	mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
	: >"$dir/apt.conf"
	[ -z "${2:-}" ] || printf 'APT::Architecture "%s";\nAPT::Architectures { "%s"; };\n' "$2" "$2" >"$dir/apt.conf"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$dir/sources.list"
	suite_apt "$dir" apt-get update >&2 || return 1
	echo "$dir"
}

# Those of a package's dependencies whose names begin so.
depends() {
	sed -n "s/^ *Depends: \($1.*\)/\1/p" | head -1
}

# The same for aarch64, and one with pages of 16 KiB.
ARM64_KERNELS=(linux-image-cloud-arm64@bullseye linux-image-cloud-arm64@bookworm linux-image-cloud-arm64@trixie linux-image-cloud-arm64@forky
	linux-image-arm64-16k@trixie)

# Unpacks kernels.
#   kernel_images PACKAGE ...
kernel_images() {
	local meta package binary dir apt image
	dir=$VENVS/kernels
	mkdir -p "$dir"
	for meta in "$@"; do
		[ ! -e "$dir/$meta/.complete" ] || continue
		apt=()
		case $meta in
		*@*)
			apt=(suite_apt "$(suite_lists "${meta#*@}" "$(sed -n 's/.*-\(arm64\).*/\1/p' <<<"$meta")")") || {
				say "apt has no mirror of Debian with ${meta#*@}: $meta is left out"
				continue
			}
			;;
		esac
		package=$("${apt[@]}" apt-cache depends "${meta%@*}" 2>/dev/null | depends linux-image-)
		[ -n "$package" ] || {
			say "this distribution has no $meta: that kernel is left out"
			continue
		}
		# Newer ones have the image in a package of its own.
		binary=$("${apt[@]}" apt-cache depends "$package" 2>/dev/null | depends linux-binary-)
		package=${binary:-$package}
		say "unpacking $package"
		rm -rf "${dir:?}/$meta"
		mkdir -p "$dir/$meta/boot"
		(cd "$dir/$meta" && "${apt[@]}" apt-get download -q "$package" >&2 && dpkg-deb -x ./*.deb . && rm -r ./*.deb) || die "cannot get $package"
		for image in "$dir/$meta"/usr/lib/modules/*/vmlinuz; do
			[ ! -e "$image" ] || mv "$image" "$dir/$meta/boot/vmlinuz-$(basename "$(dirname "$image")")"
		done
		rm -rf "${dir:?}/$meta/usr" "${dir:?}/$meta/lib"
		touch "$dir/$meta/.complete"
	done
}

# The emulator, too.
kernels() {
	packages qemu-system-x86:qemu-system-x86_64 gcc:gcc
	kernel_images "$@"
}

print_kernels() {
	local meta
	for meta in "$@"; do
		[ ! -e "$VENVS/kernels/$meta/.complete" ] || ls "$VENVS/kernels/$meta"/boot/vmlinuz-*
	done
}

# ---- another architecture -----------------------------------------------------------------------------------

# Debian for aarch64, unpacked and never configured: headers and libraries for the cross compiler, libraries and a Python for the
# emulators.
ARM64_PACKAGES=(gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user-static:qemu-aarch64-static qemu-system-arm:qemu-system-aarch64)
ARM64_SUITE=bookworm
ARM64_ROOT=(libc6-dev libstdc++-12-dev libbpf-dev libelf-dev libdw-dev liblzma-dev libbz2-dev zlib1g-dev libzstd-dev libjansson-dev libncurses-dev libcmocka-dev
	libmicrohttpd-dev libcurl4-gnutls-dev libgnutls28-dev libseccomp-dev libwolfssl-dev libc-ares-dev python3)

arm64_dir() {
	echo "$VENVS/arm64-$(printf '%s\n' $ARM64_SUITE "${ARM64_ROOT[@]}" static-libraries | sha256sum | cut -c1-12)"
}

arm64_root() {
	local dir lists deb fields link base
	dir=$(arm64_dir)
	[ ! -e "$dir/.complete" ] || return 0
	mkdir -p "$VENVS"
	lists=$(suite_lists $ARM64_SUITE arm64) || die "apt has no mirror of Debian with $ARM64_SUITE for arm64"
	say "unpacking Debian's $ARM64_SUITE for arm64 into $dir"
	rm -rf "${dir:?}"
	mkdir -p "$dir"
	suite_apt "$lists" apt-get install -y --download-only --no-install-recommends "${ARM64_ROOT[@]}" >&2 ||
		die "cannot get packages of $ARM64_SUITE for arm64"
	for link in bin sbin lib; do
		mkdir -p "$dir/usr/$link"
		ln -s usr/$link "$dir/$link"
	done
	for deb in "$lists"/cache/archives/*.deb; do
		# The package of each static library, for tools/packaging/linked.py: path, package, version, source, its version.
		fields=$(dpkg-deb -W --showformat='${Package}\t${Version}\t${source:Package}\t${source:Version}' "$deb")
		dpkg-deb --fsys-tarfile "$deb" | tar -t | sed -n "s|^\.\(/.*\.a\)\$|\1\t$fields|p" >>"$dir/static-libraries"
		dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink --no-same-owner -C "$dir" || die "cannot unpack $deb"
	done
	rm -f "$lists"/cache/archives/*.deb
	# Links to a library's whole path would lead out of the folder.
	while read -r link base; do
		ln -sfn "$(realpath -sm --relative-to="$(dirname "$link")" "$dir$base")" "$link"
	done < <(find "$dir/usr/lib" -lname '/*' -printf '%p %l\n')
	touch "$dir/.complete"
}

# PyTorch for that Python, from the package index, unpacked by this machine's pip: it has no other way to take packages of another
# architecture. Its requirements are named, since pip looks at this machine for their conditions.
ARM64_TORCH=(torch==2.9.1 filelock typing_extensions sympy mpmath networkx jinja2 markupsafe fsspec)
arm64_torch() {
	local dir
	dir=$(arm64_torch_dir)
	[ ! -e "$dir/.complete" ] || return 0
	venvs main
	say "unpacking ${ARM64_TORCH[0]} for aarch64 into $dir"
	rm -rf "$dir"
	"$VENVS/main/bin/pip" install -q --disable-pip-version-check --no-cache-dir --no-compile --no-deps --target "$dir" --only-binary=:all: \
		--implementation cp --python-version 3.11 --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 \
		--platform manylinux2014_aarch64 "${ARM64_TORCH[@]}" >&2 || die "pip could not get PyTorch for aarch64"
	touch "$dir/.complete"
}

arm64_torch_dir() {
	echo "$VENVS/arm64-torch-$(printf '%s\n' "${ARM64_TORCH[@]}" | sha256sum | cut -c1-12)"
}

print_arm64_torch() {
	[ -e "$(arm64_torch_dir)/.complete" ] || die "no PyTorch for aarch64 in $VENVS: run tools/deps.sh torch-arm64"
	arm64_torch_dir
}

print_arm64_root() {
	[ -e "$(arm64_dir)/.complete" ] || die "no Debian for aarch64 in $VENVS: run tools/deps.sh arm64"
	arm64_dir
}

# ---- Python environments ------------------------------------------------------------------------------------

# The first of these versions that is here and can make an environment. A name in PATH may be a wrapper
# that knows no such version, so each one is asked.
find_python() {
	local version candidate
	for version in "$@"; do
		for candidate in "python$version" "${PYENV_ROOT:-${HOME:-/root}/.pyenv}"/versions/*/bin/"python$version" \
			"$VENVS"/pythons/*/bin/"python$version"; do
			"$candidate" -c "import sys, venv, ensurepip; v = '%d.%d' % sys.version_info[:2] + sys.abiflags; sys.exit(v != '$version')" \
				>/dev/null 2>&1 || continue
			"$candidate" -c 'import os, sys; print(os.path.realpath(sys.executable))'
			return 0
		done
	done
	return 1
}

full_version() {
	"$1" -c 'import platform; print(platform.python_version())'
}

# A failed or interrupted installation leaves no stamp and begins anew.
make_venv() { # role torch-version python [requirement ...]
	local role=$1 torch=$2 python=$3 name dir free
	shift 3
	name=torch-$torch-py$(full_version "$python")
	dir=$VENVS/$name
	if [ ! -e "$dir/.complete" ]; then
		rm -rf "$dir"
		free=$(df -Pm "$VENVS" | awk 'NR == 2 { print $4 }')
		[ "$free" -ge $NEED_MIB ] ||
			die "$VENVS has $free MiB free; PyTorch $torch needs $NEED_MIB: make room, or set MEMTRACE_VENVS"
		say "installing PyTorch $torch for $python into $dir (about a minute)"
		"$python" -m venv "$dir" || die "$python could not make an environment: is python3-venv installed?"
		"$dir/bin/pip" install --disable-pip-version-check --no-cache-dir --no-compile "torch==$torch" "$@" >&2 ||
			die "pip could not install torch==$torch into $dir; run it again to continue"
		"$dir/bin/python" -c 'import torch; torch.ones(1)' || die "PyTorch $torch in $dir does not run"
		touch "$dir/.complete"
	fi
	ln -sfn "$name" "$VENVS/$role"
}

# Asked with the pip of the environment that is there already: Debian's own python has none.
newest_torch() { # python
	"$VENVS/main/bin/pip" index versions torch --disable-pip-version-check --only-binary=:all: \
		--python-version "$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" 2>/dev/null |
		sed -n 's/^torch (\([0-9.]*\)).*/\1/p'
}

venv_main() {
	local python
	python=$(find_python 3.12 3.11 3.13 3.10 3.14) || die "no CPython 3.10 to 3.14 with venv found: apt-get install python3-venv"
	make_venv main $MAIN_TORCH "$python" numpy
}

# The distribution's own PyTorch, for the CPU.
debian() {
	command -v apt-cache >/dev/null && [ -n "$(apt-cache show python3-torch 2>/dev/null)" ] || have_package python3-torch || {
		say "this distribution has no python3-torch: tests with its PyTorch will be skipped"
		return 0
	}
	(packages "${DEBIAN_PACKAGES[@]}") || say "no python3-torch: tests with the distribution's PyTorch will be skipped"
}

venv_newest() {
	local python torch
	python=$(find_python 3.13 3.12 3.11 3.10 3.14) || die "no CPython 3.10 to 3.14 with venv found"
	torch=$(newest_torch "$python") || true
	if [ -z "$torch" ]; then
		[ ! -e "$VENVS/newest/.complete" ] || return 0
		die "cannot ask the package index for the newest PyTorch"
	fi
	make_venv newest "$torch" "$python" numpy
}

venv_old() {
	local python
	python=$(find_python 3.8 3.9 3.10 3.11) || {
		say "no CPython 3.8 to 3.11 found: tests with PyTorch $OLD_TORCH will be skipped"
		return 0
	}
	make_venv old $OLD_TORCH "$python" 'numpy<2'
}

venv_oldest() {
	local python
	python=$(find_python 3.10 3.9 3.8 3.11) || {
		say "no CPython 3.8 to 3.11 found: tests with PyTorch $OLDEST_TORCH will be skipped"
		return 0
	}
	make_venv oldest $OLDEST_TORCH "$python" 'numpy<2'
}

venv_cu12() {
	local python
	python=$(find_python 3.12 3.11 3.10 3.9 3.8) || {
		say "no CPython 3.8 to 3.12 found: tests with PyTorch $CU12_TORCH will be skipped"
		return 0
	}
	make_venv cu12 $CU12_TORCH "$python" 'numpy<2'
}

venv_middle() {
	local python
	python=$(find_python 3.12 3.11 3.10 3.13 3.9) || {
		say "no CPython 3.9 to 3.13 found: tests with PyTorch $MIDDLE_TORCH will be skipped"
		return 0
	}
	make_venv middle $MIDDLE_TORCH "$python" numpy
}

venvs() {
	local role
	mkdir -p "$VENVS"
	exec 9>"$VENVS/.lock"
	flock 9
	for role in "$@"; do
		"venv_$role"
	done
	exec 9>&-
}

# PyTorch of the environment main, and what has to be in one environment with it. PyTorch is not installed a second time.
#   beside_torch ROLE NAME IMPORTS REQUIREMENT ...
beside_torch() {
	local role=$1 name=$2 imports=$3 python dir torch
	shift 3
	torch=$(print_python main)
	torch=$(dirname "$(dirname "$torch")")
	python=$(readlink -f "$torch/bin/python")
	name=$name-$(basename "$torch")
	dir=$VENVS/$name
	if [ ! -e "$dir/.complete" ]; then
		rm -rf "$dir"
		say "installing $* into $dir"
		"$python" -m venv "$dir"
		echo "$torch"/lib/python3*/site-packages >"$(echo "$dir"/lib/python3*/site-packages)/torch.pth"
		"$dir/bin/pip" install -q --disable-pip-version-check --no-cache-dir "$@" >&2 ||
			{
				say "pip could not install $*: what needs them will be left out"
				return 0
			}
		"$dir/bin/python" -c "import torch, $imports"
		touch "$dir/.complete"
	fi
	ln -sfn "$name" "$VENVS/$role"
}

venv_bench() { beside_torch bench "bench-memray-$MEMRAY" memray "memray==$MEMRAY"; }

# torchvision's release is the one that goes with MAIN_TORCH.
ESTIMATE=(transformers==5.23.0 accelerate==1.15.0 torchvision==0.26.0)
venv_estimate() {
	beside_torch estimate "estimate-$(printf '%s\n' "${ESTIMATE[@]}" | sha256sum | cut -c1-12)" "transformers, accelerate, torchvision" \
		"${ESTIMATE[@]}"
}

# Libraries that people train with, for tests/e2e/test_zoo.py. They are installed one by one, and none may bring another PyTorch. A
# file in missing/ has the reason why one is not there.
ZOO=(accelerate==1.15.0 transformers==5.24.0 peft==0.21.2 trl==1.16.0 sentence-transformers==6.2.0 lightning==2.6.6 timm==1.0.31
	torchvision==0.26.0 torch_geometric==2.8.1 fastai==2.8.12 optuna==5.0.0 bitsandbytes==0.50.2 torchao==0.18.0 xformers==0.0.35
	deepspeed==0.19.8 thinc==8.3.14 gradio==6.31.0 ipykernel==7.4.0)
venv_zoo() {
	local torch python name dir one name_of_one
	torch=$(print_python main)
	torch=$(dirname "$(dirname "$torch")")
	python=$(readlink -f "$torch/bin/python")
	name=zoo-$(printf '%s\n' "${ZOO[@]}" | sha256sum | cut -c1-12)-$(basename "$torch")
	dir=$VENVS/$name
	if [ ! -e "$dir/.complete" ]; then
		rm -rf "$dir"
		say "installing ${ZOO[*]} into $dir"
		"$python" -m venv "$dir"
		echo "$torch"/lib/python3*/site-packages >"$(echo "$dir"/lib/python3*/site-packages)/torch.pth"
		mkdir "$dir/missing"
		printf '%s\n' "torch==$MAIN_TORCH" "${ZOO[@]}" >"$dir/constraints"
		for one in "${ZOO[@]}"; do
			name_of_one=${one%%==*}
			if "$dir/bin/pip" install -q --disable-pip-version-check --no-cache-dir -c "$dir/constraints" "$one" >"$dir/missing/$name_of_one" 2>&1 &&
				"$dir/bin/python" -c "import ${name_of_one//-/_}" >"$dir/missing/$name_of_one" 2>&1; then
				rm "$dir/missing/$name_of_one"
			else
				say "$one cannot be installed here: its jobs will be left out"
			fi
		done
		touch "$dir/.complete"
	fi
	ln -sfn "$name" "$VENVS/zoo"
}

# An environment without PyTorch. Where pip cannot make it, what is lost is said, and that is all.
#   small_venv ROLE PYTHON IMPORTS LOST REQUIREMENT ...
small_venv() {
	local role=$1 python=$2 imports=$3 lost=$4 name dir
	shift 4
	mkdir -p "$VENVS"
	name=$role-$(printf '%s\n' "$@" | sha256sum | cut -c1-12)
	dir=$VENVS/$name
	if [ ! -e "$dir/.complete" ]; then
		rm -rf "$dir"
		say "installing $* into $dir"
		"$python" -m venv "$dir"
		"$dir/bin/pip" install -q --disable-pip-version-check --no-cache-dir "$@" >&2 ||
			{
				say "pip could not install them: $lost"
				return 0
			}
		"$dir/bin/python" -c "import $imports"
		touch "$dir/.complete"
	fi
	ln -sfn "$name" "$VENVS/$role"
}

# pytest, whose plugin is in the wheel. pytest-oldest has the oldest version that the plugin supports.
PYTEST=(pytest==9.2.0 pytest-xdist==3.8.0)
PYTEST_OLDEST=(pytest==6.2.5 pytest-xdist==2.5.0)
venv_pytest() {
	beside_torch pytest "$(echo "${PYTEST[@]}" | tr '= ' '--')" "pytest, xdist" "${PYTEST[@]}"
	beside_torch pytest-oldest "$(echo "${PYTEST_OLDEST[@]}" | tr '= ' '--')" "pytest, xdist" "${PYTEST_OLDEST[@]}"
}

# Libraries that exports are for.
READERS=(tensorboard==2.20.0 pandas==2.3.3 prometheus_client==0.25.0)
readers() {
	small_venv readers python3 "tensorboard, pandas, prometheus_client" "what they read will not be asked" "${READERS[@]}"
}

# What queries and judges our tables, schemas and traces: engines, readers, and the Model Context Protocol's own client.
TABLES=(duckdb==2.0.0 pyarrow==26.0.1 polars==2.1.0 jsonschema==4.26.0 mcp==2.3.0 perfetto==0.59.1)
tables() {
	local python
	python=$(find_python 3.12 3.11 3.13 3.10 3.14) || {
		say "no CPython 3.10 to 3.14 found: tables will not be queried"
		return 0
	}
	small_venv tables "$python" "duckdb, pyarrow, polars, jsonschema, mcp, perfetto" "tables will not be queried" "${TABLES[@]}"
}

# What step figures of a running job are sent to, and the messages of OTLP.
LOGGERS=(tensorboard==2.21.0 wandb==0.31.0 mlflow==3.17.2 opentelemetry-proto==1.45.2)
loggers() {
	local python
	python=$(find_python 3.12 3.11 3.13 3.10) || {
		say "no CPython 3.10 to 3.13 found: figures will not be sent to TensorBoard, W&B and MLflow"
		return 0
	}
	small_venv loggers "$python" "tensorboard, wandb, mlflow" "figures will not be sent to them" "${LOGGERS[@]}"
}

# Engines of clusters, on one machine. chdb is ClickHouse in a library.
ENGINES=(pyspark==4.3.0 chdb==4.4.0)
engines() {
	local python
	python=$(find_python 3.12 3.11 3.13 3.10) || {
		say "no CPython 3.10 to 3.13 found: Spark and ClickHouse will not query tables"
		return 0
	}
	small_venv engines "$python" "pyspark, chdb" "Spark and ClickHouse will not query tables" "${ENGINES[@]}"
}

# Clients of the HTTP API, a judge of its schema, and what makes up requests from it.
API=(requests==2.34.2 schemathesis==4.32.5 openapi-spec-validator==0.9.0)
api() {
	local python
	python=$(find_python 3.12 3.11 3.13 3.10 3.14) || {
		say "no CPython 3.10 to 3.14 found: requests that a schema makes up will not be tried"
		return 0
	}
	small_venv api "$python" "requests, schemathesis, openapi_spec_validator" "what they try will not be tried" "${API[@]}"
}

# Unpacked and not installed: its package would start it.
prometheus_files() {
	local dir=$VENVS/prometheus
	command -v prometheus >/dev/null && command -v promtool >/dev/null && return 0
	[ ! -e "$dir/.complete" ] || return 0
	say "unpacking prometheus into $dir"
	rm -rf "$dir"
	mkdir -p "$dir"
	(cd "$dir" && { apt-get download -q prometheus >&2 || { as_root apt-get update -q >&2 && apt-get download -q prometheus >&2; }; } &&
		dpkg-deb -x ./*.deb . && rm ./*.deb && usr/bin/promtool --version >/dev/null) || {
		say "prometheus cannot be had: it will not be asked"
		return 0
	}
	touch "$dir/.complete"
}

print_prometheus() {
	if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
		dirname "$(command -v prometheus)"
	elif [ -e "$VENVS/prometheus/.complete" ]; then
		echo "$VENVS/prometheus/usr/bin"
	else
		die "no prometheus: run tools/deps.sh fleet"
	fi
}

# Likewise. Tests that need it skip where it cannot be had.
alertmanager_files() {
	local dir=$VENVS/alertmanager
	[ ! -e "$dir/.complete" ] || return 0
	say "unpacking prometheus-alertmanager into $dir"
	rm -rf "$dir"
	mkdir -p "$dir"
	(cd "$dir" && apt-get download -q prometheus-alertmanager >&2 && dpkg-deb -x ./*.deb . && rm ./*.deb &&
		usr/bin/prometheus-alertmanager --version >/dev/null) || {
		say "prometheus-alertmanager cannot be had: no alert will be sent"
		return 0
	}
	touch "$dir/.complete"
}

print_alertmanager() {
	[ -e "$VENVS/alertmanager/.complete" ] || die "no prometheus-alertmanager: run tools/deps.sh fleet"
	echo "$VENVS/alertmanager/usr/bin/prometheus-alertmanager"
}

# Go's program that reads profiles. Of Debian's package that alone: newer Go has it as source, whose compilation takes a minute.
pprof() {
	local package dir
	[ ! -x "$VENVS/pprof" ] || return 0
	package=$(apt-cache depends golang-go 2>/dev/null | sed -n 's/^ *Depends: \(golang-[0-9.]*-go\)$/\1/p' | head -1)
	[ -n "$package" ] || {
		say "this distribution has no golang-go: pprof will not be asked"
		return 0
	}
	say "unpacking pprof of $package"
	mkdir -p "$VENVS"
	dir=$(mktemp -d "$VENVS/pprof.XXXXXX")
	(cd "$dir" && apt-get download -q "$package" >&2 && dpkg-deb --fsys-tarfile ./*.deb | tar -x --wildcards --no-anchored 'pkg/tool/*/pprof' &&
		mv "$(find . -path '*/pkg/tool/*/pprof' -type f)" "$VENVS/pprof") || say "pprof cannot be had: it will not be asked"
	rm -rf "$dir"
}

print_pprof() {
	[ -x "$VENVS/pprof" ] || die "no pprof: run tools/deps.sh fleet"
	echo "$VENVS/pprof"
}

# Has "$5 DIR GOPATH" build with Go, once, into the folder $1, which has .complete then. What Go downloads is removed. $2: what it
# is, $3: how long that takes, $4: what is lost without it.
go_build() {
	local go
	[ ! -e "$1/.complete" ] || return 0
	command -v go >/dev/null || {
		say "there is no go, which builds $2: $4"
		return 0
	}
	say "building $2 into $1 (about $3)"
	rm -rf "$1"
	mkdir -p "$1"
	go=$(mktemp -d "$VENVS/go.XXXXXX")
	if (export GOPATH=$go GOCACHE=$go/cache GOFLAGS=-modcacherw && "$5" "$1" "$go" >&2); then
		touch "$1/.complete"
	else
		rm -rf "$1"
		say "$2 cannot be had: $4"
	fi
	rm -rf "$go"
}

# What checks the Helm chart. All of it comes from Go's module proxy; the modules that it is built from are removed.
HELM=(helm.sh/helm/v3/cmd/helm@v3.22.0 github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0)
OPERATOR=github.com/prometheus-operator/prometheus-operator@v0.85.0
helm_files() {
	go_build "$(helm_dir)" "helm and kubeconform" "two minutes" "the Helm chart will not be checked" build_helm
}

build_helm() {
	local dir=$1 go=$2 crds=$2/pkg/mod/$OPERATOR/jsonnet/prometheus-operator
	GOBIN=$dir go install -ldflags='-s -w' "${HELM[0]}" && GOBIN=$dir go install -ldflags='-s -w' "${HELM[1]}" &&
		go mod download "$OPERATOR" && cp "$crds"/podmonitors-crd.json "$crds"/prometheusrules-crd.json "$dir"
}

helm_dir() {
	echo "$VENVS/helm-$(printf '%s\n' "${HELM[@]}" "$OPERATOR" | sha256sum | cut -c1-12)"
}

print_helm() {
	[ -e "$(helm_dir)/.complete" ] || die "no helm: run tools/deps.sh charts"
	helm_dir
}

# An OpenTelemetry collector with the parts that the test needs. All of it comes from Go's module proxy; the modules that it is built
# from are removed.
COLLECTOR=go.opentelemetry.io/collector
COLLECTOR_BUILDER=$COLLECTOR/cmd/builder@v0.165.0
COLLECTOR_RECEIVERS=("$COLLECTOR/receiver/otlpreceiver v0.165.0")
COLLECTOR_EXPORTERS=("github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter v0.165.1"
	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/prometheusexporter v0.165.1")
COLLECTOR_PROVIDERS=("$COLLECTOR/confmap/provider/fileprovider v1.71.0")
COLLECTOR_ALL=("${COLLECTOR_RECEIVERS[@]}" "${COLLECTOR_EXPORTERS[@]}" "${COLLECTOR_PROVIDERS[@]}" "$COLLECTOR/otelcol v0.165.0")

gomods() {
	printf -- '- gomod: %s\n' "$@"
}

collector() {
	go_build "$(collector_dir)" "the OpenTelemetry collector" "three minutes" "it will not be asked" build_collector
}

# The builder would also get what the tests of its modules need, which the proxy may not have.
build_collector() {
	local dir=$1 go=$2
	{
		echo "dist: {name: otelcol, output_path: $go/source}"
		echo "conf_resolver: {default_uri_scheme: file}"
		echo "receivers:" && gomods "${COLLECTOR_RECEIVERS[@]}"
		echo "exporters:" && gomods "${COLLECTOR_EXPORTERS[@]}"
		echo "providers:" && gomods "${COLLECTOR_PROVIDERS[@]}"
	} >"$go/builder.yaml"
	GOBIN=$go go install "$COLLECTOR_BUILDER" && "$go/builder" --config "$go/builder.yaml" --skip-get-modules --skip-compilation &&
		cd "$go/source" && go mod init otelcol && go get "${COLLECTOR_ALL[@]/ /@}" &&
		go build -mod=mod -trimpath -ldflags='-s -w' -o "$dir/otelcol" .
}

collector_dir() {
	echo "$VENVS/collector-$(printf '%s\n' "$COLLECTOR_BUILDER" "${COLLECTOR_ALL[@]}" | sha256sum | cut -c1-12)"
}

print_otelcol() {
	[ -e "$(collector_dir)/.complete" ] || die "no OpenTelemetry collector: run tools/deps.sh collector"
	echo "$(collector_dir)/otelcol"
}

# What metrics and manifests have to suit.
FLEET=(prometheus_client==0.26.0 opentelemetry-proto==1.45.2 kubernetes-validate==1.37.0)
fleet() {
	prometheus_files
	alertmanager_files
	pprof
	small_venv fleet python3 "prometheus_client, opentelemetry.proto, kubernetes_validate" "what they judge will not be judged" "${FLEET[@]}"
}

bench_packages() {
	local p
	for p in "${BENCH_PACKAGES[@]}"; do
		(packages "$p") || say "no ${p%%:*}: it will be left out"
	done
}

# Programs of others that read what we write: the lock file says which, to the byte.
foreign() {
	local lock=tests/foreign/package-lock.json dir
	[ -e "$lock" ] || return 0
	dir=$VENVS/foreign-$(sha256sum "$lock" | cut -c1-12)
	if [ ! -e "$dir/.complete" ]; then
		rm -rf "$dir"
		mkdir -p "$dir"
		cp tests/foreign/package.json "$lock" "$dir"
		say "installing the foreign readers into $dir"
		(cd "$dir" && npm ci --silent --no-audit --no-fund --ignore-scripts >&2) || {
			say "npm could not install them: tests with foreign readers will be skipped"
			return 0
		}
		touch "$dir/.complete"
	fi
	ln -sfn "$(basename "$dir")" "$VENVS/foreign"
}

# What is inside pages of ours, to the byte as the lock file in that folder says. With a network it is had once.
#   bundled page user/export/page uPlot
bundled() {
	local name=$1 folder=$2 what=$3 dir new
	dir=$(bundled_dir "$name" "$folder")
	if [ ! -e "$dir/.complete" ]; then
		command -v npm >/dev/null ||
			die "there is no npm, and $dir is not there: tools/deps.sh build installs both (make deps)"
		mkdir -p "$VENVS"
		new=$(mktemp -d "$VENVS/$name.XXXXXX")
		cp "$folder/package.json" "$folder/package-lock.json" "$new"
		say "getting $what into $dir"
		(cd "$new" && npm ci --silent --no-audit --no-fund --ignore-scripts >&2) || {
			rm -rf "$new"
			die "npm could not get $what: with a network run tools/deps.sh $name, or copy $dir from where that was done"
		}
		touch "$new/.complete"
		# Another build may have been faster: its copy is as good.
		mv -T "$new" "$dir" 2>/dev/null || rm -rf "$new"
		[ -e "$dir/.complete" ] || die "$dir is in the way: remove it"
	fi
	echo "$dir"
}

# A source tarball has them in bundles/.
bundled_dir() {
	local name
	name=$1-$(sha256sum "$2/package-lock.json" | cut -c1-12)
	[ ! -e "bundles/$name/.complete" ] || {
		echo "$PWD/bundles/$name"
		return
	}
	echo "$VENVS/$name"
}

page() { bundled page user/export/page uPlot; }
docs() { bundled docs user/serve/web/docs "swagger-ui and redoc"; }

bundled_packages() {
	[ -e "$(bundled_dir page user/export/page)/.complete" ] && [ -e "$(bundled_dir docs user/serve/web/docs)/.complete" ] ||
		packages nodejs:node npm:npm
}

print_pythons() {
	local version list=()
	for version in 3.8 3.9 3.10 3.11 3.12 3.13 3.14 3.15 3.13t 3.14t 3.15t; do
		list+=("$(find_python $version || true)")
	done
	printf '%s\n' "${list[@]}" | sed '/^$/d' | paste -sd:
}

print_foreign() {
	local dir
	dir=$(readlink -f "$VENVS/foreign" || true)
	[ -e "$dir/.complete" ] || die "no foreign readers in $VENVS: run tools/deps.sh pages"
	echo "$dir"
}

print_python() {
	local dir
	[ "$1" != debian ] || {
		have_package python3-torch || die "python3-torch is not installed: run tools/deps.sh test"
		echo /usr/bin/python3
		return
	}
	dir=$(readlink -f "$VENVS/$1" || true)
	[ -e "$dir/.complete" ] || die "no environment '$1' in $VENVS: run tools/deps.sh torch, or versions"
	echo "$dir/bin/python"
}

print_ruff() {
	[ -x "$VENVS/ruff-$RUFF/bin/ruff" ] || die "no ruff: run tools/deps.sh lint"
	echo "$VENVS/ruff-$RUFF/bin/ruff"
}

actionlint() {
	go_build "$VENVS/actionlint-$ACTIONLINT" "actionlint $ACTIONLINT" "half a minute" "workflow files are not checked" build_actionlint
}

build_actionlint() {
	GOBIN=$1 go install -ldflags='-s -w' "github.com/rhysd/actionlint/cmd/actionlint@v$ACTIONLINT"
}

print_actionlint() {
	[ -e "$VENVS/actionlint-$ACTIONLINT/.complete" ] || die "no actionlint: run tools/deps.sh lint"
	echo "$VENVS/actionlint-$ACTIONLINT/actionlint"
}

zig() {
	local dir=$VENVS/zig-$ZIG path
	path=$(echo "$dir"/lib/python3*/site-packages/ziglang/zig)
	if [ ! -x "$path" ]; then
		rm -rf "$dir"
		say "installing zig $ZIG into $dir"
		packages python3-venv
		python3 -m venv "$dir" && "$dir/bin/pip" install -q --disable-pip-version-check --no-cache-dir "ziglang==$ZIG" >&2 ||
			die "pip could not install ziglang $ZIG"
		path=$(echo "$dir"/lib/python3*/site-packages/ziglang/zig)
	fi
	echo "$path"
}

# The source of a package as this distribution or another suite has it: files that dpkg-source unpacks.
#   source_package PACKAGE FOLDER [SUITE]
source_package() {
	local suite=${3:-} dir
	suite=${suite:-$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)}
	dir=$(suite_lists "$suite") || die "apt has no mirror of Debian with $suite"
	sed -n 's/^deb /deb-src /p' "$dir/sources.list" >"$dir/sources.list.src"
	cat "$dir/sources.list.src" >>"$dir/sources.list" && rm "$dir/sources.list.src"
	suite_apt "$dir" apt-get update >&2 && (cd "$2" && suite_apt "$dir" apt-get source --download-only "$1" >&2) || die "cannot get the source of $1"
}

ruff() {
	local dir=$VENVS/ruff-$RUFF
	[ ! -x "$dir/bin/ruff" ] || return 0
	rm -rf "$dir"
	say "installing ruff $RUFF into $dir"
	python3 -m venv "$dir" && "$dir/bin/pip" install -q --disable-pip-version-check --no-cache-dir "ruff==$RUFF" >&2 ||
		say "pip could not install ruff: Python is not checked"
}

[ $# -gt 0 ] || die "usage: tools/deps.sh build|torch|test|nightly|versions|pages|guests|golden|formats|tables|engines|api|fleet|charts|collector|lint|browsers|fuzz|estimate|zoo|pytest|loggers|bench|kernels|arm64 ... or python main|debian|newest|middle|old|oldest|cu12|bench|estimate|zoo|pytest|pytest-oldest|readers|tables|engines|api|fleet|loggers"
case $1 in
python) print_python "${2:-main}" && exit ;;
pythons) print_pythons && exit ;;
foreign) print_foreign && exit ;;
page) page && exit ;;
docs) docs && exit ;;
prometheus) print_prometheus && exit ;;
pprof) print_pprof && exit ;;
alertmanager) print_alertmanager && exit ;;
helm) print_helm && exit ;;
otelcol) print_otelcol && exit ;;
ruff) print_ruff && exit ;;
actionlint) print_actionlint && exit ;;
zig) zig && exit ;;
packages) packages "${@:2}" && exit ;;
source) source_package "${@:2}" && exit ;;
kernel-images) print_kernels "${KERNEL_PACKAGES[@]}" && exit ;;
kernel-images-arm64) print_kernels "${ARM64_KERNELS[@]}" && exit ;;
arm64-root) print_arm64_root && exit ;;
arm64-torch) print_arm64_torch && exit ;;
esac

# The steps of which words consist.
steps() {
	local word
	for word; do
		case $word in
		torch) echo main ;;
		test) echo main debian checks lint ;;
		versions) echo main newest middle old oldest cu12 ;;
		nightly) steps test versions formats tables api fleet pages guests golden zoo loggers ;;
		*) echo "$word" ;;
		esac
	done
}

# What a step installs, MB of disk for it and what it needs, and MB of download: on Debian 12, from nothing.
size() {
	case $1 in
	build) echo "850 200 what the program is built with" ;;
	main) echo "4850 2740 PyTorch $MAIN_TORCH" ;;
	debian) echo "930 220 the distribution's own PyTorch" ;;
	newest) echo "5580 3200 the newest PyTorch" ;;
	middle) echo "6900 3300 PyTorch $MIDDLE_TORCH" ;;
	old) echo "4890 2400 PyTorch $OLD_TORCH" ;;
	oldest) echo "3440 2100 PyTorch $OLDEST_TORCH" ;;
	cu12) echo "5220 2700 PyTorch $CU12_TORCH" ;;
	checks) echo "60 15 shells, and programs that check documents" ;;
	lint) echo "110 25 what make lint checks code with" ;;
	formats) echo "280 80 tensorboard, pandas, prometheus_client" ;;
	tables) echo "510 170 DuckDB, pyarrow, polars" ;;
	api) echo "110 30 clients of the HTTP API" ;;
	fleet) echo "300 90 Prometheus, pprof" ;;
	pages) echo "680 190 Chromium, and programs that open exports" ;;
	guests) echo "30 10 gVisor, squashfuse, musl" ;;
	golden) echo "1100 270 emulators and kernels" ;;
	loggers) echo "1200 320 TensorBoard, W&B, MLflow" ;;
	pytest) echo "60 10 pytest" ;;
	zoo) echo "1530 500 libraries that people train with" ;;
	*) echo "0 0 $1" ;;
	esac
}

# Whether a step has nothing to do.
is_there() {
	local p package=()
	case $1 in
	build) package=("${BUILD_PACKAGES[@]}") ;;
	main) compgen -G "$VENVS/torch-$MAIN_TORCH-py*/.complete" >/dev/null && return ;;
	middle) compgen -G "$VENVS/torch-$MIDDLE_TORCH-py*/.complete" >/dev/null && return ;;
	old) compgen -G "$VENVS/torch-$OLD_TORCH-py*/.complete" >/dev/null && return ;;
	oldest) compgen -G "$VENVS/torch-$OLDEST_TORCH-py*/.complete" >/dev/null && return ;;
	cu12) compgen -G "$VENVS/torch-$CU12_TORCH-py*/.complete" >/dev/null && return ;;
	newest | tables | api | fleet | zoo | pytest | loggers) [ -e "$VENVS/$1/.complete" ] && return ;;
	formats) [ -e "$VENVS/readers/.complete" ] && return ;;
	debian) package=("${DEBIAN_PACKAGES[@]}") ;;
	checks) package=("${TEST_PACKAGES[@]}") ;;
	lint) package=("${LINT_PACKAGES[@]}") ;;
	pages) package=("${PAGES_PACKAGES[@]}") ;;
	guests) package=("${GUESTS_PACKAGES[@]}") ;;
	golden) [ -e "$(arm64_dir)/.complete" ] && return ;;
	esac
	[ ${#package[@]} -gt 0 ] || return
	for p in "${package[@]}"; do
		have_package "$p" || return
	done
}

mapfile -t all < <(steps "$@" | tr ' ' '\n' | awk '!seen[$0]++')
disk=0 download=0 steps=0 number=0
for what in "${all[@]}"; do
	read -r on_disk to_get _ < <(size "$what")
	[ "$on_disk" = 0 ] || is_there "$what" || { disk=$((disk + on_disk)) download=$((download + to_get)) steps=$((steps + 1)); }
done
gb() { printf '%d.%d GB' $((($1 + 50) / 1000)) $((($1 + 50) / 100 % 10)); }
[ $steps -le 1 ] || say "$steps steps: about $(gb $download) to download, $(gb $disk) of disk ($VENVS, and packages)"
for what in "${all[@]}"; do
	read -r on_disk to_get title < <(size "$what")
	[ "$on_disk" = 0 ] || is_there "$what" || say "$((number += 1)) of $steps: $title, $(gb "$to_get") to download"
	case $what in
	build)
		packages "${BUILD_PACKAGES[@]}"
		bundled_packages
		page >/dev/null
		docs >/dev/null
		;;
	fuzz) fuzz_packages ;;
	lint) packages "${LINT_PACKAGES[@]}" && ruff && actionlint ;;
	browsers) packages firefox-esr:firefox-esr ;;
	bench) bench_packages && venvs main bench ;;
	estimate) packages "${TORCH_PACKAGES[@]}" && venvs main estimate ;;
	zoo) packages "${TORCH_PACKAGES[@]}" && venvs main zoo ;;
	loggers) packages python3-venv && loggers ;;
	pytest) packages "${TORCH_PACKAGES[@]}" && venvs main pytest ;;
	tables) packages python3-venv && tables ;;
	engines) packages python3-venv default-jre-headless:java && engines ;;
	api) packages python3-venv && api ;;
	fleet) packages python3-venv && fleet ;;
	charts) packages python3-venv && fleet && helm_files ;;
	collector) packages python3-venv && fleet && collector ;;
	formats)
		packages "${FORMATS_PACKAGES[@]}"
		readers
		;;
	distros) packages debootstrap:debootstrap util-linux ;;
	packaging) packages "${PACKAGING_PACKAGES[@]}" ;;
	kernels-arm64) packages "${ARM64_PACKAGES[@]}" && arm64_root && kernel_images "${ARM64_KERNELS[@]}" ;;
	torch-arm64) arm64_torch ;;
	arm64) packages "${ARM64_PACKAGES[@]}" && arm64_root ;;
	kernels)
		kernels "${KERNEL_PACKAGES[@]}"
		;;
	main | newest | middle | old | oldest | cu12) packages "${TORCH_PACKAGES[@]}" && venvs "$what" ;;
	debian) debian ;;
	checks) packages "${TEST_PACKAGES[@]}" ;;
	pages) packages "${PAGES_PACKAGES[@]}" && foreign ;;
	guests) packages "${GUESTS_PACKAGES[@]}" ;;
	golden)
		[ "$(uname -m)" != x86_64 ] || {
			kernels "${KERNEL_PACKAGES[0]}"
			packages "${ARM64_PACKAGES[@]}" && arm64_root && kernel_images linux-image-cloud-arm64@trixie
		}
		;;
	*) die "unknown: $what" ;;
	esac
done
