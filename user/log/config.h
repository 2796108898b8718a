/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LOG_CONFIG_H
#define MT_LOG_CONFIG_H
/* What is logged, and whither: as MEMTRACE_LOG and the options say, and how it is handed on to
 * processes of ours. */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "log/log.h"

#define LOG_ENV "MEMTRACE_LOG"
#define LOG_PART 24  /* bytes of a part's name, with the NUL */
#define LOG_PARTS 16 /* that may have a level of their own */

struct log_part {
	char name[LOG_PART];
	enum log_level level;
};

struct log_config {
	int level; /* enum log_level; -1: not said */
	struct log_part parts[LOG_PARTS];
	size_t n_parts;
	char *file; /* ours to free; NULL: none */
	int fd;	    /* of a file that whoever started us has opened; -1: none */
	bool json;
};

#define LOG_CONFIG_INIT                                                                            \
	{                                                                                          \
		.level = -1, .fd = -1                                                              \
	}

/*
 * "info,capture=debug,file=/var/log/memtrace.log,format=json" into c, over what it has. options:
 * only levels. 0, or -EINVAL with *why, and then c is as it was.
 */
int log_config__parse(struct log_config *c, const char *text, bool levels_only, char *why,
		      size_t size);
/* The same, written: without a file, but with fd (-1: none). Cut where it does not fit: true if it
 * did. */
bool log_config__text(const struct log_config *c, int fd, char *buf, size_t size);
void log_config__free(struct log_config *c);
/* A level's name; the level of a name, or -EINVAL. */
const char *log_config__level_name(enum log_level level);
int log_config__level_of(const char *name, size_t len);
/* The part that a source file belongs to: its folder below user/. Returns buf. */
char *log__part(char buf[LOG_PART], const char *file);

/* ---- of this process ---- */

/* What lines call us: "record". Static. */
void log__set_command(const char *name);
/* As the environment says; what is wrong with that is warned of, and it is as if it said nothing.
 * To be called first of all. */
void log__from_environment(void);
/* One option's argument each. 0, or -EINVAL with *why. */
int log__option_level(const char *arg, char *why, size_t size);
int log__option_file(const char *arg, char *why, size_t size);
int log__option_format(const char *arg, char *why, size_t size);
/*
 * Opens the file, where there is to be one: appended to, made with mode 0600, never through a
 * symbolic link, never one of somebody else's. One that cannot be had is warned of, and all goes on
 * without. A second call does nothing.
 */
void log__open(void);
/* No descriptor of ours stays open; log__open() opens anew. */
void log__close(void);
/*
 * In a child of ours that starts this program once more: it goes on with the same log, through a
 * descriptor that is left open and named in the environment. file_only: says nothing of it where
 * there is no file, since standard error is read by a program. Returns the descriptor, or -1.
 */
int log__hand_on(bool file_only);
/*
 * In a process that is to have no file: what would go there is sent as {"log": {...}} on this
 * socket, each a packet; what cannot be sent at once is dropped. process: what its lines call it,
 * static.
 */
void log__relay_to(int fd, const char *process);
/*
 * On the other side, in the process that has the file: writes down what "log" had. Trusts nothing
 * of it. At most 200 lines a second and 1 MiB a minute of each process (a static name; 4 of them)
 * are written; how many were left out is said with the next that is.
 */
void log__relayed(pid_t pid, const char *process, json_t *said);

#endif
