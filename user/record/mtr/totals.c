/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/mtr_rolling.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define SECOND UINT64_C(1000000000) /* ns */
#define ROW_BYTES 256		    /* a row as JSON text takes at most so many bytes */
#define FIXED_BYTES 640		    /* a series without its rows takes at most so many */
#define LEVELS 5		    /* of detail, from seconds to the whole capture */
#define COLUMNS 10		    /* most columns of a row */

/* How two values of a column are merged. */
enum how { SUM, MIN, MAX, LAST };

struct column {
	const char *name;
	enum how how;
};

enum process_column { P_EVENTS, P_LOST, P_STEPS, P_STEP_TIME, P_STEP_TIME_MAX, P_COLUMNS };
static const struct column process_columns[P_COLUMNS] = {
	{ "events", SUM },    { "lost", SUM },		{ "steps", SUM },
	{ "step_time", SUM }, { "step_time_max", MAX },
};

enum device_column {
	D_MIN, /* allocated */
	D_MAX,
	D_LAST,
	D_RMIN, /* reserved */
	D_RMAX,
	D_RLAST,
	D_ALLOCS,
	D_FREES,
	D_BYTES,
	D_OOMS,
	D_COLUMNS
};
static const struct column device_columns[D_COLUMNS] = {
	{ "allocated_min", MIN }, { "allocated_max", MAX }, { "allocated", LAST },
	{ "reserved_min", MIN },  { "reserved_max", MAX },  { "reserved", LAST },
	{ "allocs", SUM },	  { "frees", SUM },	    { "allocated_bytes", SUM },
	{ "ooms", SUM },
};
_Static_assert((int)P_COLUMNS <= COLUMNS && (int)D_COLUMNS <= COLUMNS,
	       "a row has room for all columns");

struct row {
	uint64_t at;	     /* start of the row's interval, s since the capture's start */
	uint64_t v[COLUMNS]; /* values, index: enum process_column or enum device_column */
};

struct level {
	uint64_t step;		 /* length of a row's interval, s */
	struct row *rows;	 /* ring of finished rows */
	uint32_t first, n, room; /* of the ring: index of the oldest row, number of rows, entries */
	struct row open;	 /* the row of the present interval, which still collects events */
	bool has_open;		 /* true if open is valid */
};

struct series {
	const struct column *columns;
	uint32_t n_columns;
	struct totals_device d; /* only in the series of a device */
	struct level levels[LEVELS];
};

/* The levels of a series. The last one covers the whole capture; its step doubles when it is full. */
static const struct {
	uint64_t step; /* length of a row's interval, s */
	uint32_t rows; /* most rows */
} levels[LEVELS] = { { 1, 3600 }, { 10, 8640 }, { 60, 10080 }, { 600, 4320 }, { 3600, 1024 } };
#define ROWS_MIN 16 /* a level may have so many rows, even if max_bytes is small */

struct totals {
	uint64_t max_bytes;
	struct totals_whole whole;
	uint64_t last_step;			   /* end of the last step, ns; 0: none yet */
	struct series *series[TOTALS_DEVICES + 1]; /* the process first, then devices */
	uint32_t n;
};

/* Creates a series of rows with these columns. NULL: no memory. */
static struct series *series__new(const struct column *columns, uint32_t n)
{
	struct series *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->columns = columns;
	s->n_columns = n;
	for (int i = 0; i < LEVELS; i++)
		s->levels[i].step = levels[i].step;
	return s;
}

struct totals *totals__new(uint64_t max_bytes)
{
	struct totals *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->max_bytes = max_bytes;
	t->series[0] = series__new(process_columns, P_COLUMNS);
	if (!t->series[0]) {
		free(t);
		return NULL;
	}
	t->n = 1;
	return t;
}

void totals__free(struct totals *t)
{
	if (!t)
		return;
	for (uint32_t i = 0; i < t->n; i++) {
		for (int k = 0; k < LEVELS; k++)
			free(t->series[i]->levels[k].rows);
		free(t->series[i]);
	}
	free(t);
}

