/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_DEMUX_H
#define MT_CAPTURE_DEMUX_H
/* Deals out the records of one ring to the processes that they are of, by the number in their
 * header. */
#include <linux/types.h>
#include <stddef.h>
#include <stdint.h>

#include "memtrace.h"
#include "group.h"

typedef int (*feed_fn)(void *ctx, const void *rec, size_t len);

struct demux {
	struct {
		feed_fn fn; /* NULL: nobody's */
		void *ctx;
	} at[MT_MEMBERS];
	/* Called where a record comes for a number that is nobody's, which may be somebody's then.
	 * May be NULL. */
	void (*unknown)(void *ctx);
	void *unknown_ctx;
};

/*
 * One record, to whom it is for; dropped where that is nobody. One about a freed code object is for
 * all: what ends in one process says nothing of what another has at that address, but nobody takes
 * harm from reading that anew. 0 or what a feed returned; -ENOMEM before all else.
 */
int demux__deal(struct demux *f, const void *rec, size_t len);
/* fn NULL: nobody's from now on. */
void demux__set(struct demux *f, uint32_t number, feed_fn fn, void *ctx);

#endif
