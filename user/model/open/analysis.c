/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/analysis.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "record/dict.h"
#include "record/mtr.h"

#define BATCH 24 /* events that are read and prefetched together */

/* Cleans a path for a message, because the target may have chosen it. */
static const char *clean(char *buf, size_t size, const char *s)
{
	return text__clean(buf, size, s, strlen(s));
}

/* Returns the file's name without ".mtr", for free(). NULL if memory is short. */
static char *make_name(const char *path)
{
	const char *base = strrchr(path, '/');
	size_t len;

	if (!strcmp(path, "-"))
		return strdup("stdin");
	base = base ? base + 1 : path;
	len = strlen(base);
	if (len > strlen(".mtr") && !strcmp(base + len - strlen(".mtr"), ".mtr"))
		len -= strlen(".mtr");
	return strndup(base, len);
}

/* Returns the path as messages show it. */
static const char *name_of(const char *path)
{
	return !strcmp(path, "-") ? "standard input" : path;
}

/* Writes what to do if there is no such file: people also give a PID. Returns buf. */
static const char *say_missing(const char *name, char *buf, size_t size)
{
	if (*name && !name[strspn(name, "0123456789")])
		snprintf(buf, size,
			 "; if it is a PID: `memtrace-bpf diagnose -p %.20s`, or another "
			 "command with -p",
			 name);
	else
		snprintf(buf, size, "; `memtrace-bpf record` says at its end which file it wrote");
	return buf;
}

void analysis__open_failure(const char *path, int err, const char *why, struct failure *f)
{
	const char *name = name_of(path), *remedy = "";
	char reason[256], missing[128];

	switch (err) {
	case EINVAL:
		failure__set(f, EXIT_UNUSABLE, 0, "%s: %s; make one with `memtrace-bpf record`",
			     name, why ? why : "not a recording");
		return;
	case ENOTSUP:
		failure__set(f, EXIT_UNUSABLE, 0, "%s: %s", name, why ? why : "a newer format");
		return;
	case EBADMSG:
		failure__set(f, EXIT_UNUSABLE, 0, "%s: cannot read this snapshot of PyTorch: %s",
			     name, why ? why : "damaged");
		return;
	case ENOBUFS:
		failure__set(f, EXIT_FAILED, 0, "%s: %s", name,
			     room__why(reason, sizeof(reason), -err));
		return;
	case ENOMEM:
	case EIO:
	case EMFILE:
	case ENFILE:
		failure__set(f, EXIT_FAILED, 0, "%s: cannot read: %s", name, strerror(err));
		return;
	case ELOOP:
		failure__set(f, EXIT_UNUSABLE, 0,
			     "%s: cannot open: it is a symbolic link in a folder of recordings; "
			     "name the file that it leads to",
			     name);
		return;
	case ENOENT:
		remedy = say_missing(name, missing, sizeof(missing));
		break;
	case EACCES:
		remedy = "; the recording belongs to another user: run memtrace-bpf with sudo";
		break;
	}
	failure__set(f, EXIT_UNUSABLE, 0, "%s: cannot open: %s%s", name, strerror(err), remedy);
}

/* Opens a recording and an empty model. Does not look for the moment of a scope (opts->at_scope),
 * because analysis__open() reads the recording once before for that. Returns 0 and *ret, or
 * EXIT_FAILED or EXIT_UNUSABLE, logged. */
static int open_once(const char *path, const struct model_opts *opts, struct analysis **ret)
{
	struct analysis *analysis = calloc(1, sizeof(*analysis));
	const char *why = NULL;
	struct failure failure;

	if (!analysis)
		goto nomem;
	analysis->path = strdup(path);
	analysis->name = make_name(path);
	if (!analysis->path || !analysis->name)
		goto nomem;
	analysis->reader = mtr_reader__open(path, &why);
	if (!analysis->reader) {
		analysis__open_failure(path, errno, why, &failure);
		log_err("%s", failure.text);
		analysis__free(analysis);
		return failure.status;
	}
	analysis->dict = mtr_reader__dict(analysis->reader);
	analysis->facts = mtr_reader__facts(analysis->reader);
	analysis->model = model__new(analysis->dict, analysis->facts, opts);
	if (!analysis->model)
		goto nomem;
	*ret = analysis;
	return 0;
nomem:
	analysis__free(analysis);
	log_err("out of memory");
	return EXIT_FAILED;
}