/* Returns the most rows that a level of one series may have, so that all series together fit
 * max_bytes. */
static uint32_t max_rows(const struct totals *t, int level)
{
	uint64_t all = 0, room = t->max_bytes / t->n;

	for (int i = 0; i < LEVELS; i++)
		all += levels[i].rows;
	room = room > FIXED_BYTES ? (room - FIXED_BYTES) / ROW_BYTES : 0;
	if (room < all)
		room = levels[level].rows * room / all;
	else
		room = levels[level].rows;
	return room < ROWS_MIN ? ROWS_MIN : (uint32_t)room;
}

/* The i-th oldest row. */
static struct row *row_at(const struct level *l, uint32_t i)
{
	return &l->rows[(l->first + i) % l->room];
}

/* Merges a row into an earlier one. */
static void merge_row(const struct series *s, struct row *into, const struct row *later)
{
	for (uint32_t i = 0; i < s->n_columns; i++) {
		uint64_t *v = &into->v[i], w = later->v[i];

		switch (s->columns[i].how) {
		case SUM:
			*v += w;
			break;
		case MIN:
			*v = w < *v ? w : *v;
			break;
		case MAX:
			*v = w > *v ? w : *v;
			break;
		case LAST:
			*v = w;
			break;
		}
	}
}

/* Makes room for one more row: removes the oldest rows at the bound of max rows, otherwise grows
 * the ring. Returns 0 or -ENOMEM. */
static int make_room(struct level *l, uint32_t max)
{
	uint32_t room = l->room ? l->room * 2 : 64;
	struct row *bigger;

	while (l->n >= max) { /* more than one row: max becomes smaller with each new series */
		l->first = (l->first + 1) % l->room;
		l->n--;
	}
	if (l->n < l->room)
		return 0;
	bigger = malloc(room * sizeof(*bigger));
	if (!bigger)
		return -ENOMEM;
	for (uint32_t i = 0; i < l->n; i++)
		bigger[i] = *row_at(l, i);
	free(l->rows);
	l->rows = bigger;
	l->first = 0;
	l->room = room;
	return 0;
}

/* Doubles the level's step until there is room for one more row. Merges rows of the same new
 * interval. */
static void coarsen_level(const struct series *s, struct level *l, uint32_t max)
{
	while (l->n >= max) {
		uint32_t k = 0;

		l->step *= 2;
		for (uint32_t i = 0; i < l->n; i++) {
			struct row r = *row_at(l, i);

			r.at -= r.at % l->step;
			if (k && row_at(l, k - 1)->at == r.at)
				merge_row(s, row_at(l, k - 1), &r);
			else
				*row_at(l, k++) = r;
		}
		l->n = k;
	}
}

static int put_row(const struct totals *t, struct series *s, int level, const struct row *r);

/* Closes the open row: appends it to its level, and adds its values to the next coarser level.
 * Returns 0 or -ENOMEM. */
static int close_row(const struct totals *t, struct series *s, int level)
{
	struct level *l = &s->levels[level];
	uint32_t max = max_rows(t, level);
	struct row done = l->open;
	int err;

	l->has_open = false;
	if (level == LEVELS - 1)
		coarsen_level(s, l, max);
	if (l->n && row_at(l, l->n - 1)->at == done.at - done.at % l->step) {
		merge_row(s, row_at(l, l->n - 1), &done);
		return 0;
	}
	err = make_room(l, max);
	if (err)
		return err;
	done.at -= done.at % l->step;
	*row_at(l, l->n++) = done;
	return level + 1 < LEVELS ? put_row(t, s, level + 1, &l->open) : 0;
}

/* Adds the values of r to the level's open row. If r is of a later interval, closes the open row
 * and opens a new one. Returns 0 or -ENOMEM. */
