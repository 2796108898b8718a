/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "export/export.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/exit.h"
#include "base/io.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "model/analysis.h"
#include "model/inputs.h"
#include "record/detail.h"

#define ADDRESS(word) &export_##word,
const struct export_format *const export_formats[] = { EXPORT_WORDS(ADDRESS, ADDRESS) NULL };

const struct export_format *export__find(const char *name)
{
	for (size_t i = 0; export_formats[i]; i++)
		if (!strcmp(export_formats[i]->name, name))
			return export_formats[i];
	return NULL;
}

struct export_run {
	struct export_job job;
	struct analysis *analysis;
	/* the same recording, processed to its end in advance; NULL: not needed */
	struct analysis *ahead;
	struct outfile *file;
	struct export_ctx ctx;
	void *state;
	char moment[24];
};

/* Sets the name of the moment that the files and messages show. */
static void name_moment(struct export_run *r)
{
	const struct model_opts *o = &r->job.model;

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
		if (*o->at_mark)
			snprintf(r->moment, sizeof(r->moment), "mark");
		else if (*o->at_scope)
			snprintf(r->moment, sizeof(r->moment), "scope");
		else
			text__time(r->moment, sizeof(r->moment), o->at_time);
		break;
	}
}

#define PREFIX "memtrace-" /* of file names */
#define PREFIX_LEN strlen(PREFIX)

/* Creates the output file: --output or "memtrace-FORMAT-NAME.SUFFIX". Returns EXIT_OK, or logs an
 * error and returns EXIT_FAILED. */
