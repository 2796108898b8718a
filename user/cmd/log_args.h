/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CMD_LOG_ARGS_H
#define MT_CMD_LOG_ARGS_H
/*
 * --log-level, --log-file, --log-format, and -h: every command has them, as the last child of its
 * argp parser. With them comes the form of what is said of options that cannot be understood
 * (usage.h).
 */
#include <argp.h>

#define LOG_ARGP_CHILD                                                                             \
	{                                                                                          \
		&log_argp, 0, "Messages:", 90                                                      \
	}

/* Has no input. Opens the file when all options have been understood. */
extern const struct argp log_argp;

/* Takes those that stand before the command's word. How many arguments they were, or -1: said what
 * is wrong with them. */
int log_args__take(int argc, char **argv);

#endif
