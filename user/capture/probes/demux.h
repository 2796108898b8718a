/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Passes the records of one ring to the processes' feeds, by the number in the record. */
#include <stddef.h>
#include <stdint.h>

#include "memtrace.h"
#include "group.h"

typedef int (*feed_fn)(void *ctx, const void *rec, size_t len);

struct demux {
	struct {
		feed_fn fn; /* NULL: no feed */
		void *ctx;
	} at[MT_MEMBERS];
	/* Called for a record without a feed; may add it. May be NULL. */
	void (*unknown)(void *ctx);
	void *unknown_ctx;
};

/*
 * Passes on one record, or drops it without a feed. Ends of code objects go to all feeds: another
 * process may read its object at that address again, which does no harm. 0 or what a feed returned,
 * -ENOMEM first.
 */
int demux__deal(struct demux *f, const void *rec, size_t len);
/* Sets a feed; fn NULL: removes it. */
void demux__set(struct demux *f, uint32_t number, feed_fn fn, void *ctx);
