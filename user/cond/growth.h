/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_COND_GROWTH_H
#define MT_COND_GROWTH_H
/*
 * How much a figure has grown over a window of steps or of time (cond.h). The window is looked at
 * in units, of a step or of 1/128 of the time; of each the lowest value counts, and growth is the
 * low of the last units less that of as many units one window before. Windows of more than 4096
 * steps have units of several.
 *
 * Who looks now and then, and sees some value of each step or of some steps, has slots instead: of
 * at least 1/16 of the window, of 16 looks and of a whole step. Growth is between the lows of two
 * slots that are at least a window apart, by as much as a window is of that.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct growth_series;

struct growth_window {
	bool steps;	 /* else time */
	uint64_t length; /* steps, or ns */
	uint64_t unit;
	unsigned span; /* units in a window */
};

void growth_window__of_steps(struct growth_window *w, uint64_t steps);
void growth_window__of_time(struct growth_window *w, uint64_t ns);
/* "100 steps", "10 min 00 s" */
const char *growth_window__say(const struct growth_window *w, char *buf, size_t size);
/* Why growth is not known so far; s may be NULL: "12 of 100 steps so far". */
const char *growth_window__say_short(const struct growth_window *w, const struct growth_series *s,
				     char *buf, size_t size);

struct growth_series *growth_series__new(const struct growth_window *w,
					 bool sampled); /* NULL on ENOMEM */
void growth_series__free(struct growth_series *s);	/* NULL is fine */
/*
 * What there is from now on. where: the step under way, or the time, as the window is of; what goes
 * back counts as the same. seq: the caller's number of this moment. value: may be below 0, where it
 * is counted from what was there at the first.
 */
void growth_series__add(struct growth_series *s, const struct growth_window *w, uint64_t where,
			uint64_t time, uint64_t seq, int64_t value);
/* A look at it. step: the one under way, 0 where steps are not known. */
void growth_series__look(struct growth_series *s, const struct growth_window *w, uint64_t where,
			 uint64_t time, uint64_t step, int64_t value);
bool growth_series__sampled(const struct growth_series *s);
/* Is there a whole window? Growth over the last one, or with most the largest there was; and when
 * it was that. */
bool growth_series__is_known(const struct growth_series *s, bool most, int64_t *by, uint64_t *at);
/* The two lows that it is between: the numbers of their moments. False: it is of looks, and they
 * are not known. */
bool growth_series__lows(const struct growth_series *s, bool most, uint64_t *from, uint64_t *to);

#endif
