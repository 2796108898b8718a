/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The choice of processes for a capture of several: by PID, command line, container or pod, or all,
 * and with --follow their successors. tracees.h finds and captures the processes.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "inspect/cgroup.h"

#define PICK_MAX 32 /* options of each kind */

/* The options; all strings belong to the caller. */
struct pick_args {
	pid_t pids[PICK_MAX];
	size_t n_pids;
	const char *names[PICK_MAX]; /* extended regular expressions */
	size_t n_names;
	const char *containers[PICK_MAX]; /* names, or beginnings of ids */
	size_t n_containers;
	const char *pods[PICK_MAX]; /* names, or beginnings of UIDs */
	size_t n_pods;
	bool all, follow;
};

/* A process as /proc shows it. */
struct pick_process {
	pid_t pid, parent;
	uid_t uid;	  /* effective user */
	uid_t real_uid;	  /* the user who started it, also of a set-user-ID program */
	uint64_t started; /* start, CLOCK_BOOTTIME in ns, as precise as a kernel tick */
	char comm[64];
	char *cmdline; /* NUL-separated, NUL-terminated, at most 16 KiB */
	size_t len;
	struct cgroup cgroup;
};

/* Reads a process. The caller frees q by pick_process__free(). Returns 0; -ESRCH: no such process,
 * a kernel thread, or ending; -ENOMEM. */
int pick_process__read(pid_t pid, struct pick_process *ret);
void pick_process__free(struct pick_process *p);
/* Writes "python train.py --lr 0.1", cut to size and fit for a terminal. Drops the script's folders
 * first. Returns buf. */
char *pick_process__title(const struct pick_process *p, char *buf, size_t size);

struct pick;

/* True if the options choose more than the one process of -p. */
bool pick_args__many(const struct pick_args *args);
/* Returns NULL for an extended regular expression, otherwise a static text with the error. */
const char *pick__bad_pattern(const char *pattern);
/* Copies args, but not its strings. NULL: out of memory. */
struct pick *pick__new(const struct pick_args *args);
void pick__free(struct pick *p); /* p may be NULL */

enum pick_is {
	PICK_NO,
	PICK_IF_TORCH, /* yes, if it has PyTorch or is about to import it */
	PICK_YES,
};

/*
 * Judges a process. Never picks memtrace-bpf itself, another memtrace-bpf or sudo. Without PyTorch,
 * a name does not pick the processes that started us.
 */
enum pick_is pick__is(struct pick *p, const struct pick_process *q);
/* True for a process of -p, and with --follow for one that takes the place of one that ended. */
bool pick__is_given(const struct pick *p, const struct pick_process *q);
/* With --follow of PIDs: remembers a traced process, whose place the next process with the same
 * command line, user and container takes. */
int pick__remember(struct pick *p, const struct pick_process *q); /* returns 0 or -ENOMEM */
/* Frees the place of a process that ended at this time (CLOCK_MONOTONIC, ns). */
void pick__ended(struct pick *p, pid_t pid, uint64_t when);
/* True if later processes may be picked at any time. */
bool pick__open_ended(const struct pick *p);
/* True if processes are picked only if they have PyTorch, not by name or PID. */
bool pick__needs_torch(const struct pick *p);
/* True if only PIDs are given. */
bool pick__only_pids(const struct pick *p);
/* Describes the choice for "waiting for ...": "a process that matches 'train.py'". Returns buf. */
char *pick__title(const struct pick *p, char *buf, size_t size);
