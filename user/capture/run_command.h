/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A command that is started and recorded from its first instruction on, also in the dry run, for
 * `run` and `estimate`. Logs to standard error.
 */
#include <signal.h>
#include <stdbool.h>

#include "capture/capture_args.h"
#include "capture/launch/child.h"
#include "capture/preload.h"
#include "capture/recording.h"

struct run_command_args {
	struct capture_args capture;
	struct recording_args recording;
	struct dryrun_args dryrun;
	bool no_trace;
	bool inside;		 /* the command records itself: preload.h */
	uint64_t max_time;	 /* ns after which the command is ended; 0: never */
	bool stdout_to_stderr;	 /* keep our standard output from the command */
	const char *user;	 /* user to run as; NULL: the user behind sudo, if any */
	const char *command_env; /* variables for child.h; NULL: all, but few for another user */
	char **command;		 /* NULL-terminated */
};

struct run_command {
	/* First: ctx of the loop's calls. The caller may set calls.keep and calls.over, whose ctx
	 * is the run_command. */
	struct recording recording;
	struct run_command_args args;
	/* Called about once a second while PyTorch is missing or silent. May be NULL. */
	void (*idle)(struct run_command *r);
	struct child *child; /* the process; NULL until it is made */
	bool was_attached;
	/* Private. */
	struct loop_command loop_command;
	sigset_t mask; /* signal mask of the caller */
	struct user user;
	struct dryrun *dryrun;
	struct inside *inside_run; /* state of --inside; NULL: the kernel records */
	bool warned_of_child;	   /* said that a child process has PyTorch, the command not */
	bool looked_at_maps;	   /* checked whether the dry run's libraries are loaded */
	bool never_ran;		   /* the program of the command could not be executed */
	bool out_of_time;	   /* the command was ended after max_time */
	bool ran_out; /* an out-of-memory error was recorded; set by the caller's calls.keep */
};

/* Blocks the signals and opens their signalfd. The caller has zeroed run and filled args. Returns 0
 * or an exit code, logged. */
int run_command__open(struct run_command *run);
/*
 * Starts the command and records it until the command or the recording ends. Returns 0 or an exit
 * code, logged; a shell's exit code if the command never ran. The command may still run.
 */
int run_command__record(struct run_command *run);
bool run_command__started(const struct run_command *run); /* the command runs or has run */
bool run_command__has_ended(const struct run_command *run);
/* Waits for the command's end and logs it. Returns the exit code of a shell. */
int run_command__wait(struct run_command *run);
/* Frees all that run owns. */
void run_command__close(struct run_command *run);
