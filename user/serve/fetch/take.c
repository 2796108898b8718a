/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Starts the captures, waits for their end, downloads the recordings and has them read. */
#include "serve/fetch/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "record/mtr.h"
#include "record/stream.h"

#define BATCH 256
#define POLL_EVERY (500 * FETCH_MS)
#define ABSENT 3 /* lists without a trace after which it is lost */
#define STARTS 3 /* most requests for a capture */

/* ---- recordings that came ---- */

/* Reads a downloaded recording from its begin to its end before it gets a name, and describes it in
 * the folder's index. */

static void copy_text(char *to, size_t size, const struct facts *f, const char *key)
{
	const char *s = facts__get(f, key);

	text__clean(to, size, s ? s : "", s ? strlen(s) : 0);
}

static void describe(struct fetch_process *p, const struct facts *f, uint64_t last)
{
	struct folder_entry *e = &p->entry;
	uint64_t zero, from, to;

	facts__number(f, "clock_zero_ns", &zero);
	facts__number(f, "window_start_ns", &from);
	folder_entry__describe(e, f);
	snprintf(e->kind, sizeof(e->kind), "process");
	snprintf(e->name, sizeof(e->name), "%.*s", (int)sizeof(e->name) - 1, p->stem);
	snprintf(e->host, sizeof(e->host), "%.*s", (int)sizeof(e->host) - 1, p->host->is->name);
	e->pid = p->pid;
	if (e->rank < 0)
		e->rank = p->rank;
	to = last > from ? last : from;
	/* Seconds in the index go to 1e9. */
	if (to / FETCH_SECOND < 1000000000) {
		e->from = from;
		e->to = to;
	}
	/* In the order of our clock. */
	if (zero && zero < (uint64_t)INT64_MAX / 2 && to < (uint64_t)INT64_MAX / 2) {
		uint64_t shift = p->host->error == UINT64_MAX ? 0 : (uint64_t)p->host->offset;

		text__date(e->begin, sizeof(e->begin), zero + from - shift);
		text__date(e->end, sizeof(e->end), zero + to - shift);
	} else {
		copy_text(e->begin, sizeof(e->begin), f, "start");
	}
	copy_text(e->began, sizeof(e->began), f, "window_began");
	copy_text(e->ended, sizeof(e->ended), f, "stop_reason");
	facts__number(f, "lost", &e->lost);
}

static bool refuse(struct fetch_process *p, const char *why)
{
	snprintf(p->why, sizeof(p->why), "the server's file is no good recording: %s", why);
	return false;
}

/* Returns why reading has to end; NULL: it goes on. */
static const char *is_late(const struct fetch_process *p, uint64_t begun)
{
	const struct fetch *f = p->host->f;
	uint64_t most = f->o->timeout + (p->entry.bytes >> 20) * FETCH_SECOND;

	if (atomic_load(&f->stop))
		return "interrupted";
	return clock__monotonic() - begun > most
		       ? "reading it takes too long; a longer --timeout allows more"
		       : NULL;
}

/* Reads the downloaded recording, and sets its entry. Returns false with p->why if it
 * is no good recording, or takes longer than --timeout and 1 s for each MiB. Any thread. */
static bool check_recording(struct fetch_process *p)
{
	struct folder_entry *e = &p->entry;
	const char *why = NULL, *late;
	struct event events[BATCH];
	struct mtr_reader *r;
	uint64_t offset, last = 0, steps = 0, pid;
	uint64_t begun = clock__monotonic();
	char path[64];
	int n = 0;
	bool ok;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", outfile__fd(p->file));
	r = mtr_reader__open(path, &why);
	if (!r)
		return refuse(p, why ? why : strerror(errno));
	e->events = 0;
	while (!(late = is_late(p, begun)) && (n = mtr_reader__some(r, events, BATCH)) > 0) {
		for (int i = 0; i < n; i++) {
			folder_entry__event(e, &events[i]);
			steps += events[i].kind == EVENT_STEP;
			last = events[i].time > last ? events[i].time : last;
		}
		e->events += (uint64_t)n;
	}
	ok = !late && n == 0;
	if (!ok)
		refuse(p, late ? late : strerror(-n));
	if (ok && mtr_reader__end(r, &offset, &why) == MTR_DAMAGED)
		ok = refuse(p, why);
	p->complete = ok && mtr_reader__end(r, &offset, &why) == MTR_COMPLETE;
	if (ok && (!facts__number(mtr_reader__facts(r), "pid", &pid) || pid != (uint64_t)p->pid))
		ok = refuse(p, "it is of another process");
	if (ok) {
		e->first_step = steps ? 0 : -1;
		e->last_step = (int64_t)steps - 1;
		describe(p, mtr_reader__facts(r), last);
	}
	mtr_reader__free(r);
	return ok;
}

