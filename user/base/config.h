/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Settings of the log: levels, file and format, from MEMTRACE_LOG and options. Child processes
 * inherit them. */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/log.h"

#define LOG_ENV "MEMTRACE_LOG"
#define LOG_PART 24 /* bytes of a part's name, with the NUL */

struct log_config {
	int level;  /* enum log_level; -1: not set */
	char *file; /* path of the log file, owned; NULL: none */
	int fd;	    /* log file opened by the parent process; -1: none */
	bool json;
};

#define LOG_CONFIG_INIT                                                                            \
	{                                                                                          \
		.level = -1, .fd = -1                                                              \
	}

/*
 * Parses "debug,file=/var/log/memtrace.log,format=json" and adds it to c. levels_only:
 * allows only a level, as in the option. Returns 0, or -EINVAL with *why and c unchanged.
 */
int log_config__parse(struct log_config *c, const char *text, bool levels_only, char *why,
		      size_t size);
/* Writes the settings as text, with fd (-1: none) instead of the file. False: buf is too small. */
bool log_config__text(const struct log_config *c, int fd, char *buf, size_t size);
void log_config__free(struct log_config *c);
/* The name of a level; the level of a name, or -EINVAL. */
const char *log_config__level_name(enum log_level level);
int log_config__level_of(const char *name, size_t len);
/* The part of a source file: its room in user/. Returns buf. */
char *log__part(char buf[LOG_PART], const char *file);

/* ---- settings of this process ---- */

/* Sets the command name shown in log lines, such as "record". Static string. */
void log__set_command(const char *name);
/* Reads MEMTRACE_LOG. Warns of errors and ignores the variable then. Call before everything
 * else. */
void log__from_environment(void);
/* Handle an option's argument. Return 0, or a negative error with *why. */
int log__option_level(const char *arg, char *why, size_t size);
int log__option_file(const char *arg, char *why, size_t size);
int log__option_format(const char *arg, char *why, size_t size);
/*
 * Opens the log file if one is set: appends, creates with mode 0600, and rejects symbolic links and
 * other users' files. On failure, warns and continues without a file. A second call does nothing.
 */
void log__open(void);
/* Closes the log file. log__open() opens it again. */
void log__close(void);
/*
 * Call in a child before it executes this program again. Passes the log on by an inherited
 * descriptor named in the environment. file_only: passes nothing on without a log file, for
 * children whose standard error is parsed. Returns the descriptor, or -1.
 */
int log__hand_on(bool file_only);
/*
 * For a process without access to the file: sends lines as {"log": {...}} packets on the socket fd
 * instead. Lines that cannot be sent at once are dropped. process: name shown in its lines, static.
 */
void log__relay_to(int fd, const char *process);
/*
 * For the process with the file: writes a received "log" object, which is untrusted. Limits per
 * process name (static; at most 4): 200 lines per second and 1 MiB per minute. Reports the number
 * of dropped lines with the next written line.
 */
void log__relayed(pid_t pid, const char *process, json_t *said);
