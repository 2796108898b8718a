/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LOG_INTERNAL_H
#define MT_LOG_INTERNAL_H
/* Between the files of log. */
#include <stdio.h>
#include <sys/types.h>

#include "log/config.h"

#define LOG_MAX_LINE 4096
#define LOG_MAX_TEXT (2 * LOG_MAX_LINE) /* cleaned, with the NUL */
#define LOG_MAX_STRING 1024		/* bytes of a field that are written */

struct json;

struct log_line {
	struct timespec time; /* CLOCK_REALTIME */
	enum log_level level;
	pid_t pid;
	const char *command, *process; /* process: NULL: the one that the command began with */
	const char *part, *event;
	const struct log_field *fields;
	const char *text; /* cleaned */
};

/* As a program reads them: an object of one line in an array or at the top; key: NULL there. */
void log_line__object(const struct log_line *l, struct json *j, const char *key);
/* A whole line with its newline, to be freed; NULL: no memory. */
char *log_line__write(const struct log_line *l, bool json, size_t *len);

/* Whatever name is in it: harmless on a terminal. What the kernel's verifier says has many lines,
 * and tabs. */
void log__clean(char *dst, size_t size, const char *src);

/* 0, or -errno, and then none is open. path is kept. */
int log_file__open(const char *path);
/* One that has been opened for us. 0 or -EBADF. */
int log_file__take(int fd);
void log_file__close(void);
bool log_file__is_open(void);
int log_file__fd(void);
/* One line in one piece. What cannot be written is counted; the first time `why` is set to what to
 * say of it. */
void log_file__append(const char *line, size_t len, const char **why);
/* Lines that are missing in it, told of when one could be written again: to be asked after each
 * that was. */
uint64_t log_file__missed(void);

#endif
