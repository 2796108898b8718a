/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Options that commands share. A command lists those options for what to show that it has in its
 * own table, with the keys below. It passes keys that it does not parse itself to
 * report_args__parse(). The other shared options (--csv, --max-memory, --json-schema) are children
 * of its argp parser. */
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
	OPT_SCOPE,
	OPT_FORMAT,
	OPT_COLOR,
	OPT_COMMANDS_OWN /* first free key for the command's own options */
};

/* Entries of options with the same help in all commands. */
#define OPTION_OUTPUT                                                                              \
	{ "output", 'o', "FILE", 0, "Write to FILE instead of standard output", OPTIONS_OUTPUT },  \
	{                                                                                          \
		"force", 'f', NULL, 0, "Replace FILE if it exists", OPTIONS_OUTPUT                 \
	}
#define OPTION_FRAMES                                                                              \
	{                                                                                          \
		"frames", OPT_FRAMES, "user|all|native", OPTION_RARE,                              \
			"Charge the innermost line of user code (default) or of all code, or the " \
			"innermost function of compiled code",                                     \
			OPTIONS_SHOW                                                               \
	}
#define OPTION_SCOPE                                                                               \
	{                                                                                          \
		"scope", OPT_SCOPE, "FUNCTION", 0,                                                 \
			"Also print runs and peak of this Python function", OPTIONS_SHOW           \
	}
#define OPTION_COLOR                                                                               \
	{ "color",                                                                                 \
	  OPT_COLOR,                                                                               \
	  "auto|always|never",                                                                     \
	  OPTION_COMMON,                                                                           \
	  "Use colours (default auto: on a terminal, unless NO_COLOR is set)",                     \
	  OPTIONS_OUTPUT },                                                                        \
	{                                                                                          \
		"colour", OPT_COLOR, "WHEN", OPTION_ALIAS | OPTION_HIDDEN, NULL, 0                 \
	}

struct report_args {
	/* Set by the command: the words of --by and of --format. Each list ends with NULL. */
	const char *const *groups, *const *formats;
	int by, format; /* index of the word that was given, in groups and formats */
	bool by_given;
	struct model_opts at; /* without scopes: see report_args__moment() */
	bool at_given;
	const char *scopes[STREAM_SCOPES]; /* --scope; NULL: no more */
	const char *device;		   /* NULL: not given */
	size_t top;			   /* rows, 0: all; the command sets the default */
	bool top_given;
	enum frame_choice which_line; /* which frame of a stack is charged: --frames */
	struct report_select select;  /* --filter and --hide; free it with report_select__drop() */
	enum report_choice colour;
	const char *output; /* -o; NULL: standard output */
	bool force;	    /* -f: replace that file */
};

/* Parses an option that the command lists. Returns 0, or ARGP_ERR_UNKNOWN for other keys. */
error_t report_args__parse(int key, char *arg, struct argp_state *state, struct report_args *a);
/* Returns at with the names of --scope, which a owns. */
struct model_opts report_args__moment(const struct report_args *a, const struct model_opts *at);
/* Calls argp_error() if the names of --scope and the scope of --at ("": none) are too many. */
void report_args__check_scopes(struct argp_state *state, const struct report_args *a,
			       const char *at_scope);
/* "text", "json", NULL: the words of --format in most commands. */
extern const char *const report_args_formats[];
/* Returns the index of arg in words, which end with NULL. Calls argp_error() for another word. */
int report_args__choose(struct argp_state *state, const char *option, const char *arg,
			const char *const *words);

/* The file of OPTION_OUTPUT, while it takes the place of standard output. */
struct report_output {
	struct outfile *file; /* NULL: standard output itself */
	const char *path;     /* borrowed */
	int standard;	      /* descriptor of the real standard output */
};

/* Makes standard output go to the file of -o, if it is given. attaches: the command will give up
 * its rights, so the file gets its name now. Returns 0, or an exit code after a message: then there
 * is nothing to end. */
int report_output__begin(struct report_output *o, const struct report_args *a, bool attaches);
/* Reports an error of writing. Makes standard output be itself again. Gives the file its name;
 * removes it if nothing was written or status is EXIT_FAILED. Returns status, or another exit code
 * after a message. */
int report_output__end(struct report_output *o, int status);

/* --csv of commands that write tables, as a child of their argp parsers. */

#define CSV_ARGP_CHILD                                                                             \
	{                                                                                          \
		&csv_argp, 0, NULL, 0                                                              \
	}

/* Parses --csv, which sets how model/words.h writes text. The input is a bool, which becomes true
 * if the option is given: pass it to report_args__check_csv(). */
extern const struct argp csv_argp;
/* Calls argp_error() if --csv is given and the output is not CSV. */
void report_args__check_csv(struct argp_state *state, bool given, bool is_csv);

/* --max-memory of commands that read recordings, as a child of their argp parsers. */

#define MEMORY_ARGP_CHILD                                                                          \
	{                                                                                          \
		&memory_argp, 0, NULL, 0                                                           \
	}

/* Parses --max-memory, which sets the limit of record/mtr.h. Has no input. */
extern const struct argp memory_argp;

/* --json and --json-schema of commands that have --format json, as a child of their argp parsers.
 * The schemas are the files of user/cmd/schema, one for each command. */

#define SCHEMA_ARGP_CHILD                                                                          \
	{                                                                                          \
		&schema_argp, 0, NULL, 0                                                           \
	}

/* Parses --json-schema: prints the schema of the command whose line is being parsed, and exits.
 * Has no input. */
extern const struct argp schema_argp;
