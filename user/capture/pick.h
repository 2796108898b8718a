/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The processes that captures choose: which are wanted, which have PyTorch, and the owners who
 * share the places.
 *
 * The choice of several: by PID, command line, container or pod, or all,
 * and with --follow their successors. capture_loop.h finds and captures the processes.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "inspect/container.h"

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
	size_t len;    /* bytes of cmdline */
	struct cgroup cgroup;
};

/* Reads a process. The caller frees *ret by pick_process__free(). Returns 0; -ESRCH: no such
 * process, a kernel thread, or one that is ending; -ENOMEM. */
int pick_process__read(pid_t pid, struct pick_process *ret);
void pick_process__free(struct pick_process *process);
/* Writes "python train.py --lr 0.1", cut to size and fit for a terminal. Drops the script's folders
 * first. Returns buf. */
char *pick_process__title(const struct pick_process *process, char *buf, size_t size);
/* Writes the command from the script's name on: "train.py --lr 0.1". Returns buf. */
char *pick_process__script(const struct pick_process *process, char *buf, size_t size);
/* True if the name of the process is that of a Python interpreter. */
bool pick_process__is_python(const struct pick_process *process);

struct pick;

/* True if the options choose more than the one process of -p. */
bool pick_args__many(const struct pick_args *args);
/* Returns NULL for an extended regular expression, otherwise a static text with the error. */
const char *pick__bad_pattern(const char *pattern);
/* Copies args, but not its strings. NULL: out of memory. */
struct pick *pick__new(const struct pick_args *args);
void pick__free(struct pick *pick); /* NULL is fine */

enum pick_is {
	PICK_NO,
	PICK_IF_TORCH, /* yes, if it has PyTorch or is about to import it */
	PICK_YES,
};

/*
 * Judges a process. Never picks memtrace-bpf itself, another memtrace-bpf or sudo. Without PyTorch,
 * a name does not pick the processes that started us.
 */
enum pick_is pick__is(struct pick *pick, const struct pick_process *process);
/* True for a process of -p, and with --follow for the successor of one that ended. */
bool pick__is_given(const struct pick *pick, const struct pick_process *process);
/* With --follow of PIDs, remembers a traced process. The next process with the same command line,
 * user and container takes its place. */
int pick__remember(struct pick *pick,
		   const struct pick_process *process); /* returns 0 or -ENOMEM */
/* Frees the place of a process that ended at this time (CLOCK_MONOTONIC, ns). */
void pick__ended(struct pick *pick, pid_t pid, uint64_t when);
/* True if later processes may be picked at any time. */
bool pick__open_ended(const struct pick *pick);
/* True if processes are picked only if they have PyTorch, not by name or PID. */
bool pick__needs_torch(const struct pick *pick);
/* True if only PIDs are given. */
bool pick__only_pids(const struct pick *pick);
/* Describes the choice for "waiting for ...": "a process that matches 'train.py'". Returns buf. */
char *pick__title(const struct pick *pick, char *buf, size_t size);

/*
 * Fair shares of a table with a fixed number of places. Each process in it belongs to an owner, a
 * user or a container. When the table is full, a process of an owner with few places takes one from
 * an owner with more.
 */

#define OWNER_NAME 80

struct pick_process;

struct owner {
	char name[OWNER_NAME]; /* "user 1000", "container 0123..." */
	size_t uses;	       /* references; 0: the entry is free */
	size_t places;	       /* for shares__choose() */
	bool said;	       /* for the user of owners: a message about this owner was logged */
};

/* Owners by name. An entry does not move while it has references. */
struct owners {
	struct owner **v;
	size_t n, cap;
};

/*
 * The owner of a process, with a reference for the caller. NULL: out of memory. Processes of a user
 * count for the user under whatever ID they run:
 *  - in control groups that the user manages, and in user namespaces that the user made;
 *  - a set-user-ID program counts for the user who started it.
 * A container is an owner, because it can have any number of users; so is a user namespace of root.
 */
struct owner *owners__of(struct owners *owners, const struct pick_process *process);
/* The owner of that name, with a reference for the caller. NULL: out of memory. */
struct owner *owners__named(struct owners *owners, const char *name);
/* Another reference. NULL is fine. */
struct owner *owner__share(struct owner *w);
/* Returns a reference. NULL is fine. */
void owner__drop(struct owner *w);
void owners__free(struct owners *owners);

/* A place that may be taken away. */
struct place {
	struct owner *owner;
	unsigned rank; /* places of a lower rank make room for any process of a higher one */
	uint64_t came; /* sequence number: the place that was given last is taken first */
};

#define SHARES_NONE SIZE_MAX

/* Returns the index of the place that a process of this owner and rank takes: a place of a lower
 * rank, or one of an owner who afterwards still has as many places of that rank as this owner.
 * SHARES_NONE: no place can be taken. */
size_t shares__choose(const struct place *places, size_t n, const struct owner *owner,
		      unsigned rank);
/* The number of an owner's places. */
size_t shares__count(const struct place *places, size_t n, const struct owner *owner);
/* The owner with the most places. NULL: n is 0. */
struct owner *shares__largest(const struct place *places, size_t n);

/*
 * Finds which processes have PyTorch, for scans of all processes, which anybody may have made. A
 * helper process reads the maps and files of each. A file system may never answer: then the helper
 * is ended, and the process is left out for a while. So each look takes a bounded time, and all
 * processes of an owner together have a bounded time in each scan.
 */

struct torch_scan;

enum torch_scan_is {
	TORCH_NO,
	TORCH_YES,
	TORCH_LATER, /* not known: ask in a later scan */
};

/* look: the function that the helper calls; descendants__has_torch(), except in tests. NULL: out of
 * memory. */
struct torch_scan *torch_scan__new(bool (*look)(pid_t pid));
/* Does not wait for helpers that do not end. NULL is fine. */
void torch_scan__free(struct torch_scan *scan);
/* Begins a scan: each owner has its whole time again. */
void torch_scan__begin(struct torch_scan *scan);
/* Returns whether a process has PyTorch. Logs a warning when its files do not answer. */
enum torch_scan_is torch_scan__ask(struct torch_scan *scan, const struct pick_process *process);
