/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf compare: several captures in a table, one row each. */
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/inputs.h"
#include "cmd/commands.h"
#include "cmd/report_args.h"
#include "cmd/usage.h"
#include "report/diff.h"
#include "base/text.h"
#include "base/log.h"

enum format { FORMAT_TEXT, FORMAT_JSON, FORMAT_MARKDOWN };

struct compare_args {
	struct report_args shown;
	struct compare_opts opts;
	char *names; /* text of --name */
	char **files;
	size_t n;
	struct inputs in; /* recordings with their names */
	struct scope_set scopes;
	bool print_scopes; /* --scopes */
};

enum { OPT_NAME = OPT_COMMANDS_OWN, OPT_STEPS, OPT_SKIP, OPT_SCOPES };

static const struct argp_option options[] = {
	{ "name", OPT_NAME, "A,B,...", 0, "Names of the rows (default: the files' names)",
	  OPTIONS_SHOW },
	{ "device", OPT_DEVICE, "DEVICE", 0,
	  "Device: cuda:0, cpu, ... (default: the largest peak of each, CUDA first)",
	  OPTIONS_SHOW },
	OPTION_SCOPE,
	{ "scopes", OPT_SCOPES, NULL, 0, "Also print the scopes that the job names itself",
	  OPTIONS_SHOW },
	{ "skip", OPT_SKIP, "N", 0, "Do not time the first N whole steps", OPTIONS_SHOW },
	{ "steps", OPT_STEPS, "N", 0, "Time N steps (default: all)", OPTIONS_SHOW },
	{ "format", OPT_FORMAT, "text|json|markdown", 0, "Format (default text)", OPTIONS_OUTPUT },
	OPTION_COLOR,
	{ 0 },
};

/* Parses a number of steps, 0 included. Calls argp_error() for anything else. */
static uint64_t parse_steps(const char *option, const char *arg, struct argp_state *state)
{
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(arg, &end, 10);
	if (errno || end == arg || *end || strchr(arg, '-'))
		argp_error(state, "%s: '%s' is not a number of steps", option, arg);
	return n;
}

/* Number of names in a comma-separated list. */
static size_t count_names(const char *s)
{
	size_t n = 1;

	for (; *s; s++)
		n += *s == ',';
	return n;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct compare_args *a = state->input;

	switch (key) {
	case OPT_NAME:
		a->names = arg;
		break;
	case OPT_SCOPES:
		a->print_scopes = true;
		break;
	case OPT_SKIP:
		a->opts.skip = parse_steps("--skip", arg, state);
		break;
	case OPT_STEPS:
		a->opts.steps = parse_steps("--steps", arg, state);
		break;
	case ARGP_KEY_ARGS:
		a->files = state->argv + state->next;
		a->n = (size_t)(state->argc - state->next);
		break;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "no recording given: memtrace-bpf compare FILE FILE..., or a "
				  "folder of recordings");
		break;
	case ARGP_KEY_END:
		break;
	default:
		return report_args__parse(key, arg, state, &a->shown);
	}
	return 0;
}

/* Splits "baseline=runs/1.mtr" into name and path, unless a file has this whole name. */
static char *split_name(char *arg, const char **path)
{
	char *equals = strchr(arg, '=');

	*path = arg;
	if (!equals || equals == arg || !access(arg, F_OK))
		return NULL;
	*equals = '\0';
	*path = equals + 1;
	return arg;
}

/* Adds an argument, or the recordings in the folder that it names. Names them as the argument says,
 * otherwise as the index does. Returns 0, or an exit code after a message. */
static int expand(struct compare_args *args, char *arg)
{
	const char *path;
	char *name = split_name(arg, &path), *const one[] = { (char *)path };
	struct inputs in;
	int status = inputs__expand(one, 1, INPUTS_EACH, &in);

	for (size_t i = 0; i < in.n && !status; i++) {
		char *row_name = NULL;

		if (name && in.n > 1 && asprintf(&row_name, "%s %s", name, in.names[i]) < 0)
			row_name = NULL;
		else if (name && in.n == 1)
			row_name = strdup(name);
		if (!row_name && in.names[i])
			row_name = strdup(in.names[i]);
		status = inputs__add(&args->in, strdup(in.paths[i]), row_name);
	}
	inputs__free(&in);
	return status;
}

