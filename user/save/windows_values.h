/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_WINDOWS_VALUES_H
#define MT_SAVE_WINDOWS_VALUES_H
/* What conditions are asked about, kept up to the event: how much each device has, steps, out of
 * memory, losses. */
#include <stdbool.h>
#include <stdint.h>

#include "cond/cond.h"
#include "record/stream.h"

struct values;

struct values *values__new(const struct facts *f); /* borrows f; NULL on ENOMEM */
void values__free(struct values *v);		   /* NULL is fine */
/* *news: more is allocated somewhere than when values__judge() was called last, or something else a
 * condition may speak of. 0 or -ENOMEM. */
int values__event(struct values *v, const struct event *e, bool *news);
/*
 * Does it hold of any device? ret is of the one that it holds of. 0 or -ENOMEM. What comes is news
 * only beyond what is now: call values__judged() when all conditions were asked.
 */
int values__judge(struct values *v, struct cond *c, uint64_t now, struct cond_result *ret);
void values__judged(struct values *v);

#endif