/* ---- the index ---- */

static void set_missing(struct folder_missing *m, const struct fetch_host *h, int64_t pid,
			int64_t rank, const char *why)
{
	*m = (struct folder_missing){ .pid = pid, .rank = rank };
	snprintf(m->host, sizeof(m->host), "%.*s", (int)sizeof(m->host) - 1, h->is->name);
	snprintf(m->why, sizeof(m->why), "%.*s", (int)sizeof(m->why) - 1, why);
}

/* Adds kept recordings to the index, at most once a second. */
static void index_soon(struct fetch *f)
{
	size_t kept = fetch__count(f, FETCH_KEPT), n = 0;
	struct folder_entry *e;

	if (kept == f->n_indexed || clock__monotonic() < f->indexed + FETCH_SECOND)
		return;
	e = calloc(kept, sizeof(*e));
	for (size_t i = 0; e && i < f->n; i++)
		for (size_t k = 0; k < f->hosts[i].n; k++)
			if (f->hosts[i].processes[k].state == FETCH_KEPT)
				e[n++] = f->hosts[i].processes[k].entry;
	/* fetch_take__index() meets the same error, and logs it. */
	if (e)
		folder__add_all(f->folder, e, n, NULL, 0);
	free(e);
	f->n_indexed = kept;
	f->indexed = clock__monotonic();
}

int fetch_take__index(struct fetch *f)
{
	size_t n = 0, m = 0;
	struct folder_entry *e = calloc(f->processes + 1, sizeof(*e));
	struct folder_missing *missing = calloc(f->processes + f->n + 1, sizeof(*missing));
	int err = e && missing ? 0 : -ENOMEM;

	for (size_t i = 0; i < f->n && !err; i++) {
		const struct fetch_host *h = &f->hosts[i];

		if (*h->why)
			set_missing(&missing[m++], h, -1, -1, h->why);
		for (size_t k = 0; k < h->n; k++) {
			const struct fetch_process *p = &h->processes[k];

			if (p->state == FETCH_KEPT)
				e[n++] = p->entry;
			else
				set_missing(&missing[m++], h, p->pid, p->rank, p->why);
		}
	}
	if (!err)
		err = folder__add_all(f->folder, e, n, missing, m);
	free(e);
	free(missing);
	if (err)
		log_err("%s: %s", folder__path(f->folder), folder__why(err));
	return err;
}

/* ---- captures ---- */

/* ---- start ---- */

static void on_gone(void *ctx, const struct http_answer *a)
{
	(void)ctx;
	(void)a;
}

/* The host need not keep the recording: it is here, or not wanted. */
static void drop_trace(struct fetch_process *p)
{
	char path[64];

	snprintf(path, sizeof(path), "/api/trace/%s", p->trace);
	fetch__call(p->host, "DELETE", path, NULL, 0, on_gone, p);
}

static void on_started(void *ctx, const struct http_answer *a);

/* Only an ID as the server makes it goes into later addresses. */
static bool is_trace(const char *id)
{
	size_t digits = id && !strncmp(id, "trace_", 6) ? strspn(id + 6, "0123456789") : 0;

	return digits && digits <= 20 && !id[6 + digits];
}

