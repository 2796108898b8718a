/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A folder that stores a capture of any length in at most a given size: parts
 * (record/mtr_rolling.h), an index that also lists dropped time (folder.h), and totals.json with
 * the totals of the whole capture (record/mtr_rolling.h). The source of the events does not matter.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

struct dict;
struct rolling_store;
struct totals;

#define RING_SIZE_MIN (UINT64_C(1) << 20)
#define RING_SIZE_MAX (UINT64_C(1) << 60)

struct ring_store_opts {
	uint64_t size;	     /* bytes for all files of the folder, RING_SIZE_MIN to RING_SIZE_MAX */
	uint64_t part_bytes; /* bytes of a part; 0: a sixteenth of size, at most 256 MiB */
};

/*
 * Makes the folder, which must not have recordings in it. Borrows d and f. Returns 0 and *ret, or
 * -errno for rolling_store__why().
 */
int rolling_store__open(const char *path, const struct dict *d, const struct facts *f,
			const struct ring_store_opts *opts, struct rolling_store **ret);
/* Writes an event. Returns 0, or -errno after which nothing more is written. Earlier events stay
 * readable. */
int rolling_store__event(struct rolling_store *s, const struct event *e);
/* Flushes; now: ns since the start. Call about once a second. Returns as rolling_store__event(). */
int rolling_store__tick(struct rolling_store *s, uint64_t now);
/* Completes all files, with the facts as they are now. Returns as rolling_store__event(). */
int rolling_store__finish(struct rolling_store *s);
/* Frees s, which may be NULL. empty: removes the folder, because nothing was recorded. */
void rolling_store__free(struct rolling_store *s, bool empty);
/* Returns the text of an error for a message after "PATH: "; static, or owned by s. */
const char *rolling_store__why(const struct rolling_store *s, int err);

/* Sums over the files of a rolling folder, for the summary. */
struct ring_store_sum {
	uint64_t parts, dropped; /* parts in the folder; parts that were dropped */
	uint64_t bytes;		 /* bytes of all files now */
	uint64_t most_bytes;	 /* most bytes of all files so far; a file counts twice while it is
				    replaced */
	uint64_t events, lost;	 /* counts of the whole capture */
	uint64_t gap_events;	 /* events in the dropped parts */
	uint64_t gap_to;	 /* end of the dropped time, ns; 0: nothing was dropped */
};
struct ring_store_sum rolling_store__sum(const struct rolling_store *s);
const struct totals *rolling_store__totals(const struct rolling_store *s);
