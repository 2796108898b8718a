/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_FOLLOW_PICK_H
#define MT_FOLLOW_PICK_H
/*
 * Which processes a capture of several is of: those with these PIDs, whose command line matches, or
 * all; in some container or pod; with --follow also those that come in the place of one that has
 * ended. Here is only who is meant: who is there, and what becomes of them, is tracees.h's.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "process/cgroup.h"

#define PICK_MAX 32 /* of each kind of option */

/* As given on the command line; all strings are the caller's. */
struct pick_args {
	pid_t pids[PICK_MAX];
	size_t n_pids;
	const char *names[PICK_MAX]; /* extended regular expressions */
	size_t n_names;
	const char *containers[PICK_MAX]; /* names, or the beginnings of ids */
	size_t n_containers;
	const char *pods[PICK_MAX]; /* names, or the beginnings of UIDs */
	size_t n_pods;
	bool all, follow;
};

/* A process from outside. */
struct pick_process {
	pid_t pid, parent;
	uid_t uid;	  /* effective */
	uint64_t started; /* CLOCK_BOOTTIME, ns, to the kernel's tick */
	char comm[64];
	char *cmdline; /* NUL-separated, NUL-terminated, cut at 16 KiB */
	size_t len;
	struct cgroup cgroup;
};

/* 0; -ESRCH: none, or a kernel thread, or one that is ending; -ENOMEM. Until pick_process__free(). */
int pick_process__read(pid_t pid, struct pick_process *ret);
void pick_process__free(struct pick_process *p);
/* "python train.py --lr 0.1": fit for a terminal, cut; without the script's folders if it would be
 * cut with them. Returns buf. */
char *pick_process__title(const struct pick_process *p, char *buf, size_t size);

struct pick;

/* Does it mean more than the one process of -p? */
bool pick_args__many(const struct pick_args *args);
/* NULL: this is an extended regular expression; else why it is not, static. */
const char *pick__bad_pattern(const char *pattern);
struct pick *pick__new(
	const struct pick_args *args); /* a copy of args is kept. NULL: out of memory */
void pick__free(struct pick *p);       /* NULL is fine */

enum pick_is {
	PICK_NO,
	PICK_IF_TORCH, /* if it has PyTorch in it, or is on its way to it */
	PICK_YES,
};

/*
 * Is it meant? Never: this program, others of it, a sudo, and as far as only a name says so what
 * has started us, unless that has PyTorch in it.
 */
enum pick_is pick__is(struct pick *p, const struct pick_process *q);
/* With --follow of a PID: what runs in this process is traced now; who has the same command line,
 * user and place comes after it. */
int pick__remember(struct pick *p, const struct pick_process *q); /* 0 or -ENOMEM */
/* It has ended, at this time (CLOCK_MONOTONIC, ns). */
void pick__ended(struct pick *p, pid_t pid, uint64_t when);
/* Others may come that are meant, however long that takes. */
bool pick__open_ended(const struct pick *p);
/* Only PIDs say who is meant: nobody else will be. */
bool pick__only_pids(const struct pick *p);
/* In words, for "waiting for ...": "a process that matches 'train.py'". Returns buf. */
char *pick__title(const struct pick *p, char *buf, size_t size);

#endif
