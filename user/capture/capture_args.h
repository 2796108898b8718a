/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Options of all capturing commands, as argp parsers for the command's children. */
#include <argp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "capture/pick.h"
#include "capture/probes/session_opts.h"

struct capture_args {
	pid_t pid;	       /* the process to capture; 0: `pick` chooses several */
	struct pick_args pick; /* choice of several processes; counts if pick_args__many(&pick) */
	uint64_t duration;     /* ns; 0: until the process ends, or Ctrl-C */
	bool children;	       /* follow child processes and their children */
	bool chose_cost;       /* --cost was given */
	/* Options of each session. The capture's loop sets the fields from `started` to `inside`. */
	struct session_opts session;
};

/* Parsers of the options. Their input (argp_state.input) is a struct capture_args. */
extern const struct argp capture_argp;	      /* all options; one must choose a process */
extern const struct argp capture_bounds_argp; /* all options but those that choose processes */

/* Parses a count; calls argp_error() unless arg is a whole number >= min. */
uint64_t capture_args__parse_count(struct argp_state *state, const char *option, const char *arg,
				   uint64_t min);
/* Adds a function of --scope to the list, which ends with NULL or is full, unless it is there.
 * Calls argp_error() for one that cannot be a function's name, and for one too many. */
void capture_args__add_scope(struct argp_state *state, const char *scopes[STREAM_SCOPES],
			     const char *arg);
/* Parses the argument of --cost, "1%" or "off"; calls argp_error() on errors. Returns the share, 0:
 * off. */
double capture_args__parse_cost(struct argp_state *state, const char *arg);
/* --cost of captures that no person starts or waits for, by default; the same as a share. */
#define CAPTURE_COST "1%"
#define CAPTURE_COST_SHARE 0.01
/* Parses the argument of --pid; calls argp_error() on errors. */
pid_t capture_args__parse_pid(struct argp_state *state, const char *arg);
/* Parses the argument of --pid into *pid, for a command that takes one process. Calls argp_error()
 * if an earlier --pid has set *pid to another one; more is appended to that error: "; --children
 * ...". */
void capture_args__parse_only_pid(struct argp_state *state, const char *arg, const char *more,
				  pid_t *pid);
/* Calls argp_error() if no process is chosen, or if --container or --pod are combined with PIDs
 * alone. */
void capture_args__check_pick(struct argp_state *state, const struct pick_args *args);

/* ---- groups of options ---- */

/*
 * Groups of options in help, by task. Each entry of an argp table names its group. Help prints the
 * groups in this order, and the options of a group in the order of the tables. A command may use
 * the numbers below OPTIONS_PROCESS for groups of its own; an entry without name and key is the
 * heading of its group.
 *
 * The name of an option's value is for people and for completion: PID, FILE, FOLDER, DEVICE and
 * USER are completed as such, lower-case words between "|" are all possible values.
 */

enum option_group {
	OPTIONS_PROCESS = 10,
	OPTIONS_COMMAND,
	OPTIONS_TIME,
	OPTIONS_RECORD,
	OPTIONS_SHOW,
	OPTIONS_PARTS,
	OPTIONS_OUTPUT,
	OPTIONS_MESSAGES
};

/* Option flag: the short help prints only the name of this option. */
#define OPTION_RARE OPTION_NO_USAGE
/* Option flag: several commands have this option, and only the list of commands (`memtrace-bpf
 * help`) shows it. argp does not use this bit. */
#define OPTION_COMMON 0x100
