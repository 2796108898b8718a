/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf diff: what changed between two recordings. */
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/analysis.h"
#include "model/inputs.h"
#include "cmd/commands.h"
#include "cmd/report_args.h"
#include "cmd/usage.h"
#include "report/diff.h"
#include "base/outfile.h"
#include "base/text.h"
#include "base/log.h"

enum format { FORMAT_TEXT, FORMAT_JSON, FORMAT_CSV, FORMAT_FLAMEGRAPH };

#define DEFAULT_TOP 20 /* rows of text; JSON and CSV have all rows */

struct diff_args {
	struct report_args shown;
	struct diff_opts opts;
	const char *output;
	bool force, csv;
	const char *files[MATCH_SIDES];
};

static const struct argp_option options[] = {
	{ "at", OPT_AT, "peak|end|oom|SECONDS|mark:NAME|scope:NAME#N", 0,
	  "Moment (default peak); OLD,NEW: a moment for each recording", OPTIONS_SHOW },
	{ "by", OPT_BY, "line|stack|module|layer|phase|role|thread|scope", 0,
	  "Group rows (default line); layer: a module with all inside", OPTIONS_SHOW },
	OPTION_SCOPE,
	{ "device", OPT_DEVICE, "DEVICE", 0,
	  "Device: cuda:0, cpu, ... (default: NEW's largest peak, CUDA first)", OPTIONS_SHOW },
	{ "top", OPT_TOP, "N", 0, "Print N rows; 0: all (default 20 in text, all in json and csv)",
	  OPTIONS_SHOW },
	{ "format", OPT_FORMAT, "text|json|csv|flamegraph", 0,
	  "Format (default text); flamegraph: a page for any browser", OPTIONS_OUTPUT },
	OPTION_COLOR,
	{ "output", 'o', "FILE", 0,
	  "Write to FILE (default: standard output; for a flame graph memtrace-diff-OLD-NEW.html)",
	  OPTIONS_OUTPUT },
	{ "force", 'f', NULL, 0, "Replace FILE if it exists", OPTIONS_OUTPUT },
	{ 0 },
};

/* Parses "peak", or "5,10" for OLD and NEW. */
static void parse_at(struct diff_args *a, const char *arg, struct argp_state *state)
{
	const char *comma = strchr(arg, ',');
	char *first = comma ? strndup(arg, comma - arg) : strdup(arg);

	if (!first || analysis__parse_at(first, &a->opts.at[MATCH_OLD]) ||
	    analysis__parse_at(comma ? comma + 1 : first, &a->opts.at[MATCH_NEW]))
		argp_error(state,
			   "--at: unknown moment '%s'; use peak, end, oom, seconds since the "
			   "start, mark:NAME, scope:NAME, or OLD,NEW",
			   arg);
	free(first);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct diff_args *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->csv;
		break;
	case OPT_AT:
		parse_at(a, arg, state);
		break;
	case 'o':
		a->output = arg;
		break;
	case 'f':
		a->force = true;
		break;
	case ARGP_KEY_ARG:
		if (state->arg_num >= MATCH_SIDES)
			argp_error(state,
				   "'%s' is a third recording; for more than two: memtrace-bpf "
				   "compare",
				   arg);
		else
			a->files[state->arg_num] = arg;
		break;
	case ARGP_KEY_END:
		if (a->shown.format == FORMAT_FLAMEGRAPH && a->shown.by != BY_LINE &&
		    a->shown.by != BY_STACK)
			argp_error(state, "--format flamegraph works only with --by stack");
		if (a->shown.format == FORMAT_FLAMEGRAPH && a->shown.top)
			argp_error(state, "--format flamegraph shows all stacks; it cannot be "
					  "combined with --top");
		report_args__check_csv(state, a->csv, a->shown.format == FORMAT_CSV);
		for (int k = 0; k < MATCH_SIDES; k++)
			report_args__check_scopes(state, &a->shown, a->opts.at[k].at_scope);
		if (!a->files[MATCH_OLD])
			argp_error(state, "no recording given: memtrace-bpf diff OLD NEW");
		else if (!a->files[MATCH_NEW])
			break; /* a folder may have both */
		else if (!strcmp(a->files[0], "-") && !strcmp(a->files[1], "-"))
			argp_error(state, "only one recording can come from standard input");
		break;
	default:
		return report_args__parse(key, arg, state, &a->shown);
	}
	return 0;
}

