/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Address ranges, allocated first fit in address order. Extents add addresses, which are never
 * accessed. Not locked. Initialize with zeros and `align`.
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
	uint64_t align; /* a power of two; unit of sizes and extents */
	uint64_t extent_bytes, used_bytes;
	uint64_t lowest; /* lower bound of free addresses */
};

/* Adds an extent. 0 or -ENOMEM (host memory). No allocation crosses the end of an extent. */
int space__extend(struct space *s, uint64_t addr, uint64_t size);
/* 0; -ENOSPC: no extent has room; -ENOMEM: host memory; -EINVAL: size is 0 or cannot be rounded. */
int space__alloc(struct space *s, uint64_t size, uint64_t *addr);
/* addr: start of an allocation. Returns its size in bytes; 0: no such allocation. */
uint64_t space__free(struct space *s, uint64_t addr);
/* Finds the allocation that contains addr. */
bool space__find(const struct space *s, uint64_t addr, struct space_range *range);
/* Removes the highest empty extent if at least `keep` bytes of extents remain. False: none. */
bool space__shrink(struct space *s, uint64_t keep, struct space_range *extent);
void space__destroy(struct space *s);
/* Index of the first range that ends above addr; n: no such range. */
size_t space_ranges__after(const struct space_ranges *r, uint64_t addr);
int space_ranges__insert(struct space_ranges *r, uint64_t addr, uint64_t size);
void space_ranges__remove(struct space_ranges *r, size_t index);
