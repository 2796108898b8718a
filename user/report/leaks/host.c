/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Growth of host memory that no line of the program has. */
#include "base/json.h"
#include "base/text.h"
#include "model/growth_summary.h"
#include "model/model.h"
#include "model/trend.h"
#include "report/leaks/internal.h"

#define LEAST_GROWTH (UINT64_C(16) << 20) /* least growth worth a mention, bytes */
/* Least pinned memory that was taken, in blocks and bytes, if readings are too few to show growth. */
#define LEAST_TAKEN 8
#define LEAST_TAKEN_BYTES (UINT64_C(8) << 20)

/* Judges copies of shared pages: private memory grows, and resident memory does not. If both grow,
 * the growth has lines. */
static void judge_copies(const struct model *m, const struct leaks_opts *o, struct leaks_host *h)
{
	struct host_trend own, rss;
	uint64_t own_grown, rss_grown;

	if (!model__host_trend(m, HOST_SERIES_OWN, o->min_growth, &own) ||
	    !model__host_trend(m, HOST_SERIES_RSS, o->min_growth, &rss))
		return;
	h->copied = own.per_second;
	h->from = own.first;
	h->to = own.last;
	h->copies = trend__counts(&own.trend, o->min_confidence) &&
		    rss.per_second < own.per_second / 2 && own.per_second > 0;
	own_grown = own.last > own.first ? own.last - own.first : 0;
	rss_grown = rss.last > rss.first ? rss.last - rss.first : 0;
	h->copied_before = !h->copies && own_grown >= LEAST_GROWTH && own_grown >= own.last / 4 &&
			   rss_grown < own_grown / 2;
}

/* True if tensors have more than half of the pinned memory. */
static bool tensors_have_pinned(const struct host_point *p)
{
	return p->sheet.part[HOST_PINNED_REQUESTED].bytes > p->sheet.part[HOST_PINNED].bytes / 2;
}

/* True if the program took pinned memory in all parts of the time, as CUDA calls show, and tensors
 * do not have most of it at each reading: some readings are in the middle of a step. */
static bool takes_pinned(const struct model *m, const struct model_host *readings,
			 struct model_pinned *ret)
{
	const struct host_point *last = &readings->last;
	bool tensors_have_it = tensors_have_pinned(&readings->first) && tensors_have_pinned(last) &&
			       tensors_have_pinned(&readings->highest);

	if (model__pinned(m, 0, last->time, ret))
		return false;
	for (int i = 0; i < PINNED_SPANS; i++)
		if (ret->spans[i] < ret->bytes / (4 * PINNED_SPANS))
			return false;
	return ret->count >= LEAST_TAKEN && ret->bytes >= LEAST_TAKEN_BYTES &&
	       ret->bytes >= last->sheet.part[HOST_PINNED].bytes / 4 && !tensors_have_it;
}

/* Judges PyTorch's cache of pinned memory: pinned memory grows, and half of the growth is
 * cached. */
static void judge_pinned(const struct model *m, const struct leaks_opts *o, struct leaks_host *h)
{
	const struct model_host *readings = model__host(m);
	const struct host_figure *first, *last;
	struct host_trend pinned;
	uint64_t grown;

	if (!readings || !readings->last.sheet.part[HOST_PINNED_CACHED].known)
		return;
	first = &readings->first.sheet.part[HOST_PINNED];
	last = &readings->last.sheet.part[HOST_PINNED];
	h->readings = readings->readings;
	h->pinned_first = first->bytes;
	h->pinned_all = last->bytes;
	h->cached = readings->last.sheet.part[HOST_PINNED_CACHED].bytes;
	if (model__host_trend(m, HOST_SERIES_PINNED, o->min_growth, &pinned)) {
		h->pinned_rate = pinned.per_second;
		h->pinned = trend__counts(&pinned.trend, o->min_confidence) &&
			    pinned.per_second > 0 && h->cached >= pinned.trend.grown / 2;
		return;
	}
	if (takes_pinned(m, readings, &h->taken)) {
		h->pinned = true;
		/* A reading in the middle of a change finds no pinned memory. */
		if (h->pinned_all < h->taken.bytes)
			h->pinned_all = h->taken.bytes;
		h->pinned_rate = (double)h->taken.bytes * 1e9 / (double)readings->last.time;
		return;
	}
	h->taken.count = 0;
	grown = last->bytes > first->bytes ? last->bytes - first->bytes : 0;
	h->pinned_before = first->known && grown >= LEAST_GROWTH && grown >= last->bytes / 4 &&
			   h->cached >= grown / 2;
}

void leaks_host__judge(const struct model *m, const struct leaks_opts *o, struct leaks_host *ret)
{
	*ret = (struct leaks_host){ 0 };
	judge_copies(m, o, ret);
	judge_pinned(m, o, ret);
}

void leaks_host__json(struct json *j, const struct leaks_host *h)
{
	json__bool(j, "private_grows", h->copies);
	json__bool(j, "pinned_cache_grows", h->pinned);
}

void leaks_host__say_copies(FILE *out, size_t width, const struct leaks_host *h, const char *who)
{
	char rate[40], from[24], to[24], grows[80] = "grew";

	if (h->copies)
		snprintf(grows, sizeof(grows), "grows: %s a second,",
			 growth_summary__signed(rate, sizeof(rate), h->copied));
	text__paragraph(out, width, "\n", "  ",
			"Private memory%s %s from %s to %s, but resident memory (RSS) does not. "
			"Pages that processes share after a fork are copied when one writes to "
			"them (copy on write), and Python writes to each object that it uses, to "
			"count references. Keep large data in few objects: arrays or tensors "
			"instead of lists of Python objects.",
			who, grows, text__bytes(from, sizeof(from), h->from),
			text__bytes(to, sizeof(to), h->to));
}

void leaks_host__say_pinned(FILE *out, size_t width, const struct leaks_host *h, const char *who)
{
	char rate[40], all[24], cached[24], first[24], grows[160];

	text__bytes(all, sizeof(all), h->pinned_all);
	if (h->pinned)
		snprintf(grows, sizeof(grows), "grows: %s a second",
			 growth_summary__signed(rate, sizeof(rate), h->pinned_rate));
	else
		snprintf(grows, sizeof(grows),
			 "grew from %s to %s (%u readings are too few to say whether it goes on)",
			 text__bytes(first, sizeof(first), h->pinned_first), all,
			 (unsigned)h->readings);
	text__paragraph(out, width, "\n", "  ",
			"Pinned memory%s %s; %s of %s are in PyTorch's cache. Blocks of the cache "
			"are powers of two, and are never returned by themselves. Pin buffers of "
			"few sizes and use them again; "
			"torch._C._host_emptyCache() returns the cache.",
			who, grows, text__bytes(cached, sizeof(cached), h->cached), all);
}
