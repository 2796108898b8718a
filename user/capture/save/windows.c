/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/save/windows_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record/ending.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/outfile.h"
#include "base/text.h"
#include "base/log.h"
#include "record/dict.h"

static int on_event(struct sink *s, const struct event *e);
static int on_tick(struct sink *s, uint64_t now);

static int open_conditions(struct windows *w)
{
	const struct window_args *a = &w->opts.args;
	char *why = NULL;
	int err = a->on ? cond__parse(a->on, &w->on, &why) : 0;

	if (!err && a->until)
		err = cond__parse(a->until, &w->until, &why);
	free(why); /* the options were parsed before */
	if (!err && (w->on || w->until)) {
		w->values = values__new(w->facts);
		err = w->values ? 0 : -ENOMEM;
	}
	return err;
}

struct windows *windows__new(struct dict *d, const struct facts *f, const struct windows_opts *o)
{
	struct windows *w = calloc(1, sizeof(*w));
	struct flight_opts fo = { .window = o->args.before,
				  .no_oom = true,
				  .bounds = o->bounds,
				  .open = windows__open_file,
				  .done = windows__file_done,
				  .ctx = w };

	if (windows__look_back(o)) {
		fo.no_oom = !o->on_oom;
		fo.bounds = (struct mtr_writer_opts){ 0 };
		fo.max_bytes = o->bounds.max_size;
		fo.max_events = o->bounds.max_events;
		fo.max_files = o->on_kill ? 0 : o->args.count;
	}
	if (!w)
		return NULL;
	w->sink = (struct sink){ .event = on_event, .tick = on_tick };
	w->opts = *o;
	w->file = o->file;
	w->dict = d;
	w->facts = f;
	w->flight = flight__new(d, f, &fo);
	if (w->flight && !open_conditions(w))
		return w;
	w->file = NULL; /* still owned by the caller */
	windows__free(w);
	errno = ENOMEM;
	return NULL;
}

void windows__free(struct windows *w)
{
	if (!w)
		return;
	flight__free(w->flight);
	cond__free(w->on);
	cond__free(w->until);
	values__free(w->values);
	outfile__discard(w->file);
	for (unsigned int i = 0; i < w->n_kept; i++)
		free(w->kept[i].name);
	free(w->kept);
	free(w->last);
	free(w);
}

struct sink *windows__sink(struct windows *w)
{
	return &w->sink;
}

/* ---- begin and end ---- */

static bool is_open(const struct windows *w)
{
	return flight__writing(w->flight, NULL);
}

static bool has_all(const struct windows *w)
{
	const struct window_args *a = &w->opts.args;
	unsigned int most = w->opts.on_kill			? 0
			    : a->count				? a->count
			    : window_args__repeat(a) || a->wait ? 0
								: 1;

	return most && w->written >= most;
}

static int note(struct windows *w, int err)
{
	if (err && !w->err)
		w->err = err;
	return err;
}

static int begin(struct windows *w, uint64_t time, bool whole, const char *why)
{
	int err;

	if (is_open(w) || has_all(w))
		return -EBUSY;
	w->at_step = false;
	w->begun = time;
	w->begun_steps = w->clock.steps;
	w->whole = whole;
	/* The first step of a process includes all that happens before the training loop: the step
	 * is counted, but its time is not used. */
	err = flight__begin(w->flight, w->opts.args.before, whole && w->clock.steps, why);
	if (!err)
		log_debug("window %u begins: %s", w->written + 1, why);
	return err;
}

static int end(struct windows *w, const char *reason, const char *why)
{
	return flight__end(w->flight, reason, why);
}

/* With --steps and --skip, windows begin with a whole step. */
static bool by_steps(const struct windows *w)
{
	return w->opts.steps || w->opts.args.skip;
}

static bool by_itself(const struct windows *w)
{
	return !w->opts.args.on && !w->opts.args.from_mark && !w->opts.args.wait &&
	       !windows__look_back(&w->opts);
}

/* Sets the time of the appointed moment. Each tick does it, because the wall clock may be set. */
static void look_at_appointment(struct windows *w)
{
	uint64_t now, wall = clock__wall(&now), date = w->appointed,
		      since = now > w->zero ? now - w->zero : 0;

	if (!date)
		w->appointed_time = UINT64_MAX;
	else if (date >= wall)
		w->appointed_time = since + (date - wall);
	else
		w->appointed_time = since > wall - date ? since - (wall - date) : 0;
}

/* The fact clock_zero_ns is exact; the present time is a round of draining old. */
static void appoint(struct windows *w)
{
	const struct window_args *a = &w->opts.args;
	uint64_t now, wall = clock__wall(&now), zero;

	w->zero = now - w->now;
	if (facts__number(w->facts, "clock_zero_ns", &zero) && zero <= wall)
		w->zero = now - (wall - zero);
	w->appointed = a->at ? a->at : (wall / a->align + 1) * a->align;
	look_at_appointment(w);
}

/*
 * Plans the first window. A step that was under way at attach does not count. A process that is
 * recorded from its start has no such step.
 */
