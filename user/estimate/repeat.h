/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ESTIMATE_REPEAT_H
#define MT_ESTIMATE_REPEAT_H
/*
 * Does a training job do the same over and over? Of each whole step of an optimizer, and of each
 * device but the CPU, this is compared: the most that was allocated and reserved within it, and
 * what was allocated and reserved at its end, and the stack that called the optimizer. All forward
 * and backward passes between two steps are of the second. Equal are steps in which all that is the
 * same to the byte; or what was reserved is, with as many allocations and frees, no more blocks at
 * the end than at the beginning, and what was allocated differs by less than the REPEAT_CLOSE-th
 * part: the allocator may hand out larger blocks than asked for.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/stream.h"

struct repeat;

#define REPEAT_EQUAL 3 /* steps in a row that are equal ... */
#define REPEAT_CYCLE                                                                               \
	8 /* ... or twice the same cycle of 2 to so many steps: jobs with several optimizers */

#define REPEAT_CLOSE 256

struct repeat_found {
	uint64_t first, last; /* steps, from 1 on */
	unsigned cycle;	      /* steps that one is long; 1: they are all equal */
	uint64_t spread; /* bytes by which their peaks of allocated memory differ at the most */
};

struct repeat *repeat__new(void);    /* NULL on ENOMEM */
void repeat__free(struct repeat *r); /* NULL is fine */
/* 0 or -ENOMEM. */
int repeat__event(struct repeat *r, const struct event *e);
uint64_t repeat__steps(const struct repeat *r); /* that ended */
/* At the end of the last step that ended it was so. */
bool repeat__found(const struct repeat *r, struct repeat_found *ret);

#endif
