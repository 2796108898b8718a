/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Finds out whether the steps of a training job repeat. Compares each optimizer step on each device
 * but the CPU: the peaks of allocated and reserved bytes, both values at its end, and the
 * optimizer's stack. All passes between two steps belong to the second.
 *
 * Steps are equal if all these values are the same. Steps also count as equal if only allocated
 * bytes differ, by less than 1/REPEAT_CLOSE, and the number of blocks does not grow. The reason is
 * that the allocator may hand out larger blocks than requested.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

struct repeat;

#define REPEAT_EQUAL 3 /* equal steps in a row that end a run */
/* Longest cycle of steps; a cycle seen twice ends a run, for jobs with several optimizers. */
#define REPEAT_CYCLE 8

#define REPEAT_CLOSE 256

/* Steps after which even growth ends a run, and how many of the last ones are looked at. */
#define REPEAT_GROWS 64
#define REPEAT_GROWN 48

struct repeat_found {
	uint64_t first, last; /* steps, from 1 */
	unsigned cycle;	      /* steps per cycle; 1: all steps are equal */
	uint64_t spread;      /* largest difference between their peaks of allocated bytes */
};

struct repeat *repeat__new(void);    /* NULL if memory is short */
void repeat__free(struct repeat *r); /* NULL is fine */
/* Adds an event. Returns 0 or -ENOMEM. */
int repeat__event(struct repeat *r, const struct event *e);
uint64_t repeat__steps(const struct repeat *r); /* number of finished steps */
/* True if the last finished step completed a repetition; fills *ret. */
bool repeat__found(const struct repeat *r, struct repeat_found *ret);

/*
 * True if steps repeat but for memory that they keep: over the last REPEAT_GROWN steps a device's
 * bytes at the steps' ends never fall, grow in each quarter about alike, and the rest of each step
 * (its peak above its end) stays the same. No device does otherwise.
 */
bool repeat__grows(const struct repeat *r);
