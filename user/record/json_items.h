/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Reads a large JSON file, an object with long arrays. Memory is bounded by the
 * largest element and not by the file. The file may be compressed by gzip, and is not trusted.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define JSON_ITEMS_MOST (1 << 20) /* bytes of an element */

/* Both return 0, or anything else to stop. */
struct json_items {
	const char *const *arrays; /* names of the arrays; NULL ends the list */
	/* called with NULL when an array begins, then with each element, which it may change */
	int (*item)(void *ctx, const char *array, json_t *element);
	/* another member that is a number or a short text */
	int (*member)(void *ctx, const char *key, const json_t *value);
	void *ctx;
	/* Refuses a compressed file, a key twice in an element, another value in place of an array,
	 * and text after the object. */
	bool strict;
};

/* Reads the whole file. Returns 0, the result of a function, or -errno: -EBADMSG: not such a JSON
 * file, -EMSGSIZE: an element is larger than JSON_ITEMS_MOST. */
int json_items__read(const char *path, const struct json_items *items);
/* As json_items__read(), from an open file, which it closes. */
int json_items__read_fd(int fd, const struct json_items *items);
