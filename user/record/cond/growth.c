/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/cond/growth.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"

#define MOST_UNITS 4096u /* most units in a window of steps */
#define TIME_UNITS 128u
#define TIME_WIDTH 4u /* units per low */
#define SLOTS 64u     /* slots kept: more than three of the shortest windows */
#define SLOT_PART 16u /* fraction of a window per slot */
#define SLOT_LOOKS 16u
#define MOST_VALUE (INT64_MAX / 2) /* so that the difference of two values fits in an int64_t */

struct slot {
	uint64_t from;
	int64_t low;
};

struct value {
	int64_t value;
	uint64_t seq;
};

struct found {
	int64_t by;
	uint64_t at;
	struct value from, to;
};

struct growth_series {
	unsigned room;	/* ring of lows */
	unsigned width; /* units per low */
	uint64_t done;	/* number of finished units */
	bool begun;
	uint64_t unit;		/* number of the current unit */
	struct value low, last; /* low: of the current unit; last: latest value */
	bool known;
	struct found now, most;
	/* Sampled series: the current slot, its number of samples, and the step at its start. */
	struct slot slot;
	unsigned looks;
	uint64_t step;
	uint64_t longest; /* time or steps from the first kept slot to the last finished one */
	/* Ring of SLOTS slots; done counts them. NULL: the series is not sampled. */
	struct slot *slots;
	struct value lows[];
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
	snprintf(buf, size, "%s step%s", text__count(n, sizeof(n), w->length),
		 w->length == 1 ? "" : "s");
	return buf;
}

const char *growth_window__say_short(const struct growth_window *w, const struct growth_series *s,
				     char *buf, size_t size)
{
	uint64_t length = !s ? 0 : s->slots ? s->longest : s->done * w->unit;
	char whole[48], part[32];

	length = length < w->length ? length : w->length;
	growth_window__say(w, whole, sizeof(whole));
	if (w->steps)
		text__count(part, sizeof(part), length);
	else
		text__time(part, sizeof(part), length);
	snprintf(buf, size, "%s of %s so far%s", part, whole,
		 length == w->length ? ", and a little more is needed" : "");
	return buf;
}

struct growth_series *growth_series__new(const struct growth_window *w, bool sampled)
{
	unsigned width = w->steps ? 1 : TIME_WIDTH, room = sampled ? 0 : w->span + width;
	struct growth_series *s = calloc(1, sizeof(*s) + room * sizeof(*s->lows));

	if (!s)
		return NULL;
	s->room = room;
	s->width = width;
	s->slots = sampled ? calloc(SLOTS, sizeof(*s->slots)) : NULL;
	if (sampled && !s->slots) {
		free(s);
		return NULL;
	}
	return s;
}

void growth_series__free(struct growth_series *s)
{
	if (!s)
		return;
	free(s->slots);
	free(s);
}

bool growth_series__sampled(const struct growth_series *s)
{
	return s->slots;
}

/* The lowest value of `width` units, the last of them `back` units ago. */
static struct value low_of(const struct growth_series *s, unsigned back)
{
	struct value low = { .value = INT64_MAX };

	for (unsigned i = 0; i < s->width; i++) {
		struct value v = s->lows[(s->done - 1 - back - i) % s->room];

		low = v.value <= low.value ? v : low;
	}
	return low;
}

static int64_t bounded(int64_t value)
{
	if (value < -MOST_VALUE)
		return -MOST_VALUE;
	return value < MOST_VALUE ? value : MOST_VALUE;
}

static void set_found(struct growth_series *s, struct found f)
{
	s->now = f;
	if (!s->known || f.by > s->most.by)
		s->most = f;
	s->known = true;
}

static void end_unit(struct growth_series *s, const struct growth_window *w, struct value low,
		     uint64_t time)
{
	struct found f = { .at = time };

	s->lows[s->done % s->room] = low;
	s->done++;
	if (s->done < w->span + s->width)
		return;
	f.from = low_of(s, w->span);
	f.to = low_of(s, 0);
	f.by = f.to.value - f.from.value;
	set_found(s, f);
}

void growth_series__add(struct growth_series *s, const struct growth_window *w, uint64_t where,
			uint64_t time, uint64_t seq, int64_t value)
{
	struct value now = { bounded(value), seq };
	uint64_t unit = where / w->unit;

	if (!s->begun) {
		s->begun = true;
		s->unit = unit;
		s->low = s->last = now;
		return;
	}
	if (unit > s->unit) {
		uint64_t gap = unit - s->unit - 1;

		end_unit(s, w, s->low, time);
		/* The value did not change in between. Units beyond the ring's size have
		 * no effect. */
		for (gap = gap < 2 * s->room ? gap : 2 * s->room; gap; gap--)
			end_unit(s, w, s->last, time);
		s->unit = unit;
		s->low = s->last;
	}
	s->low = now.value < s->low.value ? now : s->low;
	s->last = now;
}

static void end_slot(struct growth_series *s, const struct growth_window *w, uint64_t time)
{
	uint64_t kept = s->done < SLOTS ? s->done : SLOTS - 1, apart;
	const struct slot *now = &s->slot, *then = NULL;
	int64_t by;

	/* Find the latest slot at least a window before this one. */
	for (uint64_t i = 1; i <= kept && !then; i++) {
		const struct slot *at = &s->slots[(s->done - i) % SLOTS];

		s->longest = now->from - at->from;
		if (now->from - at->from >= w->length)
			then = at;
	}
	s->slots[s->done % SLOTS] = *now;
	s->done++;
	if (!then)
		return;
	apart = now->from - then->from;
	by = now->low - then->low;
	if (apart > w->length)
		by = (int64_t)((double)by * ((double)w->length / (double)apart));
	set_found(s, (struct found){ .by = by, .at = time });
}

static void begin_slot(struct growth_series *s, uint64_t where, uint64_t step, int64_t low)
{
	s->slot = (struct slot){ .from = where, .low = low };
	s->looks = 1;
	s->step = step;
	s->begun = true;
}

void growth_series__look(struct growth_series *s, const struct growth_window *w, uint64_t where,
			 uint64_t time, uint64_t step, int64_t value)
{
	uint64_t part = (w->length - 1) / SLOT_PART + 1, length;
	int64_t low = bounded(value);

	if (!s->begun) {
		begin_slot(s, where, step, low);
		return;
	}
	length = where > s->slot.from ? where - s->slot.from : 0;
	/* Without steps for a long time, slots end by time alone. */
	if (length >= part && s->looks >= SLOT_LOOKS &&
	    (!step || step > s->step || length / 4 >= part)) {
		end_slot(s, w, time);
		begin_slot(s, where, step, low);
		return;
	}
	s->looks++;
	s->slot.low = low < s->slot.low ? low : s->slot.low;
}

bool growth_series__is_known(const struct growth_series *s, bool most, int64_t *by, uint64_t *at)
{
	if (!s->known)
		return false;
	*by = most ? s->most.by : s->now.by;
	*at = most ? s->most.at : s->now.at;
	return true;
}

bool growth_series__lows(const struct growth_series *s, bool most, uint64_t *from, uint64_t *to)
{
	const struct found *f = most ? &s->most : &s->now;

	*from = f->from.seq;
	*to = f->to.seq;
	return s->known && !s->slots;
}
