#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Builds the libraries of a static program that the distribution's static files do not suit, from the distribution's sources:
# libcurl with wolfSSL and c-ares (the distribution's needs libraries that it has no static files of; c-ares looks up names without
# the C library's shared libraries) and libmicrohttpd without TLS. libbpf is that of Debian 13, on each machine: tokens need 1.4, and
# 1.7 and newer replace instructions at some probes. Prints the folder with include/ and lib/. Quick when they are there.
#
#   tools/packaging/static_libs.sh [ARCHITECTURE]
set -euo pipefail
cd "$(dirname "$0")/../.."

ARCH=${1:-$(uname -m)}
CACHE=${MEMTRACE_VENVS:-${HOME:-/root}/.cache/memtrace-bpf}
PACKAGES=(dpkg-dev libwolfssl-dev libc-ares-dev libbpf-dev libelf-dev libdw-dev liblzma-dev libbz2-dev zlib1g-dev libzstd-dev libjansson-dev libncurses-dev libseccomp-dev)
CURL_OPTIONS=(--with-wolfssl --enable-ares --without-zlib --without-brotli --without-zstd --without-libpsl --without-librtmp
	--without-libssh2 --without-libidn2 --without-nghttp2 --without-nghttp3 --without-ngtcp2 --without-ca-bundle --without-ca-path
	--disable-ldap --disable-ldaps --disable-ftp --disable-file --disable-dict --disable-telnet --disable-tftp --disable-pop3
	--disable-imap --disable-smb --disable-smtp --disable-gopher --disable-mqtt --disable-rtsp --disable-manual
	--disable-unix-sockets --disable-alt-svc --disable-hsts --disable-ntlm --disable-tls-srp --disable-cookies --disable-netrc
	--disable-proxy --disable-mime --disable-dateparse)
MICROHTTPD_OPTIONS=(--disable-https --disable-doc --disable-examples --disable-curl --disable-postprocessor --disable-dauth --disable-bauth)

say() { printf 'static_libs: %s\n' "$*" >&2; }

# Unpacks the source of a package, with the distribution's patches, and prints its folder. A suite may follow.
unpack() {
	tools/deps.sh source "$1" "$WORK" "${@:2}" >&2
	(cd "$WORK" && dpkg-source --no-check -x "$1"_*.dsc "$1" >/dev/null)
	# For the SBOM and the licences that packages carry: tools/packaging/linked.py.
	install -Dm 0644 "$WORK/$1/debian/copyright" "$DEST.new/share/doc/$1/copyright"
	dpkg-parsechangelog -l "$WORK/$1/debian/changelog" -S Version >"$DEST.new/share/doc/$1/version"
	echo "$WORK/$1"
}

# Configures a source for a static library and installs those of its folders that are named.
#   build SOURCE FOLDER... -- OPTION...
build() {
	local source=$1 folders=() folder
	shift
	while [ "$1" != -- ]; do
		folders+=("$1")
		shift
	done
	shift
	say "building $(basename "$source") (about a minute)"
	(
		cd "$source"
		./configure -q --prefix="$DEST.new" --disable-shared --enable-static "${CROSS[@]}" "$@" CFLAGS="-O2 -g0 -ffile-prefix-map=$source=."
		for folder in "${folders[@]}"; do
			make -s -j"$(nproc)" -C "$folder" install
		done
	) >"$WORK/log" 2>&1 || {
		tail -20 "$WORK/log" >&2
		return 1
	}
}

# For another architecture: the cross compiler, and the libraries that tools/deps.sh arm64 unpacks.
CROSS=() ROOT='' COMPILER=gcc
if [ "$ARCH" = "$(uname -m)" ]; then
	tools/deps.sh packages "${PACKAGES[@]}"
else
	tools/deps.sh packages dpkg-dev
	ROOT=$(tools/deps.sh arm64-root)
	COMPILER="$ARCH-linux-gnu-gcc --sysroot=$ROOT"
	CROSS=(--host="$ARCH-linux-gnu" CC="$COMPILER")
fi
# Another version of a library, or of the options above, is another folder.
stamp=$( (dpkg-query -W -f '${Package} ${Version}\n' libc6-dev; [ -n "$ROOT" ] || dpkg-query -W -f '${Package} ${Version}\n' libwolfssl-dev libc-ares-dev
	echo "$ROOT"; cat "$0") | sha256sum | cut -c 1-12)
DEST=$CACHE/static-$ARCH-$stamp
if [ ! -e "$DEST" ]; then
	WORK=$(mktemp -d)
	trap 'rm -rf "$WORK" "$DEST.new"' EXIT
	rm -rf "$DEST.new"
	source=$(unpack libmicrohttpd)
	build "$source" src/microhttpd src/include -- "${MICROHTTPD_OPTIONS[@]}"
	source=$(unpack curl)
	build "$source" lib include -- "${CURL_OPTIONS[@]}"
	source=$(unpack libbpf trixie)
	say "building libbpf"
	make -s -C "$source/src" -j"$(nproc)" CC="$COMPILER" AR="${COMPILER%%gcc*}ar" NO_PKG_CONFIG=1 BUILD_STATIC_ONLY=1 PREFIX="$DEST.new" LIBDIR="$DEST.new/lib" CFLAGS="-O2 -g0 -ffile-prefix-map=$source=." \
		install >"$WORK/log" 2>&1 || {
		tail -20 "$WORK/log" >&2
		exit 1
	}
	mv "$DEST.new" "$DEST"
fi
echo "$DEST"
