/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Groups of recordings that allocate alike: the same bytes at the same lines, within limits, such
 * as the ranks of a pipeline's stage. A small group is compared with a large one that it resembles:
 * together they are a family, whose recordings should be equal. The other groups are families of
 * their own.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Two recordings are alike if the lines that differ by more than OUTLIER_PERCENT and OUTLIER_BYTES
 * (outliers.h) differ by at most this share of all their memory. */
#define RANK_GROUPS_PERCENT 2

struct rank_cell {
	uint32_t recording, line;
	uint64_t bytes, count;
};

struct rank_group {
	uint32_t first, n; /* range of its members, in the order of recordings */
	uint32_t family;   /* index of the group that it is compared with; its own: of none */
};

struct rank_groups {
	struct rank_group *all; /* by first member */
	size_t n;
	uint32_t *members; /* recordings, group by group */
	uint32_t *of;	   /* group of a recording; RANK_GROUPS_NONE: it has none */
};

#define RANK_GROUPS_NONE UINT32_MAX

/* Makes groups of n recordings. cells are sorted by line; out marks recordings without a group, and
 * out_lines lines that do not count. Returns 0 or -ENOMEM; *ret is for rank_groups__free() in both
 * cases. */
int rank_groups__make(const struct rank_cell *cells, size_t n_cells, const bool *out_lines,
		      const bool *out, size_t n, struct rank_groups *ret);
void rank_groups__free(struct rank_groups *g);
