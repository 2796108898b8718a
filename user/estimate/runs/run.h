/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * One dry run of the script, recorded into a file, until its steps repeat, it ends, or it reaches a
 * bound. The run has its own process, forked from the caller, because recording gives up rights
 * that the next run needs. Messages go to standard error.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "capture/run_command.h"
#include "record/stream.h"

/* ---- repeated steps ---- */

/*
 * Finds out whether the steps of a training job repeat. Compares each optimizer step on each device
 * but the CPU: the peaks of allocated and reserved bytes, both values at its end, and the
 * optimizer's stack. All passes between two steps belong to the second.
 *
 * Steps are equal if all these values are the same. Steps also count as equal if only allocated
 * bytes differ, by less than 1/REPEAT_CLOSE, and the number of blocks does not grow. The reason is
 * that the allocator may hand out larger blocks than requested.
 */
struct repeat;

#define REPEAT_EQUAL 3 /* equal steps in a row that end a run */
/* Longest cycle of steps; a cycle seen twice ends a run, for jobs with several optimizers. */
#define REPEAT_CYCLE 8

#define REPEAT_CLOSE 256

/* Number of steps after which repeat__grows() may end a run, and number of the latest steps that it
 * compares. */
#define REPEAT_GROWS 64
#define REPEAT_GROWN 48

struct repeat_found {
	uint64_t first, last; /* numbers of the first and the last step that repeat, from 1 */
	unsigned cycle;	      /* steps per cycle; 1: all steps are equal */
	uint64_t spread;      /* largest difference between their peaks of allocated bytes */
};

struct repeat *repeat__new(void);    /* NULL if memory is short */
void repeat__free(struct repeat *r); /* NULL is fine */
/* Adds an event. Returns 0 or -ENOMEM. */
int repeat__event(struct repeat *r, const struct event *e);
/* True if the last finished step completed a repetition; fills *ret. */
bool repeat__found(const struct repeat *r, struct repeat_found *ret);

/* True if the steps repeat except for memory that each step keeps. Over the last REPEAT_GROWN
 * steps, the bytes at the steps' ends never fall and grow about equally in each quarter, and each
 * step's peak is equally far above its end. This holds for every device.
 */
bool repeat__grows(const struct repeat *r);

/* ---- a run ---- */

enum run_end {
	RUN_ENDED,    /* the script ended: wait_status */
	RUN_REPEATED, /* the steps repeated; the runner stopped the script, as for all ends below */
	RUN_STEPS,    /* requested number of steps */
	RUN_GROWS,    /* the steps repeated, but for memory that they keep */
	RUN_OOM,      /* a request was refused, and until_oom is set */
	RUN_TIME,     /* the run reached max_time */
	RUN_HOST_MEMORY, /* the run reached max_host_memory */
	RUN_INTERRUPTED, /* a signal asked this program to stop */
};

struct estimate_run_opts {
	/* Command, user, dryrun and so on. The runner sets the recording's output. */
	const struct run_command_args *args;
	const char *path;	  /* path of the recording; must not exist */
	uint64_t steps;		  /* steps after which to stop; 0: when they repeat or grow */
	uint64_t steps_at_most;	  /* most steps in any case; 0: no bound */
	bool until_oom;		  /* stop at the first refused request */
	bool lean;		  /* record only the data that decide whether the job fits */
	uint64_t max_time;	  /* longest time of the run, ns */
	uint64_t max_host_memory; /* most host memory of the script's process and its descendants,
				     bytes */
	/* File for the script's output and our messages; NULL: unchanged. */
	const char *quiet;
};

struct estimate_run {
	enum run_end end;
	bool attached;	 /* true if PyTorch was found, so a recording exists */
	bool at_end;	 /* true if the script had ended before the runner stopped it */
	int wait_status; /* status of waitpid(), if the script ended */
	uint64_t steps;
	uint64_t ooms; /* refused requests of PyTorch */
	struct repeat_found repeat;
	uint64_t time;	      /* ns from the script's start to its end */
	uint64_t host_memory; /* largest sampled memory of the processes, bytes */
	bool killed_workers;  /* true if child processes still ran when the script was stopped */
};

/* Runs the script and sets *ret. Returns 0. If the recording failed, logs an error and returns an
 * exit code. */
int estimate_run(const struct estimate_run_opts *opts, struct estimate_run *ret);

/* ---- the processes of a running script: their memory use and their end ---- */

/*
 * Bytes of host memory that a process and its descendants hold. The fast sum counts shared pages
 * once per process. If it exceeds `enough`, the function returns the exact sum, if the kernel has
 * it.
 */
uint64_t estimate_run__memory(pid_t pid, uint64_t enough);
/* Ends a process with SIGTERM, or with SIGKILL if it handles SIGTERM or does not end. Then kills
 * all its descendants, but not process `spare`. Returns the number of killed descendants. */
unsigned estimate_run__end(pid_t pid, int pidfd, pid_t spare);
