/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by pages with a flame graph: a tree of frames, with a node for each stack, and the HTML
 * page around the data. */
#include <stdint.h>
#include <stdio.h>

#include "export/formats/frames.h"

struct flametree;
struct json;

struct flametree *flametree__new(void);	   /* NULL: no memory */
void flametree__free(struct flametree *t); /* NULL is fine */
/* Sets *ret to the node of a stack of n frames, outermost first, which it creates on demand.
 * Returns 0, -ENOMEM, or -ENOENT if the tree is full and has no such node. */
int flametree__find(struct flametree *t, const uint32_t *frames, uint32_t n, uint32_t *ret);
/* Writes the member "nodes": frame and parent of each node. */
void flametree__put_nodes(const struct flametree *t, struct json *j);
/* Writes the members "strings" and "frames". at() returns the i-th of n frames; its strings must
 * keep their addresses. Returns 0 or -ENOMEM. */
int flametree__put_frames(struct json *j, size_t n,
			  const struct frame *(*at)(const void *ctx, uint32_t i), const void *ctx);
/* Writes the HTML page and calls data() where its data belong. Returns 0, -ENOMEM or the error of
 * data(). */
int flametree__put_page(FILE *out, int (*data)(void *ctx), void *ctx);
