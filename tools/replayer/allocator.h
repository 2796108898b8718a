/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* PyTorch's allocator, as it is called. It throws; nothing here does. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ALLOCATOR_WHY 512

struct allocator {
	void *object;
	void **table;		 /* of its virtual functions */
	char why[ALLOCATOR_WHY]; /* what it threw last */
};

/* Places of functions in the table, as replay/abi.c has found them. */
struct allocator_slots {
	unsigned raw_alloc, raw_delete, init, empty_cache, set_fraction;
};

enum allocator_outcome { ALLOCATOR_OK, ALLOCATOR_OOM, ALLOCATOR_FAILED };

/* Loads the library and makes the allocator ready for one device. False: why. */
bool allocator__open(struct allocator *a, const char *lib, const struct allocator_slots *slots);
enum allocator_outcome allocator__alloc(struct allocator *a, size_t size, void *stream, void **ret);
bool allocator__free(struct allocator *a, void *ptr);
bool allocator__empty(struct allocator *a);
bool allocator__fraction(struct allocator *a, double fraction);

/* What it says of itself, after each call that changes anything (it tells profilers). */
struct allocator_totals {
	uint64_t allocated, reserved;
	uint64_t size; /* of the block of the last event */
	uint64_t told; /* events so far */
	uint64_t ooms;
	uint64_t did_not_fit; /* bytes, of the last of these: rounded as the block would have been */
};
extern struct allocator_totals allocator_totals;

#ifdef __cplusplus
}
#endif
