/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The values of units and devices on each track. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "model/heap/device.h"
#include "model/heap/growth_internal.h"
#include "model/heap/state.h"

#define CELLS_MAX (UINT64_C(1) << 24) /* values of all units together: 128 MiB */
#define LEAST 32		      /* values kept of each unit, however many units there are */

void growth_values__begin(struct growth_watch *w, struct growth_unit *u)
{
	struct growth_series *s = &u->s[TRACK_INSIDE];

	u->round = w->inside.round;
	s->n = 0;
	s->settled = s->settled_allocations = 0;
	memset(u->gone[TRACK_INSIDE], 0, sizeof(u->gone[TRACK_INSIDE]));
	memset(&u->late[TRACK_INSIDE], 0, sizeof(u->late[TRACK_INSIDE]));
}

int growth_values__fill_in(struct growth_watch *w, struct growth_unit *u, unsigned track)
{
	struct growth_series *s = &u->s[track];
	uint32_t n = w->track[track].n, cap;
	uint64_t *v;

	if (!s->v && !u->live) {
		s->n = n;
		return 0;
	}
	if (n > s->cap) {
		for (cap = s->cap ? s->cap : LEAST; cap < n; cap *= 2)
			;
		v = realloc(s->v, cap * sizeof(*v));
		if (!v)
			return -ENOMEM;
		if (!s->v)
			memset(v, 0, s->n * sizeof(*v));
		w->cells += cap - s->cap;
		s->v = v;
		s->cap = cap;
	}
	while (s->n < n)
		s->v[s->n++] = u->live;
	return 0;
}

int growth_values__thin(struct growth_watch *w, unsigned track)
{
	struct growth_track *t = &w->track[track];
	int err = 0;

	for (uint32_t i = 0; !err && i < w->n; i++) {
		struct growth_series *s = &w->units[i].s[track];

		err = growth_values__fill(w, &w->units[i], track);
		if (err)
			return err;
		s->n = t->n / 2;
		for (uint32_t k = 0; s->v && k < s->n; k++)
			s->v[k] = s->v[2 * k + 1];
	}
	for (uint32_t d = 0; d < w->nsums; d++)
		for (int i = 0; w->sums[d] && i < GROWTH_SUMS; i++)
			for (uint32_t k = 0; k < t->n / 2; k++)
				w->sums[d]->v[track][i][k] = w->sums[d]->v[track][i][2 * k + 1];
	for (uint32_t k = 0; track == TRACK_STEPS && k < t->n / 2; k++)
		w->per.times[k] = w->per.times[2 * k + 1];
	t->n /= 2;
	t->stride *= 2;
	return 0;
}

/* Halves the number of values kept of each unit, because there are too many units. */
static int halve_values(struct growth_watch *w)
{
	int err = 0;

	w->max /= 2;
	for (unsigned t = 0; !err && t < TRACK_NR; t++)
		while (!err && w->track[t].n > w->max)
			err = growth_values__thin(w, t);
	for (uint32_t i = 0; !err && i < w->n; i++)
		for (int t = 0; t < TRACK_NR; t++) {
			struct growth_series *s = &w->units[i].s[t];
			uint64_t *v = s->cap > w->max ? realloc(s->v, w->max * sizeof(*v)) : NULL;

			if (!v)
				continue;
			w->cells -= s->cap - w->max;
			s->v = v;
			s->cap = w->max;
		}
	return err;
}

static int note_sums(struct model *m, unsigned track, uint32_t at)
{
	struct growth_watch *w = m->growth;
	int err = array__grow_zero(&w->sums, &w->nsums, m->ndevs, sizeof(*w->sums));

	for (uint32_t d = 0; !err && d < m->ndevs; d++) {
		const struct dev *dev = m->devs[d];

		if (!w->sums[d])
			w->sums[d] = calloc(1, sizeof(*w->sums[d]));
		if (!w->sums[d])
			return -ENOMEM;
		w->sums[d]->v[track][SUM_ALLOCATED][at] = dev->pub.allocated - dev->late;
		w->sums[d]->v[track][SUM_RESERVED][at] = dev->pub.reserved;
		w->sums[d]->v[track][SUM_TAKEN][at] = dev->extents.sums[SUM_OTHERS];
	}
	return err;
}

int growth_values__add(struct model *m, unsigned track)
{
	struct growth_watch *w = m->growth;
	struct growth_track *t = &w->track[track];
	int err = 0;

	if (t->n == w->max)
		err = growth_values__thin(w, track);
	if (!err && w->cells > CELLS_MAX && w->max > LEAST)
		err = halve_values(w);
	if (err || t->passed % t->stride)
		return err;
	if (track == TRACK_STEPS)
		w->per.times[t->n] = w->now;
	return note_sums(m, track, t->n++);
}

void growth_values__clear(struct growth_watch *w, unsigned track)
{
	for (uint32_t i = 0; i < w->n; i++) {
		struct growth_series *s = &w->units[i].s[track];

		free(s->v);
		w->cells -= s->cap;
		*s = (struct growth_series){ 0 };
		memset(w->units[i].gone[track], 0, sizeof(w->units[i].gone[track]));
		memset(&w->units[i].late[track], 0, sizeof(w->units[i].late[track]));
		if (track == TRACK_STEPS)
			w->units[i].tops = (struct growth_tops){ .top = w->units[i].live };
	}
	w->track[track] = (struct growth_track){ .stride = 1 };
}

static const uint64_t zeros[TREND_MAX];

const uint64_t *growth_values__of(const struct growth_unit *u, unsigned track)
{
	return u->s[track].v ? u->s[track].v : zeros;
}

const uint64_t *growth_values__of_device(const struct growth_watch *w, uint32_t dev_nr,
					 unsigned track, unsigned sum)
{
	return dev_nr < w->nsums && w->sums[dev_nr] ? w->sums[dev_nr]->v[track][sum] : zeros;
}
