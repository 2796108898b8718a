/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A device: its totals, peaks, marks and live blocks. */
#include <stdbool.h>
#include <stdint.h>

#include "model/heap/blocks.h"
#include "model/heap/category.h"
#include "model/heap/extents.h"
#include "model/heap/steps.h"
#include "model/model.h"

struct map64;

struct used { /* a driver-reported figure, and the model's sums at that moment */
	bool known;
	uint64_t time, bytes, below, others;
};

struct dev {
	struct model_device pub;
	struct blocks blocks;
	struct life life;
	/* Bytes of the reported total outside known blocks; negative as int64_t after losses. */
	uint64_t outside;
	bool any;    /* the device had an event */
	bool unsure; /* records were lost since the last event with totals */
	/* Records were lost at the mark, or before the first event with totals after it. */
	bool mark_unsure;
	bool mark_open;			/* no event with totals since the mark */
	uint64_t peak_step[STEP_KINDS]; /* 0-based step with the peak */
	uint32_t peak_site_no;		/* site of the allocation that made the peak; 0: none */
	/* Rings parallel to steps.ring; NULL for devices beyond STEP_DEVICES. */
	struct step_level *step[STEP_KINDS];
	uint64_t step_peak[STEP_KINDS]; /* peak of the current step */
	int phase;			/* phase of the current stretch, -1: none */
	bool phase_over; /* a step or call ended: the next allocation begins another stretch */
	/* Current stretch: allocated bytes at its beginning, and times of its first and last event.
	 */
	uint64_t phase_total, phase_begin, phase_last;
	struct model_phase phases[PHASE_NR];
	struct extents extents; /* memory taken from CUDA */
	uint64_t mark_outside;	/* value of `outside` at the mark, at least 0 */
	uint64_t mark_seq;	/* last event before the mark */
	struct noted {		/* state at ROWS_AT_BASE and ROWS_AT_STEP */
		/* These are like mark_seq, pub.mark_allocated and mark_outside. */
		uint64_t seq, allocated, outside;
	} noted[2];
	uint64_t census; /* bytes of live blocks from before attach; part of pub.live */
	/* Without totals: bytes from before attach that were found after the first event. */
	uint64_t late;
	bool census_done; /* all events of the reading at attach have come */
	/* Addresses of blocks from before attach that were freed, kept until census_done; NULL:
	 * none. */
	struct map64 *freed;
	/* address -> size: freed before attach, waiting for a stream; NULL: none. A snapshot tells
	 * at an out-of-memory event and at its end, too, which blocks wait. */
	struct map64 *pending;
	bool pending_over; /* in a snapshot, the next ones replace them */
	/* Bytes of outside that became known blocks from before attach. */
	uint64_t known;
	/* Event that reached the peak. If the peak was there at the first event: the event before
	 * it. */
	uint64_t peak_seq;
	uint64_t first_allocated, first_reserved,
		first_outside; /* values just before the first event */
	double frag_sum;       /* sum of (reserved - allocated) / reserved at events with totals */
	uint64_t frag_n;
	uint32_t number; /* index in model.devs */
	struct model *model;
	bool listing;	/* EVENT_SEGMENTs came, and not yet the EVENT_STATE that ends the reading */
	uint32_t round; /* number of the current reading of the allocator's tables, from 1 */
	uint64_t round_seq; /* number of the reading's first event */
	struct used used, mark_used;
	struct used left; /* from EVENT_LEFT: bytes is what the driver has available */
	uint64_t mark_below, mark_others; /* as below and others in struct used, at the mark */
	uint64_t mark_loose[SUM_NR];	  /* sums of model.loose at the mark */
	struct model_oom *ooms;
};

/* Finds or adds a device. Call dev__get() in state.h, which is faster for the device of the last
 * call. Returns 0 or -ENOMEM. */
int dev__find(struct model *m, struct device d, struct dev **ret);
/* Returns the device, or NULL if it had no event. */
struct dev *dev__known(const struct model *m, struct device d);
/* Moves the device's mark to now. time: ns. */
void dev__mark(struct model *m, struct dev *dev, uint64_t time);
/* Handles the device's first event, or its first event with totals. */
void dev__begin(struct model *m, struct dev *dev, const struct event *e);
static inline bool dev__is_new(const struct dev *dev, const struct event *e)
{
	return !dev->any || (e->totals && !dev->pub.has_totals);
}
/* Sets the device's totals from e; updates drift and peaks. phase: of an allocation, or -1. */
void dev__set_totals(struct model *m, struct dev *dev, const struct event *e, int phase);
/* Sets reserved bytes that changed between two events with totals. */
void dev__set_reserved(struct model *m, struct dev *dev, uint64_t reserved, uint64_t time);
/* Bytes from before attach that are live now: known blocks, and memory in no known block. */
uint64_t dev__before_attach(const struct dev *dev);

static inline struct noted *dev__noted(struct dev *dev, enum row_when when)
{
	return &dev->noted[when - ROWS_AT_BASE];
}
/* Bytes that PyTorch's allocator reserves, as far as known. */
uint64_t dev__reserved(const struct dev *dev);
