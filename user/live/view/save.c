/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "live/view/save.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/config.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "capture/kernel.h"
#include "export/run.h"
#include "record/flight.h"

#define KEPT UINT64_C(300000000000) /* length of the kept stream, ns, if memory permits */
#define NAMES 100		    /* file names tried within one second */
#define NICE 10			    /* nice value of an export */

struct live_save {
	struct sink sink; /* must come first */
	struct flight *flight;
	pid_t pid;
	int err; /* error that ended saving, negative */
	struct outfile *file;
	char path[64], last[64];
	struct flight_report written;
};

static int open_file(void *ctx, unsigned int number)
{
	struct live_save *s = ctx;
	time_t now = time(NULL);
	char when[32], more[16] = "";
	struct tm tm;
	int err = -EEXIST;

	(void)number;
	localtime_r(&now, &tm);
	strftime(when, sizeof(when), "%Y%m%dT%H%M%S", &tm);
	for (int i = 1; i < NAMES && err == -EEXIST; i++) {
		if (i > 1)
			snprintf(more, sizeof(more), "-%d", i);
		snprintf(s->path, sizeof(s->path), "memtrace-%d-%s%s.mtr", (int)s->pid, when, more);
		err = outfile__create(s->path, OUTFILE_RENAME, false, &s->file);
	}
	return err ? err : outfile__fd(s->file);
}

static int file_done(void *ctx, const struct flight_report *r, int err)
{
	struct live_save *s = ctx;

	if (err)
		outfile__discard(s->file);
	else
		err = outfile__commit(s->file);
	s->file = NULL;
	if (!err) {
		memcpy(s->last, s->path, sizeof(s->last));
		s->written = *r;
	}
	return err;
}

/* Errors end saving only, not the live view. */
static int on_event(struct sink *sink, const struct event *e)
{
	struct live_save *s = (struct live_save *)sink;

	if (!s->err)
		s->err = flight__event(s->flight, e);
	if (s->err == -EINVAL) /* a recording cannot contain this event */
		s->err = 0;
	return 0;
}

static int on_tick(struct sink *sink, uint64_t now)
{
	struct live_save *s = (struct live_save *)sink;

	if (!s->err)
		s->err = flight__tick(s->flight, now);
	return 0;
}

struct live_save *live_save__new(pid_t pid, struct dict *dict, const struct facts *facts,
				 uint64_t bytes)
{
	struct live_save *s = calloc(1, sizeof(*s));
	struct flight_opts opts = { .window = KEPT,
				    .max_bytes = bytes,
				    .no_oom = true,
				    .open = open_file,
				    .done = file_done,
				    .ctx = s };

	if (!s)
		return NULL;
	s->sink = (struct sink){ .event = on_event, .tick = on_tick };
	s->pid = pid;
	s->flight = flight__new(dict, facts, &opts);
	if (!s->flight) {
		free(s);
		return NULL;
	}
	return s;
}

void live_save__free(struct live_save *s)
{
	if (!s)
		return;
	flight__free(s->flight);
	free(s);
}

struct sink *live_save__sink(struct live_save *s)
{
	return &s->sink;
}

int live_save__write(struct live_save *s, char *say, size_t size)
{
	char events[32], span[24], bytes[24];
	const struct flight_report *r = &s->written;
	int err = s->err ? s->err : flight__save(s->flight, "the live view");

	if (err && s->err) {
		snprintf(say, size, "saving has failed: %s", strerror(-s->err));
		return err;
	}
	if (err) {
		snprintf(say, size, "%s: %s", s->path, outfile__why(err));
		return err;
	}
	snprintf(say, size, "saved %s: %s of the last %s, %s", s->last,
		 text__counted(events, sizeof(events), r->events, "event"),
		 text__time(span, sizeof(span), r->to > r->from ? r->to - r->from : 0),
		 text__bytes(bytes, sizeof(bytes), r->bytes));
	return 0;
}

const char *live_save__last(const struct live_save *s)
{
	return s->last;
}

/* ---- export ---- */

struct exported {
	const char *path, *format;
};

/* In the exporting process: closes the view's files, and keeps only the rights to create a file. */
static int export_it(void *ctx)
{
	const struct exported *x = ctx;
	const struct export_job job = { .format = export__find(x->format), .recording = x->path };
	int err;

	log__divert(NULL, NULL);
	log__close();
	err = subprocess__close_others(NULL, 0);
	caps__only(CAPS_FILES);
	return err ? EXIT_FAILED : export__run(&job);
}

int live_save__begin_export(struct subprocess *ret, const char *path, const char *format)
{
	return subprocess__start(
		&(struct subprocess_opts){
			.main = export_it,
			.ctx = &(struct exported){ path, format },
			.err = SUBPROCESS_INHERIT,
			.keep_all_fds = true, /* export_it() closes them after the log */
			.death_signal = SIGTERM,
			.nice_by = NICE },
		ret);
}

bool live_save__end_export(struct subprocess *p, bool end)
{
	int status = 1;

	if (end)
		subprocess__signal(p, SIGTERM);
	return subprocess__wait(p, -1, &status) && !status;
}