/* Finds the run that --at names. False: there is none. */
static bool find_run(const struct model *m, const struct model_opts *o, size_t device,
		     struct model_scope_level *ret)
{
	struct model_scope_level l;
	struct model_scope_run run;
	struct model_scope scope;
	bool found = false;

	for (size_t i = 0; i < model__scope_runs(m) && o->at_run; i++) {
		model__scope_run(m, i, &run);
		model__scope(m, run.scope, &scope);
		if (run.number == o->at_run && model__scope_is(m, &scope, o->at_scope))
			return model__scope_run_level(m, i, device, ret);
	}
	for (size_t i = 0; i < model__scopes(m) && !o->at_run; i++) {
		model__scope(m, i, &scope);
		if (!model__scope_is(m, &scope, o->at_scope) ||
		    !model__scope_highest(m, i, device, &l) || (found && l.peak <= ret->peak))
			continue;
		*ret = l;
		found = true;
	}
	return found;
}

/* Logs why the recording has no such run. */
static void log_no_run(const struct analysis *a, const struct model_opts *o)
{
	char path[512], name[STREAM_SCOPE];
	struct model_scope scope;
	uint64_t runs = 0;

	clean(path, sizeof(path), a->path);
	clean(name, sizeof(name), o->at_scope);
	for (size_t i = 0; i < model__scopes(a->model); i++) {
		model__scope(a->model, i, &scope);
		runs += model__scope_is(a->model, &scope, o->at_scope) ? scope.runs : 0;
	}
	if (!runs)
		log_err("%s: --at: there is no scope '%s', and no allocation has such a function "
			"on its stack",
			path, name);
	else if (!o->at_run)
		log_err("%s: --at: the device had no memory yet when '%s' ran; choose another "
			"with --device",
			path, name);
	else if (o->at_run > runs)
		log_err("%s: --at: '%s' ran %" PRIu64 " times; there is no run %" PRIu64, path,
			name, runs, o->at_run);
	else
		log_err("%s: --at: '%s' ran %" PRIu64 " times, and its run %" PRIu64
			" is not one of the first %zu that are kept; try --at scope:%s, the run "
			"with the highest peak",
			path, name, runs, o->at_run, model__scope_runs(a->model), name);
}

/* Reads the recording to find the peak of the scope in o, and makes that its moment. Returns 0 or
 * an exit code, logged. */
static int find_scope(const char *path, struct model_opts *o)
{
	struct model_opts first = *o;
	struct model_scope_level l;
	struct analysis *a;
	size_t device = 0;
	int status;

	if (!strcmp(path, "-")) {
		log_err("--at scope:NAME reads a recording twice, so it must be a file, not "
			"standard input");
		return EXIT_USAGE;
	}
	first.at = AT_END;
	status = open_once(path, &first, &a);
	if (status)
		return status;
	a->doing = "looking for the scope in";
	status = analysis__run(a, NULL, NULL);
	if (!status)
		status = analysis__device(a, o->at_device, &device);
	if (!status && !find_run(a->model, o, device, &l)) {
		log_no_run(a, o);
		status = EXIT_UNUSABLE;
	}
	if (!status) {
		o->at_time = l.peak_time;
		o->at_event = l.peak_event;
	}
	analysis__free(a);
	return status;
}

int analysis__open(const char *path, const struct model_opts *opts, struct analysis **ret)
{
	struct model_opts o = opts ? *opts : (struct model_opts){ .at = AT_PEAK };
	int status = *o.at_scope ? find_scope(path, &o) : 0;

	return status ? status : open_once(path, &o, ret);
}

void analysis__free(struct analysis *a)
{
	if (!a)
		return;
	/* Free the model first, because it borrows the reader's dict and facts. */
	model__free(a->model);
	mtr_reader__free(a->reader);
	free(a->path);
	free(a->name);
	free(a);
}

/* Marks the end in a recording of a killed process's last moments (--on-kill), unless the user
 * chose another moment. Such a recording begins with the facts about the process's end. */
static void choose_moment(struct analysis *a)
{
	struct model_opts opts = model__opts(a->model);

	if (opts.at_default && facts__get(a->facts, "end_signal"))
		model__mark_end(a->model);
}

/* Keeps the name of a mark for the message of has_mark(). */
static void note_mark(struct analysis *a, const struct event *e)
{
	size_t len = strlen(a->marks);
	char name[256];

	if (e->kind != EVENT_MARK || len > sizeof(a->marks) / 2)
		return;
	clean(name, sizeof(name), dict__str(a->dict, e->name));
	snprintf(a->marks + len, sizeof(a->marks) - len, "%s'%s'", len ? ", " : "", name);
}

