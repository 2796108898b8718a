/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cond_growth.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/text.h"

#define MOST_UNITS 4096u /* in a window of steps */
#define TIME_UNITS 128u
#define TIME_WIDTH 4u /* units whose low counts */

struct growth_series {
	unsigned room;	/* lows that are kept: a ring */
	unsigned width; /* how many make one low */
	uint64_t done;	/* units that are over */
	bool begun;
	uint64_t unit;	/* number of the one under way */
	uint64_t low, last; /* of that one; the last value */
	bool known;
	int64_t by, most;
	uint64_t at, most_at;
	uint64_t lows[];
};

void growth_window__of_steps(struct growth_window *w, uint64_t steps)
{
	w->steps = true;
	w->length = steps;
	w->unit = (steps - 1) / MOST_UNITS + 1;
	w->span = (unsigned)((steps - 1) / w->unit + 1);
}

void growth_window__of_time(struct growth_window *w, uint64_t ns)
{
	w->steps = false;
	w->length = ns;
	w->unit = (ns - 1) / TIME_UNITS + 1;
	w->span = TIME_UNITS;
}

const char *growth_window__say(const struct growth_window *w, char *buf, size_t size)
{
	char n[32];

	if (!w->steps)
		return text__time(buf, size, w->length);
	snprintf(buf, size, "%s step%s", text__count(n, sizeof(n), w->length), w->length == 1 ? "" : "s");
	return buf;
}

const char *growth_window__say_short(const struct growth_window *w, const struct growth_series *s, char *buf, size_t size)
{
	uint64_t units = s ? s->done : 0;
	char whole[48], part[32];

	units = units < w->span ? units : w->span;
	growth_window__say(w, whole, sizeof(whole));
	if (w->steps)
		text__count(part, sizeof(part), units * w->unit);
	else
		text__time(part, sizeof(part), units * w->unit);
	snprintf(buf, size, "%s of %s so far%s", part, whole, units == w->span ? ", and a little more is needed" : "");
	return buf;
}

static unsigned width_of(const struct growth_window *w, bool sampled)
{
	if (!w->steps)
		return TIME_WIDTH;
	return sampled && w->span >= 64 ? w->span / 32 : 1;
}

struct growth_series *growth_series__new(const struct growth_window *w)
{
	unsigned room = w->span + (width_of(w, true) > width_of(w, false) ? width_of(w, true) : width_of(w, false));
	struct growth_series *s = calloc(1, sizeof(*s) + room * sizeof(*s->lows));

	if (s)
		s->room = room;
	return s;
}

void growth_series__free(struct growth_series *s)
{
	free(s);
}

/* The lowest of as many units as count, the last of which is so many back. */
static uint64_t low_of(const struct growth_series *s, unsigned back)
{
	uint64_t low = UINT64_MAX;

	for (unsigned i = 0; i < s->width; i++) {
		uint64_t v = s->lows[(s->done - 1 - back - i) % s->room];

		low = v < low ? v : low;
	}
	return low;
}

static void end_unit(struct growth_series *s, const struct growth_window *w, uint64_t low, uint64_t time)
{
	s->lows[s->done % s->room] = low;
	s->done++;
	if (s->done < w->span + s->width)
		return;
	s->by = (int64_t)(low_of(s, 0) - low_of(s, w->span));
	s->at = time;
	if (!s->known || s->by > s->most) {
		s->most = s->by;
		s->most_at = time;
	}
	s->known = true;
}

void growth_series__add(struct growth_series *s, const struct growth_window *w, uint64_t where, uint64_t time, uint64_t value,
			bool sampled)
{
	uint64_t unit = where / w->unit;

	if (!s->begun) {
		s->begun = true;
		s->width = width_of(w, sampled);
		s->unit = unit;
		s->low = s->last = value;
		return;
	}
	if (unit > s->unit) {
		uint64_t gap = unit - s->unit - 1;

		end_unit(s, w, s->low, time);
		/* Nothing was told in between: it stayed as it was. More than all that is kept need not be gone through. */
		for (gap = gap < 2 * s->room ? gap : 2 * s->room; gap; gap--)
			end_unit(s, w, s->last, time);
		s->unit = unit;
		s->low = s->last;
	}
	s->low = value < s->low ? value : s->low;
	s->last = value;
}

bool growth_series__is_known(const struct growth_series *s, bool most, int64_t *by, uint64_t *at)
{
	if (!s->known)
		return false;
	*by = most ? s->most : s->by;
	*at = most ? s->most_at : s->at;
	return true;
}
