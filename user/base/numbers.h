/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Numbers 64-bit keys in the order of adding, from 0. A million keys take 16 MiB, half of what a
 * map64 takes. A struct that is zero has no keys. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

struct numbers {
	uint64_t *keys; /* by number */
	size_t n, cap;
	uint32_t *slots;       /* number + 1; 0: free */
	size_t mask;	       /* number of slots - 1; the number is a power of two */
	struct hash_seed seed; /* a target can choose keys */
};

void numbers__fini(struct numbers *s); /* frees the contents */
/* Sets *ret to the number of the key. False: it has none, and *ret stays. */
bool numbers__get(const struct numbers *s, uint64_t key, uint32_t *ret);
/* Sets *ret to the number of the key. Returns 1: the key is new; 0: it is not; -ENOMEM. */
int numbers__add(struct numbers *s, uint64_t key, uint32_t *ret);
