/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Completes command lines, for the shells' scripts in tools/packaging/completion. Uses only the
 * option tables, so that it cannot differ from the help.
 */
#include "cmd/commands.h"

/*
 * Prints what can be in the place of the last of n words. words[0] follows "memtrace-bpf". A line
 * is a candidate, or a candidate, a tab and a description, or what the shell itself completes:
 *
 *     :file        any file
 *     :folder      a folder
 *     :recording   a *.mtr file, or a folder
 *     :user        a user
 *     :command N   another command line, which begins with words[N]
 */
void complete__print(const struct command *const *commands, size_t n_commands, int n,
		     char *const *words);
