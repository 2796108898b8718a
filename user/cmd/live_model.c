/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/live_model.h"

#include <string.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/log.h"
#include "capture/capture_loop.h"
#include "capture/session.h"
#include "model/words.h"
#include "record/dict.h"

#define LOOK_EVERY 1000000000ull /* ns from one call of enough() to the next */

struct watcher {
	struct sink sink; /* must be first: on_event() casts it to the watcher */
	const struct live_model_opts *o;
	struct session *session;
	struct live_model *live;
	uint64_t looked; /* when enough() was called last, CLOCK_MONOTONIC, ns */
	bool ended;	 /* end() was called: dict and facts are ours */
};

/* For the sink: hands the event to the command, then to the model. Returns 0 or a negative error. */
static int on_event(struct sink *s, const struct event *e)
{
	struct watcher *w = (struct watcher *)s;
	int err = w->o->event ? w->o->event(w->o->ctx, e) : 0;

	return err ? err : model__event(w->live->model, e);
}

/* For tracees_output.begin: makes the model. NULL: no memory, logged. */
static void *begin(void *ctx, struct session *s, pid_t pid, unsigned int times, struct sink **sink)
{
	const struct model_opts mo = { .at = AT_END };
	struct watcher *w = ctx;
	struct live_model *l = w->live;

	(void)pid;
	(void)times;
	w->session = s;
	w->looked = clock__monotonic();
	l->dict = session__dict(s);
	l->facts = session__facts(s);
	l->model = model__new(l->dict, l->facts, &mo);
	*sink = &w->sink;
	if (l->model && !w->o->begin(w->o->ctx, l))
		return w;
	log_err("out of memory");
	model__free(l->model);
	*l = (struct live_model){ .model = NULL };
	return NULL;
}

/* For tracees_output.full: ends the capture ("enough") when the command has seen enough. NULL: it
 * goes on. */
static const char *full(void *output)
{
	struct watcher *w = output;
	uint64_t now = clock__monotonic();

	if (!w->o->enough || now - w->looked < LOOK_EVERY)
		return NULL;
	w->looked = now;
	return w->o->enough(w->o->ctx, w->live, session__now(w->session)) ? "enough" : NULL;
}

/* For tracees_output.end: takes over the dictionary and the facts. err: negative error that ended
 * the capture. Returns the exit code. */
static int end(void *output, const char *reason, int err)
{
	struct watcher *w = output;
	struct live_model *l = w->live;

	(void)reason;
	if (err)
		log_err("the capture broke off: %s", strerror(-err));
	session__give_words(w->session, &l->dict, &l->facts);
	w->ended = true;
	l->duration = words__fact_number(l->facts, "duration_ns");
	return err ? EXIT_FAILED : EXIT_OK;
}

int live_model__capture(const struct live_model_opts *o, struct live_model *ret)
{
	static const struct tracees_output output = { begin, NULL, full, end };
	struct watcher w = { .sink = { .event = on_event }, .o = o, .live = ret };
	struct capture_loop loop = { .args = *o->args,
				     .until = o->until,
				     .writes_later = o->writes_file,
				     .output = &output,
				     .ctx = &w };
	int status;

	*ret = (struct live_model){ .model = NULL };
	status = capture_loop__open(&loop);
	if (!status)
		status = capture_loop__run(&loop);
	capture_loop__close(&loop);
	if (!w.ended) /* dict and facts were the session's, which is gone */
		*ret = (struct live_model){ .model = ret->model };
	if (!status && ret->duration)
		model__finish(ret->model, ret->duration);
	return status;
}

void live_model__free(struct live_model *l)
{
	model__free(l->model);
	facts__free(l->facts);
	dict__free(l->dict);
}
