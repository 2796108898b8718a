/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Options that commands share. A command lists those that choose what to show in its own table, with
 * these keys, and passes keys that it does not parse itself to report_args__parse(). The others
 * (--csv, --max-memory, --json-schema) are children of its argp parser. */
#include <argp.h>
#include <stdbool.h>
#include <stddef.h>

#include "capture/capture_args.h"
#include "model/model.h"
#include "report/filter.h"
#include "report/text.h"

enum {
	OPT_AT = 0x8400,
	OPT_BY,
	OPT_DEVICE,
	OPT_TOP,
	OPT_FRAMES,
	OPT_FILTER,
	OPT_HIDE,
	OPT_FORMAT,
	OPT_COLOR,
	OPT_COMMANDS_OWN /* first free key for the command's own options */
};

/* Entries of options with the same help in all commands. */
#define OPTION_FRAMES                                                                              \
	{                                                                                          \
		"frames", OPT_FRAMES, "user|all|native", OPTION_RARE,                              \
			"Charge the innermost line of user code (default) or of all code, or the " \
			"innermost function of compiled code",                                     \
			OPTIONS_SHOW                                                               \
	}
#define OPTION_COLOR                                                                               \
	{ "color",                                                                                 \
	  OPT_COLOR,                                                                               \
	  "auto|always|never",                                                                     \
	  OPTION_RARE,                                                                             \
	  "Use colours (default auto: on a terminal, unless NO_COLOR is set)",                     \
	  OPTIONS_OUTPUT },                                                                        \
	{                                                                                          \
		"colour", OPT_COLOR, "WHEN", OPTION_ALIAS | OPTION_HIDDEN, NULL, 0                 \
	}

struct report_args {
	/* Set by the command: words of --by and --format, NULL-terminated. */
	const char *const *groups, *const *formats;
	int by, format; /* index of the given word */
	bool by_given;
	struct model_opts at;
	bool at_given;
	const char *device; /* NULL: not given */
	size_t top;	    /* rows, 0: all; the command sets the default */
	bool top_given;
	enum frame_choice which_line; /* --frames all */
	struct report_select select;  /* for report_select__drop() */
	enum report_choice colour;
};

/* Parses an option. Returns ARGP_ERR_UNKNOWN for other keys. */
error_t report_args__parse(int key, char *arg, struct argp_state *state, struct report_args *a);
/* "text", "json", NULL: the words of --format in most commands. */
extern const char *const report_args_formats[];
/* Returns the index of arg in words (NULL-terminated). Calls argp_error() for another word. */
int report_args__choose(struct argp_state *state, const char *option, const char *arg,
			const char *const *words);

/* --csv of commands that write tables, as a child of their argp parsers. */

#define CSV_ARGP_CHILD                                                                             \
	{                                                                                          \
		&csv_argp, 0, NULL, 0                                                              \
	}

/* Sets how model/csv.h writes text. Its input is a bool, set to true if the option is given: for
 * report_args__check_csv(). */
extern const struct argp csv_argp;
/* Calls argp_error() if the option is given and the output is no CSV. */
void report_args__check_csv(struct argp_state *state, bool given, bool is_csv);

/* --max-memory of commands that read recordings, as a child of their argp parsers. */

#define MEMORY_ARGP_CHILD                                                                          \
	{                                                                                          \
		&memory_argp, 0, NULL, 0                                                           \
	}

/* Sets the limit of record/mtr.h; has no input. */
extern const struct argp memory_argp;

/* --json-schema of commands that write JSON, as a child of their argp parsers. The schemas are the
 * files of user/cmd/schema, one for each command. */

#define SCHEMA_ARGP_CHILD                                                                          \
	{                                                                                          \
		&schema_argp, 0, NULL, 0                                                           \
	}

/* Prints the schema of the command that is being parsed, and exits. Has no input. */
extern const struct argp schema_argp;
