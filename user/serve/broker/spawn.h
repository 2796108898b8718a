/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Starts this program again for one of its commands, with few descriptors and rights. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/subprocess.h"

#define SPAWN_FILES 700 /* most recordings of a process; the limit of --max-traces */
#define SPAWN_ARGS (SPAWN_FILES + 48)
#define SPAWN_ENV 16
#define SPAWN_LAST 4096 /* kept bytes from the end of standard error */

/* A recording that is open for reading, and its name in the worker. */
struct spawn_file {
	int fd;
	const char *name;
};

struct spawn_opts {
	const char *const
		*argv; /* from the command's name on; NULL-terminated; at most SPAWN_ARGS */
	const char *const
		*env; /* additional "NAME=VALUE"; NULL-terminated; at most SPAWN_ENV; NULL: none */
	int out;      /* standard output; -1: /dev/null */
	int keep;     /* a further descriptor that the process gets, with this number; -1: none */
	const struct spawn_file *files;
	size_t n_files;
	int nice_by; /* added to the nice value */
	/*
	 * True: the process drops its rights, and has the user, group and limits below. It is not
	 * dumpable from its first instruction on, so that processes of the same user cannot take
	 * its descriptors. Without an executable memfd, it is not dumpable from its first
	 * passed_files__open() on.
	 */
	bool drop;
	uid_t uid;
	gid_t gid;
	uint64_t memory; /* limit of the address space, in bytes */
	unsigned cpu_seconds;
};

/* A started process. */
struct spawned {
	struct subprocess process;
	int err_fd;	       /* pipe from the process's standard error; -1: closed */
	char last[SPAWN_LAST]; /* the last bytes of standard error */
	size_t n_last;
};

/* Starts the process. It gets SIGTERM (drop: SIGKILL) when the broker ends. Returns 0 or -errno. */
int spawn__self(const struct spawn_opts *o, struct spawned *ret);
/* Reads what the process has written to standard error, without waiting. */
void spawned__read(struct spawned *s);
/* True if the process has ended. Then the rest of its process group is killed, and *status is that
 * of waitpid(). */
bool spawned__ended(struct spawned *s, int *status);
/* Kills the process with its group, waits for it and closes the pipe. No effect on a process that
 * never ran. */
void spawned__close(struct spawned *s);
/* Copies the last message of memtrace-bpf on standard error to buf, cleaned and without the prefix
 * "memtrace-bpf: ". If there is none: the last line, or "". Returns buf. */
char *spawned__last_message(const struct spawned *s, char *buf, size_t size);
