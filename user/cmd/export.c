/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf export: writes a recording in a format of other programs. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "record/folder.h"
#include "model/inputs.h"
#include "cmd/commands.h"
#include "cmd/report_args.h"
#include "cmd/usage.h"
#include "export/export.h"
#include "base/exit.h"

/* Formats that write to a folder. The HTTP API has none of them. */
static const struct export_format *const folder_formats[] = { &tables_parquet, NULL };

#define FORMATS_NAMED 63 /* formats that a message lists, at most */

enum { OPT_JOB = OPT_COMMANDS_OWN, OPT_HOST, OPT_WITH };

struct options {
	struct report_args shown;
	struct export_job job;
	struct export_folder folder;
	char **files;
	size_t n;
	bool csv; /* --csv is given */
};

static const struct argp_option options[] = {
	{ "at", OPT_AT, "peak|end|oom|SECONDS|mark:NAME|scope:NAME#N", 0,
	  "Moment (default peak; for snapshot: end)", OPTIONS_SHOW },
	{ "device", OPT_DEVICE, "DEVICE", 0, "Only this device: cuda:0, cpu, ... (default: all)",
	  OPTIONS_SHOW },
	{ "scope", OPT_SCOPE, "FUNCTION", OPTION_RARE,
	  "Also write the runs of this Python function (html, perfetto, parquet, snapshot); "
	  "repeatable",
	  OPTIONS_SHOW },
	{ "output", 'o', "FILE", 0,
	  "Write to FILE (default memtrace-FORMAT-RECORDING); \"-\": standard output. "
	  "parquet: to a folder (default tables)",
	  OPTIONS_OUTPUT },
	{ "with", OPT_WITH, "TRACE", OPTION_RARE,
	  "With perfetto: merge the trace of torch.profiler (.json or .json.gz) of the same "
	  "process",
	  OPTIONS_OUTPUT },
	{ "job", OPT_JOB, "NAME", OPTION_RARE,
	  "With parquet: name of the job (default: the name of the folder or recording)",
	  OPTIONS_OUTPUT },
	{ "host", OPT_HOST, "NAME", OPTION_RARE,
	  "With parquet: name of the host (default: of the folder's index, or the recorder's)",
	  OPTIONS_OUTPUT },
	{ "force", 'f', NULL, 0, "Replace FILE if it exists", OPTIONS_OUTPUT },
	{ 0 },
};

/* For command.word: format i of all, those for folders last; no name: there is none. */
static struct command_word format_word(size_t i)
{
	size_t n = 0;
	const struct export_format *f;

	while (export_formats[n])
		n++;
	f = i < n ? export_formats[i] : folder_formats[i - n];
	return f ? (struct command_word){ f->name, f->help } : (struct command_word){ 0 };
}

/* The format with this name; NULL: unknown. */
static const struct export_format *find_format(const char *name)
{
	for (size_t i = 0; folder_formats[i]; i++)
		if (!strcmp(folder_formats[i]->name, name))
			return folder_formats[i];
	return export__find(name);
}

/* True for an argument that is meant as a recording: it exists, or has the name of one, such as
 * "runs/1" or "run.mtr". */
static bool is_recording(const char *arg)
{
	const char *dot = strrchr(arg, '.');
	bool has_suffix = dot && dot != arg && !strcmp(dot, ".mtr");

	return has_suffix || !strcmp(arg, "-") || strchr(arg, '/') || !access(arg, F_OK);
}

/* Calls argp_error() for an unknown format, with those that there are. */
static void refuse_format(struct argp_state *state, const char *arg)
{
	const char *names[FORMATS_NAMED + 1] = { NULL };

	for (size_t i = 0; format_word(i).name && i < FORMATS_NAMED; i++)
		names[i] = format_word(i).name;
	usage__unknown(state, "unknown format", arg, names);
}

/* Divides the arguments into a format, which is the first or the last of them, and recordings.
 * Files without a format become a page. */
static void parse_arguments(struct argp_state *state, struct options *o, char **args, size_t n)
{
	o->files = args;
	o->n = n;
	o->job.format = find_format(args[0]);
	if (o->job.format) {
		o->files++;
		o->n--;
	} else if (n > 1 && (o->job.format = find_format(args[n - 1]))) {
		o->n--;
	} else if (!is_recording(args[0])) {
		refuse_format(state, args[0]);
	} else if (n > 1 && !is_recording(args[n - 1])) {
		refuse_format(state, args[n - 1]);
	} else {
		o->job.format = export__find("html");
	}
	o->job.recording = o->n ? o->files[0] : NULL;
}

