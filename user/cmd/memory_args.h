/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* --max-memory of commands that read recordings, as a child of their argp parsers. */
#include <argp.h>

#define MEMORY_ARGP_CHILD                                                                          \
	{                                                                                          \
		&memory_argp, 0, NULL, 0                                                           \
	}

/* Sets the limit of record/mtr.h; has no input. */
extern const struct argp memory_argp;
