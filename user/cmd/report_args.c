/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/report_args.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "assets/schemas.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "capture/capture_args.h"
#include "cmd/usage.h"
#include "model/analysis.h"
#include "model/words.h"
#include "record/mtr.h"

/* ---- what to show ---- */

const char *const report_args_formats[] = { "text", "json", NULL };

#define WORDS_MOST 16 /* most words of an option that a message lists */

int report_args__choose(struct argp_state *state, const char *option, const char *arg,
			const char *const *words)
{
	/* the words as people read them: role for category */
	const char *shown[WORDS_MOST + 1] = { NULL };
	char what[64];

	for (int i = 0; words[i]; i++) {
		bool role = !strcmp(words[i], "category");

		if (!strcmp(arg, words[i]) || (role && !strcmp(arg, "role")))
			return i;
		if (i < WORDS_MOST)
			shown[i] = role ? "role" : words[i];
	}
	snprintf(what, sizeof(what), "%s: unknown value", option);
	usage__unknown(state, what, arg, shown);
	return 0;
}

/* Adds a pattern of --hide. Calls argp_error() for an empty one. */
static void parse_hide(struct report_args *a, const char *arg, struct argp_state *state)
{
	int err = report_select__add_hide(&a->select, arg);

	if (err == -EINVAL)
		argp_error(state, "--hide needs a file or a folder");
	else if (err)
		argp_failure(state, EXIT_FAILED, 0, "out of memory");
}

/* Calls argp_error() for the name of a recording: others may take -o as "keep what is recorded". */
static void check_output(struct argp_state *state, const char *path)
{
	const char *dot = strrchr(path, '.');

	if (dot && dot != path && !strcmp(dot, ".mtr"))
		argp_error(state,
			   "--output: %s prints text and makes no recording '%s'; try report.txt",
			   usage__command()->name, path);
}

static size_t count_scopes(const struct report_args *a)
{
	size_t n = 0;

	while (n < STREAM_SCOPES && a->scopes[n])
		n++;
	return n;
}

struct model_opts report_args__moment(const struct report_args *a, const struct model_opts *at)
{
	struct model_opts with = *at;

	with.scopes = a->scopes;
	with.nscopes = count_scopes(a);
	return with;
}

void report_args__check_scopes(struct argp_state *state, const struct report_args *a,
			       const char *at_scope)
{
	size_t n = count_scopes(a);

	for (size_t i = 0; i < n; i++)
		if (!strcmp(a->scopes[i], at_scope))
			return;
	if (n == STREAM_SCOPES && *at_scope)
		argp_error(state, "--scope and --at name more than %d functions", STREAM_SCOPES);
}

