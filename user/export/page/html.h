/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The moments and the payload of the html format, for html.c and its tests. A moment is the state
 * after an event of a device. At first every event is a moment. When there are too many, only some
 * moments are kept: the last one of each time interval, the peak, step ends, out-of-memory events
 * and the --at time. Changes between two kept moments are merged into the later one. So memory is
 * bounded for any length of recording.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "export/export.h"
#include "model/model.h"

/* --- moments */
enum { KEEP_STEP = 1, KEEP_OOM = 2, KEEP_ASKED = 4 };

struct page_moment {
	/* seq: number of the event after which this is the state; time: latest time of all events
	 * so far, ns */
	uint64_t seq, time;
	/* allocated: bytes without model_now.late of that time. unknown: the unknown bytes,
	 * likewise, plus model_now.known. html_moments__allocated() adds memory that the model
	 * finds only later. */
	int64_t allocated, unknown;
	uint64_t reserved;
	uint32_t keep;
};

/* --- the curve of allocated bytes */
struct curve {
	struct curve_part {		/* one for each interval of time that has an event */
		int64_t min, max, last; /* allocated bytes as in struct page_moment */
		uint64_t reserved_max, reserved;
		uint32_t number;
	} * parts;
	size_t n, cap;
	uint64_t width; /* length of an interval, in ns */
};

#define GONE_NEVER 0
struct page_block {
	uint64_t addr;
	uint32_t block_class;
	/* Moments of the allocation and of the free, as index + 1. born_no 0: allocated before the
	 * first moment; gone_no GONE_NEVER: live at the end. */
	uint32_t born_no, gone_no;
};

struct brief { /* blocks of one class that were allocated and freed between two moments */
	uint32_t moment, block_class;
	uint64_t n; /* number of blocks */
};

struct page_segment {
	struct model_extent x;	   /* x.there: the segment existed at some moment */
	uint32_t born_no, gone_no; /* as in struct page_block */
};

struct stretch {
	uint64_t start, end; /* interval of one phase, in ns */
	int phase;
};

struct page_device {
	uint32_t number; /* the device's number in the model */
	struct page_moment *moments;
	size_t n, cap;
	bool open; /* the device changed after the last moment; `now` has its state */
	struct page_moment now;
	struct page_block *blocks;
	size_t nblocks, capblocks;
	struct brief *brief;
	size_t n_brief, cap_brief;
	struct brief *open_brief; /* changes since the last moment, by block class */
	size_t nopen, capopen;
	struct map64 *open_at; /* block class -> index in open_brief; NULL: none yet */
	struct page_segment *segments;
	size_t nsegments, capsegments;
	struct map64 *segment_at; /* address -> index in `segments`, for existing segments */
	struct curve curve;
	struct stretch *stretches;
	size_t nstretches, capstretches;
	struct model_now last;
};

/* If not every event can be a moment, the recording is divided into at most so many intervals, and
 * at least half as many. Each interval keeps one moment. */
#define MOMENTS_CHOSEN 4096

struct limits {
	/* Sums over all devices above which moments are dropped. */
	size_t moments, blocks, brief;
	size_t payload; /* most bytes of the compressed payload; the file is a third larger and must
			   stay below 20 MB */
};

struct page_data {
	struct export_ctx *c;
	struct advisor *advisor; /* takes all events, for the findings; owned */
	struct limits limits;
	struct limits next_limits;   /* sums at which moments are dropped again */
	struct page_device *devices; /* indexed by the model's device number */
	size_t n;
	uint64_t time;		/* latest time of all events, in ns */
	uint64_t steps;		/* number of finished steps */
	bool thinned;		/* moments were dropped: not every event has one */
	uint64_t bucket;	/* length of the intervals that keep one moment each, ns */
	size_t most_steps;	/* largest number of steps whose ends are kept */
	bool requested_is_over; /* the time of --at is over */
	bool no_addresses;	/* leave out addresses, because the page would be too large */
	/* The latest event. The model has processed it, but devices does not have its effect yet.
	 * kind 0: there is no such event. */
	struct event last;
};

/* Takes over the last event. Call it when the recording has ended and the model is finished.
 * Returns 0 or -errno. */
int html_moments__end(struct page_data *p);
/*
 * Drops about half of the chosen moments; the first time keeps about MOMENTS_CHOSEN. Repeats until
 * blocks and brief blocks are within the limits. Returns 0, -ENOMEM, or -EFBIG if no more moments
 * can be dropped.
 */
int html_moments__thin(struct page_data *p);
/* Returns the index of the latest moment at or before event number seq; -1: there is none. */
int64_t html_moments__of(const struct page_device *d, uint64_t seq);
/* Returns the allocated bytes of a moment. value: page_moment.allocated, to which the function adds
 * memory that the model found only later. */
uint64_t html_moments__allocated(const struct page_device *d, int64_t value);

/* --- the payload */
struct bytes {
	uint8_t *p;
	size_t n, cap;
	bool failed; /* out of memory; the content is incomplete */
};
void bytes__free(struct bytes *b);

/* Makes the payload: a JSON directory and columns, compressed with gzip. The caller frees *ret with
 * bytes__free(). Returns 0 or -errno. */
int html_payload__make(struct page_data *p, struct bytes *ret);
void html_payload__base64(FILE *out, const struct bytes *b);
