/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/server/lows.h"

/* Joins pairs of lows, so that there is room. */
static void join(struct lows *l)
{
	for (size_t i = 0; i < LOWS_MAX / 2; i++) {
		uint64_t a = l->v[2 * i], b = l->v[2 * i + 1];

		l->v[i] = a < b ? a : b;
	}
	l->n = LOWS_MAX / 2;
	l->each *= 2;
}

void lows__add(struct lows *l, double time, uint64_t value)
{
	if (!l->each) {
		l->each = LOWS_SAMPLES;
		l->from = time;
	}
	if (!l->filled++ || value < l->low)
		l->low = value;
	if (l->filled < l->each)
		return;
	l->v[l->n++] = l->low;
	l->to = time;
	l->filled = 0;
	if (l->n == LOWS_MAX)
		join(l);
}