static bool take_id(struct fetch_process *p, const json_t *trace)
{
	const char *id = json_string_value(json_object_get(trace, "trace_id"));

	if (!is_trace(id))
		return false;
	snprintf(p->trace, sizeof(p->trace), "%s", id);
	p->known = clock__monotonic();
	return true;
}

static void start(struct fetch_process *p)
{
	const struct fetch_host *h = p->host;
	const struct fetch_opts *o = h->f->o;
	json_t *body = json_pack("{s:I, s:b, s:f}", "pid", (json_int_t)p->pid, "wait", 0,
				 "start_at", p->start_at);
	char *text;

	p->started++;
	if (o->duration)
		json_object_set_new(body, "duration_s", json_real((double)o->duration / 1e9));
	if (o->steps)
		json_object_set_new(body, "steps", json_integer((json_int_t)o->steps));
	if (o->max_events)
		json_object_set_new(body, "max_events", json_integer((json_int_t)o->max_events));
	if (o->host)
		json_object_set_new(body, "host", json_true());
	json_object_set_new(body, "clock_offset_ns", json_integer(h->offset));
	json_object_set_new(body, "clock_offset_error_ns", json_integer((json_int_t)h->error));
	text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	if (!text)
		h->f->no_memory = true;
	else if (fetch__call(p->host, "POST", "/api/trace/memory", text, 0, on_started, p))
		p->state = FETCH_STARTED;
	free(text);
	json_decref(body);
}

/* Looks for a capture that the server may have started without an answer. */
static void on_list_for_start(void *ctx, const struct http_answer *a)
{
	struct fetch_process *p = ctx;
	json_t *doc = a->status == 200 ? fetch__parse(a) : NULL, *t;
	const json_t *list = json_object_get(doc, "traces");
	size_t i;

	json_array_foreach(list, i, t)
	{
		double at = json_number_value(json_object_get(t, "start_at"));

		if (json_integer_value(json_object_get(t, "pid")) == p->pid &&
		    fabs(at - p->start_at) < 1e-3 && take_id(p, t))
			break;
	}
	json_decref(doc);
	if (a->status != 200)
		fetch__miss(p, "%s", a->why);
	else if (!*p->trace)
		start(p);
}

static void on_started(void *ctx, const struct http_answer *a)
{
	struct fetch_process *p = ctx;
	json_t *o;

	if (!a->status && a->sent && p->started < STARTS) {
		fetch__call(p->host, "GET", "/api/trace/list", NULL,
			    clock__monotonic() + POLL_EVERY, on_list_for_start, p);
		return;
	}
	if (a->status != 200) {
		fetch__miss(p, "%s", a->why);
		return;
	}
	o = fetch__parse(a);
	if (!take_id(p, o))
		fetch__miss(p, "the server's answer has no trace");
	json_decref(o);
}

/* ---- wait ---- */

static void download(struct fetch_process *p);

static void take_trace(struct fetch_process *p, const json_t *t)
{
	const char *state = json_string_value(json_object_get(t, "state")),
		   *error = json_string_value(json_object_get(t, "error"));
	char text[HTTP_WHY - 32];

	if (!state || json_integer_value(json_object_get(t, "pid")) != p->pid)
		return;
	if (p->host->f->o->host && !json_is_true(json_object_get(t, "host"))) {
		/* A server that does not know a member ignores it. */
		drop_trace(p);
		fetch__miss(p, "the server is too old for --host-memory");
	} else if (!strcmp(state, "done")) {
		p->state = FETCH_CAPTURED;
		download(p);
	} else if (!strcmp(state, "failed")) {
		error = error ? error : "its capture failed";
		fetch__miss(p, "%s", text__clean(text, sizeof(text), error, strlen(error)));
	}
}

