/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Tells what grows in the host memory of a process: memory in use, or memory that is free inside
 * allocators. Compares the lows of the first and of the last quarter of a time, as growth rules do:
 * memory that comes and goes is no growth.
 */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "watch/watch.h"

#define LEAST (UINT64_C(1) << 20) /* smallest growth, bytes */
#define LEAST_PART 100		  /* and the smallest, as a part of RSS: 1/100 */
#define FEW 16			  /* readings that a judgement has at least, if there are so many */
#define MINUTE 60e9		  /* ns */

/* Drops readings that are older than `keep` ns; if there are none, every second one, and sets
 * g->spacing to the interval that readings have then. */
static void make_room(struct host_growth *g, uint64_t keep)
{
	struct host_growth_reading *v = g->v;
	uint64_t end = v[g->n - 1].time;
	size_t old = 0, n = 0, step; /* old: readings that are too old; n: kept ones */

	while (end - v[old].time > keep)
		old++;
	step = old ? 1 : 2;

	for (size_t i = old; i < g->n; i += step)
		v[n++] = v[i];
	g->spacing = old ? g->spacing : (end - v[0].time) / n;
	g->n = n;
}

void host_growth__add(struct host_growth *g, uint64_t time, const struct host_use *use,
		      uint64_t keep)
{
	struct host_growth_reading latest = { time, *use };

	/* The last two are closer than all others: the latest takes the place of the last. */
	if (g->n >= 2 && g->v[g->n - 1].time - g->v[g->n - 2].time < g->spacing) {
		g->v[g->n - 1] = latest;
		return;
	}
	if (g->n == HOST_GROWTH_READINGS)
		make_room(g, keep);
	g->v[g->n++] = latest;
}

/* A figure of a reading. */
typedef uint64_t (*figure_fn)(const struct host_use *u);

static uint64_t rss_of(const struct host_use *u)
{
	return u->rss;
}

static uint64_t live_of(const struct host_use *u)
{
	return u->live;
}

static uint64_t unexplained_of(const struct host_use *u)
{
	return u->unexplained;
}

/* Memory that is free inside other allocators than malloc. */
static uint64_t other_free_of(const struct host_use *u)
{
	return u->free - (u->malloc_free < u->free ? u->malloc_free : u->free);
}

/* The reading with the lowest figure in a time, its end included. live: only readings whose memory
 * in use is known. NULL: none. */
static const struct host_growth_reading *find_low(const struct host_growth *g, uint64_t from,
						  uint64_t to, bool live, figure_fn figure)
{
	const struct host_growth_reading *low = NULL;

	for (size_t i = 0; i < g->n; i++) {
		const struct host_growth_reading *r = &g->v[i];

		if (r->time < from || r->time > to || (live && !r->use.known))
			continue;
		low = low && figure(&low->use) <= figure(&r->use) ? low : r;
	}
	return low;
}

/* The first and the last quarter of a time. They have readings. */
struct quarters {
	uint64_t from, first_end, last_begin, to;
	double minutes; /* between their first readings: growth at a steady rate has its lows there */
};

/* Sets the quarters of the readings from `from` on. False: all readings have the same time. */
static bool set_quarters(struct quarters *q, const struct host_growth *g, uint64_t from)
{
	const struct host_growth_reading *r = g->v;
	uint64_t first;

	q->from = from;
	q->to = g->v[g->n - 1].time;
	q->first_end = from + (q->to - from) / 4;
	q->last_begin = q->to - (q->to - from) / 4;
	while (r->time < from)
		r++;
	first = r->time;
	while (r->time < q->last_begin)
		r++;
	q->minutes = (double)(r->time - first) / MINUTE;
	return r->time > first;
}

/* Sets *ret to the figure's lowest value in the last quarter minus that in the first, in bytes.
 * live: only readings whose memory in use is known. False: one of the two quarters has no such
 * reading. */
static bool measure(const struct host_growth *g, const struct quarters *q, bool live,
		    figure_fn figure, int64_t *ret)
{
	const struct host_growth_reading *first, *last;

	first = find_low(g, q->from, q->first_end, live, figure);
	last = find_low(g, q->last_begin, q->to, live, figure);
	if (!first || !last)
		return false;
	*ret = (int64_t)figure(&last->use) - (int64_t)figure(&first->use);
	return true;
}

static uint64_t above_zero(int64_t bytes)
{
	return bytes > 0 ? (uint64_t)bytes : 0;
}

/* The cause with at least three quarters of the growth, of which each part is in bytes; otherwise
 * HOST_GROWS_SEVERAL. */
static enum host_grows choose_cause(uint64_t live, uint64_t unexplained, uint64_t free)
{
	uint64_t three_quarters = (live + unexplained + free) / 4 * 3;

	if (live >= three_quarters)
		return HOST_GROWS_LIVE;
	if (free >= three_quarters)
		return HOST_GROWS_FREE;
	return unexplained >= three_quarters ? HOST_GROWS_UNEXPLAINED : HOST_GROWS_SEVERAL;
}

/* Begin of the last `window` ns. Starts earlier if few readings are in it, and later if readings
 * do not reach back so far. */
static uint64_t begin_of(const struct host_growth *g, uint64_t window)
{
	uint64_t end = g->v[g->n - 1].time, from = end > window ? end - window : 0;
	uint64_t enough = g->v[g->n > FEW ? g->n - FEW : 0].time;

	from = from < enough ? from : enough;
	return from > g->v[0].time ? from : g->v[0].time;
}

void host_growth__judge(const struct host_growth *g, uint64_t window,
			struct host_growth_verdict *ret)
{
	int64_t rss, live, unexplained, other_free;
	struct quarters q;
	uint64_t from, least;
	bool known;

