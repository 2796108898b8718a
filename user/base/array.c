/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/array.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 64 /* elements */

int array__grow(void *array, size_t *cap, size_t n, size_t size)
{
	size_t want = *cap ? *cap * 2 : FIRST_CAPACITY, bytes;
	void *moved;

	if (n <= *cap)
		return 0;
	want = want < n ? n : want;
	/* The caller's pointer has another type, so copy it. */
	memcpy(&moved, array, sizeof(moved));
	/* reallocarray() would need glibc 2.26, and this file is also part of libraries for glibc
	 * 2.17. */
	moved = __builtin_mul_overflow(want, size, &bytes) ? NULL : realloc(moved, bytes);
	if (!moved)
		return -ENOMEM;
	memcpy(array, &moved, sizeof(moved));
	*cap = want;
	return 0;
}

int array__grow_zero(void *array, size_t *cap, size_t n, size_t size)
{
	size_t old_cap = *cap;
	char *bytes;

	if (n <= old_cap)
		return 0;
	if (n > UINT32_MAX || array__grow(array, cap, n, size))
		return -ENOMEM;
	memcpy(&bytes, array, sizeof(bytes));
	memset(bytes + old_cap * size, 0, (*cap - old_cap) * size);
	return 0;
}

int array__compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}
