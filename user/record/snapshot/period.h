/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The steps of a trace that no optimizer names: inference, or a history without Python's frames.
 * Steps are equal sequences of allocations, one after the other. A sequence is found by its first
 * allocation: one that comes once a step, where least memory is live.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/snapshot/records.h"

enum period_confidence {
	PERIOD_UNKNOWN, /* the trace has no period, or one that need not be that of steps */
	PERIOD_LIKELY,
	PERIOD_SURE,
};

struct period {
	enum period_confidence confidence;
	/* Indexes in the trace, in order: each is the entry that a step begins with, and the last
	 * may begin an incomplete one. */
	uint32_t *starts;
	size_t n;
	bool begins; /* the first step begins with the trace's first allocation */
	bool ends;   /* the rest after the last start is as long as a step */
};

/* Finds the steps of a device's trace. Takes time in proportion to its entries, and 32 bytes for
 * each allocation until it returns. Returns 0 and *ret, for period__free(), -ENOMEM, or the error
 * of room__check_more(). */
int period__find(const struct records *r, const struct value_list *trace, struct period *ret);
void period__free(struct period *p);
