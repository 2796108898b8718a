/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ESTIMATE_RUN_H
#define MT_ESTIMATE_RUN_H
/*
 * One dry run of the script, recorded into a file, until its steps repeat, it ends, or a bound is
 * reached. It is made in a process of its own, forked off: what records gives up the right to
 * record on the way. Speaks to the person on standard error.
 */
#include <stdbool.h>
#include <stdint.h>

#include "estimate/repeat.h"
#include "save/run_command.h"

enum run_end {
	RUN_ENDED,    /* by itself: wait_status */
	RUN_REPEATED, /* from here on: we ended it */
	RUN_STEPS,    /* as many as were asked for */
	RUN_OOM,      /* a request was refused, and that was to end it */
	RUN_TIME,
	RUN_HOST_MEMORY,
	RUN_INTERRUPTED, /* we were told to stop */
};
const char *run_end__name(enum run_end e); /* "ended", "repeated", ... */

struct estimate_run_opts {
	const struct run_command_args *
		args; /* command, user, dryrun and so on; of the recording the output is set here */
	const char *path;	  /* of the recording: there is no such file */
	uint64_t steps;		  /* stop after so many; 0: when they repeat */
	uint64_t steps_at_most;	  /* and after so many in any case; 0: no bound */
	bool until_oom;		  /* stop where a request is refused */
	bool lean;		  /* only what decides about fitting is wanted of the recording */
	uint64_t max_time;	  /* ns */
	uint64_t max_host_memory; /* bytes of the process and those that it starts */
	const char *quiet; /* a file for the script's output and for our messages; NULL: they go on
			      as they are */
};

struct estimate_run {
	enum run_end end;
	bool attached;	 /* PyTorch was there: there is a recording */
	bool at_end;	 /* it had ended by itself when it was to be stopped */
	int wait_status; /* as of waitpid(), where it ended by itself */
	uint64_t steps;
	uint64_t ooms;	    /* requests of PyTorch that were refused */
	uint64_t after_oom; /* steps that ended after the last of them */
	struct repeat_found repeat;
	uint64_t time;	      /* ns from the start of the script to its end */
	uint64_t host_memory; /* bytes at the most, as far as was looked */
	bool killed_workers;  /* processes that it had started were there when it was stopped */
};

/* 0, or an exit code: the recording could not be made, logged. */
int estimate_run(const struct estimate_run_opts *opts, struct estimate_run *ret);

#endif
