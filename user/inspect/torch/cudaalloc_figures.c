/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The allocator's own statistics, without blocks, for frequent reading. */
#include <errno.h>
#include <string.h>

#include "inspect/proc.h"
#include "inspect/torch/cudaalloc_internal.h"

/*
 * DeviceStats: nine arrays, then num_alloc_retries, num_ooms and two single Stats
 * (oversize_allocations, oversize_segments). The arrays are allocation, segment, active,
 * inactive_split, allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes and
 * requested_bytes. Newer versions have single Stats in between. The rest differs by version.
 */
#define ARRAYS 9
#define SINGLES 2
#define SINGLE 32u
#define COUNTS (ARRAYS * STAT_ARRAY)
#define COUNTS_LAST (COUNTS + 2 * SINGLE)
#define COUNTS_SIZE (16u + SINGLES * SINGLE)
#define STATS (COUNTS_LAST + COUNTS_SIZE)
#define COUNT_MAX (UINT64_C(1) << 40)

/* num_alloc_retries and num_ooms have no structure to check. So the arrays before and the Stats
 * after them must be plausible. */
static bool counts_like(const uint8_t *p, size_t at)
{
	struct stat_array s;

	stat_array__parse(p + at - STAT_ARRAY, &s);
	if (!stat_array__like(&s) || get64(p + at) > COUNT_MAX || get64(p + at + 8) > COUNT_MAX)
		return false;
	for (unsigned i = 0; i < SINGLES; i++) {
		const uint8_t *q = p + at + 16 + i * SINGLE;
		uint64_t current = get64(q), peak = get64(q + 8), up = get64(q + 16),
			 down = get64(q + 24);

		if (current > peak || up < down || up - down != current || peak > up)
			return false;
	}
	return true;
}

/* Finds num_alloc_retries and num_ooms after requested_bytes, or where they may be if its offset is
 * not known. 0: not found. */
static size_t find_counts(const struct cudaalloc *a, const uint8_t *p, size_t len)
{
	size_t at = COUNTS, last = COUNTS_LAST;

	if (a->requested_bytes >= 0)
		at = last = (size_t)(a->requested_bytes - a->layout.field[F_STATS]) + STAT_ARRAY;
	for (; at <= last && at + COUNTS_SIZE <= len; at += SINGLE)
		if (at >= STAT_ARRAY && counts_like(p, at))
			return at;
	return 0;
}

static void parse(const struct cudaalloc *a, const uint8_t *p, size_t len, struct cuda_figures *ret)
{
	size_t counts = find_counts(a, p, len);
	struct stat_array blocks, allocated, reserved;

	stat_array__parse(p, &blocks);
	stat_array__parse(p + 4 * STAT_ARRAY, &allocated);
	stat_array__parse(p + 5 * STAT_ARRAY, &reserved);
	*ret = (struct cuda_figures){
		.allocated = allocated.current[0],
		.peak_allocated = allocated.peak[0],
		.reserved = reserved.current[0],
		.peak_reserved = reserved.peak[0],
		.blocks = blocks.current[0],
	};
	ret->counts_known = counts;
	if (!counts)
		return;
	ret->retries = get64(p + counts);
	ret->ooms = get64(p + counts + 8);
}

/* Finds the device allocators. 0 or -errno. */
static int find(struct cudaalloc *a)
{
	uint64_t object, vector[2], addrs[MAX_DEVICES];
	size_t n;
	int err = proc__read_u64(a->proc, a->slot, &object);

	a->figures_n = 0;
	if (!err && object != a->object)
		return -ESTALE;
	if (!err)
		err = proc__read(a->proc, a->object + (uint64_t)a->layout.field[F_DEVICES], vector,
				 sizeof(vector));
	if (err)
		return err == -EFAULT ? -ESTALE : err;
	if (!pointer_like(vector[0]) || vector[1] <= vector[0] || (vector[1] - vector[0]) % 8 ||
	    vector[1] - vector[0] > sizeof(addrs))
		return -ESTALE;
	n = (vector[1] - vector[0]) / 8;
	err = proc__read(a->proc, vector[0], addrs, n * sizeof(*addrs));
	if (err)
		return err == -EFAULT ? -ESTALE : err;
	for (size_t i = 0; i < n; i++)
		if (!pointer_like(addrs[i]))
			return -ESTALE;
	memcpy(a->figures_vector, vector, sizeof(vector));
	memcpy(a->figures_at, addrs, n * sizeof(*addrs));
	a->figures_n = n;
	return 0;
}

/* Reads the statistics and checks that the devices have not moved. -EAGAIN: they moved; or
 * -errno. */
static int read_stats(struct cudaalloc *a, uint8_t stats[][STATS], size_t len, size_t shown)
{
	const int *f = a->layout.field;
	uint64_t object, vector[2], addrs[MAX_DEVICES];
	size_t n = a->figures_n, many = n * sizeof(*addrs);
	struct proc_piece pieces[MAX_DEVICES + 3] = {
		{ .addr = a->slot, .buf = &object, .len = sizeof(object) },
		{ .addr = a->object + (uint64_t)f[F_DEVICES], .buf = vector, .len = sizeof(vector) },
		{ .addr = a->figures_vector[0], .buf = addrs, .len = many },
	};
	int err;

	for (size_t i = 0; i < shown; i++)
		pieces[3 + i] = (struct proc_piece){
			.addr = a->figures_at[i] + (uint64_t)f[F_STATS], .buf = stats[i], .len = len
		};
	err = proc__readv(a->proc, pieces, 3 + shown);
	if (err)
		return err;
	for (size_t i = 0; i < 3 + shown; i++)
		if (pieces[i].err)
			return -EAGAIN;
	return object != a->object || memcmp(vector, a->figures_vector, sizeof(vector)) ||
			       memcmp(addrs, a->figures_at, many)
		       ? -EAGAIN
		       : 0;
}

int cudaalloc__figures(struct cudaalloc *a, struct cuda_figures *v, size_t max)
{
	const int *f = a->layout.field;
	uint8_t stats[MAX_DEVICES][STATS];
	size_t shown = 0, len;
	int err = -EAGAIN;

	if (!a->calibrated)
		return -EINVAL;
	/* The pools begin after the statistics. */
	len = (size_t)(f[F_LARGE] - f[F_STATS]);
	len = len < STATS ? len : STATS;
	if (len < 6 * STAT_ARRAY)
		return -ESTALE;
	for (int i = 0; i < 2 && err == -EAGAIN; i++) {
		err = a->figures_n ? 0 : find(a);
		shown = a->figures_n < max ? a->figures_n : max;
		if (!err)
			err = read_stats(a, stats, len, shown);
		if (err)
			a->figures_n = 0;
	}
	if (err)
		return err == -EAGAIN ? -ESTALE : err;
	for (size_t i = 0; i < shown; i++)
		parse(a, stats[i], len, &v[i]);
	return (int)a->figures_n;
}