static int put_row(const struct totals *t, struct series *s, int level, const struct row *r)
{
	struct level *l = &s->levels[level];
	uint64_t at = r->at - r->at % l->step;
	int err;

	/* Events of different threads can be out of order by up to 1 ms. Late events count for the
	 * open row. */
	if (l->has_open && at > l->open.at) {
		err = close_row(t, s, level);
		if (err)
			return err;
		at = r->at - r->at % l->step; /* close_row() may have doubled the step */
	}
	if (l->has_open) {
		merge_row(s, &l->open, r);
		return 0;
	}
	l->open = *r;
	l->open.at = at;
	l->has_open = true;
	return 0;
}

/* Sets *ret to the device's series, which it creates on demand, or to NULL if there are too many
 * devices. Returns 0 or -ENOMEM. */
static int series_of(struct totals *t, struct device device, struct series **ret)
{
	struct series *s;

	for (uint32_t i = 1; i < t->n; i++) {
		if (!memcmp(&t->series[i]->d.device, &device, sizeof(device))) {
			*ret = t->series[i];
			return 0;
		}
	}
	*ret = NULL;
	if (t->n > TOTALS_DEVICES)
		return 0;
	s = series__new(device_columns, D_COLUMNS);
	if (!s)
		return -ENOMEM;
	s->d.device = device;
	t->series[t->n++] = *ret = s;
	t->whole.devices++;
	return 0;
}

/* Adds an event to the series of its device. allocated, reserved: bytes after it. Returns 0 or
 * -ENOMEM. */
static int add_on_device(struct totals *t, const struct event *e, uint64_t allocated,
			 uint64_t reserved)
{
	struct row r = { .at = e->time / SECOND };
	struct totals_device *d;
	struct series *s;
	int err = series_of(t, e->device, &s);

	if (err || !s)
		return err;
	d = &s->d;
	d->allocated = allocated;
	d->reserved = reserved;
	if (allocated > d->peak_allocated) {
		d->peak_allocated = allocated;
		d->peak_time = e->time;
		d->peak_step = t->whole.steps;
	}
	if (reserved > d->peak_reserved) {
		d->peak_reserved = reserved;
		d->peak_reserved_time = e->time;
	}
	r.v[D_MIN] = r.v[D_MAX] = r.v[D_LAST] = allocated;
	r.v[D_RMIN] = r.v[D_RMAX] = r.v[D_RLAST] = reserved;
	switch (e->kind) {
	case EVENT_ALLOC:
		r.v[D_ALLOCS] = 1;
		r.v[D_BYTES] = e->size;
		d->allocs++;
		d->total_allocated += e->size;
		break;
	case EVENT_FREE:
		r.v[D_FREES] = 1;
		d->frees++;
		break;
	case EVENT_OOM:
		r.v[D_OOMS] = 1;
		d->ooms++;
		break;
	}
	return put_row(t, s, 0, &r);
}

/* True for kinds of events that can change the bytes on a device. */
static bool changes_bytes(uint8_t kind)
{
	switch (kind) {
	case EVENT_ALLOC:
	case EVENT_FREE:
	case EVENT_OOM:
	case EVENT_BLOCK:
	case EVENT_STATE:
		return true;
	default:
		return false;
	}
}

int totals__event(struct totals *t, const struct event *e, uint64_t allocated, uint64_t reserved)
{
	struct row r = { .at = e->time / SECOND };
	int err;

	if (e->kind == EVENT_LOST) {
		t->whole.lost += r.v[P_LOST] = e->size;
	} else {
		t->whole.events += event__counts(e);
		r.v[P_EVENTS] = event__counts(e);
	}
	if (e->kind == EVENT_STEP) {
		t->whole.steps++;
		r.v[P_STEPS] = 1;
		/* The duration of the first step is unknown, because it began before the
		 * capture. */
		if (t->last_step && e->time > t->last_step)
			r.v[P_STEP_TIME] = r.v[P_STEP_TIME_MAX] = e->time - t->last_step;
		t->last_step = e->time;
	}
	if (e->time > t->whole.last)
		t->whole.last = e->time;
	err = put_row(t, t->series[0], 0, &r);
	if (err || !changes_bytes(e->kind))
		return err;
	return add_on_device(t, e, allocated, reserved);
}

