/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The figures that conditions use, for each event: allocated bytes of each device, steps,
 * out-of-memory errors, lost events. */
#include <stdbool.h>
#include <stdint.h>

#include "record/cond.h"
#include "record/stream.h"

struct values;

struct values *values__new(const struct facts *f); /* borrows f; NULL: out of memory */
void values__free(struct values *v);		   /* v may be NULL */
/* Takes an event. *news: a figure rose since values__judge() was called last. Returns 0 or -ENOMEM.
 */
int values__event(struct values *v, const struct event *e, bool *news);
/*
 * Judges a condition on each device; ret: the result of a device for which it holds. Returns 0 or
 * -ENOMEM. Call values__judged() when all conditions are judged.
 */
int values__judge(struct values *v, struct cond *c, uint64_t now, struct cond_result *ret);
void values__judged(struct values *v);
