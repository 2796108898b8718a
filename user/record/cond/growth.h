/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Growth of a figure over a window of steps or of time (cond.h). A window consists of units: single
 * steps, or 1/128 of the time; more than 4096 steps share units. Growth is the low of the last
 * units minus the low of as many units one window earlier.
 *
 * Sampled series have slots instead of units, because they miss values. A slot covers at least 1/16
 * of the window, 16 samples and a whole step. Growth is the difference of the lows of two slots at
 * least a window apart, scaled to one window.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct growth_series;

struct growth_window {
	bool steps;	 /* true: steps; false: time */
	uint64_t length; /* length in steps or ns */
	uint64_t unit;
	unsigned span; /* steps or ns per unit */
};

void growth_window__of_steps(struct growth_window *w, uint64_t steps);
void growth_window__of_time(struct growth_window *w, uint64_t ns);
/* Writes the window's length, such as "100 steps" or "10 min 00 s", to buf. */
const char *growth_window__say(const struct growth_window *w, char *buf, size_t size);
/* Writes why growth is unknown, such as "12 of 100 steps so far". s may be NULL. */
const char *growth_window__say_short(const struct growth_window *w, const struct growth_series *s,
				     char *buf, size_t size);

struct growth_series *growth_series__new(const struct growth_window *w,
					 bool sampled); /* NULL if memory is short */
void growth_series__free(struct growth_series *s);	/* NULL is fine */
/*
 * Adds a value that holds from now on. The argument where is a step or a time, as for the window;
 * an earlier one counts as the latest. seq is the caller's number of this moment. value may be
 * negative if it counts from the first value. It is bounded to 2^62 on both sides: a target and a
 * file may claim anything.
 */
void growth_series__add(struct growth_series *s, const struct growth_window *w, uint64_t where,
			uint64_t time, uint64_t seq, int64_t value);
/* Adds a sample. step: number of the current step; 0: unknown. */
void growth_series__look(struct growth_series *s, const struct growth_window *w, uint64_t where,
			 uint64_t time, uint64_t step, int64_t value);
bool growth_series__sampled(const struct growth_series *s);
/* True after a whole window. *by: growth over the last window, or the largest one with most; *at:
 * its time. */
bool growth_series__is_known(const struct growth_series *s, bool most, int64_t *by, uint64_t *at);
/* Gives the seq numbers of the two lows. False: unknown, or the series is sampled. */
bool growth_series__lows(const struct growth_series *s, bool most, uint64_t *from, uint64_t *to);
