/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Prints the help of a command, at most 80 columns wide, and its manual page. */
#include <stdbool.h>
#include <stdio.h>

#include "cmd/commands.h"
#include "cmd/options.h"

/* all: describes all options; otherwise only names the rare ones (OPTION_RARE). */
void help__print(FILE *out, const struct command *command, bool all);
/* Prints the list of commands. all: also describes the options that several commands have. */
void help__print_list(FILE *out, const struct command *const *commands, size_t n, bool all);

/* Writes a command's manual page in mdoc, for the build: docs/man has the descriptions, the option
 * tables have the rest. Copies the description from in, whose first line is the date (.Dd). */
void help__manual(FILE *out, const struct command *command, FILE *in);