/* Fills args->in with the recordings that the arguments name. Returns 0, or an exit code after a
 * message. */
static int expand_all(struct compare_args *args)
{
	int status = EXIT_OK;
	char names[32], recordings[40];

	for (size_t i = 0; i < args->n && !status; i++)
		status = expand(args, args->files[i]);
	if (!status && args->names && count_names(args->names) != args->in.n) {
		log_err("--name: %s for %s; give one name for each",
			text__counted(names, sizeof(names), count_names(args->names), "name"),
			text__counted(recordings, sizeof(recordings), args->in.n, "recording"));
		status = EXIT_USAGE;
	}
	args->n = args->in.n;
	return status;
}

/* Reads args->n recordings into all[], with the names of --name. Returns 0, or an exit code after a
 * message. */
static int read_all(struct compare_args *args, struct compared *all)
{
	char *names = args->names;
	int status = 0;

	for (size_t i = 0; i < args->n && !status; i++) {
		const char *name = args->in.names[i];

		if (names)
			name = strsep(&names, ",");
		status = compare__read(args->in.paths[i], name && *name ? name : NULL, &args->opts,
				       &all[i], &args->scopes, i);
	}
	return status;
}

/* Prints the table in the chosen format. Returns 0 or -ENOMEM. */
static int print(const struct compare_args *args, const struct compared *all)
{
	const struct report_text_opts o = { .colour = args->shown.colour };
	const struct scope_set none = { 0 }, *scopes = args->print_scopes ? &args->scopes : &none;

	for (size_t i = 0; i < args->n; i++)
		if (all[i].names_functions)
			scopes = &args->scopes;
	switch (args->shown.format) {
	case FORMAT_JSON:
		return compare_json__print(stdout, all, args->n, &args->scopes);
	case FORMAT_MARKDOWN:
		return compare_markdown__print(stdout, all, args->n, scopes);
	default:
		return compare_text__print(stdout, all, args->n, scopes, &o);
	}
}

static const struct argp_child children[] = {
	MEMORY_ARGP_CHILD, SCHEMA_ARGP_CHILD, LOG_ARGP_CHILD, { 0 }
};
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "[NAME=]FILE...\nFOLDER",
	.doc = "Compare recordings in a table: peak, reserved memory, fragmentation, step time and "
	       "where the peak is, each against the first.",
	.children = children,
};

static int cmd_compare(int argc, char **argv)
{
	static const char *const formats[] = { "text", "json", "markdown", NULL };
	struct compare_args args = { .shown.formats = formats };
	struct compared *all;
	int status;

	usage__parse(&command_compare, argc, argv, 0, &args);
	args.opts.device = args.shown.device;
	args.opts.moment = report_args__moment(&args.shown, &(struct model_opts){ .at = AT_PEAK });
	status = expand_all(&args);
	if (status) {
		inputs__free(&args.in);
		return status;
	}
	all = calloc(args.n + 1, sizeof(*all));
	if (scope_set__init(&args.scopes)) {
		free(all);
		all = NULL;
	}
	status = all ? read_all(&args, all) : EXIT_FAILED;
	scope_set__sort(&args.scopes);
	if (!all || (!status && print(&args, all))) {
		log_err("out of memory");
		status = EXIT_FAILED;
	}
	for (size_t i = 0; all && i < args.n; i++)
		compare__drop(&all[i]);
	free(all);
	scope_set__drop(&args.scopes);
	inputs__free(&args.in);
	if (analysis__check_output(stdout, "standard output"))
		return EXIT_FAILED;
	return status;
}

const struct command command_compare = {
	.name = "compare",
	.summary = "compare recordings: peak, reserved memory, step time",
	.group = COMMANDS_READ,
	.argp = &argp,
	.examples = "memtrace-bpf compare before=old.mtr after=new.mtr\n"
		    "memtrace-bpf compare runs/",
	.status = STATUS_READ,
	.run = cmd_compare,
};
