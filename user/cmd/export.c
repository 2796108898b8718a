/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf export: a recording in a format that something else reads. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "archive/analyze.h"
#include "archive/inputs.h"
#include "cmd/commands.h"
#include "cmd/csv_args.h"
#include "cmd/log_args.h"
#include "cmd/memory_args.h"
#include "export/export.h"
#include "lib/exit.h"
#include "lib/handed.h"
#include "lib/nearest.h"
#include "lib/outfile.h"
#include "lib/text.h"
#include "log/log.h"

enum { OPT_AT = 0x2000, OPT_DEVICE };

struct export_args {
	const struct export_format *format;
	const char *recording, *output, *device;
	bool force, at; /* at: --at was given */
	struct model_opts model;
};

struct export_run {
	struct export_args args;
	struct analysis *analysis;
	struct analysis *ahead; /* run to its end before */
	struct outfile *file;
	struct export_ctx ctx;
	void *state;
	char moment[24];
};

static const struct argp_option options[] = {
	{"output", 'o', "OUT", 0,
	 "Where to (default memtrace-FORMAT-RECORDING in this folder; \"-\" is standard output)", 0},
	{"force", 'f', NULL, 0, "Replace OUT if it exists", 0},
	{"at", OPT_AT, "WHEN", 0,
	 "The moment to show: peak (default; of snapshot: end), end, oom (the first out-of-memory), or seconds since the start "
	 "(12.8)",
	 0},
	{"device", OPT_DEVICE, "NAME", 0, "This device alone: cuda:0, cpu (default: all)", 0},
	{0},
};

/* The formats, in the words of their own table. For free(); NULL: no memory. */
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
	/* Where there is nothing to add, argp wants its own pointer back. */
	return key == ARGP_KEY_HELP_POST_DOC ? list_formats() : (char *)text;
}

