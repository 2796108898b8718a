/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* --csv of commands that write tables, as a child of their argp parsers. */
#include <argp.h>

#define CSV_ARGP_CHILD                                                                             \
	{                                                                                          \
		&csv_argp, 0, NULL, 0                                                              \
	}

/* Sets how labels/csv.h writes text; has no input. */
extern const struct argp csv_argp;
