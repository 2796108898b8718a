# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Completion of memtrace-bpf in bash. The program itself says what can come next.

_memtrace_bpf() {
	local line candidate word prefix first kind
	local -a words
	# Split at spaces only: bash also splits words at "=" and ":".
	read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
	[[ ${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]] && words+=("")
	# Behind sudo and the like: the words after the program.
	while [ ${#words[@]} -gt 1 ] && [ "${words[0]##*/}" != "${1##*/}" ]; do
		words=("${words[@]:1}")
	done
	[ ${#words[@]} -gt 1 ] || return
	word=${words[-1]}
	# The part of the word that bash does not replace.
	prefix=${word%"${COMP_WORDS[COMP_CWORD]}"}
	[ "${COMP_WORDS[COMP_CWORD]}" != "=" ] && [ "${COMP_WORDS[COMP_CWORD]}" != ":" ] || prefix=$word
	COMPREPLY=()
	while IFS= read -r line; do
		candidate=${line%%$'\t'*}
		case $candidate in
		:file | :folder | :recording | :user)
			kind=${candidate#:}
			first=${word#--*=}
			compopt -o filenames 2>/dev/null
			case $kind in
			file) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$first") ;;
			user) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -u -- "$first") ;;
			*)
				mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$first")
				[ "$kind" = folder ] ||
					mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -X '!*.mtr' -- "$first")
				;;
			esac
			;;
		:command*)
			if [ "${candidate#:command }" = $((${#words[@]} - 2)) ]; then
				mapfile -t COMPREPLY < <(compgen -c -- "$word")
			else
				compopt -o filenames 2>/dev/null
				mapfile -t COMPREPLY < <(compgen -f -- "$word")
			fi
			;;
		*)
			COMPREPLY+=("${candidate#"$prefix"}")
			[[ $candidate != *= ]] || compopt -o nospace 2>/dev/null
			;;
		esac
	done < <("$1" --complete "${words[@]:1}" 2>/dev/null)
}

complete -F _memtrace_bpf memtrace-bpf
