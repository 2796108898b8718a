/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* --json-schema of commands that write JSON, as a child of their argp parsers. The schemas are the
 * files of user/cmd/schema, one for each command. */
#include <argp.h>

#define SCHEMA_ARGP_CHILD                                                                          \
	{                                                                                          \
		&schema_argp, 0, NULL, 0                                                           \
	}

/* Prints the schema of the command that is being parsed, and exits. Has no input. */
extern const struct argp schema_argp;
