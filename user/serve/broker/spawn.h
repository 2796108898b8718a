/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_BROKER_SPAWN_H
#define MT_SERVE_BROKER_SPAWN_H
/* Starts this program once more, as one of its commands, with what the command needs and nothing
 * else. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/subprocess.h"

#define SPAWN_ARGS 48
#define SPAWN_FILES 16
#define SPAWN_ENV 16
#define SPAWN_LAST 4096 /* bytes of what it said that are kept, the last ones */

/* A recording that is open for reading, and what it is to be called. */
struct spawn_file {
	int fd;
	const char *name;
};

struct spawn_opts {
	const char *const *argv; /* from the command's name on; ends with NULL; SPAWN_ARGS at most */
	const char *const
		*env; /* "NAME=VALUE" besides ours, SPAWN_ENV at most; ends with NULL; NULL: none */
	int out;      /* standard output; -1: /dev/null */
	int keep;     /* a descriptor that it gets under the same number; -1: none */
	const struct spawn_file *files;
	size_t n_files;
	int nice_by;
	/*
	 * Where it is not privileged: who it becomes, and its bounds. It is undumpable from its
	 * first instruction on, so that processes of the same user cannot take what it was handed
	 * (where the system runs no memfd: from the first passed_files__open() on).
	 */
	bool drop;
	uid_t uid;
	gid_t gid;
	uint64_t memory;
	unsigned cpu_seconds;
};

/* One that runs. */
struct spawned {
	struct subprocess process;
	int said; /* its standard error, for reading; -1: at its end */
	char last[SPAWN_LAST];
	size_t n_last;
};

/* 0, or -errno. When we end it is sent SIGTERM (drop: SIGKILL). */
int spawn__self(const struct spawn_opts *o, struct spawned *ret);
/* Takes in what it has said. */
void spawned__read(struct spawned *s);
/* True: it has ended, and its group with it; *status is as waitpid() has it. */
bool spawned__ended(struct spawned *s, int *status);
/* Is it a child of this one? Its number is then nobody else's, as long as this one runs. */
bool spawned__has_started(const struct spawned *s, pid_t pid);
/* Kills what runs with its group, waits for it, and frees what is held. Fine for one that never
 * ran. */
void spawned__close(struct spawned *s);
/*
 * The last thing that it said which looks like an error, else the last thing at all, without
 * "memtrace-bpf: " in front, cleaned; "" if it said nothing.
 */
char *spawned__words(const struct spawned *s, char *buf, size_t size);

#endif
