/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Advice about host memory, from the reading with the highest RSS. */
#include "report/advice/internal.h"

#include <errno.h>

#include "base/text.h"
#include "model/words.h"
#include "record/host.h"

#define LEAST_BYTES                                                                                \
	(UINT64_C(1) << 20) /* smallest saving worth a mention, with ADVICE_LEAST_PERCENT */

struct remedies {
	struct advising *a;
	const struct host_sheet *sheet; /* reading with the highest RSS */
	uint64_t rss;			/* RSS in that reading, bytes */
};

/* Adds an entry, and takes over text, basis and costs, which are allocated. saves: bytes of RSS.
 * Returns 0 or -ENOMEM. */
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

/* Returns the saving of these bytes in a part of host memory. It is 0 if it is not worth a mention,
 * or if the reading lacks a figure of the part. */
static uint64_t worth_saving(const struct remedies *r, unsigned part, uint64_t bytes)
{
	const struct host_figure *figure = &r->sheet->part[part];

	if (!figure->known || !figure->has_second || bytes > r->rss || bytes < LEAST_BYTES ||
	    bytes / ADVICE_LEAST_PERCENT < r->rss / 100)
		return 0;
	return bytes;
}

/* Adds the verdict on the free memory that an allocator keeps: its remedies and its sentence.
 * used_again: bytes of it that the job will need again soon; if they are most of it, there is no
 * advice. Returns 0 or -ENOMEM. */
static int advise_free(const struct remedies *r, enum advice_kind kind, enum host_keeper keeper,
		       uint64_t used_again, const char *costs)
{
	struct host_verdict verdict;
	char text[HOST_VERDICT_TEXT];

	if (!host_verdict__of_keeper(r->sheet, keeper, &verdict) || used_again > verdict.kept / 2)
		return 0;
	return add_advice(r, kind, verdict.kept - used_again,
			  advice__format("%s",
					 host_verdict__remedies(&verdict, text, sizeof(text))),
			  advice__format("%s", verdict.sentence), advice__format("%s", costs));
}

/* Returns the bytes that the last step took for tensors on the CPU, and freed before its end: they
 * are free between steps, and the next step takes them again. 0: there was no step. */
static uint64_t used_by_steps(const struct model *m)
{
	int cpu = model__find_device(m, "cpu");
	struct model_step step;

	if (cpu < 0 || !model__last_step(m, (size_t)cpu, &step))
		return 0;
	return step.peak > step.end_allocated ? step.peak - step.end_allocated : 0;
}

static int advise_malloc_free(const struct remedies *r)
{
	/* A dry run's heap differs from the job's: it computes nothing, and other libraries
	 * replace CUDA's. */
	if (facts__get(r->a->f, "dry_run"))
		return 0;
	return advise_free(r, ADVICE_MALLOC_FREE, HOST_KEEPER_MALLOC, used_by_steps(r->a->m),
			   "memory that is returned costs a page fault when it is needed again");
}

static int advise_pinned_cached(const struct remedies *r)
{
	return advise_free(r, ADVICE_PINNED_CACHED, HOST_KEEPER_PINNED, 0,
			   "pinning memory again takes time");
}

/* Advises about the bytes that PyTorch's host allocator adds to pinned blocks. Returns 0 or
 * -ENOMEM. */
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
