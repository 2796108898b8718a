/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/array.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FIRST 64

int array__grow(void *array, size_t *cap, size_t n, size_t size)
{
	size_t want = *cap ? *cap * 2 : FIRST, bytes;
	void *v;

	if (n <= *cap)
		return 0;
	want = want < n ? n : want;
	/* The caller's pointer has another type, so copy it. */
	memcpy(&v, array, sizeof(v));
	/* Not reallocarray(): libraries for glibc 2.17 are made of this file, too. */
	v = __builtin_mul_overflow(want, size, &bytes) ? NULL : realloc(v, bytes);
	if (!v)
		return -ENOMEM;
	memcpy(array, &v, sizeof(v));
	*cap = want;
	return 0;
}

int array__grow_zero(void *array, size_t *cap, size_t n, size_t size)
{
	size_t before = *cap;
	char *v;

	if (n <= before)
		return 0;
	if (n > UINT32_MAX || array__grow(array, cap, n, size))
		return -ENOMEM;
	memcpy(&v, array, sizeof(v));
	memset(v + before * size, 0, (*cap - before) * size);
	return 0;
}

int array__compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}
