/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_ARRAY_H
#define MT_LIB_ARRAY_H
/* Arrays that grow. */
#include <stddef.h>

/*
 * Makes room for n elements of size bytes in *(T **)array, which has room for *cap; at least
 * doubles, so that adding one by one is cheap. 0, or -ENOMEM, and then all is as it was.
 */
int array__grow(void *array, size_t *cap, size_t n, size_t size);

#endif
