/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
#include <argp.h>
#include <stddef.h>
#include <stdio.h>

/* A word that can be a command's first argument, such as a format of `export`. */
struct command_word {
	const char *name, *help;
};

/* Groups of the list of commands, in its order. */
enum command_group {
	COMMANDS_LOOK,
	COMMANDS_RECORD,
	COMMANDS_READ,
	COMMANDS_MORE,
	COMMANDS_GROUPS
};

struct command {
	const char *name;    /* word on the command line; "live" is also the command without one */
	const char *summary; /* for the list of commands */
	enum command_group group;
	/* The options. argp->doc: one or two sentences. argp->args_doc: the arguments, a line for
	 * each form. Groups of options: capture/capture_args.h. */
	const struct argp *argp;
	struct command_word (*word)(size_t i); /* the i-th possible first argument; with name NULL:
						  no more. NULL: there are none */
	const char *words;		       /* heading of these words in help */
	const struct command *shares; /* its help describes the rare options that both commands
					 have; NULL: none */
	const char *examples;	      /* command lines, for help */
	const char *status;	      /* exit codes, for help */
	/* Parses argv, with the command's word as argv[0]. Returns the exit code. */
	int (*run)(int argc, char **argv);
};

/* Exit codes of commands that read recordings, and of commands that attach. */
#define STATUS_READ "0 done, 1 failed, 2 not a recording, 64 usage"
#define STATUS_ATTACH "0 done, 1 failed, 2 process not usable, 3 not permitted, 64 usage"

extern const struct command command_live, command_record, command_run, command_estimate,
	command_report, command_compare, command_diff, command_replay, command_export, command_dump,
	command_watch, command_leaks, command_serve, command_fetch, command_ctl, command_check,
	command_mcp, command_diagnose, command_ps, command_import;
