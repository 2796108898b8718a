/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Asks each host for its clock and its processes. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "serve/fetch/internal.h"

/* Takes the better of two measurements. The host read its clock after we asked and before its
 * answer was here. So its clock minus ours is between that reading minus the later of our times and
 * that reading minus the earlier one. The middle is wrong by at most half of the difference. */
static void take_exchange(struct fetch_host *h, uint64_t theirs, const struct http_answer *a)
{
	uint64_t error = (a->answered - a->asked + 1) / 2;

	if (a->answered < a->asked || error >= h->error)
		return; /* our clock was set, or the answer took longer than another */
	h->error = error;
	h->offset = (int64_t)(theirs - a->asked) - (int64_t)error;
}

static void on_clock(void *ctx, const struct http_answer *a);
static void on_targets(void *ctx, const struct http_answer *a);

static void ask_next(struct fetch_host *h)
{
	if (h->exchanges++ < FETCH_EXCHANGES)
		fetch__call(h, "GET", "/api/clock", NULL, 0, on_clock, h);
	else
		fetch__call(h, "GET", "/api/targets", NULL, 0, on_targets, h);
}

static void on_clock(void *ctx, const struct http_answer *a)
{
	struct fetch_host *h = ctx;
	json_t *o;
	json_int_t ns;

	if (a->status == 404) {
		snprintf(h->why, sizeof(h->why),
			 "its serve is too old: it has no /api/clock; use this version there");
		return;
	}
	if (a->status != 200) {
		snprintf(h->why, sizeof(h->why), "%s", a->why);
		return;
	}
	o = fetch__parse(a);
	ns = json_integer_value(json_object_get(o, "time_ns"));
	json_decref(o);
	if (ns <= 0) {
		snprintf(h->why, sizeof(h->why), "its answer is not that of memtrace-bpf serve");
		return;
	}
	take_exchange(h, (uint64_t)ns, a);
	ask_next(h);
}

static bool is_of_pods(const struct hosts *h, const char *pod)
{
	for (size_t i = 0; i < h->n_pods && pod; i++)
		if (!strcmp(h->pods[i], pod))
			return true;
	return !h->n_pods;
}

static bool is_wanted(const struct fetch *f, const json_t *process)
{
	const char *target = json_string_value(json_object_get(process, "target"));

	return is_of_pods(f->o->hosts, json_string_value(json_object_get(process, "pod"))) &&
	       (!f->o->target || (target && !strcmp(target, f->o->target)));
}

static bool take_process(struct fetch_host *h, const json_t *o)
{
	const json_t *rank = json_object_get(o, "rank");
	json_int_t pid = json_integer_value(json_object_get(o, "pid"));
	struct fetch_process *p = &h->processes[h->n];

	if (!json_is_object(o) || pid <= 0 || pid > INT32_MAX)
		return false;
	for (size_t i = 0; i < h->n; i++)
		if (h->processes[i].pid == pid)
			return false;
	*p = (struct fetch_process){ .host = h, .pid = pid, .rank = -1 };
	if (json_is_integer(rank) && json_integer_value(rank) >= 0 &&
	    json_integer_value(rank) <= INT32_MAX)
		p->rank = json_integer_value(rank);
	h->n++;
	h->f->processes++;
	return true;
}

static void on_targets(void *ctx, const struct http_answer *a)
{
	struct fetch_host *h = ctx;
	json_t *doc = NULL, *list = NULL, *o;
	size_t i, n;

	if (a->status != 200) {
		snprintf(h->why, sizeof(h->why), "%s", a->why);
		return;
	}
	doc = fetch__parse(a);
	list = json_object_get(doc, "processes");
	n = json_array_size(list);
	if (!json_is_array(list) || n > FETCH_PROCESSES) {
		snprintf(h->why, sizeof(h->why), "its answer is not that of memtrace-bpf serve");
		json_decref(doc);
		return;
	}
	h->processes = calloc(n + 1, sizeof(*h->processes));
	h->f->no_memory |= !h->processes;
	json_array_foreach(list, i, o)
	{
		if (!h->processes || !is_wanted(h->f, o) || take_process(h, o))
			continue;
		snprintf(h->why, sizeof(h->why), "its answer is not that of memtrace-bpf serve");
		h->f->processes -= h->n;
		h->n = 0;
		json_decref(doc);
		return;
	}
	json_decref(doc);
	h->answered = true;
	if (!h->n && h->f->o->target)
		snprintf(h->why, sizeof(h->why), "it has no process of the target %s",
			 h->f->o->target);
	else if (!h->n)
		snprintf(h->why, sizeof(h->why), "it has no process that can be traced");
	progress__at(&h->f->progress, (uint64_t)(h - h->f->hosts) + 1, h->f->processes);
}

static int tick(void *ctx)
{
	return fetch__interrupted(ctx) ? -1 : 0;
}

void fetch_ask__all(struct fetch *f)
{
	for (size_t i = 0; i < f->n; i++) {
		struct fetch_host *h = &f->hosts[i];

		if (h->is->why)
			snprintf(h->why, sizeof(h->why), "%s", h->is->why);
		else
			ask_next(h);
	}
	http__run(f->http, tick, f);
}
