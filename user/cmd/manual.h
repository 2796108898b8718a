/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Writes a command's manual page in mdoc, for the build: docs/man has the descriptions, the option
 * tables have the rest. */
#include "cmd/commands.h"

/* Copies the description from in, between what comes from the command. Its first line is the date
 * (.Dd). */
void manual__print(FILE *out, const struct command *command, FILE *in);
