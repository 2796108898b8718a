/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "live/rows/graph.h"

#include <stdlib.h>

#define LEVELS 9     /* resolutions that are kept, finest first */
#define SHIFT 2	     /* a bucket of a level lasts 4 times as long as one of the level before */
#define BUCKETS 1024 /* buckets per level; the last level covers 194 days */

/* The newest buckets of one resolution: a ring, by number of the bucket. */
struct level {
	struct graph_column all[BUCKETS];
	uint64_t last; /* number of the newest bucket */
};

struct graph {
	bool begun;
	uint64_t first, time; /* first: number of the first bucket; time: last change, in ns */
	uint64_t allocated, reserved; /* values since `time` */
	struct graph_column now;      /* current bucket of the finest level */
	uint64_t number;	      /* number of the current bucket */
	struct level levels[LEVELS];
};

struct graph *graph__new(void)
{
	return calloc(1, sizeof(struct graph));
}

void graph__free(struct graph *g)
{
	free(g);
}

/* Widens *to, so that it covers c. */
static void merge(struct graph_column *to, const struct graph_column *c)
{
	if (!c->known)
		return;
	if (!to->known) {
		*to = *c;
		return;
	}
	to->least = c->least < to->least ? c->least : to->least;
	to->most = c->most > to->most ? c->most : to->most;
	to->reserved = c->reserved > to->reserved ? c->reserved : to->reserved;
}

/* Merges values into the bucket with this number. Buckets between the newest one and it become
 * unknown. */
static void level__push(struct level *l, uint64_t number, const struct graph_column *c)
{
	uint64_t from = l->last + 1;

	if (number > l->last) {
		if (number - l->last > BUCKETS)
			from = number - BUCKETS + 1;
		for (uint64_t n = from; n <= number; n++)
			l->all[n % BUCKETS] = (struct graph_column){ 0 };
		l->last = number;
	}
	merge(&l->all[number % BUCKETS], c);
}

/* Adds a complete bucket of the finest level to all levels. */
static void push(struct graph *g, uint64_t number, const struct graph_column *c)
{
	for (unsigned i = 0; i < LEVELS; i++)
		level__push(&g->levels[i], number >> (i * SHIFT), c);
}

/* A bucket in which the values of now have not changed. */
static struct graph_column current_values(const struct graph *g)
{
	return (struct graph_column){
		.known = true, .least = g->allocated, .most = g->allocated, .reserved = g->reserved
	};
}

/* Makes the bucket of `time`, in ns, the current one. Buckets in between get the values of now. */
static void advance_to(struct graph *g, uint64_t time)
{
	uint64_t number = time / GRAPH_STEP, n;
	struct graph_column same = current_values(g);

	if (!g->begun || number <= g->number)
		return;
	push(g, g->number, &g->now);
	/* After a long pause, fill only the buckets that each level keeps: far from the end, push
	 * once for each bucket of a coarse level. */
	for (n = g->number + 1; n < number;) {
		uint64_t left = number - n, step = 1; /* in buckets of the finest level */

		for (unsigned i = 0; i + 1 < LEVELS && left > (uint64_t)BUCKETS << (i * SHIFT); i++)
			step = UINT64_C(1) << ((i + 1) * SHIFT);
		push(g, n, &same);
		n += step < left ? step : 1;
	}
	g->number = number;
	g->now = same;
}

void graph__add(struct graph *g, uint64_t time, uint64_t allocated, uint64_t reserved)
{
	struct graph_column c = {
		.known = true, .least = allocated, .most = allocated, .reserved = reserved
	};

	if (time < g->time)
		time = g->time;
	if (!g->begun) {
		g->begun = true;
		g->first = g->number = time / GRAPH_STEP;
		for (unsigned i = 0; i < LEVELS; i++)
			g->levels[i].last = g->number >> (i * SHIFT);
	}
	if (time / GRAPH_STEP != g->number)
		advance_to(g, time);
	merge(&g->now, &c);
	g->time = time;
	g->allocated = allocated;
	g->reserved = reserved;
}

void graph__peak(struct graph *g, uint64_t allocated)
{
	if (g->now.known && allocated > g->now.most)
		g->now.most = allocated;
}

bool graph__extend(struct graph *g, uint64_t now)
{
	if (g->begun && now > g->time) {
		advance_to(g, now);
		g->time = now;
	}
	return g->begun;
}

/* The values of the finest-level buckets [from, to), read from `level`, whose buckets may be wider.
 * Not known: they are older than what the level keeps. */
static struct graph_column read_range(const struct graph *g, unsigned level, uint64_t from,
				      uint64_t to)
{
	const struct level *l = &g->levels[level];
	struct graph_column c = { 0 };
	uint64_t n = from >> (level * SHIFT), end = (to - 1) >> (level * SHIFT);

	if (g->number >= from && g->number < to)
		merge(&c, &g->now);
	if (l->last >= BUCKETS && n < l->last - BUCKETS + 1)
		n = l->last - BUCKETS + 1;
	for (; n <= end && n <= l->last; n++)
		merge(&c, &l->all[n % BUCKETS]);
	return c;
}

/* Number of the finest level's bucket that contains now, or the current bucket if that is later. */
static uint64_t newest_of(const struct graph *g, uint64_t now)
{
	return now / GRAPH_STEP < g->number ? g->number : now / GRAPH_STEP;
}

uint64_t graph__read(const struct graph *g, uint64_t now, uint64_t span, struct graph_column *ret,
		     size_t columns)
{
	/* In buckets of the finest level. width: length of a column; step: length of one bucket of
	 * the chosen level. */
	uint64_t width, step;
	uint64_t newest = newest_of(g, now);
	uint64_t end; /* number of the newest column + 1 */
	unsigned level = 0;

	for (size_t i = 0; i < columns; i++)
		ret[i] = (struct graph_column){ 0 };
	if (!columns || !g->begun)
		return GRAPH_STEP;
	if (!span)
		span = (newest - g->first + 1) * GRAPH_STEP;
	width = (span / GRAPH_STEP + columns - 1) / columns;
	width = width ? width : 1;
	/* Choose the finest level that reaches back far enough, and round the width up to its
	 * step. */
	while (level + 1 < LEVELS && (width * columns) >> (level * SHIFT) > BUCKETS - 1)
		level++;
	step = UINT64_C(1) << (level * SHIFT);
	width = (width + step - 1) / step * step;

	end = newest / width + 1;
	for (size_t i = 0; i < columns; i++) {
		uint64_t back = columns - i, from;

		if (end < back)
			continue;
		from = (end - back) * width;
		if (from + width > g->first)
			ret[i] = read_range(g, level, from, from + width);
	}
	return width * GRAPH_STEP;
}

/* Columns end at multiples of their width, so that they do not change while time goes on. */
int graph__column(const struct graph *g, uint64_t now, uint64_t width, size_t columns,
		  uint64_t time)
{
	uint64_t last = newest_of(g, now) / (width / GRAPH_STEP), number = time / width;

	return number <= last && last - number < columns ? (int)(columns - 1 - (last - number))
							 : -1;
}
