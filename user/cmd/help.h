/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Prints the help of a command, at most 80 columns wide. */
#include <stdbool.h>
#include <stdio.h>

#include "cmd/commands.h"
#include "cmd/options.h"

/* all: describes all options; otherwise only names the rare ones (OPTION_RARE). */
void help__print(FILE *out, const struct command *command, bool all);

/* The heading of a group of options. */
const char *help__title(const struct options_list *list, int group);
