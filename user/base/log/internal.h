/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Functions of log.c that tests call, too: lines, and the log file. */
#include <sys/types.h>

#include "base/log.h"

#define LOG_MAX_LINE 4096
#define LOG_MAX_TEXT (2 * LOG_MAX_LINE) /* cleaned text, with the NUL */
#define LOG_MAX_STRING 1024		/* most bytes of a field's string that are written */

struct log_line {
	struct timespec time; /* CLOCK_REALTIME */
	enum log_level level;
	pid_t pid;
	const char *command, *process; /* process NULL: the command's main process */
	const char *part, *event;
	const struct log_field *fields;
	const char *text; /* message, cleaned */
};

/* Formats a line with its newline. The caller frees it. NULL: no memory. */
char *log_line__write(const struct log_line *l, bool json, size_t *len);

/* Opens the log file. Returns 0, or -errno with no file open. Keeps a pointer to path. */
int log_file__open(const char *path);
int log_file__fd(void); /* -1: no file is open */
/* Writes a line with one write(), and counts lines that cannot be written. *why: the reason, for
 * the first line that fails after one that did not; otherwise NULL. */
void log_file__append(const char *line, size_t len, const char **why);
/* Returns the number of lines lost before the last successful write, and then forgets them. Call
 * it after each write. */
uint64_t log_file__missed(void);
