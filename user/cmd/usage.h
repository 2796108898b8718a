/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Parses the command lines of all commands, with the same help and error messages, and with the
 * options that all have: -v, -q, --log-level, --log-file, --log-format, --help and --version. */
#include <argp.h>

#include "cmd/commands.h"

/* The last child of each command's argp parser, without input. Sets the form of usage errors, and
 * opens the log file after all options were parsed. */
extern const struct argp log_argp;

#define LOG_ARGP_CHILD                                                                             \
	{                                                                                          \
		&log_argp, 0, NULL, 0                                                              \
	}

/* Parses -v, -q and --log-... in front of the command's word. Returns how many arguments they take,
 * or -1 after an error message. */
int usage__take_common_options(int argc, char **argv);
/*
 * Like argp_parse(). Exits after --help and --version, and with code 64 after an error. The last
 * line of an error names the help. Long options need their whole name; an unknown one gets a
 * suggestion.
 */
void usage__parse(const struct command *command, int argc, char **argv, unsigned flags,
		  void *input);
/* Sets the list of all commands, for suggestions. Borrowed. Call it before usage__parse(). */
void usage__know(const struct command *const *commands, size_t n);
/* Calls argp_error() for a word that is not one of words, which ends with NULL. The message is
 * "WHAT 'word'; did you mean report?", or has the list of the words. */
void usage__unknown(struct argp_state *state, const char *what, const char *word,
		    const char *const *words);
/* Says what to type instead of an unknown command: argv[0], with the arguments after it. Such as a
 * PID, a recording, a script, a misspelled word, or a command of another tool. */
void usage__unknown_command(int argc, char *const *argv);
/* Calls argp_error() for an argument of a command that takes none. For a number it suggests -p;
 * otherwise the message ends with `next`, which says what to do. */
void usage__unexpected(struct argp_state *state, const char *argument, const char *next);
/* The command whose command line is being parsed. */
const struct command *usage__command(void);
