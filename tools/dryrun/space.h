/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Ranges of addresses, handed out first fit in address order. Addresses come in as extents and are
 * never touched. Not locked. Zero-initialized but for align.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct space_range {
	uint64_t addr, size;
};

struct space_ranges {
	struct space_range *at; /* sorted by address, disjoint */
	size_t n, room;
};

struct space {
	struct space_ranges extents, used;
	uint64_t align; /* a power of two; sizes are rounded up to it, and extents are multiples of
			   it */
	uint64_t extent_bytes, used_bytes;
	uint64_t lowest; /* nothing is free below it */
};

/* 0 or -ENOMEM (host memory). An allocation never reaches over the end of an extent. */
int space__extend(struct space *s, uint64_t addr, uint64_t size);
/* 0, -ENOSPC when no extent has room, -ENOMEM (host memory), -EINVAL for a size of 0 or one that
 * cannot be rounded. */
int space__alloc(struct space *s, uint64_t size, uint64_t *addr);
/* addr: of the allocation's beginning. Returns its size, 0 when there is none. */
uint64_t space__free(struct space *s, uint64_t addr);
/* The allocation that addr is in. */
bool space__find(const struct space *s, uint64_t addr, struct space_range *range);
/* Takes out the highest extent with nothing in it, if so many bytes of extents stay. False: none. */
bool space__shrink(struct space *s, uint64_t keep, struct space_range *extent);
void space__destroy(struct space *s);
/* Index of the first range that ends above addr; n when there is none. */
size_t space_ranges__after(const struct space_ranges *r, uint64_t addr);
int space_ranges__insert(struct space_ranges *r, uint64_t addr, uint64_t size);
void space_ranges__remove(struct space_ranges *r, size_t index);
