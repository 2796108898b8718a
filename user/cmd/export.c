/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf export: writes a recording in a format of other programs. */
#include <argp.h>
#include <stdio.h>

#include "cmd/commands.h"
#include "cmd/csv_args.h"
#include "cmd/log_args.h"
#include "cmd/usage.h"
#include "cmd/memory_args.h"
#include "cmd/report_args.h"
#include "export/run.h"

struct options {
	struct report_args shown;
	struct export_job job;
};

static const struct argp_option options[] = {
	{ "at", OPT_AT, "peak|end|oom|SECONDS", 0, "Moment (default peak; for snapshot: end)",
	  OPTIONS_SHOW },
	{ "device", OPT_DEVICE, "DEVICE", 0, "Only this device: cuda:0, cpu, ... (default: all)",
	  OPTIONS_SHOW },
	{ "output", 'o', "FILE", 0,
	  "Write to FILE (default memtrace-FORMAT-RECORDING); \"-\": standard output",
	  OPTIONS_OUTPUT },
	{ "force", 'f', NULL, 0, "Replace FILE if it exists", OPTIONS_OUTPUT },
	{ 0 },
};

static struct command_word format_word(size_t i)
{
	const struct export_format *f = export_formats[i];

	return f ? (struct command_word){ f->name, f->help } : (struct command_word){ 0 };
}

static void parse_format(struct argp_state *state, struct export_job *a, const char *arg)
{
	const char *names[64] = { NULL };

	a->format = export__find(arg);
	for (size_t i = 0; export_formats[i] && i < 63; i++)
		names[i] = export_formats[i]->name;
	if (!a->format)
		usage__unknown(state, "unknown format", arg, names);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	struct export_job *a = &o->job;

	switch (key) {
	case 'o':
		a->output = arg;
		break;
	case 'f':
		a->force = true;
		break;
	case ARGP_KEY_ARG:
		if (state->arg_num == 0)
			parse_format(state, a, arg);
		else if (state->arg_num == 1)
			a->recording = arg;
		else
			argp_error(state, "unexpected argument '%s'; export takes one recording",
				   arg);
		break;
	case ARGP_KEY_END:
		if (!a->format)
			argp_error(
				state,
				"no format given; for example: memtrace-bpf export html run.mtr");
		if (!a->recording)
			argp_error(
				state,
				"no recording given; for example: memtrace-bpf export %s run.mtr",
				a->format ? a->format->name : "FORMAT");
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
	.args_doc = "FORMAT FILE",
	.doc = "Write a recording in a format that other programs read.",
	.children = children,
};

static int cmd_export(int argc, char **argv)
{
	struct options o = { 0 };

	usage__parse(&command_export, argc, argv, 0, &o);
	o.job.model = o.shown.at;
	o.job.moment_given = o.shown.at_given;
	o.job.device = o.shown.device;
	return export__run(&o.job);
}

const struct command command_export = {
	.name = "export",
	.summary = "write a page, flame graph, pprof, perfetto, csv, ...",
	.argp = &argp,
	.word = format_word,
	.words = "Formats",
	.examples = "memtrace-bpf export html run.mtr -o run.html\n"
		    "memtrace-bpf export pprof run.mtr\n"
		    "memtrace-bpf export csv run.mtr -o - | head",
	.status = STATUS_READ,
	.run = cmd_export,
};
