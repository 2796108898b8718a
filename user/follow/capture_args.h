/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_FOLLOW_CAPTURE_ARGS_H
#define MT_FOLLOW_CAPTURE_ARGS_H
/* The options that every capturing command has, as argp parsers to be children of the command's
 * own. */
#include <argp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "capture/session_opts.h"
#include "follow/pick.h"

struct capture_args {
	pid_t pid;		     /* 0: not given, or pick chooses the processes */
	struct pick_args pick;	     /* chooses the processes if pick_args__many() of it */
	uint64_t duration;	     /* ns, 0: until the process ends, or Ctrl-C */
	bool children;		     /* follow child processes, and theirs */
	struct session_opts session; /* of each process; the capture's loop sets started to group */
};

/* The input of both is a struct capture_args. */
extern const struct argp capture_argp; /* with --pid, --name and so on, one of which must be given */
extern const struct argp capture_bounds_argp; /* all but that */

/* A count from an option's argument; calls argp_error() on anything but a whole number >= min. */
uint64_t capture_args__parse_count(struct argp_state *state, const char *option, const char *arg,
				   uint64_t min);
/* --pid's argument, likewise. */
pid_t capture_args__parse_pid(struct argp_state *state, const char *arg);
/* Calls argp_error() where nobody is meant, or where --container or --pod would say nothing about
 * the PIDs that were given. */
void capture_args__check_pick(struct argp_state *state, const struct pick_args *p);

#endif