static void on_list(void *ctx, const struct http_answer *a)
{
	struct fetch_host *h = ctx;
	json_t *doc = a->status == 200 ? fetch__parse(a) : NULL, *t;
	const json_t *list = json_object_get(doc, "traces");

	h->polling = false;
	for (size_t i = 0; i < h->n; i++) {
		struct fetch_process *p = &h->processes[i];
		size_t k;
		bool there = false;

		if (p->state != FETCH_STARTED || !*p->trace)
			continue;
		json_array_foreach(list, k, t)
		{
			const char *id = json_string_value(json_object_get(t, "trace_id"));

			if (there || !id || strcmp(id, p->trace) != 0)
				continue;
			there = true;
			take_trace(p, t);
		}
		/* A server that has just started may not have read its traces yet, and a list may
		 * be older than the trace. */
		p->absent = there || p->known >= h->looked ? 0 : p->absent + 1;
		if (a->status != 200)
			fetch__miss(p, "%s", a->why);
		else if (p->absent > ABSENT)
			fetch__miss(p, "its host has lost the recording, such as by a restart");
	}
	json_decref(doc);
}

/* ---- download ---- */

static void on_recording(void *ctx, const struct http_answer *a)
{
	struct fetch_process *p = ctx;

	if (a->status != 200) {
		fetch__miss(p, "%s", a->why);
		return;
	}
	p->entry.bytes = a->size;
	p->state = FETCH_ARRIVED;
	p->host->f->arrived++;
}

/* Ends the wait for a recording that was read. */
static void checked(struct fetch_process *p, bool good)
{
	struct fetch *f = p->host->f;
	int err;

	if (!good) {
		fetch__miss(p, "%s", p->why);
		return;
	}
	err = outfile__commit(p->file);
	p->file = NULL;
	if (err) {
		fetch__miss(p, "cannot write it: %s", outfile__why(err));
		return;
	}
	p->state = FETCH_KEPT;
	drop_trace(p);
	progress__at(&f->progress, fetch__count(f, FETCH_KEPT), fetch__count(f, FETCH_KEPT));
}

static void download(struct fetch_process *p)
{
	struct fetch *f = p->host->f;
	char *path = folder__new_path(f->folder, p->stem, ".mtr"), url[512];
	int err = path ? outfile__create(path, OUTFILE_RENAME, false, &p->file) : -ENOMEM;

	if (err) {
		fetch__miss(p, "cannot write it: %s", outfile__why(err));
		free(path);
		return;
	}
	snprintf(p->entry.file, sizeof(p->entry.file), "%s", strrchr(path, '/') + 1);
	free(path);
	snprintf(url, sizeof(url), "%s/api/trace/%s/recording", p->host->is->url, p->trace);
	f->no_memory |= http__call(f->http, &(struct http_call){ .method = "GET",
								 .url = url,
								 .most = f->o->max_size,
								 .fd = outfile__fd(p->file),
								 .until = f->until,
								 .of_host = &p->host->busy,
								 .done = on_recording,
								 .ctx = p });
}

/* ---- check: in threads, since a recording that was made to take long must not hold up the other
 * hosts ---- */

static void *run_check(void *arg)
{
	struct fetch_check *c = arg;

	c->good = check_recording(c->p);
	atomic_store(&c->done, true);
	http__wake(c->p->host->f->http);
	return NULL;
}

/* One recording of a host at a time, so that one host does not have all threads. */
static bool is_checked(const struct fetch *f, const struct fetch_host *h)
{
	for (size_t i = 0; i < FETCH_CHECKS; i++)
		if (f->checks[i].p && f->checks[i].p->host == h)
			return true;
	return false;
}

static struct fetch_process *next_arrived(struct fetch *f)
{
	for (size_t i = 0; i < f->n && f->arrived; i++) {
		struct fetch_host *h = &f->hosts[i];

		for (size_t k = 0; k < h->n && !is_checked(f, h); k++)
			if (h->processes[k].state == FETCH_ARRIVED)
				return &h->processes[k];
	}
	return NULL;
}

static void start_check(struct fetch *f, struct fetch_check *c)
{
	c->p = next_arrived(f);
	if (!c->p)
		return;
	atomic_store(&c->done, false);
	if (!pthread_create(&c->thread, NULL, run_check, c))
		return;
	f->arrived--;
	snprintf(c->p->why, sizeof(c->p->why), "no thread to read it");
	checked(c->p, false);
	c->p = NULL;
}