/* Feeds the events to each and to the model. Returns 1 at the end of the readable part, or -errno,
 * and in *context what failed, for the message. */
static int feed(struct analysis *a, int (*each)(void *ctx, const struct event *e), void *ctx,
		struct progress *p, const char **context)
{
	const struct event *events;
	int err, n;

	mtr_reader__read_ahead(a->reader, MTR_LARGE);
	for (;;) {
		*context = "cannot read";
		n = mtr_reader__view(a->reader, BATCH, &events);
		if (n <= 0)
			return n ? n : 1;
		if (!a->events)
			choose_moment(a);
		*context = "cannot go on";
		model__prefetch(a->model, events, (size_t)n);
		for (int i = 0; i < n; i++) {
			err = each ? each(ctx, &events[i]) : 0;
			if (!err)
				err = model__event(a->model, &events[i]);
			if (err)
				return err;
			if (events[i].time > a->last_time)
				a->last_time = events[i].time;
			note_mark(a, &events[i]);
			a->events++;
		}
		progress__at(p, mtr_reader__position(a->reader), a->events);
	}
}

/* Sets the duration, from the fact or the last event. */
static void read_duration(struct analysis *a)
{
	facts__number(a->facts, "duration_ns", &a->duration);
	/* If the recording was cut, the fact is as old as the last flush. */
	if (a->last_time > a->duration)
		a->duration = a->last_time < STREAM_MOST ? a->last_time : STREAM_MOST;
}

/* False, with a message, if --at names a mark that is not in the recording. */
static bool has_mark(const struct analysis *a)
{
	struct model_opts opts = model__opts(a->model);
	char name[512], mark[256];

	if (!*opts.at_mark)
		return true;
	clean(name, sizeof(name), a->path);
	clean(mark, sizeof(mark), opts.at_mark);
	if (*a->marks)
		log_err("%s: no mark '%s'; the first marks are %s", name, mark, a->marks);
	else
		log_err("%s: no mark '%s': the recording has no marks", name, mark);
	return false;
}

/* Warns if --at was before the recording's start or after its end, because the model shows the
 * start or the end instead. asked: the time of --at, ns. */
static void warn_outside(const struct analysis *a, uint64_t asked)
{
	struct model_opts opts = model__opts(a->model);
	char name[512], at[24], end[24];

	if (opts.at == AT_TIME && asked && opts.at_time > asked)
		log_warn("%s: --at %s is before its start; showing its start, at %s",
			 clean(name, sizeof(name), a->path), text__time(at, sizeof(at), asked),
			 text__time(end, sizeof(end), opts.at_time));
	if (opts.at == AT_TIME && opts.at_time > a->duration)
		log_warn("%s: --at %s is after its end; showing its end, at %s",
			 clean(name, sizeof(name), a->path),
			 text__time(at, sizeof(at), opts.at_time),
			 text__time(end, sizeof(end), a->duration));
}

int analysis__end_failure(const char *path, const struct mtr_reader *r, uint64_t events,
			  struct failure *f)
{
	char name[512], count[32];
	const char *why = "";
	uint64_t offset;
	enum mtr_end end = mtr_reader__end(r, &offset, &why);

	if (end == MTR_TRUNCATED && !events && !facts__get(mtr_reader__facts(r), "pid"))
		return failure__set(f, EXIT_UNUSABLE, -ENODATA,
				    "%s: stops at byte %" PRIu64
				    " (%s): nothing of a recording can be read; the copy is short, "
				    "or its recorder was killed at once",
				    name_of(path), offset, why);
	if (end == MTR_DAMAGED && !events)
		return failure__set(f, EXIT_UNUSABLE, -ENODATA,
				    "%s: damaged at byte %" PRIu64 " (%s): no event can be read",
				    name_of(path), offset, why);
	clean(name, sizeof(name), name_of(path));
	text__counted(count, sizeof(count), events, "event");
	if (end == MTR_DAMAGED)
		log_warn("%s: damaged at byte %" PRIu64
			 " (%s): only the %s before that can be used",
			 name, offset, why, count);
	else if (end == MTR_TRUNCATED)
		log_warn("%s: stops at byte %" PRIu64
			 " without an end (%s): the recorder was killed, is still at work, "
			 "or the copy is short; what it has, %s, is used",
			 name, offset, why, count);
	return 0;
}