static void parse_format(struct argp_state *state, struct export_args *a, const char *arg)
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
	argp_error(state, "'%s' is no format%s%s; there are %s", arg, near.best ? ", did you mean " : "", near.best ? near.best : "", names);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct export_args *a = state->input;

	switch (key) {
	case 'o':
		a->output = arg;
		break;
	case 'f':
		a->force = true;
		break;
	case OPT_AT:
		if (analyze__parse_at(arg, &a->model))
			argp_error(state, "--at: '%s' is not peak, end, oom or a time in seconds", arg);
		a->at = true;
		break;
	case OPT_DEVICE:
		a->device = arg;
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
		if (a->format && a->format->of_end && !a->at)
			a->model.at = AT_END;
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static void name_moment(struct export_run *r)
{
	const struct model_opts *o = &r->args.model;

	switch (o->at) {
	case AT_PEAK:
		snprintf(r->moment, sizeof(r->moment), "peak");
		break;
	case AT_END:
		snprintf(r->moment, sizeof(r->moment), "end");
		break;
	case AT_OOM:
		snprintf(r->moment, sizeof(r->moment), "oom");
		break;
	case AT_TIME:
		text__time(r->moment, sizeof(r->moment), o->at_time);
		break;
	}
}

static int open_output(struct export_run *r)
{
	const struct export_args *a = &r->args;
	char *path = NULL;
	int err;

	if (!a->output &&
	    asprintf(&path, "memtrace-%s-%s%s", a->format->name, r->analysis->name, a->format->suffix) < 0) {
		log_err("not enough memory");
		return EXIT_FAILED;
	}
	err = outfile__create(path ? path : a->output, OUTFILE_RENAME, a->force, &r->file);
	if (err)
		log_err("%s: cannot create: %s", path ? path : a->output, outfile__why(err));
	else if (!outfile__stream(r->file))
		log_err("not enough memory");
	else
		outfile__discard_on_signal(r->file);
	free(path);
	return r->file && outfile__stream(r->file) ? EXIT_OK : EXIT_FAILED;
}

static int each_event(void *ctx, const struct event *e)
{
	struct export_run *r = ctx;

	return r->args.format->event(&r->ctx, r->state, e);
}

/* Says why a format came to nothing, and whether that is the file's doing: EXIT_UNUSABLE. */
static int explain(const struct export_run *r, int err)
{
	const char *file = r->args.recording;

	if (err == -ENOENT && r->args.model.at == AT_OOM)
		log_err("%s: no out-of-memory in it; without --at oom the peak is shown", file);
	else if (err == -ENOENT)
		log_err("%s: it has no moment '%s'%s%s; without --at the peak is shown", file, r->moment,
			r->args.device ? " for " : "", r->args.device ? r->args.device : "");
	else if (err == -ESPIPE)
		log_err("%s: %s has to read a recording twice: save it to a file first", !strcmp(file, "-") ? "standard input" : file,
			r->args.format->name);
	else if (err == -ENODEV)
		log_err("%s: %s needs CUDA events, and this recording has none%s; flamegraph, html and other formats show what it has", file, r->args.format->name,
			r->args.device ? " of this device" : "");
	else if (err == -EFBIG)
		log_err("%s: too many different stacks and names in it for %s", file, r->args.format->name);
	else if (err == -ENODATA)
		log_err("%s: no allocation in it, so there is nothing to show", file);
	else
		log_err("%s: cannot export: %s", file, strerror(-err));
	return err == -ENOENT || err == -ENODEV || err == -ENODATA || err == -ESPIPE ? EXIT_UNUSABLE : EXIT_FAILED;
}

/* A pipe cannot be read twice. What is wrong with the file is said when it is read for good. */
static void look_ahead(struct export_run *r)
{
	const struct export_format *f = r->args.format;
	struct stat st;

	if (!(f->looks_ahead || (f->of_end && r->args.model.at != AT_END)) || !strcmp(r->args.recording, "-") || handed__stat(r->args.recording, &st) || !S_ISREG(st.st_mode))
		return;
	log__hush(LOG_ERROR);
	if (!analysis__open(r->args.recording, &r->args.model, &r->ahead)) {
		r->ahead->doing = "looking ahead in";
		if (analysis__run(r->ahead, NULL, NULL)) {
			analysis__free(r->ahead);
			r->ahead = NULL;
		}
	}
	log__hush(LOG_DEBUG);
}

static int convert(struct export_run *r)
{
	const struct export_format *f = r->args.format;
	struct analysis *a = r->analysis;
	size_t device;
	int status, err;

	r->ctx = (struct export_ctx){
		.out = outfile__stream(r->file),
		.dict = a->dict,
		.facts = r->ahead ? r->ahead->facts : a->facts, /* all of them, from the first event on */
		.model = a->model,
		.ahead = r->ahead ? r->ahead->model : NULL,
		.ahead_duration = r->ahead ? r->ahead->duration : 0,
		.device = -1,
		.name = a->name,
		.moment = r->moment,
		.device_name = r->args.device,
	};
	err = f->begin ? f->begin(&r->ctx, &r->state) : 0;
	if (err)
		return explain(r, err);
	status = analysis__run(a, f->event ? each_event : NULL, r);
	if (status)
		return status;
	r->args.model = model__opts(a->model); /* of a time after the end it has made the end */
	name_moment(r);
	r->ctx.duration = a->duration;
	r->ctx.complete = a->complete;
	if (r->args.device) {
		status = analysis__device(a, r->args.device, &device);
		if (status)
			return status;
		r->ctx.device = device;
	}
	err = f->end(&r->ctx, r->state);
	return err ? explain(r, err) : EXIT_OK;
}

/* Gives the file its name, and says so. */
static int finish(struct export_run *r)
{
	char name[512], size[24] = "";
	struct stat st;
	int err;

	text__clean(name, sizeof(name), outfile__name(r->file), strlen(outfile__name(r->file)));
	/* What is not flushed yet is part of it; that the flush may fail is the commit's to say. */
	fflush(outfile__stream(r->file));
	if (!fstat(outfile__fd(r->file), &st) && S_ISREG(st.st_mode))
		text__bytes(size, sizeof(size), st.st_size);
	err = outfile__commit(r->file);
	r->file = NULL;
	if (err) {
		log_err("%s: cannot write: %s", name, outfile__why(err));
		return EXIT_FAILED;
	}
	if (*size && (!r->args.output || strcmp(r->args.output, "-")))
		log_event(LOG_INFO, "written",
			  LOG_FIELDS(LOG_STRING("path", name), LOG_UINT("bytes", (uint64_t)st.st_size), LOG_STRING("format", r->args.format->name)),
			  "wrote %s (%s): %s", name, size, r->args.format->next);
	return EXIT_OK;
}

int cmd_export(int argc, char **argv)
{
	static const struct argp_child children[] = { CSV_ARGP_CHILD, MEMORY_ARGP_CHILD, LOG_ARGP_CHILD, { 0 } };
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "FORMAT FILE",
		.doc = "Write a recording in a format that other programs read. No root, no GPU and no "
		       "target are needed.\v"
		       "Formats:",
		.help_filter = help_filter,
		.children = children,
	};
	struct export_run r = {0};
	int status;

	struct inputs in;

	argp_parse(&argp, argc, argv, 0, NULL, &r.args);
	name_moment(&r);
	status = inputs__expand((char *const *)&r.args.recording, 1, INPUTS_ONE, &in);
	if (status)
		return status;
	r.args.recording = in.paths[0];
	status = analysis__open(r.args.recording, &r.args.model, &r.analysis);
	if (!status)
		status = open_output(&r);
	if (!status) {
		look_ahead(&r);
		status = convert(&r);
	}
	if (!status)
		status = finish(&r);
	if (r.args.format->release)
		r.args.format->release(r.state);
	outfile__discard(r.file);
	analysis__free(r.ahead);
	analysis__free(r.analysis);
	inputs__free(&in);
	return status;
}
