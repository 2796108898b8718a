/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/save/output_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/recording.h"
#include "capture/save/output_file.h"
#include "capture/session.h"
#include "capture/tracees.h"
#include "record/folder.h"

struct output_folder {
	struct output_file file;   /* first: the output is cast to this struct */
	struct folder_entry entry; /* entry of the file in the index */
};

static void copy(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from);
}

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

int output_folder__add(const struct output *o, struct folder_entry *e)
{
	int err;

	set_numbers(o, e);
	set_began(o, e);
	err = folder__add(o->r->folder, e);
	if (err)
		log_err("%s: %s", folder__path(o->r->folder), folder__why(err));
	return err;
}

char *output_folder__begin(const struct output *o, const char *kind, const char *suffix,
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

int output_folder__finish(const struct output *o, struct folder_entry *e, const char *reason)
{
	e->to = tracees__now(o->r->loop.tracees);
	text__date(e->end, sizeof(e->end), clock__read(CLOCK_REALTIME));
	copy(e->ended, sizeof(e->ended), reason ? reason : "");
	return output_folder__add(o, e);
}

static int on_event(struct sink *s, const struct event *e)
{
	struct output_folder *f = (struct output_folder *)s;
	struct output *o = &f->file.o;
	int err = 0;

	if (!f->file.writer) {
		err = output_file__open(&f->file,
					output_folder__begin(o, "process", ".mtr", &f->entry));
		if (!err)
			err = output_folder__add(o, &f->entry);
		f->file.failed = err;
	}
	if (err)
		return err;
	folder_entry__event(&f->entry, e);
	return output_file__event(&f->file, e);
}

static int on_tick(struct sink *s, uint64_t now)
{
	return output_file__tick((struct output_file *)s, now);
}

static int on_end(struct output *o, const char *reason, int err)
{
	struct output_folder *f = (struct output_folder *)o;
	bool opened = f->file.writer;
	int status = output_file__close(&f->file, reason, err, &f->entry.bytes);

	if (opened && output_folder__finish(o, &f->entry, reason))
		status = EXIT_FAILED;
	free(f);
	return status;
}

struct output *output_folder__new(const struct output *process)
{
	struct output_folder *f = calloc(1, sizeof(*f));

	if (!f) {
		log_err("out of memory");
		return NULL;
	}
	f->file.o = *process;
	f->file.o.sink = (struct sink){ .event = on_event, .tick = on_tick };
	f->file.o.full = output_file__full;
	f->file.o.end = on_end;
	return &f->file.o;
}