void totals__whole(const struct totals *t, struct totals_whole *ret)
{
	*ret = t->whole;
}

bool totals__device(const struct totals *t, uint32_t i, struct totals_device *ret)
{
	if (i + 1 >= t->n)
		return false;
	*ret = t->series[i + 1]->d;
	return true;
}

/* Writes the sums over the whole capture. */
static void whole_json(const struct totals *t, struct json *j)
{
	char name[DEVICE_NAME];

	json__open_object(j, "whole");
	json__uint(j, "events", t->whole.events);
	json__uint(j, "lost", t->whole.lost);
	json__uint(j, "steps", t->whole.steps);
	json__uint(j, "last_ns", t->whole.last);
	json__open_array(j, "devices");
	for (uint32_t i = 1; i < t->n; i++) {
		const struct totals_device *d = &t->series[i]->d;

		json__open_object(j, NULL);
		json__string(j, "device", device__name(d->device, name, sizeof(name)));
		json__uint(j, "allocated", d->allocated);
		json__uint(j, "reserved", d->reserved);
		json__uint(j, "peak_allocated", d->peak_allocated);
		json__uint(j, "peak_time_ns", d->peak_time);
		json__uint(j, "peak_step", d->peak_step);
		json__uint(j, "peak_reserved", d->peak_reserved);
		json__uint(j, "peak_reserved_time_ns", d->peak_reserved_time);
		json__uint(j, "allocs", d->allocs);
		json__uint(j, "frees", d->frees);
		json__uint(j, "total_allocated", d->total_allocated);
		json__uint(j, "ooms", d->ooms);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}

static void row_json(const struct series *s, const struct row *r, struct json *j)
{
	json__open_array(j, NULL);
	json__uint(j, NULL, r->at);
	for (uint32_t i = 0; i < s->n_columns; i++)
		json__uint(j, NULL, r->v[i]);
	json__close_array(j);
}

/* Writes a level's rows. later: the open rows of the finer levels in order of time, whose values
 * this level does not have yet. The function adds its own open row to them, for the next level. */
static void level_json(const struct series *s, const struct level *l, struct row *later,
		       uint32_t *n_later, struct json *j)
{
	struct row last = { 0 };
	bool has_last = false; /* last has a row that is not written yet */

	if (l->has_open) {
		memmove(later + 1, later, *n_later * sizeof(*later));
		later[0] = l->open;
		++*n_later;
	}
	json__open_object(j, NULL);
	json__uint(j, "step", l->step);
	json__open_array(j, "rows");
	for (uint32_t i = 0; i < l->n + *n_later; i++) {
		struct row r = i < l->n ? *row_at(l, i) : later[i - l->n];

		r.at -= r.at % l->step;
		if (has_last && r.at <= last.at) {
			merge_row(s, &last, &r);
			continue;
		}
		if (has_last)
			row_json(s, &last, j);
		last = r;
		has_last = true;
	}
	if (has_last)
		row_json(s, &last, j);
	json__close_array(j);
	json__close_object(j);
}

void totals__json(const struct totals *t, struct json *j)
{
	char name[DEVICE_NAME];

	whole_json(t, j);
	json__open_array(j, "series");
	for (uint32_t i = 0; i < t->n; i++) {
		const struct series *s = t->series[i];
		struct row later[LEVELS];
		uint32_t n = 0;

		json__open_object(j, NULL);
		json__string(j, "of",
			     i ? device__name(s->d.device, name, sizeof(name)) : "process");
		json__open_array(j, "columns");
		json__string(j, NULL, "t");
		for (uint32_t k = 0; k < s->n_columns; k++)
			json__string(j, NULL, s->columns[k].name);
		json__close_array(j);
		json__open_array(j, "levels");
		for (int k = 0; k < LEVELS; k++)
			level_json(s, &s->levels[k], later, &n, j);
		json__close_array(j);
		json__close_object(j);
	}
	json__close_array(j);
}
