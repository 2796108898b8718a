/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Advice about host memory, from the reading with the highest RSS. */
#include "report/advice/internal.h"

#include <errno.h>

#include "base/text.h"
#include "record/host.h"

#define LEAST_BYTES                                                                                \
	(UINT64_C(1) << 20) /* smallest saving worth a mention, with ADVICE_LEAST_PERCENT */

struct remedies {
	struct advising *a;
	const struct host_sheet *s;
	uint64_t rss;
};

/* Adds an entry unless it saves too little. text, basis, costs: allocated, taken over. */
static int add_advice(const struct remedies *r, enum advice_kind kind, uint64_t saves, char *text,
		      char *basis, char *costs)
{
	struct advice of = { .kind = kind,
			     .figure = ADVICE_UP_TO,
			     .of_host = true,
			     .saves = saves,
			     .after = r->rss - saves,
			     .text = text,
			     .where = advice__format("%s", ""),
			     .basis = basis,
			     .costs = costs };

	return advising__add(r->a, &of);
}

/* Returns bytes, what could be saved in this part, if it is worth a mention; otherwise 0. */
static uint64_t worth_saving(const struct remedies *r, unsigned part, uint64_t bytes)
{
	const struct host_figure *f = &r->s->part[part];

	if (!f->known || !f->has_second || bytes > r->rss || bytes < LEAST_BYTES ||
	    bytes / ADVICE_LEAST_PERCENT < r->rss / 100)
		return 0;
	return bytes;
}

static int free_of_malloc(const struct remedies *r)
{
	uint64_t saves = worth_saving(r, HOST_MALLOC, r->s->part[HOST_MALLOC].second);
	char bytes[24], free_bytes[24];

	/* A dry run's heap is not the job's: nothing is computed, and CUDA's libraries are others. */
	if (!saves || facts__get(r->a->f, "dry_run"))
		return 0;
	return add_advice(
		r, ADVICE_MALLOC_FREE, saves,
		advice__format("return free memory of malloc: MALLOC_ARENA_MAX=2 in the "
			       "environment, or jemalloc (LD_PRELOAD), or "
			       "ctypes.CDLL(None).malloc_trim(0) at quiet moments"),
		advice__format("malloc's tables: %s resident, of it %s in free chunks; chunks "
			       "smaller than a page cannot be returned",
			       text__bytes(bytes, 24, r->s->part[HOST_MALLOC].bytes),
			       text__bytes(free_bytes, 24, saves)),
		advice__format("fewer arenas make threads wait for each other"));
}

static int cached_pinned(const struct remedies *r)
{
	uint64_t saves = worth_saving(r, HOST_PINNED, r->s->part[HOST_PINNED].second);
	char bytes[24], cached[24];

	if (!saves)
		return 0;
	return add_advice(
		r, ADVICE_PINNED_CACHED, saves,
		advice__format("release cached pinned memory: torch._C._host_emptyCache() after "
			       "it was needed; PyTorch 2.15 and later: "
			       "pinned_max_cached_size_mb in PYTORCH_ALLOC_CONF"),
		advice__format("tables of PyTorch's host allocator: %s, of it %s in blocks that "
			       "nothing uses",
			       text__bytes(bytes, 24, r->s->part[HOST_PINNED].bytes),
			       text__bytes(cached, 24, saves)),
		advice__format("pinning memory again takes time"));
}

static int rounded_pinned(const struct remedies *r)
{
	const struct host_figure *part = r->s->part, *pinned = &part[HOST_PINNED];
	uint64_t in_use = pinned->bytes - (pinned->second < pinned->bytes ? pinned->second : 0),
		 saves = part[HOST_PINNED_ROUNDING].bytes;
	char asked[24], rounding[24];

	/* Not more than is resident. */
	saves = worth_saving(r, HOST_PINNED, saves < in_use ? saves : in_use);
	if (!saves)
		return 0;
	return add_advice(
		r, ADVICE_PINNED_ROUNDING, saves,
		advice__format("pin tensors whose size is a power of two or a little less, or "
			       "one large buffer and slices of it; PyTorch 2.15 and later: "
			       "pinned_max_round_threshold_mb in PYTORCH_ALLOC_CONF (no rounding "
			       "above it)"),
		advice__format("tables of PyTorch's host allocator: tensors have %s in pinned "
			       "blocks, and rounding to powers of two adds %s",
			       text__bytes(asked, 24, part[HOST_PINNED_REQUESTED].bytes),
			       text__bytes(rounding, 24, part[HOST_PINNED_ROUNDING].bytes)),
		advice__format("blocks of many sizes are used again less often"));
}

int advice_host(struct advising *a)
{
	const struct model_host *h = model__host(a->m);
	struct remedies r = { .a = a };
	int err;

	if (!h)
		return 0;
	r.s = &h->highest.sheet;
	r.rss = r.s->part[HOST_TOTAL].bytes;
	err = free_of_malloc(&r);
	if (!err)
		err = cached_pinned(&r);
	return err ? err : rounded_pinned(&r);
}
