/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Sums of blocks by unit (growth_internal.h) and name. */
#include <stddef.h>
#include <stdint.h>

struct map64;

struct growth_named {
	uint32_t unit, name; /* index of the unit; number of the text in the dict */
	uint64_t bytes, count;
};

/* Zeroed: empty. */
struct growth_names {
	struct growth_named *all; /* owned */
	uint32_t n;
	size_t cap;	  /* private, as the map of indexes */
	struct map64 *at;
};

/* Adds blocks. 0 or -ENOMEM. */
int growth_names__add(struct growth_names *s, const struct growth_named *blocks);
/* Orders them by unit, then by bytes, largest first. Nothing can be added afterwards. */
void growth_names__sort(struct growth_names *s);
/* Frees its contents and makes it empty. */
void growth_names__free(struct growth_names *s);