static int plan(struct windows *w)
{
	const char *at = facts__get(w->facts, "attached_at");
	char why[64] = "the capture began";
	bool from_start;

	w->planned = true;
	w->due = w->opts.args.every;
	if (w->opts.args.at || w->opts.args.align) {
		appoint(w);
		return 0;
	}
	if (!by_itself(w))
		return 0;
	from_start = at && !strcmp(at, "start");
	w->skip = w->opts.args.skip + !from_start;
	if (!by_steps(w) || !w->skip)
		return begin(w, 0, from_start, why);
	w->at_step = true;
	return 0;
}

int windows__attached(struct windows *w)
{
	return w->planned ? 0 : note(w, plan(w));
}

/* Begins or ends a window at the end of a step, which the flight recorder already has. */
static int look_at_step(struct windows *w, const struct event *e)
{
	char why[96], n[32], m[32], step[40];

	if (is_open(w)) {
		if (!w->opts.steps || w->clock.steps - w->begun_steps < w->opts.steps + !w->whole)
			return 0;
		snprintf(why, sizeof(why), "%s %s%s", text__count(n, sizeof(n), w->opts.steps),
			 w->clock.by_calls ? "call" : "step", w->opts.steps == 1 ? "" : "s");
		return end(w, "steps", why);
	}
	if (!w->at_step || w->clock.steps < w->skip)
		return 0;
	text__step(step, w->clock.steps);
	snprintf(why, sizeof(why), "%s began%s%s%s", w->clock.by_calls ? "a call" : step,
		 w->opts.args.skip && !w->written ? " after " : "",
		 w->opts.args.skip && !w->written ? text__count(m, sizeof(m), w->opts.args.skip)
						  : "",
		 w->opts.args.skip && !w->written ? " that were skipped" : "");
	return begin(w, e->time, true, why);
}

/* by_calls: calls counted already. */
static int look_at_call(struct windows *w, const struct event *e, bool by_calls)
{
	if (!by_calls && by_steps(w))
		log_info("PID %d: no optimizer: --steps and --skip count calls of the model",
			 (int)w->opts.pid);
	return look_at_step(w, e);
}

static bool is_named(const struct windows *w, const struct event *e, const char *name)
{
	return name && event__mark_is(dict__str(w->dict, e->name), name);
}

/* Judges the conditions. step: a step has just ended. */
static int judge(struct windows *w, uint64_t now, bool step)
{
	struct cond_result r;
	char why[160];
	int err = 0;

	if (w->on) {
		err = values__judge(w->values, w->on, now, &r);
		if (!err && r.verdict == COND_HOLDS && !w->held && !is_open(w) && !has_all(w)) {
			snprintf(why, sizeof(why), "%.*s", (int)sizeof(why) - 1, r.text);
			err = begin(w, now, step, why);
		}
		w->held = r.verdict == COND_HOLDS;
	}
	if (!err && w->until && is_open(w)) {
		err = values__judge(w->values, w->until, now, &r);
		if (!err && r.verdict == COND_HOLDS) {
			snprintf(why, sizeof(why), "%.*s", (int)sizeof(why) - 1, r.text);
			err = end(w, "condition", why);
		}
	}
	values__judged(w->values);
	return err;
}

/* Ends a window whose time has passed, before later events go in. */
static int look_at_time(struct windows *w, uint64_t now)
{
	char why[48], time[24];

	if (!w->opts.duration || !is_open(w) || now < w->begun + w->opts.duration)
		return 0;
	snprintf(why, sizeof(why), "%s passed", text__time(time, sizeof(time), w->opts.duration));
	return end(w, "duration", why);
}

/* Begins the window of --at, before later events go in, and appoints the next one of --every. */
static int look_at_wall(struct windows *w, uint64_t now)
{
	uint64_t due = w->appointed_time, every = w->opts.args.every;
	char why[64], date[40];

	if (!w->appointed || now < due)
		return 0;
	snprintf(why, sizeof(why), "at %s", text__date(date, sizeof(date), w->appointed));
	w->appointed = every ? w->appointed + (1 + (now - due) / every) * every : 0;
	look_at_appointment(w);
	if (is_open(w) || has_all(w))
		return 0;
	if (by_steps(w)) {
		w->at_step = true;
		w->skip = 0;
		return 0;
	}
	return begin(w, due, false, why);
}

static int look_at_bounds(struct windows *w)
{
	const char *reason;

	return flight__bounded(w->flight, &reason) ? end(w, reason, reason) : 0;
}

