/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* --log-level, --log-file, --log-format, --help and --version, as the last child of each command's
 * argp parser. The child also sets the form of usage errors (usage.h). */
#include <argp.h>

#define LOG_ARGP_CHILD                                                                             \
	{                                                                                          \
		&log_argp, 0, NULL, 0                                                              \
	}

/* Has no input. Opens the log file after all options were parsed. */
extern const struct argp log_argp;

/* Parses these options before the command's word. Returns the number of arguments, or -1 after
 * an error message. */
int log_args__take(int argc, char **argv);
