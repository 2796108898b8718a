/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* PyTorch's caching allocator behind C functions. None of them throws. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ALLOCATOR_WHY 512

struct allocator {
	void *object;
	void **table;		 /* virtual functions of `object` */
	char why[ALLOCATOR_WHY]; /* message of the last exception */
};

/* Indexes in the table of virtual functions, found by estimate/replay/trust.c. */
struct allocator_slots {
	unsigned raw_alloc, raw_delete, init, empty_cache, set_fraction;
};

enum allocator_outcome { ALLOCATOR_OK, ALLOCATOR_OOM, ALLOCATOR_FAILED };

/* Loads the library and initializes the allocator for one device. False: see a->why. */
bool allocator__open(struct allocator *a, const char *lib, const struct allocator_slots *slots);
enum allocator_outcome allocator__alloc(struct allocator *a, size_t size, void *stream, void **ret);
bool allocator__free(struct allocator *a, void *ptr);
bool allocator__empty(struct allocator *a);
bool allocator__fraction(struct allocator *a, double fraction);

/* The allocator's totals, from its reports to profilers after each change. Bytes. */
struct allocator_totals {
	uint64_t allocated, reserved;
	uint64_t size; /* size of the last event's block */
	uint64_t ooms;
	uint64_t did_not_fit; /* size of the last failed request, rounded as its block */
};
extern struct allocator_totals allocator_totals;

#ifdef __cplusplus
}
#endif
