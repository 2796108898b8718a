/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Actions of a live view besides drawing: save, export and mark, by keys and by `memtrace-bpf
 * ctl`. */
#include "live/view/view.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "capture/control.h"
#include "capture/session.h"

struct source *view__source(const struct live_proc *p)
{
	return p ? p->owner : NULL;
}

bool view__save(struct view *v, struct live_proc *p)
{
	struct source *from = view__source(p);
	char say[256];
	int err;

	if (!from || !from->save) {
		live_state__say(&v->state, LOG_INFO, true, "there are no events to save");
		return false;
	}
	/* Read pending events first. */
	if (from->session && !p->ended && session__drain(from->session))
		v->failed = v->loop.quit = true;
	err = live_save__write(from->save, say, sizeof(say));
	/* Keep the message after the view, because it has the path. */
	live_state__say(&v->state, err ? LOG_WARN : LOG_INFO, false, "%s", say);
	return !err;
}

static void on_exported(void *ctx)
{
	struct view *v = ctx;

	view__drop_source(v, v->exporting.pidfd);
	view__take_errors(v);
	if (!live_save__end_export(&v->exporting, false))
		live_state__say(&v->state, LOG_WARN, true, "the export failed: L shows why");
}

void view__export(struct view *v, const char *format)
{
	struct source *from = view__source(live_state__proc(&v->state));
	const char *last = from && from->save ? live_save__last(from->save) : "";
	int err;

	if (v->exporting.pid) {
		live_state__say(&v->state, LOG_INFO, true,
				"an export is still running: wait for its end");
		return;
	}
	if (!*last && !view__save(v, live_state__proc(&v->state)))
		return;
	last = live_save__last(from->save);
	err = live_save__begin_export(&v->exporting, last, format);
	if (err) {
		live_state__say(&v->state, LOG_WARN, true, "cannot export: %s", strerror(-err));
		return;
	}
	live_state__say(&v->state, LOG_INFO, true, "exporting %s as %s ...", last, format);
	view__add_source(v, v->exporting.pidfd, on_exported);
}

bool view__mark(struct view *v, struct live_proc *p, const char *name)
{
	struct source *from = view__source(p);

	if (!from || !from->session || p->ended) {
		live_state__say(&v->state, LOG_INFO, true, "%s: there is nothing to mark any more",
				p ? p->end : "no process");
		return false;
	}
	v->state.marks++;
	if (session__mark(from->session, name))
		v->failed = v->loop.quit = true;
	view__say_marks(v);
	return true;
}

void view__say_marks(struct view *v)
{
	uint64_t time;

	for (size_t i = 0; i < v->state.nprocs; i++) {
		struct live_proc *p = v->state.procs[i];

		for (; p->marks_said < p->nmarks; p->marks_said++) {
			const char *name = live_proc__mark(p, p->nmarks - 1 - p->marks_said, &time);

			if (name)
				live_state__say(&v->state, LOG_INFO, true, "marked: %s", name);
		}
	}
}

/* ---- memtrace-bpf ctl ---- */

static bool is_captured(const struct live_proc *p)
{
	const struct source *from = view__source(p);

	return from && from->session && !p->ended;
}

static int no_process_error(struct json *j)
{
	json__string(j, "error", "no process is being captured");
	return -ENXIO;
}

static int mark_all(struct view *v, const char *name, struct json *j)
{
	bool any = false;

	for (size_t i = 0; i < v->state.nprocs; i++)
		if (is_captured(v->state.procs[i]))
			any |= view__mark(v, v->state.procs[i], name);
	if (!any)
		return no_process_error(j);
	json__string(j, "mark", name);
	return 0;
}

static int save_all(struct view *v, struct json *j)
{
	bool any = false;

	json__open_array(j, "processes");
	for (size_t i = 0; i < v->state.nprocs; i++) {
		struct live_proc *p = v->state.procs[i];
		bool done;

		if (!is_captured(p))
			continue;
		done = view__save(v, p);
		any |= done;
		json__open_object(j, NULL);
		json__int(j, "pid", p->pid);
		json__bool(j, "ok", done);
		if (done)
			json__string(j, "file", live_save__last(view__source(p)->save));
		else
			json__string(j, "error", live_state__message(&v->state, 0)->text);
		json__close_object(j);
	}
	json__close_array(j);
	return any ? 0 : no_process_error(j);
}

static int status(const struct view *v, struct json *j)
{
	json__string(j, "writes", "live view");
	json__int(j, "capturer", getpid());
	json__open_array(j, "processes");
	for (size_t i = 0; i < v->state.nprocs; i++) {
		const struct live_proc *p = v->state.procs[i];

		if (p->ended)
			continue;
		json__open_object(j, NULL);
		json__int(j, "pid", p->pid);
		json__seconds(j, "time", p->now, 3);
		json__uint(j, "steps", model__whole_steps(p->model));
		json__uint(j, "captured", p->events);
		json__uint(j, "lost", p->lost);
		json__close_object(j);
	}
	json__close_array(j);
	return 0;
}

static int handle(void *ctx, const char *word, const char *argument, struct json *j)
{
	struct view *v = ctx;

	if (!strcmp(word, "status"))
		return status(v, j);
	if (!strcmp(word, "save"))
		return save_all(v, j);
	if (strcmp(word, "mark") != 0)
		return -ENOTSUP;
	if (*argument && strlen(argument) < 128)
		return mark_all(v, argument, j);
	json__string(j, "error", "a mark has a name of 1 to 127 bytes");
	return -EINVAL;
}

static void on_control(void *ctx)
{
	struct view *v = ctx;

	control__pump(v->control);
}

void view__open_control(struct view *v)
{
	pid_t target = v->loop.args.pid ? v->loop.args.pid : getpid();
	int err = control__open(target, NULL, handle, v, &v->control);

	if (err)
		log_debug("no socket for `memtrace-bpf ctl`: %s", strerror(-err));
	else
		view__add_source(v, control__fd(v->control), on_control);
}
