/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Reads a large JSON file, an object with one long array. Memory is bounded by the
 * largest element and not by the file. The file may be compressed by gzip, and is not trusted.
 */
#include <jansson.h>
#include <stddef.h>

#define JSON_ITEMS_MOST (1 << 20) /* bytes of an element */

/* Both return 0, or anything else to stop. */
struct json_items {
	const char *array; /* name of the array */
	/* an element; the function may change it */
	int (*item)(void *ctx, json_t *element);
	/* another member that is a number or a short text */
	int (*member)(void *ctx, const char *key, const json_t *value);
	void *ctx;
};

/* Reads the whole file. Returns 0, the result of a function, or -errno: -EBADMSG: not such a JSON
 * file, -EMSGSIZE: an element is larger than JSON_ITEMS_MOST. */
int json_items__read(const char *path, const struct json_items *items);
