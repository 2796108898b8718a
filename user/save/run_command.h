/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_RUN_COMMAND_H
#define MT_SAVE_RUN_COMMAND_H
/*
 * A command that is started and recorded from its first instruction on, perhaps in the dry run:
 * what `run` and `estimate` have in common. Speaks to the person on standard error.
 */
#include <signal.h>
#include <stdbool.h>

#include "follow/capture_args.h"
#include "launch/child.h"
#include "launch/dryrun.h"
#include "save/recording.h"

struct run_command_args {
	struct capture_args capture;
	struct recording_args recording;
	struct dryrun_args dryrun;
	bool no_trace;
	bool inside;	       /* the command records itself: inside.h */
	bool stdout_to_stderr; /* our standard output is not for it */
	const char *user;      /* NULL: the one behind sudo, if any */
	const char
		*command_env; /* as child.h's variables; NULL: all, unless user is somebody else */
	char **command;	      /* NULL-terminated */
};

struct run_command {
	struct recording recording; /* first: what the loop calls us with */
	struct run_command_args args;
	/*
	 * Called every second or so while PyTorch is not there, and after each drain, which ends
	 * the recording where it returns a reason (as capture_loop.h). recording.loop.ctx is what
	 * they get: the struct run_command. May be NULL.
	 */
	void (*idle)(struct run_command *r);
	const char *(*drained)(struct run_command *r);
	struct child *child; /* NULL until it is made */
	bool was_attached;
	/* Its own. */
	int (*recording_attached)(void *ctx);
	const char *(*recording_drained)(void *ctx);
	sigset_t mask; /* as we found it */
	int signals;
	struct user user;
	struct dryrun *dryrun;
	struct inside *inside_run; /* NULL: the kernel records it */
	bool said_family, looked_at_maps, never_ran;
};

/* Takes the signals over. 0 or an exit code, logged. The caller has zeroed r and filled args. */
int run_command__open(struct run_command *r);
/*
 * Starts the command and records it until one of both ends. 0 or an exit code, logged; of one that
 * never ran, what a shell would say. The command may go on.
 */
int run_command__record(struct run_command *r);
bool run_command__started(const struct run_command *r); /* it ran, or runs */
bool run_command__has_ended(const struct run_command *r);
/* Waits until it has ended. Its exit status as a shell has it, what ended it logged. */
int run_command__wait(struct run_command *r);
/* What run_command__open() and the others made. */
void run_command__close(struct run_command *r);

#endif
