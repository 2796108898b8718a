/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Prints a run of any length in a few lines: totals, removed parts, memory over time. */
#include "model/open/rolling_view_internal.h"

#include <string.h>

#include "base/json.h"
#include "base/text.h"

#define LINES 12 /* lines of memory over time */
#define SECOND UINT64_C(1000000000)

static const char *clean(char *buf, size_t size, const char *s)
{
	return text__clean(buf, size, s, strlen(s));
}

/* Returns the end of the last removed part, ns; 0: none was removed. */
static uint64_t removed_until(const struct rolling_view *v, uint64_t *events)
{
	const struct folder_gap *gaps;
	uint64_t to = 0;
	size_t n;

	*events = 0;
	gaps = folder__gaps(v->folder, &n);
	for (size_t i = 0; i < n; i++) {
		to = gaps[i].to > to ? gaps[i].to : to;
		*events += gaps[i].events;
	}
	return to;
}

static void print_head(const struct rolling_view *v, FILE *out)
{
	char name[256], n[32], lost[32], steps[32], when[24];
	uint64_t events, gone = removed_until(v, &events);

	fprintf(out, "%s: %zu segment%s%s%s%s%s, %s lost",
		clean(name, sizeof(name), folder__path(v->folder)), v->n, v->n == 1 ? "" : "s",
		text__dot(), text__time(when, sizeof(when), v->last), text__dot(),
		text__counted(n, sizeof(n), v->events, "event"),
		text__count(lost, sizeof(lost), v->lost));
	if (v->steps)
		fprintf(out, "%s%s", text__dot(),
			text__counted(steps, sizeof(steps), v->steps, "step"));
	fprintf(out, "\n");
	if (gone)
		fprintf(out, "The first %s, %s, are dropped: of them there are totals alone.\n",
			text__time(when, sizeof(when), gone),
			text__counted(n, sizeof(n), events, "event"));
}

static void print_device(const struct ring_device *d, FILE *out)
{
	char peak[24], when[24], reserved[24], n[32], total[24], ooms[32], step[40];

	fprintf(out, "%s  peak %s allocated", d->name,
		text__bytes(peak, sizeof(peak), d->peak_allocated));
	if (d->peak_reserved)
		fprintf(out, ", %s reserved,",
			text__bytes(reserved, sizeof(reserved), d->peak_reserved));
	fprintf(out, " at %s", text__time(when, sizeof(when), d->peak_time));
	if (d->peak_step)
		fprintf(out, " (%s)", text__step(step, d->peak_step));
	fprintf(out, "%s%s allocations of %s", text__dot(), text__count(n, sizeof(n), d->allocs),
		text__bytes(total, sizeof(total), d->total_allocated));
	if (d->ooms)
		fprintf(out, "%sout of memory %s times", text__dot(),
			text__count(ooms, sizeof(ooms), d->ooms));
	fprintf(out, "\n");
}

/* ---- memory over time ---- */

struct piece {
	uint64_t from, max, last, reserved;
	bool any;
};

static const json_t *levels_of(const struct rolling_view *v, const char *device)
{
	const json_t *series = json_object_get(v->totals, "series"), *s;
	size_t i;

	json_array_foreach(series, i, s)
	{
		const json_t *of = json_object_get(s, "of");

		if (json_is_string(of) && !strcmp(json_string_value(of), device))
			return json_object_get(s, "levels");
	}
	return NULL;
}

/* Returns the column's index; SIZE_MAX: none has this name. */
static size_t column_of(const struct rolling_view *v, const char *device, const char *name)
{
	const json_t *series = json_object_get(v->totals, "series"), *s, *c;
	size_t i, k;

	json_array_foreach(series, i, s)
	{
		const json_t *of = json_object_get(s, "of");

		if (!json_is_string(of) || strcmp(json_string_value(of), device))
			continue;
		json_array_foreach(json_object_get(s, "columns"), k,
				   c) if (json_is_string(c) &&
					  !strcmp(json_string_value(c), name)) return k;
	}
	return SIZE_MAX;
}

static uint64_t value_of(const json_t *row, size_t column)
{
	json_int_t v = json_integer_value(json_array_get(row, column));

	return v > 0 ? (uint64_t)v : 0;
}

/* Returns the finest level that reaches back to the start. */
static const json_t *level_from_begin(const json_t *levels)
{
	const json_t *level,
		*coarsest = json_array_get(
			levels, json_array_size(levels) ? json_array_size(levels) - 1 : 0);
	uint64_t begin = value_of(json_array_get(json_object_get(coarsest, "rows"), 0), 0);
	size_t i;

	json_array_foreach(levels, i, level)
	{
		const json_t *rows = json_object_get(level, "rows");
		uint64_t from = value_of(json_array_get(rows, 0), 0);

		/* Levels start at multiples of their steps. A level that starts within the coarsest
		 * level's first step reaches back. */
		if (json_array_size(rows) &&
		    from < begin + (uint64_t)json_integer_value(json_object_get(coarsest, "step")))
			return level;
	}
	return coarsest;
}

