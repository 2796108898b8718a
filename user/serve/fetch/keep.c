/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reads a downloaded recording from its begin to its end before it gets a name, and describes it in
 * the folder's index. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "record/mtr.h"
#include "record/stream.h"
#include "serve/fetch/internal.h"

#define BATCH 256

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

bool fetch_keep__check(struct fetch_process *p)
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

void fetch_keep__soon(struct fetch *f)
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
	/* fetch_keep__index() meets the same error, and logs it. */
	if (e)
		folder__add_all(f->folder, e, n, NULL, 0);
	free(e);
	f->n_indexed = kept;
	f->indexed = clock__monotonic();
}

int fetch_keep__index(struct fetch *f)
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
