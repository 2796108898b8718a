/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Ranges of addresses, each of a part of the ledger. */
#include <stddef.h>
#include <stdint.h>

struct span {
	uint64_t start, end; /* [start, end) */
	uint8_t part;	     /* enum host_part */
};

struct host_spans {
	struct span *v;
	size_t n, cap;
};

/* Adds a range; an empty one is ignored, and one that wraps around is cut. 0 or -ENOMEM. */
int host_spans__add(struct host_spans *s, uint64_t start, uint64_t size, uint8_t part);
/* Sorts the ranges by address and removes overlaps: the lower part keeps the bytes. 0 or
 * -ENOMEM. */
int host_spans__resolve(struct host_spans *s);
/* Index of the first range that ends after addr; s->n: none. Of resolved spans. */
size_t host_spans__after(const struct host_spans *s, uint64_t addr);
void host_spans__free(struct host_spans *s);
