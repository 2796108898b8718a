/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Threads that read the recordings that have arrived. */
#include "record/room.h"
#include "serve/fetch/internal.h"

static void *check(void *arg)
{
	struct fetch_check *c = arg;

	c->good = fetch_keep__check(c->p);
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

static struct fetch_process *next(struct fetch *f)
{
	for (size_t i = 0; i < f->n && f->arrived; i++) {
		struct fetch_host *h = &f->hosts[i];

		for (size_t k = 0; k < h->n && !is_checked(f, h); k++)
			if (h->processes[k].state == FETCH_ARRIVED)
				return &h->processes[k];
	}
	return NULL;
}

static void start(struct fetch *f, struct fetch_check *c)
{
	c->p = next(f);
	if (!c->p)
		return;
	atomic_store(&c->done, false);
	if (!pthread_create(&c->thread, NULL, check, c))
		return;
	f->arrived--;
	snprintf(c->p->why, sizeof(c->p->why), "no thread to read it");
	fetch_take__checked(c->p, false);
	c->p = NULL;
}

static void end(struct fetch *f, struct fetch_check *c)
{
	struct fetch_process *p = c->p;

	pthread_join(c->thread, NULL);
	c->p = NULL;
	f->arrived--;
	fetch_take__checked(p, c->good);
}

bool fetch_check__turn(struct fetch *f)
{
	if (f->arrived)
		room__check(); /* finds the bound, which threads then only read */
	for (size_t i = 0; i < FETCH_CHECKS; i++) {
		struct fetch_check *c = &f->checks[i];

		if (c->p && atomic_load(&c->done))
			end(f, c);
		if (!c->p && f->arrived)
			start(f, c);
	}
	return f->arrived;
}

void fetch_check__stop(struct fetch *f)
{
	atomic_store(&f->stop, true);
	for (size_t i = 0; i < FETCH_CHECKS; i++)
		if (f->checks[i].p)
			end(f, &f->checks[i]);
}
