/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_ROLLING_STORE_H
#define MT_SAVE_ROLLING_STORE_H
/*
 * A capture of any length in a folder that never takes more than it may: segments
 * (record/mtr_rolling.h), the folder's index with what was dropped (folder.h), and totals.json,
 * which is what the whole of it was in numbers (record/totals.h). Knows nothing of what the events
 * come from.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

struct dict;
struct rolling_store;

#define RING_SIZE_MIN (UINT64_C(1) << 20)
#define RING_SIZE_MAX (UINT64_C(1) << 60)

struct ring_store_opts {
	uint64_t size;	  /* bytes that everything in the folder may take, RING_SIZE_MIN to
			     RING_SIZE_MAX */
	uint64_t segment; /* 0: a sixteenth of it, at most 256 MiB */
	const char *name; /* of a recording, for a person; NULL: the folder's */
};
/* Smallest and largest segment for a size. */
void rolling_store__segments(uint64_t size, uint64_t *min, uint64_t *max);

/*
 * Makes the folder, which must not have recordings in it. Borrows d and f. 0 and *ret, or -errno;
 * rolling_store__why() has the words.
 */
int rolling_store__open(const char *path, const struct dict *d, const struct facts *f,
			const struct ring_store_opts *opts, struct rolling_store **ret);
/* 0 or -errno, after which nothing more is written. What was written before is readable. */
int rolling_store__event(struct rolling_store *s, const struct event *e);
/* Time passes, now in ns since the start. Call about once a second. As rolling_store__event(). */
int rolling_store__tick(struct rolling_store *s, uint64_t now);
/* Closes all, with the facts as they are now. As rolling_store__event(). */
int rolling_store__finish(struct rolling_store *s);
/* NULL is fine. empty: nothing was recorded, the folder goes as it came. */
void rolling_store__free(struct rolling_store *s, bool empty);
/* What went wrong, for a message after "PATH: ": static, or of s. */
const char *rolling_store__why(const struct rolling_store *s, int err);

struct ring_store_sum {
	uint64_t segments, dropped; /* that there are; that went */
	uint64_t bytes, most_bytes; /* that all files take; at most, what is being written anew
				       counted twice */
	uint64_t events, lost, gap_events;
	uint64_t gap_to; /* ns, where what was dropped ends; 0: nothing was */
};
struct ring_store_sum rolling_store__sum(const struct rolling_store *s);
const char *rolling_store__path(const struct rolling_store *s);
struct totals;
const struct totals *rolling_store__totals(const struct rolling_store *s);

#endif