/* Reads one of the two recordings. Returns 0 and *ret, or an exit code after a message. */
static int read_side(struct diff_args *args, enum match_side side, struct analysis **ret)
{
	int status;

	args->opts.at[side] = report_args__moment(&args->shown, &args->opts.at[side]);
	args->opts.at[side].at_device = args->shown.device;
	status = analysis__open(args->files[side], &args->opts.at[side], ret);
	status = status ? status : analysis__run(*ret, NULL, NULL);
	if (!status)
		/* --at with a time after the end means the end: keep what the model took */
		args->opts.at[side] = model__opts((*ret)->model);
	return status;
}

/* Sets ret[] to the device of each recording. Without --device: the main device of NEW if OLD has
 * it, or that of OLD if NEW has it. Otherwise each recording's main device, such as for ranks with
 * a GPU each. Returns 0, or an exit code after a message. */
static int choose_devices(struct analysis *const a[MATCH_SIDES], const struct diff_args *args,
			  size_t ret[MATCH_SIDES])
{
	const char *name = args->shown.device;
	struct model_device d[MATCH_SIDES] = { 0 };

	for (int k = MATCH_NEW; !name && k >= MATCH_OLD; k--) {
		int main = model__main_device(a[k]->model);

		if (main < 0)
			continue;
		model__device(a[k]->model, main, &d[k]);
		if (model__find_device(a[!k]->model, d[k].name) >= 0)
			name = d[k].name;
	}
	if (!name && d[MATCH_OLD].device.type != d[MATCH_NEW].device.type)
		/* one side does not have this device: analysis__device() reports it */
		name = *d[MATCH_OLD].name ? d[MATCH_OLD].name : d[MATCH_NEW].name;
	for (int k = 0; k < MATCH_SIDES; k++) {
		int status = analysis__device(a[k], name, &ret[k]);
		struct model_device dev;
		char path[512];

		if (status)
			return status;
		model__device(a[k]->model, ret[k], &dev);
		if (!dev.marked) {
			log_err("%s: no out-of-memory event of %s; try --at peak",
				text__clean(path, sizeof(path), a[k]->path, strlen(a[k]->path)),
				dev.name);
			return EXIT_UNUSABLE;
		}
	}
	return 0;
}

/* Writes the difference in the chosen format. Returns 0 or a negative error. */
static int print(FILE *out, struct diff *d, const struct diff_args *args)
{
	size_t top = args->shown.top;
	struct diff_text_opts o = { .top = args->shown.top_given ? top : DEFAULT_TOP,
				    .colour = args->shown.colour };

	switch (args->shown.format) {
	case FORMAT_JSON:
		return diff_json__print(out, d, top);
	case FORMAT_CSV:
		return diff_csv__print(out, d, top);
	case FORMAT_FLAMEGRAPH:
		return diff_flame__print(out, d);
	default:
		return diff_text__print(out, d, &o);
	}
}

/* Writes to a file that gets its name when it is complete, or to standard output ("-"). Returns the
 * exit code. */
static int write_file(struct diff *d, const struct diff_args *args, const char *path)
{
	struct outfile *file;
	char name[512] = "standard output";
	int err = outfile__create(path, OUTFILE_RENAME, args->force, &file);

	if (strcmp(path, "-") != 0)
		text__clean(name, sizeof(name), path, strlen(path));
	if (err) {
		log_err("%s: cannot create: %s", name, outfile__why(err));
		return EXIT_FAILED;
	}
	outfile__discard_on_signal(file);
	err = outfile__stream(file) ? print(outfile__stream(file), d, args) : -ENOMEM;
	if (err) {
		log_err("%s: %s", name, strerror(-err));
		outfile__discard(file);
		return EXIT_FAILED;
	}
	err = outfile__commit(file);
	if (err)
		log_err("%s: cannot write: %s", name, outfile__why(err));
	else if (args->shown.format == FORMAT_FLAMEGRAPH && strcmp(path, "-") != 0)
		log_event(LOG_INFO, "written",
			  LOG_FIELDS(LOG_STRING("path", name), LOG_STRING("format", "flamegraph")),
			  "wrote %s: any browser opens it, without a network", name);
	return err ? EXIT_FAILED : EXIT_OK;
}

