/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/save/output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "capture/capture_loop.h"
#include "capture/recording.h"
#include "capture/session.h"
#include "record/folder.h"
#include "record/mtr.h"

#define FLUSH_EVERY UINT64_C(1000000000) /* ns between two flushes of the file */

/* Opens path and takes ownership of it. Returns 0 or a negative error, logged. */
static int output_file__open(struct output_file *f, char *path)
{
	const struct recording *r = f->o.r;
	int err = path ? outfile__create(path, OUTFILE_DIRECT, r->args.force, &f->file) : -ENOMEM;

	f->path = path;
	f->failed = true;
	if (err) {
		log_err("%s: %s", path ? path : "a recording", outfile__why(err));
		return err;
	}
	f->writer = mtr_writer__new(outfile__fd(f->file), session__dict(f->o.session),
				    session__facts(f->o.session), &r->args.bounds);
	if (!f->writer) {
		err = -errno;
		log_err("%s: cannot write: %s", outfile__name(f->file), outfile__why(err));
		return err;
	}
	f->failed = false;
	return 0;
}

/* Removes the file that -f replaces. Called only after the attach: a capture that never attaches
 * must not delete the old file. */
static int replace(struct output_file *f)
{
	int err = outfile__replace(f->file);

	if (!err)
		return 0;
	log_err("%s: %s", outfile__name(f->file), outfile__why(err));
	f->failed = true;
	return err;
}

static int on_attached(struct output *o)
{
	struct output_file *f = (struct output_file *)o;

	return f->writer && replace(f) ? EXIT_FAILED : EXIT_OK;
}

static int output_file__event(struct output_file *f, const struct event *e)
{
	f->write_err = mtr_writer__event(f->writer, e);
	return f->write_err;
}

/* Writes an event. The file is opened with the first one, unless output_file__new() has opened
 * it. */
static int on_event(struct output *o, const struct event *e)
{
	struct output_file *f = (struct output_file *)o;
	int err;

	if (!f->writer) {
		err = output_file__open(f, output__path(o));
		err = err ? err : replace(f);
		if (err)
			return err;
	}
	return output_file__event(f, e);
}

/* Also the callback of a file in a folder, whose struct begins with a struct output_file. */
static int on_tick(struct output *o, uint64_t now)
{
	struct output_file *f = (struct output_file *)o;

	if (!f->writer || now - f->flushed < FLUSH_EVERY)
		return 0;
	f->flushed = now;
	f->write_err = mtr_writer__flush(f->writer);
	return f->write_err;
}

static const char *output_file__full(struct output *o)
{
	const struct output_file *f = (struct output_file *)o;
	const char *reason;

	return f->writer && mtr_writer__full(f->writer, &reason) ? reason : NULL;
}

/* Logs a summary, and warnings about losses. dropped: events beyond --max-size or --max-events. */
static void say_written(const struct output_file *f, const char *reason, uint64_t bytes,
			uint64_t dropped)
{
	uint64_t events = session__events(f->o.session);
	uint64_t lost = session__lost(f->o.session);
	uint64_t lost_elsewhere = session__lost_with_room(f->o.session),
		 no_room = lost - lost_elsewhere;
	const char *name = outfile__name(f->file);
	char n[32], l[32], size[24];

	log_event(LOG_INFO, "recorded",
		  LOG_FIELDS(LOG_STRING("path", name), LOG_INT("target", f->o.pid),
			     LOG_UINT("events", events), LOG_UINT("lost", lost),
			     LOG_UINT("bytes", bytes), LOG_UINT("dropped", dropped),
			     LOG_UINT("steps", session__steps(f->o.session)),
			     LOG_STRING("reason", reason)),
		  "%s: %s, %s lost, %s (%.1f bytes an event)", name,
		  text__counted(n, sizeof(n), events, "event"), text__count(l, sizeof(l), lost),
		  text__bytes(size, sizeof(size), bytes), events ? (double)bytes / events : 0.0);
	if (no_room)
		log_warn("%s lost because the buffer was full: blocks may be missing, "
			 "or shown after they were freed (totals of GPUs are still exact); try "
			 "--ring-size 64M",
			 text__counted(l, sizeof(l), no_room, "event"));
	if (lost_elsewhere)
		log_warn("%s lost that no probe recorded: blocks may be missing, or shown after "
			 "they were freed",
			 text__counted(l, sizeof(l), lost_elsewhere, "event"));
	if (dropped)
		log_warn("--%s was reached: the file lacks %s after that", reason,
			 text__counted(n, sizeof(n), dropped, "event"));
	if (!events)
		log_warn("nothing was allocated while attached");
	else if (f->o.r->kind == OUTPUT_FILE && strcmp(name, "standard output"))
		output__say_next("report", name);
}

/* Logs why the recording failed: the file, or otherwise err from the capture. */
static void say_failed(const struct output_file *f, int err)
{
	if (f->write_err)
		log_err("%s: cannot write: %s. The part written before is readable",
			outfile__name(f->file), outfile__why(f->write_err));
	else
		log_err("the capture broke off: %s", strerror(-err));
}

/*
 * Completes the file, or removes it if no event was recorded. *bytes: size of the file. Returns an
 * exit code, logged.
 */
