#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Checks the form of code and text. Prints what is wrong; exits with 1 if something is.
#
#   tools/dev/lint.sh                    all of:
#   tools/dev/lint.sh layers ...         which folder includes and calls which, and the way of an event
#                     opens              which files are opened by name: tools/dev/check_opens.py
#                     idiom              statements that are read twice: tools/dev/check_idiom.py
#                     words              sentences: docs/internals/STYLE.md, "Words"
#                     format             clang-format, of the version that the code was formatted with
#                     shell              shellcheck
#                     python             ruff
#                     workflows          actionlint
#                     commits            subjects and bodies of commits
#
# A check whose program is not here, or of another version, says so and counts as passed: tools/deps.sh lint installs them.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

OUTPUT=${OUTPUT:-.output}
CLANG_FORMAT_VERSION=14       # other versions break lines elsewhere
COMMITS_SINCE=db9028d0881f6f6f8de09ec7d05290f9aa8eb090 # commits after this one are checked

skip() { echo "SKIP $1"; }
files() { git ls-files -- "$@" ':!vmlinux' ':!tests/data'; }

layers() {
	local objects=() way
	[ ! -d "$OUTPUT/obj/user" ] || objects=("$OUTPUT/obj/user")
	tools/dev/check_layers.py "${objects[@]}" || return
	way=$(tools/dev/event_path.py) && return
	echo "$way"
	return 1
}

opens() { tools/dev/check_opens.py; }

idiom() { tools/dev/check_idiom.py; }

words() { tools/dev/check_words.py | grep -E '^all|got worse|more than'; return "${PIPESTATUS[0]}"; }

format() {
	local version
	version=$(clang-format --version 2>/dev/null | sed 's/.*version \([0-9]*\).*/\1/')
	[ "$version" = $CLANG_FORMAT_VERSION ] || { skip "format: needs clang-format $CLANG_FORMAT_VERSION, here is ${version:-none}" && return 0; }
	files '*.c' '*.h' '*.cc' | xargs -n 100 -P "$(nproc)" clang-format --dry-run -Werror 2>&1 | grep -E 'error:' | sed 's/: code should be clang-formatted.*/: run make format/' | sort -u -t: -k1,1
	return $((PIPESTATUS[1] != 0))
}

shell() {
	command -v shellcheck >/dev/null || { skip "shell: no shellcheck" && return 0; }
	git grep -lE '^#!.*(bash|/sh)\b' -- . ':!*.md' | xargs -n 20 -P "$(nproc)" shellcheck -S warning
}

python() {
	local ruff
	ruff=$(tools/deps.sh ruff 2>/dev/null) || { skip "python: no ruff" && return 0; }
	"$ruff" check --quiet .
}

workflows() {
	local actionlint
	actionlint=$(tools/deps.sh actionlint 2>/dev/null) || { skip "workflows: no actionlint" && return 0; }
	"$actionlint" -no-color .github/workflows/*.yml
}

# "area: imperative summary", at most 72 characters, and the reason in the body.
commits() {
	git cat-file -e "$COMMITS_SINCE^{commit}" 2>/dev/null || { skip "commits: $COMMITS_SINCE is not in this checkout" && return 0; }
	git log --no-merges --format='%h%x09%s%x09%b%x00' "$COMMITS_SINCE.." | awk -v RS='\0' -F '\t' '
		{ sub(/^\n/, "") }
		NF < 2 { next }
		$2 !~ /^[a-z0-9][a-z0-9 ,._\/-]*: [^ ]/ { print $1 ": no \"area: summary\": " $2; bad = 1 }
		length($2) > 72 { print $1 ": " length($2) " characters: " $2; bad = 1 }
		$3 ~ /^[ \n]*$/ { print $1 ": no reason in the body: " $2; bad = 1 }
		END { exit bad }'
}

[ $# -gt 0 ] || set -- layers opens idiom words format shell python workflows commits
failed=0
for check; do
	echo "== $check"
	"$check" || failed=1
done
exit $failed