	*ret = (struct host_growth_verdict){ .what = HOST_GROWS_UNKNOWN };
	if (!g->n)
		return;
	ret->now = g->v[g->n - 1].use;
	from = begin_of(g, window);
	ret->time = g->v[g->n - 1].time - from;
	if (!set_quarters(&q, g, from) || !measure(g, &q, /*live=*/false, rss_of, &rss))
		return;
	ret->rate_known = true;
	ret->rss = (double)rss / q.minutes;
	known = ret->now.known && measure(g, &q, /*live=*/true, live_of, &live) &&
		measure(g, &q, /*live=*/true, unexplained_of, &unexplained) &&
		measure(g, &q, /*live=*/true, other_free_of, &other_free);
	if (!known)
		return;
	ret->live = (double)live / q.minutes;
	ret->free = (double)(rss - live) / q.minutes;
	ret->unexplained = (double)unexplained / q.minutes;
	/* More than half of the new free memory is in malloc. */
	ret->in_malloc = 2 * other_free < rss - live;
	ret->live_low = find_low(g, q.last_begin, q.to, /*live=*/true, live_of)->use.live;
	least = ret->now.rss / LEAST_PART > LEAST ? ret->now.rss / LEAST_PART : LEAST;
	ret->what = HOST_GROWS_NOTHING;
	if (rss >= (int64_t)least || live >= (int64_t)least)
		ret->what = choose_cause(above_zero(live - unexplained), above_zero(unexplained),
					 above_zero(rss - live));
}

static const char *const names[] = {
	[HOST_GROWS_UNKNOWN] = NULL,	  [HOST_GROWS_NOTHING] = "nothing",
	[HOST_GROWS_LIVE] = "live",	  [HOST_GROWS_FREE] = "free",
	[HOST_GROWS_SEVERAL] = "several", [HOST_GROWS_UNEXPLAINED] = "unexplained",
};

/* Writes "12.0 MiB/min". */
static const char *format_rate(char *buf, size_t size, double rate)
{
	char bytes[24];

	snprintf(buf, size, "%s/min",
		 text__bytes(bytes, sizeof(bytes), rate > 0 ? (uint64_t)rate : 0));
	return buf;
}

/* Writes "in use 130 MiB of 200 MiB, 8% of malloc's memory is free". */
static const char *format_use(char *buf, size_t size, const struct host_use *u)
{
	char live[24], rss[24], percent[16];

	snprintf(buf, size, "in use %s of %s, %s%% of malloc's memory is free",
		 text__bytes(live, sizeof(live), u->live), text__bytes(rss, sizeof(rss), u->rss),
		 text__percent(percent, u->malloc_free, u->malloc));
	return buf;
}

char *host_growth__say(char *buf, size_t size, const struct host_growth_verdict *v, const char *why)
{
	char rss[32], live[32], free[32], unexplained[32], use[160], bytes[24];

	if (!v->rate_known) {
		snprintf(buf, size, "too few readings to tell what grows");
		return buf;
	}
	format_rate(rss, sizeof(rss), v->rss);
	format_rate(live, sizeof(live), v->live - v->unexplained);
	format_rate(free, sizeof(free), v->free);
	format_rate(unexplained, sizeof(unexplained), v->unexplained);
	format_use(use, sizeof(use), &v->now);
	switch (v->what) {
	case HOST_GROWS_UNKNOWN:
		snprintf(buf, size,
			 "host memory grows %s; whether live or free memory grows is not known: %s",
			 rss, why);
		break;
	case HOST_GROWS_NOTHING:
		snprintf(buf, size, "host memory does not grow: %s", use);
		break;
	case HOST_GROWS_LIVE:
		if (v->rss < v->live / 4)
			snprintf(buf, size,
				 "live objects grow %s into memory that was free inside "
				 "allocators: %s",
				 live, use);
		else
			snprintf(buf, size, "host memory grows %s: live objects (%s)", rss, use);
		break;
	case HOST_GROWS_FREE:
		snprintf(buf, size, "host memory grows %s: free memory inside %s: in use stays %s)",
			 rss,
			 v->in_malloc ? "malloc (kept by malloc"
				      : "CPython's arenas and PyTorch's pinned memory (kept there",
			 text__bytes(bytes, sizeof(bytes), v->live_low));
		break;
	case HOST_GROWS_UNEXPLAINED:
		snprintf(buf, size,
			 "host memory grows %s: memory outside of malloc that no table explains",
			 rss);
		break;
	case HOST_GROWS_SEVERAL:
		snprintf(buf, size,
			 "host memory grows %s: live objects by %s, free memory inside allocators "
			 "by "
			 "%s, memory that no table explains by %s (%s)",
			 rss, live, free, unexplained, use);
		break;
	}
	return buf;
}

static void put_rate(struct json *j, const char *key, bool known, double rate)
{
	if (known)
		json__double(j, key, rate, 0);
	else
		json__null(j, key);
}

void host_growth__json(struct json *j, const struct host_growth_verdict *v)
{
	bool known = v->what != HOST_GROWS_UNKNOWN;

	json__open_object(j, "host_growth");
	json__string(j, "grows", names[v->what]);
	json__seconds(j, "seconds", v->time, /*decimals=*/3);
	json__uint(j, "rss", v->now.rss);
	json__uint_or_null(j, "live", v->now.known, v->now.live);
	json__uint_or_null(j, "free", v->now.known, v->now.free);
	json__uint_or_null(j, "malloc_free", v->now.malloc_known, v->now.malloc_free);
	put_rate(j, "rss_per_minute", v->rate_known, v->rss);
	put_rate(j, "live_per_minute", known, v->live);
	put_rate(j, "free_per_minute", known, v->free);
	json__close_object(j);
}