static int open_output(struct export_run *r)
{
	const struct export_job *a = &r->job;
	const char *name = r->analysis->name;
	char *path = NULL;
	int err;

	/* Recordings have the prefix by default: do not repeat it. */
	if (!strncmp(name, PREFIX, PREFIX_LEN) && name[PREFIX_LEN])
		name += PREFIX_LEN;
	if (!a->output &&
	    asprintf(&path, PREFIX "%s-%s%s", a->format->name, name, a->format->suffix) < 0) {
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

/* For analysis__run(): passes an event on to the format. */
static int each_event(void *ctx, const struct event *e)
{
	struct export_run *r = ctx;

	return r->job.format->event(&r->ctx, r->state, e);
}

/* Logs why the trace of --with could not be merged. */
static void explain_other(const struct export_run *r, int err)
{
	if (err == -ESTALE)
		log_err("%s: its start is not known, so no trace can be put on its clock",
			r->job.recording);
	else if (err == -EBADMSG)
		log_err("%s: not a trace of torch.profiler: no JSON object with traceEvents and "
			"baseTimeNanoseconds",
			r->job.with);
	else if (err == -EMSGSIZE)
		log_err("%s: one of its events is larger than 1 MiB", r->job.with);
	else
		log_err("%s: cannot read: %s", r->job.with, strerror(-err));
}

/* True if the recording does not have what the format needs; false: a failure. */
static bool is_unusable(int err)
{
	return err == -ENOENT || err == -ENODEV || err == -ENODATA || err == -ESPIPE;
}

/* Logs why an export failed, the recording's or that of the trace of --with. Returns EXIT_UNUSABLE
 * if the recording does not have what the format needs, otherwise EXIT_FAILED. */
static int explain(const struct export_run *r, int err)
{
	const char *file = r->job.recording;
	const char *device = r->job.device ?: "";

	if (r->ctx.with_failed) {
		explain_other(r, err);
		return EXIT_FAILED;
	}
	if (err == -ENOENT && r->job.model.at == AT_OOM)
		log_err("%s: no out-of-memory in it; without --at oom the peak is shown", file);
	else if (err == -ENOENT)
		log_err("%s: it has no moment '%s'%s%s; without --at the peak is shown", file,
			r->moment, *device ? " for " : "", device);
	else if (err == -ESPIPE)
		log_err("%s: %s has to read a recording twice: save it to a file first",
			!strcmp(file, "-") ? "standard input" : file, r->job.format->name);
	else if (err == -ENODEV)
		log_err("%s: %s needs CUDA events, and this recording has none%s; flamegraph, html "
			"and other formats show what it has",
			file, r->job.format->name, *device ? " of this device" : "");
	else if (err == -EFBIG)
		log_err("%s: too many different stacks and names in it for %s", file,
			r->job.format->name);
	else if (err == -ENODATA)
		log_err("%s: no allocation in it, so there is nothing to show", file);
	else
		log_err("%s: cannot export: %s", file, strerror(-err));
	return is_unusable(err) ? EXIT_UNUSABLE : EXIT_FAILED;
}

/* Processes the recording in advance if the format needs it and the input is not a pipe. The second
 * reading logs the warnings. Returns 0, or logs an error and returns an exit code. */
static int look_ahead(struct export_run *r)
{
	const struct export_format *f = r->job.format;
	struct stat st;
	int status;

	if (!f->looks_ahead && !(f->of_end && r->job.model.at != AT_END))
		return 0;
	if (!strcmp(r->job.recording, "-"))
		return 0;
	if (passed_files__stat(r->job.recording, &st) || !S_ISREG(st.st_mode))
		return 0;
	log__hush(LOG_ERROR);
	status = analysis__open(r->job.recording, &r->job.model, &r->ahead);
	if (!status) {
		r->ahead->doing = "looking ahead in";
		status = analysis__run(r->ahead, NULL, NULL);
	}
	log__hush(LOG_DEBUG);
	if (!status) /* the model and the output know all facts from the first event on */
		model__set_facts(r->analysis->model, r->ahead->facts);
	return status;
}

/* Passes the recording through the format. Some formats need the end's figures at the beginning:
 * for them r->ahead has read the recording once before. The caller frees r->state. Returns EXIT_OK,
 * or logs an error and returns an exit code. */
static int convert(struct export_run *r)
{
	const struct export_format *f = r->job.format;
	struct analysis *a = r->analysis;
	struct analysis *ahead = r->ahead;
	size_t device;
	int status, err;

	r->ctx = (struct export_ctx){
		.out = r->file ? outfile__stream(r->file) : NULL,
		.folder = r->job.folder,
		.with = r->job.with,
		.dict = a->dict,
		.facts = a->facts,
		.model = a->model,
		.device = -1,
		.name = a->name,
		.moment = r->moment,
		.moment_given = r->job.moment_given,
		.device_name = r->job.device,
	};
	if (ahead) {
		r->ctx.facts = ahead->facts;
		r->ctx.ahead = ahead->model;
		r->ctx.ahead_duration = ahead->duration;
	}
	err = f->begin ? f->begin(&r->ctx, &r->state) : 0;
	if (err)
		return explain(r, err);
	status = analysis__run(a, f->event ? each_event : NULL, r);
	if (status)
		return status;
	r->job.model = model__opts(a->model); /* a time after the end has been set to the end */
	name_moment(r);
	r->ctx.duration = a->duration;
	r->ctx.complete = a->complete;
	if (r->job.device) {
		status = analysis__device(a, r->job.device, &device);
		if (status)
			return status;
		r->ctx.device = device;
	}
	err = f->end(&r->ctx, r->state);
	return err ? explain(r, err) : EXIT_OK;
}

/* Renames the file to its final name and logs it. Returns EXIT_OK, or logs an error and returns
 * EXIT_FAILED. */
static int finish(struct export_run *r)
{
	char name[512], size[24] = "";
	struct stat st;
	int err;

	text__clean(name, sizeof(name), outfile__name(r->file), strlen(outfile__name(r->file)));
	/* Include buffered data in the size. outfile__commit() reports a write error. */
	fflush(outfile__stream(r->file));
	if (!fstat(outfile__fd(r->file), &st) && S_ISREG(st.st_mode))
		text__bytes(size, sizeof(size), st.st_size);
	err = outfile__commit(r->file);
	r->file = NULL;
	if (err) {
		log_err("%s: cannot write: %s", name, outfile__why(err));
		return EXIT_FAILED;
	}
	if (*size && (!r->job.output || strcmp(r->job.output, "-")))
		log_event(LOG_INFO, "written",
			  LOG_FIELDS(LOG_STRING("path", name),
				     LOG_UINT("bytes", (uint64_t)st.st_size),
				     LOG_STRING("format", r->job.format->name)),
			  "wrote %s (%s): %s", name, size, r->job.format->next);
	return EXIT_OK;
}

/* Logs what a recording lacks because of a limit on the capture's cost. Not every reader of a
 * format shows what the file says about it. */
static void say_detail(const struct export_run *r)
{
	char detail[DETAIL_TEXT];

	if (*detail__reduced(detail, sizeof(detail), r->analysis->facts))
		log_warn("%s: reduced detail: %s", r->job.recording, detail);
}

int export__run(const struct export_job *job)
{
	struct export_run r = { .job = *job };
	struct inputs in;
	int status;

	if (job->format->of_end && !job->moment_given)
		r.job.model.at = AT_END;
	name_moment(&r);
	status = inputs__expand((char *const *)&job->recording, 1, INPUTS_ONE, &in);
	if (status)
		return status;
	r.job.recording = in.paths[0];
	status = analysis__open(r.job.recording, &r.job.model, &r.analysis);
	if (!status && !job->format->to_folder)
		status = open_output(&r);
	if (!status)
		status = look_ahead(&r);
	if (!status)
		status = convert(&r);
	if (!status && r.file)
		status = finish(&r);
	if (!status)
		say_detail(&r);
	if (r.job.format->release)
		r.job.format->release(r.state);
	outfile__discard(r.file);
	analysis__free(r.analysis); /* first: its model borrows the facts of r.ahead */
	analysis__free(r.ahead);
	inputs__free(&in);
	return status;
}
