/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Reads a large JSON file: an object that has long arrays. It reads one element of an array at a
 * time, so memory is bounded by the largest element. The file may be compressed by gzip. It is not
 * trusted.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define JSON_ITEMS_MOST (1 << 20) /* bytes of the largest element that is accepted */

/* The arrays to read, and the functions that take their elements. The functions return 0, or
 * anything else to stop the reading. */
struct json_items {
	const char *const *arrays; /* names of the arrays; NULL ends the list */
	/* Called when an array begins, with element NULL. Then called with each element, which the
	 * function may change and the reader frees. May be NULL. */
	int (*item)(void *ctx, const char *array, json_t *element);
	/* Called for each other member of the object that is a number or a short text. May be NULL.
	 */
	int (*member)(void *ctx, const char *key, const json_t *value);
	void *ctx;
	/* Refuse a compressed file, a key that an element has twice, a value that is not an array
	 * under the name of an array, and text after the object. */
	bool strict;
};

/* Reads the whole file. Returns 0, the nonzero result of a function, or -errno. -EBADMSG: the file
 * is not such an object; -EMSGSIZE: an element is larger than JSON_ITEMS_MOST. */
int json_items__read(const char *path, const struct json_items *items);
/* As json_items__read(), from an open file, which it closes. */
int json_items__read_fd(int fd, const struct json_items *items);