static int take(struct windows *w, const struct event *e)
{
	bool news = false, ended, by_calls = w->clock.by_calls;
	char why[160];
	int err = windows__attached(w) ?: look_at_time(w, e->time) ?: look_at_wall(w, e->time);

	if (!err && e->kind == EVENT_MARK && is_named(w, e, w->opts.args.from_mark) &&
	    !is_open(w) && !has_all(w)) {
		snprintf(why, sizeof(why), "mark %s", w->opts.args.from_mark);
		err = begin(w, e->time, false, why);
	}
	ended = !err && step_clock__ended(&w->clock, w->facts, e);
	/* A call ends when the next one begins, which is not in its window. */
	if (ended && e->kind == EVENT_CALL)
		err = look_at_call(w, e, by_calls);
	err = err ?: flight__event(w->flight, e);
	if (!err && w->values)
		err = values__event(w->values, e, &news);
	if (!err && ended && e->kind == EVENT_STEP)
		err = look_at_step(w, e);
	if (!err && news)
		err = judge(w, e->time, e->kind == EVENT_STEP);
	if (!err && e->kind == EVENT_MARK && is_named(w, e, w->opts.args.to_mark) && is_open(w) &&
	    w->begun < e->time) {
		snprintf(why, sizeof(why), "mark %s", w->opts.args.to_mark);
		err = end(w, "mark", why);
	}
	return err ?: look_at_bounds(w);
}

static int on_event(struct sink *s, const struct event *e)
{
	struct windows *w = (struct windows *)s;

	return w->err ? w->err : note(w, take(w, e));
}

/* Begins the next window of --every, or skips it if the previous window is still open. */
static int look_at_clock(struct windows *w, uint64_t now)
{
	char why[48], time[24];

	if (!w->opts.args.every || w->opts.args.at || w->opts.args.align || now < w->due)
		return 0;
	w->due += (1 + (now - w->due) / w->opts.args.every) * w->opts.args.every;
	if (is_open(w) || has_all(w))
		return 0;
	if (by_steps(w)) {
		w->at_step = true;
		w->skip = 0;
		return 0;
	}
	snprintf(why, sizeof(why), "every %s", text__time(time, sizeof(time), w->opts.args.every));
	return begin(w, now, false, why);
}

static int on_tick(struct sink *s, uint64_t now)
{
	struct windows *w = (struct windows *)s;
	int err;

	if (w->err)
		return w->err;
	w->now = now;
	if (w->appointed)
		look_at_appointment(w);
	err = windows__attached(w) ?: look_at_time(w, now) ?: look_at_wall(w, now) ?: flight__tick(w->flight, now) ?: look_at_clock(w, now);
	if (!err && w->values)
		err = judge(w, now, false);
	return note(w, err);
}

/* ---- actions of ctl and signals ---- */

int windows__start(struct windows *w, const char *who)
{
	char why[64];

	if (w->err)
		return w->err;
	if (is_open(w) || has_all(w))
		return -EBUSY;
	snprintf(why, sizeof(why), "%s", who);
	return note(w, begin(w, w->now, false, why));
}

int windows__stop(struct windows *w, const char *who)
{
	return !is_open(w) ? -EALREADY : note(w, end(w, who, who));
}

int windows__save(struct windows *w, const char *who)
{
	return is_open(w) ? -EBUSY : w->err ? w->err : note(w, flight__save(w->flight, who));
}

void windows__tell(const struct windows *w, struct json *j)
{
	struct flight_report r = { 0 };
	bool writing = flight__writing(w->flight, &r);
	struct flight_level l;
	char name[20];

	json__int(j, "pid", w->opts.pid);
	json__bool(j, "writing", writing);
	if (writing) {
		json__string(j, "began", r.began);
		json__uint(j, "events", r.events);
	}
	json__uint(j, "windows", w->written);
	json__uint(j, "steps", w->clock.steps);
	json__seconds(j, "time", w->now, 3);
	json__open_array(j, "devices");
	for (size_t i = 0; flight__level(w->flight, i, &l); i++) {
		if (l.device.index == DEVICE_UNKNOWN)
			continue;
		json__open_object(j, NULL);
		json__string(j, "device", device__name(l.device, name, sizeof(name)));
		json__uint(j, "allocated", l.allocated);
		json__uint(j, "reserved", l.reserved);
		json__close_object(j);
	}
	json__close_array(j);
}

const char *windows__last(const struct windows *w)
{
	return w->last ? w->last : "";
}

const char *windows__over(const struct windows *w)
{
	return has_all(w) && !is_open(w) ? w->reason : NULL;
}

/* Writes the last moments of a process that did not end well. */
static int write_end(struct windows *w)
{
	enum ending_reason how = ending__reason(w->facts);
	char text[512];

	if (how == ENDING_GOOD)
		return 0;
	if (how == ENDING_UNKNOWN)
		return flight__last(w->flight, "failed",
				    "the process has ended; the reason is not known");
	return flight__last(w->flight, ending__killed(w->facts) ? "killed" : "failed",
			    ending__text(text, sizeof(text), w->facts));
}

int windows__finish(struct windows *w, const char *reason)
{
	int err = w->err;

	if (!err && is_open(w))
		err = note(w, end(w, reason, reason));
	if (!err && w->opts.on_oom)
		err = note(w, flight__finish(w->flight));
	if (!err && w->opts.on_kill && !strcmp(reason, "target exited"))
		err = note(w, write_end(w));
	return err;
}

unsigned int windows__written(const struct windows *w)
{
	return w->written;
}

int windows__err(const struct windows *w, bool *said)
{
	*said = w->said;
	return w->err;
}