error_t report_args__parse(int key, char *arg, struct argp_state *state, struct report_args *a)
{
	static const char *const frames[] = { "user", "all", "native", NULL };
	static const char *const choices[] = {
		[REPORT_AUTO] = "auto", [REPORT_ALWAYS] = "always", [REPORT_NEVER] = "never", NULL
	};
	char why[256];

	switch (key) {
	case OPT_AT:
		a->at_given = true;
		if (analysis__parse_at(arg, &a->at))
			argp_error(
				state,
				"--at: unknown moment '%s'; use peak, end, oom, seconds since the "
				"start, mark:NAME or scope:NAME#N",
				arg);
		break;
	case OPT_BY:
		if (a->by_given)
			argp_error(state, "--by: given twice; give it once");
		a->by_given = true;
		a->by = report_args__choose(state, "--by", arg, a->groups);
		break;
	case OPT_DEVICE:
		a->device = arg;
		break;
	case OPT_TOP:
		a->top = capture_args__parse_count(state, "--top", arg, 0);
		a->top_given = true;
		break;
	case OPT_FRAMES:
		a->which_line = report_args__choose(state, "--frames", arg, frames);
		break;
	case OPT_FILTER:
		if (report_select__set_filter(&a->select, arg, why, sizeof(why)))
			argp_error(state, "--filter: %s", why);
		break;
	case OPT_HIDE:
		parse_hide(a, arg, state);
		break;
	case OPT_SCOPE:
		capture_args__add_scope(state, a->scopes, arg);
		break;
	case 'o':
		check_output(state, arg);
		a->output = arg;
		break;
	case 'f':
		a->force = true;
		break;
	case OPT_FORMAT:
		a->format = report_args__choose(state, "--format", arg, a->formats);
		break;
	case OPT_COLOR:
		a->colour = report_args__choose(state, "--color", arg, choices);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* ---- --output ---- */

/* Logs that `what` failed for the file of --output. Returns EXIT_FAILED. */
static int fail_output(const char *path, const char *what, int err)
{
	char name[512];

	log_err("%s: %s: %s", text__clean(name, sizeof(name), path, strlen(path)), what,
		outfile__why(err));
	return EXIT_FAILED;
}

int report_output__begin(struct report_output *o, const struct report_args *a, bool attaches)
{
	int err;

	*o = (struct report_output){ .path = a->output };
	if (!a->output || !strcmp(a->output, "-"))
		return 0;
	err = outfile__create(a->output, attaches ? OUTFILE_DIRECT : OUTFILE_RENAME, a->force,
			      &o->file);
	if (!err && attaches && (err = outfile__replace(o->file)))
		outfile__discard(o->file);
	if (err)
		return fail_output(a->output, "cannot create", err);
	fflush(stdout);
	o->standard = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
	if (o->standard < 0 || dup2(outfile__fd(o->file), STDOUT_FILENO) < 0) {
		err = -errno;
		outfile__discard(o->file);
		return fail_output(a->output, "cannot write", err);
	}
	outfile__discard_on_signal(o->file);
	return 0;
}

int report_output__end(struct report_output *o, int status)
{
	struct stat st = { 0 };
	int err = 0;

	if (analysis__check_output(stdout, o->file ? o->path : "standard output"))
		status = EXIT_FAILED;
	if (!o->file)
		return status;
	if (dup2(o->standard, STDOUT_FILENO) < 0)
		err = -errno;
	close(o->standard);
	if (err || status == EXIT_FAILED || (!fstat(outfile__fd(o->file), &st) && !st.st_size))
		outfile__discard(o->file);
	else
		err = outfile__commit(o->file);
	return err ? fail_output(o->path, "cannot write", err) : status;
}

/* ---- --csv ---- */

enum { OPT_CSV = 0x8300 };

static const struct argp_option csv_options[] = {
	{ "csv", OPT_CSV, "safe|raw", OPTION_COMMON,
	  "With CSV: put ' before names that are formulas for a spreadsheet (safe, default) or not "
	  "(raw)",
	  OPTIONS_OUTPUT },
	{ 0 },
};

/* state->input: a bool that says whether --csv was given. */
static error_t parse_csv(int key, char *arg, struct argp_state *state)
{
	static const char *const words[] = { "safe", "raw", NULL };

	if (key != OPT_CSV)
		return ARGP_ERR_UNKNOWN;
	*(bool *)state->input = true;
	csv__set_raw(report_args__choose(state, "--csv", arg, words));
	return 0;
}

void report_args__check_csv(struct argp_state *state, bool given, bool is_csv)
{
	if (given && !is_csv)
		argp_error(state, "--csv is for the format csv");
}

const struct argp csv_argp = { .options = csv_options, .parser = parse_csv };

/* ---- --max-memory ---- */

enum { OPT_MAX_MEMORY = 0x8200 };

static const struct argp_option memory_options[] = {
	{ "max-memory", OPT_MAX_MEMORY, "SIZE", OPTION_COMMON,
	  "Stop if reading recordings needs more memory than SIZE (default: half of the available "
	  "memory)",
	  OPTIONS_OUTPUT },
	{ 0 },
};

static error_t parse_memory(int key, char *arg, struct argp_state *state)
{
	uint64_t bytes;

	if (key != OPT_MAX_MEMORY)
		return ARGP_ERR_UNKNOWN;
	if (text__parse_size(arg, &bytes) || !bytes)
		argp_error(state, "--max-memory: '%s' is not a size; try 8G", arg);
	room__set(bytes);
	return 0;
}

const struct argp memory_argp = { .options = memory_options, .parser = parse_memory };

/* ---- --json, --json-schema ---- */

enum { OPT_SCHEMA = 0x8500, OPT_JSON };

static const struct argp_option schema_options[] = {
	/* usage__parse() makes it --format json before argp sees it */
	{ "json", OPT_JSON, NULL, OPTION_COMMON, "Short for --format json", OPTIONS_OUTPUT },
	{ "json-schema", OPT_SCHEMA, NULL, OPTION_COMMON,
	  "Print the JSON Schema of the command's JSON", OPTIONS_OUTPUT },
	{ 0 },
};

static error_t parse_schema(int key, char *arg, struct argp_state *state)
{
	const char *command = usage__command()->name;

	(void)arg;
	if (key != OPT_SCHEMA)
		return ARGP_ERR_UNKNOWN;
	for (size_t i = 0; i < sizeof(schemas) / sizeof(*schemas); i++) {
		if (strcmp(schemas[i].command, command) != 0)
			continue;
		if (packed__write(&schemas[i].schema, stdout))
			argp_failure(state, 1, ENOMEM, "--json-schema");
		exit(analysis__check_output(stdout, "standard output"));
	}
	argp_error(state, "--json-schema: no schema of %s", command);
	return EINVAL;
}

const struct argp schema_argp = { .options = schema_options, .parser = parse_schema };