static void end_check(struct fetch *f, struct fetch_check *c)
{
	struct fetch_process *p = c->p;

	pthread_join(c->thread, NULL);
	c->p = NULL;
	f->arrived--;
	checked(p, c->good);
}

/* Takes results, and starts with the recordings that have arrived. Returns whether more is to do. */
static bool turn_checks(struct fetch *f)
{
	if (f->arrived)
		room__check(); /* finds the bound, which threads then only read */
	for (size_t i = 0; i < FETCH_CHECKS; i++) {
		struct fetch_check *c = &f->checks[i];

		if (c->p && atomic_load(&c->done))
			end_check(f, c);
		if (!c->p && f->arrived)
			start_check(f, c);
	}
	return f->arrived;
}

/* Ends all threads; their recordings count as not read. */
static void stop_checks(struct fetch *f)
{
	atomic_store(&f->stop, true);
	for (size_t i = 0; i < FETCH_CHECKS; i++)
		if (f->checks[i].p)
			end_check(f, &f->checks[i]);
}

/* ---- all ---- */

/* Whether some process of the host is still captured. */
static bool waits(const struct fetch_host *h)
{
	for (size_t i = 0; i < h->n; i++)
		if (h->processes[i].state == FETCH_STARTED && *h->processes[i].trace)
			return true;
	return false;
}

static void give_up(struct fetch_host *h)
{
	for (size_t i = 0; i < h->n; i++)
		if (h->processes[i].state == FETCH_STARTED)
			fetch__miss(&h->processes[i], "its capture has not ended in time");
}

/* Asks for the traces of hosts whose captures should have ended. */
static int tick(void *ctx)
{
	struct fetch *f = ctx;
	uint64_t now = clock__monotonic(),
		 first = f->begin_monotonic + (f->o->steps ? 0 : f->o->duration);
	bool more = false;

	if (fetch__interrupted(f))
		return -1;
	for (size_t i = 0; i < f->n; i++) {
		struct fetch_host *h = &f->hosts[i];

		if (!waits(h))
			continue;
		if (now >= f->until) {
			give_up(h);
			continue;
		}
		more = true;
		if (h->polling || now < first || now < h->looked + POLL_EVERY)
			continue;
		h->looked = now;
		h->polling = fetch__call(h, "GET", "/api/trace/list", NULL, 0, on_list, h);
	}
	more |= turn_checks(f);
	index_soon(f);
	return f->no_memory ? -1 : more;
}

/* Frees hosts of captures whose recordings will not come. */
static void drop_missing(struct fetch *f)
{
	f->until = clock__monotonic() + 2 * FETCH_SECOND;
	for (size_t i = 0; i < f->n; i++)
		for (size_t k = 0; k < f->hosts[i].n; k++) {
			struct fetch_process *p = &f->hosts[i].processes[k];

			if (p->state != FETCH_KEPT && *p->trace)
				drop_trace(p);
		}
	http__run(f->http, NULL, NULL);
}

void fetch_take__all(struct fetch *f)
{
	for (size_t i = 0; i < f->n; i++) {
		struct fetch_host *h = &f->hosts[i];
		double offset = h->error == UINT64_MAX ? 0 : (double)h->offset / 1e9;

		for (size_t k = 0; k < h->n; k++) {
			h->processes[k].start_at = round(((double)f->begin / 1e9 + offset) * 1e3) /
						   1e3;
			start(&h->processes[k]);
		}
	}
	http__run(f->http, tick, f);
	stop_checks(f);
	for (size_t i = 0; i < f->n; i++)
		for (size_t k = 0; k < f->hosts[i].n; k++)
			if (f->hosts[i].processes[k].state < FETCH_KEPT)
				fetch__miss(&f->hosts[i].processes[k], "%s",
					    f->interrupted ? "interrupted" : "out of memory");
	drop_missing(f);
}
