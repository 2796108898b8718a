/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf export: writes a recording in a format of other programs. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd/commands.h"
#include "cmd/csv_args.h"
#include "cmd/log_args.h"
#include "cmd/memory_args.h"
#include "cmd/report_args.h"
#include "export/run.h"
#include "lib/nearest.h"

struct options {
	struct report_args shown;
	struct export_job job;
};

static const struct argp_option options[] = {
	{ "output", 'o', "OUT", 0,
	  "Where to (default memtrace-FORMAT-RECORDING in this folder; \"-\" is standard output)",
	  0 },
	{ "force", 'f', NULL, 0, "Replace OUT if it exists", 0 },
	{ "at", OPT_AT, "WHEN", 0,
	  "The moment to show: peak (default; of snapshot: end), end, oom (the first "
	  "out-of-memory), or seconds since the start "
	  "(12.8)",
	  0 },
	{ "device", OPT_DEVICE, "NAME", 0, "This device alone: cuda:0, cpu (default: all)", 0 },
	{ 0 },
};

/* Returns the list of formats, for free(); NULL on ENOMEM. */
static char *list_formats(void)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	fputs("Formats:\n", f);
	for (size_t i = 0; export_formats[i]; i++)
		fprintf(f, "  %-12s %s\n", export_formats[i]->name, export_formats[i]->help);
	fputs("\nA FILE of \"-\" is standard input.", f);
	if (fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}

static char *help_filter(int key, const char *text, void *input)
{
	(void)input;
	/* Without an addition, argp needs its own pointer back. */
	return key == ARGP_KEY_HELP_POST_DOC ? list_formats() : (char *)text;
}

static void parse_format(struct argp_state *state, struct export_job *a, const char *arg)
{
	struct nearest near = { .word = arg };
	char names[256] = "";
	size_t used = 0;

	a->format = export__find(arg);
	if (a->format)
		return;
	for (size_t i = 0; export_formats[i] && used < sizeof(names); i++) {
		nearest__try(&near, export_formats[i]->name);
		used += snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
				 export_formats[i]->name);
	}
	argp_error(state, "'%s' is no format%s%s; there are %s", arg,
		   near.best ? ", did you mean " : "", near.best ? near.best : "", names);
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
			argp_error(state, "'%s': one recording at a time", arg);
		break;
	case ARGP_KEY_END:
		if (!a->format)
			argp_error(state, "which format? For example: export flamegraph FILE");
		if (!a->recording)
			argp_error(state, "which recording? For example: export %s run.mtr",
				   a->format ? a->format->name : "FORMAT");
		break;
	default:
		return report_args__parse(key, arg, state, &o->shown);
	}
	return 0;
}

int cmd_export(int argc, char **argv)
{
	static const struct argp_child children[] = {
		CSV_ARGP_CHILD, MEMORY_ARGP_CHILD, LOG_ARGP_CHILD, { 0 }
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "FORMAT FILE",
		.doc = "Write a recording in a format that other programs read. No root, no GPU "
		       "and no "
		       "target are needed.\v"
		       "Formats:",
		.help_filter = help_filter,
		.children = children,
	};
	struct options o = { 0 };

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	o.job.model = o.shown.at;
	o.job.moment_given = o.shown.at_given;
	o.job.device = o.shown.device;
	return export__run(&o.job);
}
