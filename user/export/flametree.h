/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_EXPORT_FLAMETREE_H
#define MT_EXPORT_FLAMETREE_H
/*
 * What pages with a flame graph have in common: stacks put together to one tree of frames (a stack
 * is a node of it), and the page itself around data.
 */
#include <stdint.h>
#include <stdio.h>

#include "export/frames.h"

struct flametree;
struct json;

struct flametree *flametree__new(void);	   /* NULL on ENOMEM */
void flametree__free(struct flametree *t); /* NULL is fine */
/* The node of frames[0..n) from the root, made where it is missing. 0, -ENOMEM, or -ENOENT: the
 * page is full, and it is not there. */
int flametree__find(struct flametree *t, const uint32_t *frames, uint32_t n, uint32_t *ret);
/* "nodes": of each its frame and parent. */
void flametree__put_nodes(const struct flametree *t, struct json *j);
/* "strings" and "frames": what at() gives for 0 to n - 1, whose strings stay where they are. 0 or
 * -ENOMEM. */
int flametree__put_frames(struct json *j, size_t n,
			  const struct frame *(*at)(const void *ctx, uint32_t i), const void *ctx);
/* The page; data writes what is in it. 0, or what data returns. */
int flametree__put_page(FILE *out, int (*data)(void *ctx), void *ctx);

#endif
