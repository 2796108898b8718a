/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CMD_MEMORY_ARGS_H
#define MT_CMD_MEMORY_ARGS_H
/* --max-memory, of all commands that read recordings: a child of their argp parsers. */
#include <argp.h>

#define MEMORY_ARGP_CHILD                                                                          \
	{                                                                                          \
		&memory_argp, 0, NULL, 0                                                           \
	}

/* Has no input: sets record/room.h's bound. */
extern const struct argp memory_argp;

#endif
