/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* --csv of commands that write tables, as a child of their argp parsers. */
#include <argp.h>
#include <stdbool.h>

#define CSV_ARGP_CHILD                                                                             \
	{                                                                                          \
		&csv_argp, 0, NULL, 0                                                              \
	}

/* Sets how model/csv.h writes text. Its input is a bool, set to true if the option is given: for
 * csv_args__check(). */
extern const struct argp csv_argp;
/* Calls argp_error() if the option is given and the output is no CSV. */
void csv_args__check(struct argp_state *state, bool given, bool is_csv);