static size_t fill_pieces(const struct rolling_view *v, const json_t *level, struct piece *p)
{
	size_t max = column_of(v, v->device->name, "allocated_max"),
	       last = column_of(v, v->device->name, "allocated"),
	       reserved = column_of(v, v->device->name, "reserved_max"), i, n = 0;
	const json_t *rows = json_object_get(level, "rows"), *row;
	uint64_t begin = value_of(json_array_get(rows, 0), 0), end = v->last / SECOND + 1,
		 span = end > begin ? end - begin : 1;

	json_array_foreach(rows, i, row)
	{
		uint64_t t = value_of(row, 0);
		size_t k = t < begin ? 0 : (size_t)((t - begin) * LINES / span);

		if (!json_is_array(row) || k >= LINES)
			continue;
		if (!p[k].any)
			p[k].from = t;
		p[k].any = true;
		p[k].last = value_of(row, last);
		p[k].max = value_of(row, max) > p[k].max ? value_of(row, max) : p[k].max;
		p[k].reserved = value_of(row, reserved) > p[k].reserved ? value_of(row, reserved)
									: p[k].reserved;
	}
	for (size_t k = 0; k < LINES; k++)
		n += p[k].any;
	return n;
}

static void print_course(const struct rolling_view *v, FILE *out)
{
	const json_t *levels = v->device ? levels_of(v, v->device->name) : NULL;
	struct piece pieces[LINES] = { 0 };
	char when[24], max[24], last[24], reserved[24];

	if (!json_is_array(levels) || !json_array_size(levels) ||
	    fill_pieces(v, level_from_begin(levels), pieces) < 2)
		return;
	fprintf(out, "\n%14s %12s %12s %12s  %s\n", "from", "at most", "in the end", "reserved",
		v->device->name);
	for (size_t i = 0; i < LINES; i++) {
		const struct piece *p = &pieces[i];

		if (p->any)
			fprintf(out, "%14s %12s %12s %12s\n",
				text__time(when, sizeof(when), p->from * SECOND),
				text__bytes(max, sizeof(max), p->max),
				text__bytes(last, sizeof(last), p->last),
				p->reserved ? text__bytes(reserved, sizeof(reserved), p->reserved)
					    : "-");
	}
}

/* ---- output ---- */

void rolling_view__print(const struct rolling_view *v, FILE *out)
{
	const struct folder_entry *e = &v->entries[v->picked];
	const struct folder_device *there = v->device ? rolling_view__device_of(e, v->device->name)
						      : NULL;
	char file[256], from[24], to[24], peak[24];

	print_head(v, out);
	for (size_t i = 0; i < v->n_devices; i++)
		print_device(&v->devices[i], out);
	print_course(v, out);
	fprintf(out, "\n");
	if (v->at == AT_PEAK && v->peak_gone)
		fprintf(out,
			"The segment of that peak is dropped: below is the highest that is there, "
			"%s.\n",
			there ? text__bytes(peak, sizeof(peak), there->peak_allocated) : "0 B");
	fprintf(out, "From here on of %s, %s to %s:\n\n", clean(file, sizeof(file), e->file),
		text__time(from, sizeof(from), e->from), text__time(to, sizeof(to), e->to));
}

void rolling_view__json(const struct rolling_view *v, struct json *j)
{
	uint64_t events, gone = removed_until(v, &events);

	json__open_object(j, "rolling");
	json__string(j, "folder", folder__path(v->folder));
	json__string(j, "segment", v->entries[v->picked].file);
	json__seconds(j, "segment_from", v->entries[v->picked].from, 9);
	json__seconds(j, "segment_to", v->entries[v->picked].to, 9);
	json__uint(j, "segments", v->n);
	json__bool(j, "peak_dropped", v->at == AT_PEAK && v->peak_gone);
	json__seconds(j, "duration", v->last, 9);
	json__uint(j, "events", v->events);
	json__uint(j, "lost", v->lost);
	json__uint(j, "steps", v->steps);
	json__seconds(j, "dropped_until", gone, 9);
	json__uint(j, "dropped_events", events);
	json__open_array(j, "devices");
	for (size_t i = 0; i < v->n_devices; i++) {
		const struct ring_device *d = &v->devices[i];

		json__open_object(j, NULL);
		json__string(j, "device", d->name);
		json__uint(j, "allocated", d->allocated);
		json__uint(j, "reserved", d->reserved);
		json__uint(j, "peak_allocated", d->peak_allocated);
		json__seconds(j, "peak_time", d->peak_time, 9);
		json__uint(j, "peak_step", d->peak_step);
		json__uint(j, "peak_reserved", d->peak_reserved);
		json__uint(j, "total_allocated", d->total_allocated);
		json__uint(j, "allocs", d->allocs);
		json__uint(j, "frees", d->frees);
		json__uint(j, "ooms", d->ooms);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}
