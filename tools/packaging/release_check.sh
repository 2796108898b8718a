#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Makes the release here, and again in a clone in another folder with other settings, and compares the checksums: `make release-check`
# calls it. Exits with 1 if they differ.
set -euo pipefail
cd "$(dirname "$0")/../.."

MAKE=${MAKE:-make}
other=$(mktemp -d "${TMPDIR:-/tmp}/memtrace-release.XXXXXX")
trap 'rm -rf "$other"' EXIT

sums() { # folder
	cat "$1/$("$MAKE" -s --no-print-directory -C "$1" STATIC=1 packages-dir)/SHA256SUMS"
}

"$MAKE" --no-print-directory release
here=$(sums .)
clone=$other/another/folder
git clone -q . "$clone"
git -C "$clone" checkout -q --detach "$(git rev-parse HEAD)"
(
	umask 077
	env CCACHE_DISABLE=1 TZ=Asia/Tokyo LC_ALL=C PYTHONHASHSEED=1 "$MAKE" --no-print-directory -C "$clone" release
) >"$other/log" 2>&1 || {
	tail -20 "$other/log"
	exit 1
}
there=$(sums "$clone")
diff -u <(echo "$here") <(echo "$there") || {
	echo "release-check: the files above differ between two builds of $(git rev-parse --short HEAD)"
	exit 1
}
echo "release-check: two builds of $(git rev-parse --short HEAD) are identical: $(wc -l <<<"$here") files"