static int output_file__close(struct output_file *f, const char *reason, int err, uint64_t *bytes)
{
	int status = err || f->failed ? EXIT_FAILED : EXIT_OK, close_err;
	uint64_t dropped;

	if (err && !f->failed)
		say_failed(f, err);
	if (f->writer) {
		dropped = mtr_writer__dropped(f->writer);
		err = f->write_err ? 0 : mtr_writer__flush(f->writer);
		*bytes = mtr_writer__bytes(f->writer);
		close_err = mtr_writer__close(f->writer);
		if (!err && !f->write_err)
			err = close_err;
		if (err) {
			log_err("%s: cannot write: %s", outfile__name(f->file), outfile__why(err));
			status = EXIT_FAILED;
		}
		if (!status && session__now(f->o.session))
			say_written(f, reason, *bytes, dropped);
	}
	/* Without an attach, there is no event. */
	if (!f->writer || !session__now(f->o.session)) {
		outfile__discard(f->file);
	} else {
		err = outfile__commit(f->file);
		if (err && !status) {
			log_err("%s: cannot write: %s", f->path, outfile__why(err));
			status = EXIT_FAILED;
		}
	}
	free(f->path);
	return status;
}

static int on_end(struct output *o, const char *reason, int err)
{
	struct output_file *f = (struct output_file *)o;
	uint64_t bytes;
	int status = output_file__close(f, reason, err, &bytes);

	free(f);
	return status;
}

struct output *output_file__new(const struct output *process)
{
	struct output_file *f = calloc(1, sizeof(*f));

	if (!f) {
		log_err("out of memory");
		return NULL;
	}
	f->o = *process;
	f->o.event = on_event;
	f->o.tick = on_tick;
	f->o.attached = on_attached;
	f->o.full = output_file__full;
	f->o.end = on_end;
	if (!f->o.times && output_file__open(f, output__path(&f->o))) {
		on_end(&f->o, NULL, 0);
		return NULL;
	}
	return &f->o;
}

/* A .mtr file in a folder with an index. */
struct output_folder {
	struct output_file file;   /* first: the output is cast to this struct */
	struct folder_entry entry; /* entry of the file in the index */
};

static void copy(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from);
}

/* Fills in the entry's events, losses and steps, and the container's name. */
static void set_numbers(const struct output *o, struct folder_entry *e)
{
	uint64_t steps = session__steps(o->session);
	const char *name = output__fact(o, "container.name");

	e->events = session__events(o->session);
	e->lost = session__lost(o->session);
	e->first_step = steps ? 0 : -1;
	e->last_step = (int64_t)steps - 1;
	folder_entry__describe(e, session__facts(o->session));
	if (*name)
		copy(e->container, sizeof(e->container), name);
}

/* Says how the recording began. */
static void set_began(const struct output *o, struct folder_entry *e)
{
	const char *how = output__fact(o, "attached_at");

	if (!strcmp(how, "fork"))
		snprintf(e->began, sizeof(e->began), "forked by PID %s", output__fact(o, "parent"));
	else
		snprintf(e->began, sizeof(e->began), "attached %s",
			 !strcmp(how, "start") ? "before PyTorch's first allocation"
					       : "while it ran");
}

int output_file__add_entry(const struct output *o, struct folder_entry *e)
{
	int err;

	set_numbers(o, e);
	set_began(o, e);
	err = folder__add(o->r->folder, e);
	if (err)
		log_err("%s: %s", folder__path(o->r->folder), folder__why(err));
	return err;
}

char *output_file__begin_entry(const struct output *o, const char *kind, const char *suffix,
			       struct folder_entry *e)
{
	char *path;

	output__stem(o, e->name, sizeof(e->name));
	path = folder__new_path(o->r->folder, e->name, suffix);
	if (path)
		copy(e->file, sizeof(e->file), strrchr(path, '/') + 1);
	copy(e->kind, sizeof(e->kind), kind);
	e->pid = o->pid;
	e->from = e->to = tracees__now(o->r->loop.tracees);
	text__date(e->begin, sizeof(e->begin), clock__read(CLOCK_REALTIME));
	return path;
}

int output_file__finish_entry(const struct output *o, struct folder_entry *e, const char *reason)
{
	e->to = tracees__now(o->r->loop.tracees);
	text__date(e->end, sizeof(e->end), clock__read(CLOCK_REALTIME));
	copy(e->ended, sizeof(e->ended), reason ? reason : "");
	return output_file__add_entry(o, e);
}

static int on_folder_event(struct output *o, const struct event *e)
{
	struct output_folder *f = (struct output_folder *)o;
	int err = 0;

	if (!f->file.writer) {
		err = output_file__open(&f->file,
					output_file__begin_entry(o, "process", ".mtr", &f->entry));
		if (!err)
			err = output_file__add_entry(o, &f->entry);
		f->file.failed = err;
	}
	if (err)
		return err;
	folder_entry__event(&f->entry, e);
	return output_file__event(&f->file, e);
}

/* Completes the file and its entry in the folder. Returns an exit code, logged. */
static int on_folder_end(struct output *o, const char *reason, int err)
{
	struct output_folder *f = (struct output_folder *)o;
	bool opened = f->file.writer;
	int status = output_file__close(&f->file, reason, err, &f->entry.bytes);

	if (opened && output_file__finish_entry(o, &f->entry, reason))
		status = EXIT_FAILED;
	free(f);
	return status;
}

struct output *output_file__new_in_folder(const struct output *process)
{
	struct output_folder *f = calloc(1, sizeof(*f));

	if (!f) {
		log_err("out of memory");
		return NULL;
	}
	f->file.o = *process;
	f->file.o.event = on_folder_event;
	f->file.o.tick = on_tick;
	f->file.o.full = output_file__full;
	f->file.o.end = on_folder_end;
	return &f->file.o;
}
