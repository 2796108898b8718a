/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Arrays that grow, and the order of their elements. */
#include <stddef.h>
#include <stdint.h>

/* Grows the array at *(T **)array until it has room for n elements of size bytes. *cap is its
 * capacity in elements, which at least doubles. Returns 0, or -ENOMEM with nothing changed. */
int array__grow(void *array, size_t *cap, size_t n, size_t size);
/* Like array__grow(). New elements are zero. Fails above UINT32_MAX elements, because callers
 * number the elements with 32 bits. */
int array__grow_zero(void *array, size_t *cap, size_t n, size_t size);

/* Compares two uint64_t, for qsort() and bsearch(). */
int array__compare_u64(const void *a, const void *b);

/* Defines a static function that orders structs by one member, for qsort() and bsearch(). */
#define ARRAY_COMPARE(name, type, member)                                                          \
	static int name(const void *a, const void *b)                                              \
	{                                                                                          \
		const type *x = a, *y = b;                                                         \
                                                                                                   \
		return x->member < y->member ? -1 : x->member > y->member;                         \
	}

/* Defines a static function that searches n structs, which are in the order of one member. It
 * returns how many have a member of at most key, which is also the index of the first larger
 * one. */
#define ARRAY_UP_TO(name, type, member)                                                            \
	static inline size_t name(const type *v, size_t n, uint64_t key)                           \
	{                                                                                          \
		size_t lo = 0, hi = n;                                                             \
                                                                                                   \
		while (lo < hi) {                                                                  \
			size_t mid = lo + (hi - lo) / 2;                                           \
                                                                                                   \
			if (v[mid].member <= key)                                                  \
				lo = mid + 1;                                                      \
			else                                                                       \
				hi = mid;                                                          \
		}                                                                                  \
		return lo;                                                                         \
	}
