/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "export/formats/counters.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define WINDOW 1000000 /* window length, in ns */
#define WINDOWS 200000 /* largest number of windows; a long recording has longer windows */

enum what { ALLOCATED, RESERVED, USED, WHAT_NR };

struct point {
	uint64_t time, value;
};

struct counter {
	bool any, put;		      /* any: unwritten points exist; put: a point was written */
	uint64_t until, put_value;    /* until: end of the window; put_value: last written value */
	struct point low, high, last; /* points of the current window */
};

struct series {
	struct device device;
	char name[16];
	struct counter counters[WHAT_NR];
};

struct counters {
	uint64_t window;
	counters_put *put;
	void *ctx;
	struct series *all;
	size_t n, room, recent;
};

struct counters *counters__new(uint64_t duration, counters_put *put, void *ctx)
{
	struct counters *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->window = duration / WINDOWS > WINDOW ? duration / WINDOWS : WINDOW;
	c->put = put;
	c->ctx = ctx;
	return c;
}

void counters__free(struct counters *c)
{
	if (!c)
		return;
	free(c->all);
	free(c);
}

static void put_point(struct counters *c, struct series *s, enum what what, struct point p)
{
	static const char *const names[WHAT_NR] = { "allocated", "reserved", "in use (driver)" };
	struct counter *k = &s->counters[what];

	if (k->put && k->put_value == p.value)
		return;
	k->put = true;
	k->put_value = p.value;
	c->put(c->ctx, s->name, names[what], p.time, p.value);
}

static void put_window(struct counters *c, struct series *s, enum what what)
{
	struct counter *k = &s->counters[what];
	bool low_first = k->low.time < k->high.time;

	if (!k->any)
		return;
	put_point(c, s, what, low_first ? k->low : k->high);
	put_point(c, s, what, low_first ? k->high : k->low);
	put_point(c, s, what, k->last);
	k->any = false;
}

static void add(struct counters *c, struct series *s, enum what what, struct point p)
{
	struct counter *k = &s->counters[what];

	if (k->any && p.time >= k->until)
		put_window(c, s, what);
	if (!k->any) {
		k->any = true;
		k->until = p.time < UINT64_MAX - c->window ? p.time + c->window : UINT64_MAX;
		k->low = k->high = k->last = p;
		return;
	}
	/* Times of different threads may differ by some microseconds. Points are put in the
	 * order of events, so times must not decrease. */
	if (p.time < k->last.time)
		p.time = k->last.time;
	if (p.value < k->low.value)
		k->low = p;
	if (p.value > k->high.value)
		k->high = p;
	k->last = p;
}

static int series_of(struct counters *c, const struct model_device *d, struct series **ret)
{

	for (size_t i = 0; i < c->n; i++) {
		size_t k = (c->recent + i) % c->n;

		if (c->all[k].device.type == d->device.type &&
		    c->all[k].device.index == d->device.index) {
			c->recent = k;
			*ret = &c->all[k];
			return 0;
		}
	}
	if (array__grow(&c->all, &c->room, c->n + 1, sizeof(*c->all)))
		return -ENOMEM;
	c->all[c->n] = (struct series){ .device = d->device };
	memcpy(c->all[c->n].name, d->name, sizeof(d->name));
	*ret = &c->all[c->n++];
	return 0;
}

int counters__device(struct counters *c, const struct model_device *d, uint64_t time)
{
	struct series *s;
	int err = series_of(c, d, &s);

	if (err)
		return err;
	add(c, s, ALLOCATED, (struct point){ time, d->allocated });
	if (d->has_totals)
		add(c, s, RESERVED, (struct point){ time, d->reserved });
	return 0;
}

int counters__used(struct counters *c, const struct model_device *d, uint64_t time, uint64_t used)
{
	struct series *s;
	int err = series_of(c, d, &s);

	if (!err)
		add(c, s, USED, (struct point){ time, used });
	return err;
}

void counters__end(struct counters *c)
{
	for (size_t i = 0; i < c->n; i++)
		for (int what = 0; what < WHAT_NR; what++)
			put_window(c, &c->all[i], what);
}