/* Calls argp_error() for options that the format does not have. */
static void check_options(struct argp_state *state, const struct options *o)
{
	const struct export_job *a = &o->job;

	if (!a->recording)
		argp_error(state, "no recording given; for example: memtrace-bpf export %s run.mtr",
			   a->format ? a->format->name : "html");
	if (a->with && strcmp(a->format->name, "perfetto") != 0)
		argp_error(state, "--with is for the format perfetto");
	if (a->format->whole && o->shown.at_given)
		argp_error(state,
			   "--at cannot be combined with %s: it has the whole recording and no "
			   "moment",
			   a->format->name);
	report_args__check_csv(state, o->csv, a->format == &export_csv);
	report_args__check_scopes(state, &o->shown, o->shown.at.at_scope);
	if (!a->format->to_folder && (o->folder.job || o->folder.host))
		argp_error(state, "--job and --host are for the format parquet");
	if (!a->format->to_folder && o->n > 1)
		argp_error(state, "unexpected argument '%s'; export takes one recording",
			   o->files[1]);
	if (a->format->to_folder && a->output && !strcmp(a->output, "-"))
		argp_error(state, "%s writes a folder and not standard output", a->format->name);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	struct export_job *a = &o->job;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &o->csv;
		break;
	case 'o':
		a->output = arg;
		break;
	case 'f':
		a->force = true;
		break;
	case OPT_WITH:
		a->with = arg;
		break;
	case OPT_JOB:
		o->folder.job = arg;
		break;
	case OPT_HOST:
		o->folder.host = arg;
		break;
	case ARGP_KEY_ARGS:
		parse_arguments(state, o, state->argv + state->next,
				(size_t)(state->argc - state->next));
		break;
	case ARGP_KEY_END:
		check_options(state, o);
		break;
	default:
		return report_args__parse(key, arg, state, &o->shown);
	}
	return 0;
}

static const struct argp_child children[] = {
	CSV_ARGP_CHILD, MEMORY_ARGP_CHILD, LOG_ARGP_CHILD, { 0 }
};
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "[FORMAT] FILE\nparquet FILE...",
	.doc = "Write a recording as a page for any browser, or in a format that other programs "
	       "read.",
	.children = children,
};

/* The last part of a folder's path, for the caller to free: "runs" of "/data/runs/". NULL: no
 * memory. */
static char *folder_name(const char *path)
{
	size_t end = strlen(path), begin;

	while (end > 1 && path[end - 1] == '/')
		end--;
	for (begin = end; begin && path[begin - 1] != '/';)
		begin--;
	return strndup(path + begin, end - begin);
}

/* Writes the tables of all recordings that an argument names. Returns the exit code. */
static int write_tables(const struct options *o, char *file)
{
	char *name = o->folder.job || !folder__wanted(file) ? NULL : folder_name(file);
	struct export_folder folder = o->folder;
	struct export_job job = o->job;
	struct inputs in;
	int status = inputs__expand(&file, 1, INPUTS_EACH, &in);

	if (status) {
		free(name);
		return status;
	}
	folder.path = job.output ? job.output : "tables";
	folder.force = job.force;
	if (name)
		folder.job = name;
	job.folder = &folder;
	for (size_t i = 0; i < in.n && !status; i++) {
		job.recording = in.paths[i];
		folder.host = o->folder.host ? o->folder.host : in.hosts[i];
		status = export__run(&job);
	}
	inputs__free(&in);
	free(name);
	return status;
}

static int cmd_export(int argc, char **argv)
{
	struct options o = { 0 };
	int status = EXIT_OK;

	usage__parse(&command_export, argc, argv, 0, &o);
	o.job.model = report_args__moment(&o.shown, &o.shown.at);
	o.job.moment_given = o.shown.at_given;
	o.job.model.at_device = o.shown.device;
	o.job.device = o.shown.device;
	if (!o.job.format->to_folder)
		return export__run(&o.job);
	for (size_t i = 0; i < o.n && !status; i++)
		status = write_tables(&o, o.files[i]);
	return status;
}

const struct command command_export = {
	.name = "export",
	.summary = "write a page, flame graph, pprof, perfetto, csv, ...",
	.group = COMMANDS_READ,
	.argp = &argp,
	.word = format_word,
	.words = "Formats (default html)",
	.examples = "memtrace-bpf export run.mtr\n"
		    "memtrace-bpf export html run.mtr -o run.html\n"
		    "memtrace-bpf export pprof run.mtr\n"
		    "memtrace-bpf export csv run.mtr -o - | head\n"
		    "memtrace-bpf export parquet run.mtr -o tables/",
	.status = STATUS_READ,
	.run = cmd_export,
};
