/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Checks of a reading of any process's allocators, for tables with any damage. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/hostmem/internal.h"

/* Claims are in order, without common bytes, and of malloc or of this part. */
static inline void check_claims(const struct host_reading *r, unsigned part)
{
	uint64_t end = 0;

	for (size_t i = 0; i < r->claims.n; i++) {
		const struct span *s = &r->claims.v[i];

		if (s->start < end || s->end <= s->start ||
		    (s->part != HOST_MALLOC && s->part != part))
			abort();
		end = s->end;
	}
}

/* Only the allocator with this name was found, if any, and its figures are below `most` bytes. */
static inline void check_allocator(const struct host_reading *r, const char *name, uint64_t most)
{
	const struct host_allocator *a = r->ledger->allocator;

	if (r->ledger->allocators > 1 || (!r->ledger->allocators && (r->claims.n || r->second.n)))
		abort();
	if (r->ledger->allocators &&
	    (a->live > most || a->free_blocks > most || a->purgeable > most || a->retained > most ||
	     strcmp(a->name, name)))
		abort();
}