/* Writes the output to the file of -o or to standard output. A page without -o gets its own file,
 * as with exports. */
static int write_out(struct diff *d, const struct diff_args *args)
{
	char *path = NULL;
	int status;

	if (args->output || args->shown.format != FORMAT_FLAMEGRAPH)
		return write_file(d, args, args->output ? args->output : "-");
	if (asprintf(&path, "memtrace-diff-%s-%s.html", d->side[MATCH_OLD].a->name,
		     d->side[MATCH_NEW].a->name) < 0) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	status = write_file(d, args, path);
	free(path);
	return status;
}

/* Reads both recordings and writes how they differ. Returns the exit code. */
static int run(struct diff_args *args)
{
	struct analysis *a[MATCH_SIDES] = { NULL };
	size_t device[MATCH_SIDES];
	struct diff *d = NULL;
	int status = 0, err;

	for (int k = 0; k < MATCH_SIDES && !status; k++)
		status = read_side(args, k, &a[k]);
	if (!status)
		status = choose_devices(a, args, device);
	if (status)
		goto out;
	args->opts.by = args->shown.by;
	args->opts.any_module = args->shown.format == FORMAT_TEXT;
	err = diff__new(a, device, &args->opts, &d);
	if (err)
		log_err("%s", strerror(-err));
	status = err ? EXIT_FAILED : write_out(d, args);
out:
	diff__free(d);
	analysis__free(a[MATCH_OLD]);
	analysis__free(a[MATCH_NEW]);
	return status;
}

/* Logs that a second recording is missing, or why the first one cannot be read. Returns the exit
 * code. */
static int explain_missing_file(const char *path)
{
	const struct model_opts opts = { .at = AT_PEAK };
	struct analysis *a = NULL;
	int status = strcmp(path, "-") ? analysis__open(path, &opts, &a) : 0;

	analysis__free(a);
	if (status)
		return status;
	log_err("no second recording given: memtrace-bpf diff OLD NEW, or a folder with several");
	return EXIT_USAGE;
}

static const struct argp_child children[] = {
	CSV_ARGP_CHILD, MEMORY_ARGP_CHILD, SCHEMA_ARGP_CHILD, LOG_ARGP_CHILD, { 0 }
};
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "OLD NEW\nFOLDER",
	.doc = "Show what changed between two recordings: lines that grew, shrank, are new or "
	       "gone. Matches lines that moved in their file.",
	.children = children,
};

static int cmd_diff(int argc, char **argv)
{
	static const char *const formats[] = { [FORMAT_TEXT] = "text",
					       [FORMAT_JSON] = "json",
					       [FORMAT_CSV] = "csv",
					       [FORMAT_FLAMEGRAPH] = "flamegraph",
					       NULL };
	struct diff_args args = { .shown = { .groups = group_names, .formats = formats } };
	struct inputs in;
	int status;

	usage__parse(&command_diff, argc, argv, 0, &args);
	status = inputs__expand((char *const *)args.files, args.files[MATCH_NEW] ? 2 : 1,
				INPUTS_ENDS, &in);
	if (status)
		return status;
	if (in.n == MATCH_SIDES) {
		args.files[MATCH_OLD] = in.paths[MATCH_OLD];
		args.files[MATCH_NEW] = in.paths[MATCH_NEW];
		status = run(&args);
	} else {
		status = explain_missing_file(in.paths[0]);
	}
	inputs__free(&in);
	return status;
}

const struct command command_diff = {
	.name = "diff",
	.summary = "show what changed between two recordings",
	.group = COMMANDS_READ,
	.argp = &argp,
	.examples = "memtrace-bpf diff old.mtr new.mtr\n"
		    "memtrace-bpf diff --at 0,end run.mtr run.mtr   # within one recording\n"
		    "memtrace-bpf diff --format flamegraph -o diff.html old.mtr new.mtr",
	.status = STATUS_READ,
	.run = cmd_diff,
};
