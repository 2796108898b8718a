/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The table of watched processes, which owners share fairly, and their series. */
#include "watch/watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "watch/targets/black_box.h"

/* ---- series: growth is measured per device ---- */

unsigned watch_targets__take_series(struct watch *w)
{
	for (unsigned i = 0; i < COND_SERIES; i++) {
		if (w->series[i])
			continue;
		w->series[i] = 1;
		return i;
	}
	return COND_SERIES; /* no series is free: growth of this one is unknown */
}

static void drop_series(struct watch *w, unsigned series)
{
	if (series >= COND_SERIES)
		return;
	w->series[series] = 0;
	for (size_t i = 0; i < w->n_rules; i++)
		cond__forget(w->rules[i].cond, series);
}

/* ---- targets ---- */

/* Adds the rules that need the CUDA allocator, which cannot be read: "; 2 of 3 rules cannot be
 * judged: ooms>0, retries>0". */
static void add_idle_rules(const struct watch *w, char *text, size_t size)
{
	size_t len = strlen(text), idle = 0, n = 0;

	for (size_t i = 0; i < w->n_rules; i++)
		idle += !w->rules[i].of_process;
	if (idle)
		len += (size_t)snprintf(text + len, size - len,
					"; %zu of %zu rules need it: ", idle, w->n_rules);
	for (size_t i = 0; i < w->n_rules && len < size; i++)
		if (!w->rules[i].of_process)
			len += (size_t)snprintf(text + len, size - len, "%s%s", n++ ? ", " : "",
						cond__text(w->rules[i].cond));
}

void watch_targets__report(struct watch *w, struct watch_target *t)
{
	char text[2 * WATCH_TEXT], why[200];

	if (t->reported)
		return;
	t->reported = true;
	if (t->alloc && cudaalloc__calibrated(t->alloc))
		snprintf(text, sizeof(text), "watching the CUDA allocator and resident memory%s%s",
			 w->wants_host ? " with its parts" : "",
			 w->wants_steps && t->attached ? ", and steps by a probe"
			 : w->box		       ? ""
						       : "; no probe");
	else
		snprintf(text, sizeof(text), "watching resident memory%s only: %s",
			 w->wants_host ? " and its parts" : "",
			 text__clean(why, sizeof(why), t->alloc_why, strlen(t->alloc_why)));
	if (!t->alloc || !cudaalloc__calibrated(t->alloc))
		add_idle_rules(w, text, sizeof(text));
	if (w->box) {
		size_t len = strlen(text);

		snprintf(text + len, sizeof(text) - len,
			 "; a recorder keeps its last minutes (--on-kill)");
	}
	watch_say__target(w, "watching", t, text);
	if (t->steps_failed)
		watch_say__target(w, "no steps", t, t->steps_why);
}

static void forget_rules(struct watch *w, const struct watch_device *d)
{
	for (size_t i = 0; i < w->n_rules; i++)
		w->rules[i].holding -= d->state[i].holds;
}

static void drop_target(struct watch *w, size_t i)
{
	struct watch_target *t = w->targets[i];

	drop_series(w, t->self.series);
	forget_rules(w, &t->self);
	for (size_t k = 0; k < WATCH_DEVICES; k++) {
		forget_rules(w, &t->devices[k]);
		drop_series(w, t->devices[k].series);
	}
	owner__drop(t->owner);
	watch_target__free(t);
	w->targets[i] = w->targets[--w->n_targets];
}

/* Makes room for a process of this owner. False, with a warning for each owner: others have no more
 * than their share. */
static bool make_room(struct watch *w, struct owner *owner, pid_t pid)
{
	struct place v[WATCH_TARGETS];
	char text[WATCH_TEXT];
	struct owner *most;
	size_t i;

	for (i = 0; i < w->n_targets; i++)
		v[i] = (struct place){ .owner = w->targets[i]->owner, .came = w->targets[i]->came };
	if (w->n_targets < WATCH_TARGETS)
		return true;
	i = w->n_evicted < WATCH_TARGETS ? shares__choose(v, w->n_targets, owner, 0) : SHARES_NONE;
	if (i != SHARES_NONE) {
		snprintf(text, sizeof(text),
			 "no longer watched: %d processes are, the most at a time, and %s gets its "
			 "share of them",
			 WATCH_TARGETS, owner->name);
		watch_say__target(w, "left out", w->targets[i], text);
		w->evicted[w->n_evicted++] = w->targets[i]->pid;
		drop_target(w, i);
		return true;
	}
	most = shares__largest(v, w->n_targets);
	if (!owner->said)
		log_warn("PID %d and maybe more of %s are not watched: %d processes are, the most "
			 "at a time, and %zu of them are of %s. Choose fewer: a longer --name, or "
			 "--container",
			 (int)pid, owner->name, WATCH_TARGETS, most->places, most->name);
	owner->said = true;
	return false;
}

static bool add_target(void *ctx, const struct pick_process *p)
{
	struct watch *w = ctx;
	struct owner *owner = owners__of(&w->owners, p);
	struct watch_target *t;
	int err = -ENOMEM;

	t = owner && make_room(w, owner, p->pid) ? watch_target__new(p, w->args.pick.all, &err)
						 : NULL;
	if (!t) {
		owner__drop(owner);
		if (err == -EPERM || err == -EACCES)
			log_warn("not permitted to read PID %d: %s; run it with sudo", (int)p->pid,
				 strerror(-err));
		return false;
	}
	t->owner = owner;
	t->came = ++w->came;
	t->since = clock__monotonic();
	t->self.series = watch_targets__take_series(w);
	for (size_t i = 0; i < WATCH_DEVICES; i++)
		t->devices[i].series = COND_SERIES;
	w->targets[w->n_targets++] = t;
	return true;
}

void watch_targets__scan(struct watch *w)
{
	watch_find__scan(w->find, add_target, w);
	while (w->n_evicted)
		watch_find__ended(w->find, w->evicted[--w->n_evicted], clock__monotonic());
}

void watch_targets__remove(struct watch *w, size_t i, bool replaced)
{
	struct watch_target *t = w->targets[i];

	watch_say__target(w, "ended", t,
			  replaced ? "the process runs another program now"
				   : "the process has ended");
	if (replaced) /* the new program may match, too */
		w->next_scan = 0;
	else if (w->box)
		black_box__expect(w->box, t);
	watch_find__ended(w->find, t->pid, clock__monotonic());
	drop_target(w, i);
}
