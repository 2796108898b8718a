/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The lows of a figure: the lowest of each few samples. Memory that comes and goes within a step is
 * not in them, so that they show growth. With time each covers twice as many samples.
 */
#include <stddef.h>
#include <stdint.h>

#define LOWS_MAX 64
#define LOWS_SAMPLES 4 /* samples of a low, at first */

struct lows {
	uint64_t v[LOWS_MAX];
	size_t n;
	unsigned each;	 /* samples of a low; 0: LOWS_SAMPLES */
	unsigned filled; /* samples in `low` */
	uint64_t low;
	double from, to; /* time of the first sample, and of the last of v; s */
};

/* Adds a sample, in the order of time. */
void lows__add(struct lows *l, double time, uint64_t value);
