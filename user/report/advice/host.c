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
	const struct host_sheet *sheet; /* reading with the highest RSS */
	uint64_t rss;			/* RSS in that reading, bytes */
};

/* Adds an entry, and takes over text, basis and costs, which are allocated. saves: bytes of RSS. */
static int add_advice(const struct remedies *r, enum advice_kind kind, uint64_t saves, char *text,
		      char *basis, char *costs)
{
	struct advice entry = { .kind = kind,
				.figure = ADVICE_UP_TO,
				.of_host = true,
				.saves = saves,
				.after = r->rss - saves,
				.text = text,
				.where = advice__format("%s", ""),
				.basis = basis,
				.costs = costs };

	return advising__add(r->a, &entry);
}

/* Returns bytes, a possible saving in a part of host memory, if that is worth a mention and the
 * reading has both figures of the part; otherwise 0. */
static uint64_t worth_saving(const struct remedies *r, unsigned part, uint64_t bytes)
{
	const struct host_figure *f = &r->sheet->part[part];

	if (!f->known || !f->has_second || bytes > r->rss || bytes < LEAST_BYTES ||
	    bytes / ADVICE_LEAST_PERCENT < r->rss / 100)
		return 0;
	return bytes;
}

static int advise_malloc_free(const struct remedies *r)
{
	uint64_t saves = worth_saving(r, HOST_MALLOC, r->sheet->part[HOST_MALLOC].second);
	char bytes[24], free_bytes[24];

	/* A dry run's heap differs from the job's: it computes nothing, and other libraries
	 * replace CUDA's. */
	if (!saves || facts__get(r->a->f, "dry_run"))
		return 0;
	return add_advice(
		r, ADVICE_MALLOC_FREE, saves,
		advice__format("return free memory of malloc: MALLOC_ARENA_MAX=2 in the "
			       "environment, or jemalloc (LD_PRELOAD), or "
			       "ctypes.CDLL(None).malloc_trim(0) at quiet moments"),
		advice__format("malloc's tables: %s resident, of it %s in free chunks; chunks "
			       "smaller than a page cannot be returned",
			       text__bytes(bytes, 24, r->sheet->part[HOST_MALLOC].bytes),
			       text__bytes(free_bytes, 24, saves)),
		advice__format("fewer arenas make threads wait for each other"));
}

static int advise_pinned_cached(const struct remedies *r)
{
	uint64_t saves = worth_saving(r, HOST_PINNED, r->sheet->part[HOST_PINNED].second);
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
			       text__bytes(bytes, 24, r->sheet->part[HOST_PINNED].bytes),
			       text__bytes(cached, 24, saves)),
		advice__format("pinning memory again takes time"));
}

static int advise_pinned_rounding(const struct remedies *r)
{
	const struct host_figure *part = r->sheet->part, *pinned = &part[HOST_PINNED];
	uint64_t in_use = pinned->bytes - (pinned->second < pinned->bytes ? pinned->second : 0),
		 saves = part[HOST_PINNED_ROUNDING].bytes;
	char asked[24], rounding[24];

	/* The saving is at most what the blocks in use have resident. */
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
	r.sheet = &h->highest.sheet;
	r.rss = r.sheet->part[HOST_TOTAL].bytes;
	err = advise_malloc_free(&r);
	if (!err)
		err = advise_pinned_cached(&r);
	return err ? err : advise_pinned_rounding(&r);
}