int analysis__run(struct analysis *a, int (*each)(void *ctx, const struct event *e), void *ctx)
{
	const uint64_t asked = model__opts(a->model).at_time;
	struct progress p;
	const char *context;
	char name[512], why[256];
	struct failure failure;
	int err;

	snprintf(name, sizeof(name), "%s %s", a->doing ? a->doing : "reading", a->name);
	p = progress__begin(name, mtr_reader__size(a->reader), "events");
	err = feed(a, each, ctx, &p, &context);
	progress__end(&p);
	if (err < 0) {
		clean(name, sizeof(name), a->path);
		if (err == -ENOBUFS || err == -ENOMEM)
			log_err("%s: %s", name, room__why(why, sizeof(why), err));
		else
			log_err("%s: %s: %s", name, context, strerror(-err));
		return EXIT_FAILED;
	}
	if (!has_mark(a))
		return EXIT_UNUSABLE;
	read_duration(a);
	warn_outside(a, asked);
	model__finish(a->model, a->duration);
	a->end_why = "";
	a->end = mtr_reader__end(a->reader, &a->end_offset, &a->end_why);
	a->complete = a->end == MTR_COMPLETE;
	if (!analysis__end_failure(a->path, a->reader, a->events, &failure))
		return 0;
	log_err("%s", failure.text);
	return failure.status;
}

/* Parses NAME or NAME#N, the name of a scope and the number of a run. Returns 0 or -EINVAL. */
static int parse_scope(const char *s, struct model_opts *ret)
{
	const char *hash = strrchr(s, '#'), *digits = hash ? hash + 1 : NULL;
	size_t len = hash ? (size_t)(hash - s) : strlen(s);
	struct model_opts o = { .at = AT_TIME };

	if (len >= sizeof(o.at_scope))
		return -EINVAL;
	memcpy(o.at_scope, s, len);
	if (!facts__is_scope(o.at_scope) ||
	    (hash && (!facts__digits(&digits, &o.at_run) || *digits || !o.at_run)))
		return -EINVAL;
	*ret = o;
	return 0;
}

int analysis__parse_at(const char *s, struct model_opts *ret)
{
	const char *mark;
	uint64_t time;

	for (int at = 0; at < AT_TIME; at++)
		if (!strcmp(s, moment_names[at])) {
			*ret = (struct model_opts){ .at = at };
			return 0;
		}
	mark = text__starts(s, "mark:") ? s + strlen("mark:") : "";
	if (*mark && strlen(mark) < sizeof(ret->at_mark)) {
		*ret = (struct model_opts){ .at = AT_TIME, .at_time = UINT64_MAX };
		strcpy(ret->at_mark, mark);
		return 0;
	}
	if (text__starts(s, "scope:"))
		return parse_scope(s + strlen("scope:"), ret);
	if (text__parse_time(s, &time))
		return -EINVAL;
	*ret = (struct model_opts){ .at = AT_TIME, .at_time = time };
	return 0;
}

/* Returns the device to report without --device. If the kernel's OOM killer ended the process, host
 * memory was the cause. */
static int default_device(const struct analysis *a)
{
	const char *why = facts__get(a->facts, "end_reason");
	int host = why && !strcmp(why, "oom killer") ? model__find_device(a->model, "host") : -1;

	return host >= 0 ? host : model__main_device(a->model);
}

int analysis__device(const struct analysis *a, const char *name, size_t *ret)
{
	int device = name ? model__find_device(a->model, name) : default_device(a);
	char path[512], wanted[64], there[256] = "";
	struct model_device dev;
	size_t len = 0, n = model__devices(a->model);

	if (device >= 0) {
		*ret = device;
		return 0;
	}
	clean(path, sizeof(path), a->path);
	if (!n) {
		log_err("%s: the recording has no memory events", path);
		return EXIT_UNUSABLE;
	}
	for (size_t k = 0; k < n && len < sizeof(there) - 24; k++) {
		model__device(a->model, k, &dev);
		len += snprintf(there + len, sizeof(there) - len, "%s%s", k ? ", " : "", dev.name);
	}
	log_err("%s: no device '%s' in it; there %s %s", path, clean(wanted, sizeof(wanted), name),
		n == 1 ? "is" : "are", there);
	return EXIT_UNUSABLE;
}

int analysis__check_output(FILE *out, const char *name)
{
	char clean_name[512];
	int err = outfile__flush(out);

	if (!err)
		return 0;
	log_err("%s: cannot write: %s", clean(clean_name, sizeof(clean_name), name),
		outfile__why(err));
	/* Drop the rest, so that exit() does not report the error again. */
	__fpurge(out);
	clearerr(out);
	return EXIT_FAILED;
}
