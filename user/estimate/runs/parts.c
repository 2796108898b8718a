/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/runs/parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct part_words part_words[PART_NR] = {
	[PART_WEIGHTS] = { "weights", "parameters and buffers" },
	[PART_GRADIENTS] = { "gradients", "gradients" },
	[PART_OPTIMIZER] = { "optimizer_state", "optimizer state" },
	[PART_ACTIVATIONS] = { "activations", "activations" },
	[PART_INPUTS] = { "inputs", "inputs" },
	[PART_TEMPORARY] = { "temporary", "temporary" },
	[PART_OTHER] = { "other", "no role found" },
	[PART_CACHED] = { "cached", "cached" },
	[PART_OUTSIDE] = { "outside", "allocated outside PyTorch's allocator" },
	[PART_CONTEXT] = { "context", "CUDA context" },
};

/* The part that blocks of this category belong to. NULL is fine. */
static enum part part_of(const char *category)
{
	static const struct {
		enum category of;
		enum part part;
	} all[] = {
		{ CATEGORY_PARAMETER, PART_WEIGHTS },
		{ CATEGORY_BUFFER, PART_WEIGHTS },
		{ CATEGORY_GRADIENT, PART_GRADIENTS },
		{ CATEGORY_OPTIMIZER_STATE, PART_OPTIMIZER },
		{ CATEGORY_ACTIVATION, PART_ACTIVATIONS },
		{ CATEGORY_INPUT, PART_INPUTS },
		{ CATEGORY_TEMPORARY, PART_TEMPORARY },
	};

	for (size_t i = 0; category && i < sizeof(all) / sizeof(*all); i++)
		if (!strcmp(category, category__name(all[i].of)))
			return all[i].part;
	return PART_OTHER;
}

/* Sets *bytes to the memory that other code than the allocator had at the peak; unchanged if that
 * is not known. Returns 0 or -ENOMEM. */
static int outside_bytes(const struct model *m, size_t device, uint64_t *bytes)
{
	struct model_segments s;
	int err = model__segments(m, device, ROWS_AT_MARK, false, &s);

	if (err)
		return err == -ENOMEM ? err : 0;
	*bytes = s.others_bytes;
	model__free_segments(&s);
	return 0;
}

int estimate_parts(const struct model *m, size_t device, uint64_t context,
		   struct estimate_parts *ret)
{
	const struct row_opts opts = { .by = BY_CATEGORY, .when = ROWS_AT_MARK };
	struct estimate_parts p = { 0 };
	struct model_device d;
	struct row *rows;
	uint64_t sum = 0;
	size_t n;
	int err;

	model__device(m, device, &d);
	err = model__rows(m, device, &opts, &rows, &n);
	if (err && err != -ENOENT)
		return err;
	for (size_t i = 0; !err && i < n; i++) {
		p.bytes[part_of(rows[i].category)] += rows[i].bytes;
		sum += rows[i].bytes;
	}
	if (!err)
		free(rows);
	/* Lost events can hide blocks; their bytes count as other. */
	p.allocated = d.peak_allocated;
	if (sum < p.allocated)
		p.bytes[PART_OTHER] += p.allocated - sum;
	else
		p.allocated = sum;
	p.reserved_known = d.has_totals;
	p.reserved = d.has_totals && d.peak_reserved > p.allocated ? d.peak_reserved : p.allocated;
	p.bytes[PART_CACHED] = p.reserved - p.allocated;
	/* Without totals, each block is itself a request to CUDA. */
	err = d.has_totals ? outside_bytes(m, device, &p.bytes[PART_OUTSIDE]) : 0;
	p.bytes[PART_CONTEXT] = context;
	p.needs = p.reserved + p.bytes[PART_OUTSIDE] + context;
	if (!err)
		*ret = p;
	return err;
}

enum verdict verdict__of(bool whole, uint64_t ooms)
{
	if (whole)
		return VERDICT_FITS;
	return ooms ? VERDICT_DOES_NOT_FIT : VERDICT_UNKNOWN;
}

int64_t estimate_parts__left(uint64_t vram, const struct estimate_parts *p)
{
	return (int64_t)granule__down(vram) - (int64_t)p->needs;
}
