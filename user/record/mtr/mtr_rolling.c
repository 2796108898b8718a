/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/mtr_rolling.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "memtrace.h"
#include "record/dict.h"
#include "record/mtr.h"
#include "record/mtr/live_set.h"
#include "record/mtr/renumber.h"

struct mtr_rolling {
	const struct dict *dict;
	const struct facts *facts;
	struct mtr_ring_opts opts;
	struct live_set *base;
	/* The open part. writer is NULL if no part is open. */
	struct renumber *renumber;
	struct facts *own_facts;
	struct mtr_writer *writer;
	uint64_t before; /* bytes at the start of the part that describe earlier blocks */
	struct mtr_ring_part *parts; /* ring of parts; the open part is last */
	uint32_t first, n,
		room;	     /* of the ring: index of the oldest part, number of parts, entries */
	unsigned int number; /* number of the latest part, from 1 */
	uint64_t steps;	     /* number of steps so far */
	uint64_t used;	     /* bytes of the closed parts on disk */
	uint64_t most;	     /* largest number of bytes on disk so far */
	bool has_gap;	     /* a part was removed: gap is valid */
	struct mtr_ring_span gap;
	int err; /* first error; nothing is written after it */
};

struct mtr_rolling *mtr_rolling__new(const struct dict *d, const struct facts *f,
				     const struct mtr_ring_opts *opts)
{
	struct mtr_rolling *r;

	bool too_small = opts->part_bytes < MTR_RING_PART_MIN ||
			 opts->part_bytes < opts->space / MTR_RING_PARTS;

	if (too_small || opts->part_bytes > opts->space / 2) {
		errno = EINVAL;
		return NULL;
	}
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	r->dict = d;
	r->facts = f;
	r->opts = *opts;
	r->base = live_set__new();
	if (!r->base) {
		free(r);
		errno = ENOMEM;
		return NULL;
	}
	return r;
}

/* Frees the writer and the objects it borrows. Returns the error of closing it. */
static int close_writer(struct mtr_rolling *r)
{
	int err = mtr_writer__close(r->writer);

	r->writer = NULL;
	renumber__free(r->renumber);
	r->renumber = NULL;
	facts__free(r->own_facts);
	r->own_facts = NULL;
	return err;
}

void mtr_rolling__free(struct mtr_rolling *r)
{
	if (!r)
		return;
	r->err = r->err ?: -ECANCELED; /* makes closing write nothing */
	close_writer(r);
	live_set__free(r->base);
	free(r->parts);
	free(r);
}

/* ---- parts ---- */

/* The i-th oldest part. */
static struct mtr_ring_part *part_at(const struct mtr_rolling *r, uint32_t i)
{
	return &r->parts[(r->first + i) % r->room];
}

static struct mtr_ring_part *open_part(const struct mtr_rolling *r)
{
	return part_at(r, r->n - 1);
}

const struct mtr_ring_part *mtr_rolling__part(const struct mtr_rolling *r, uint32_t i)
{
	return i < r->n ? part_at(r, i) : NULL;
}

const struct mtr_ring_span *mtr_rolling__gap(const struct mtr_rolling *r)
{
	return r->has_gap ? &r->gap : NULL;
}

/* Rounds the size of a file up to whole units of the disk. */
static uint64_t on_disk(uint64_t bytes)
{
	return (bytes + MTR_RING_ROUND - 1) & ~(MTR_RING_ROUND - 1);
}

uint64_t mtr_rolling__used(const struct mtr_rolling *r)
{
	return r->used + (r->writer ? on_disk(mtr_writer__bytes(r->writer)) : 0);
}

uint64_t mtr_rolling__most_used(const struct mtr_rolling *r)
{
	return r->most;
}

void mtr_rolling__level(const struct mtr_rolling *r, struct device d, uint64_t *allocated,
			uint64_t *reserved)
{
	struct flight_level l;

	*allocated = *reserved = 0;
	for (size_t i = 0; live_set__level(r->base, i, &l); i++) {
		if (memcmp(&l.device, &d, sizeof(d)))
			continue;
		*allocated = l.allocated;
		*reserved = l.reserved;
		return;
	}
}

/* Adds a part as the open one. Returns 0 or -ENOMEM. */
static int add_part(struct mtr_rolling *r, struct mtr_ring_part s)
{
	uint32_t room = r->room ? r->room * 2 : 16;
	struct mtr_ring_part *bigger;

	if (r->n == r->room) {
		bigger = malloc(room * sizeof(*bigger));
		if (!bigger)
			return -ENOMEM;
		for (uint32_t i = 0; i < r->n; i++)
			bigger[i] = *part_at(r, i);
		free(r->parts);
		r->parts = bigger;
		r->first = 0;
		r->room = room;
	}
	r->n++;
	*open_part(r) = s;
	return 0;
}

/* Returns the device's entry, or NULL if the table is full. */
static struct mtr_ring_device *device_of(struct mtr_ring_span *s, struct device d)
{
	for (uint32_t i = 0; i < s->n_devices; i++)
		if (!memcmp(&s->devices[i].device, &d, sizeof(d)))
			return &s->devices[i];
	if (s->n_devices == MTR_RING_DEVICES)
		return NULL;
	s->devices[s->n_devices] = (struct mtr_ring_device){ .device = d };
	return &s->devices[s->n_devices++];
}

/* Adds the numbers of a period to those of the period before it. */
static void add_span(struct mtr_ring_span *into, const struct mtr_ring_span *s)
{
	into->to = s->to;
	into->steps += s->steps;
	into->events += s->events;
	into->lost += s->lost;
	into->ooms += s->ooms;
	for (uint32_t i = 0; i < s->n_devices; i++) {
		const struct mtr_ring_device *e = &s->devices[i];
		struct mtr_ring_device *d = device_of(into, e->device);

		if (!d)
			continue;
		d->allocated = e->allocated;
		d->reserved = e->reserved;
		if (e->peak_allocated > d->peak_allocated) {
			d->peak_allocated = e->peak_allocated;
			d->peak_time = e->peak_time;
		}
		if (e->peak_reserved > d->peak_reserved)
			d->peak_reserved = e->peak_reserved;
		d->allocs += e->allocs;
		d->frees += e->frees;
		d->total_allocated += e->total_allocated;
	}
}

/* Adds the oldest part to the gap and has its file removed. Returns 0 or the error of drop(). */
static int drop_oldest(struct mtr_rolling *r)
{
	struct mtr_ring_part s = *part_at(r, 0);

	r->first = (r->first + 1) % r->room;
	r->n--;
	r->used -= on_disk(s.bytes);
	if (r->has_gap)
		add_span(&r->gap, &s.span);
	else
		r->gap = s.span;
	r->has_gap = true;
	return r->opts.drop(r->opts.ctx, &s, &r->gap);
}

/* Called before the writer adds bytes to the open part: removes the oldest parts until the space
 * suffices. Returns 0, -EFBIG if the open part alone needs more, or another error. */
static int make_room_for(void *ctx, uint64_t bytes)
{
	struct mtr_rolling *r = ctx;
	uint64_t part = on_disk(open_part(r)->bytes + bytes);
	int err = r->err;

	while (!err && r->used + part > r->opts.space) {
		if (r->n == 1)
			return -EFBIG;
		err = drop_oldest(r);
	}
	open_part(r)->bytes += bytes;
	if (r->used + part > r->most)
		r->most = r->used + part;
	return err;
}

/* ---- opening and closing parts ---- */

/* Copies the capture's facts to the part's facts and adds those that describe the part. why: value
 * of the fact stop_reason; NULL: leave the capture's. Returns 0 or -errno. */
static int copy_facts(struct mtr_rolling *r, const char *why)
{
	const struct mtr_ring_part *s = open_part(r);
	const char *key, *value;
	int err = 0;

	for (size_t i = 0; i < facts__count(r->facts); i++) {
		facts__at(r->facts, i, &key, &value);
		err = err ?: facts__set(r->own_facts, key, value);
	}
	err = err ?: facts__setf(r->own_facts, "duration_ns", "%" PRIu64, s->span.to);
	err = err ?: facts__setf(r->own_facts, "events", "%" PRIu64, s->span.events);
	err = err ?: facts__setf(r->own_facts, "segment", "%u", s->number);
	if (s->number > 1) {
		err = err ?: facts__setf(r->own_facts, "window_start_ns", "%" PRIu64, s->span.from);
		err = err
			      ?: facts__setf(r->own_facts, "window_first_step", "%" PRIu64,
					     s->span.first_step);
	}
	if (why)
		err = err ?: facts__set(r->own_facts, "stop_reason", why);
	return err;
}

/* Writes an event to the open part, with the numbers of the part's own dictionary. */
static int put_event(void *ctx, const struct event *e)
{
	struct mtr_rolling *r = ctx;
	struct event own = *e;
	int err = renumber__event(r->renumber, &own);

	return err ?: mtr_writer__event(r->writer, &own);
}

/* Gives a new part the devices of the period before it, with their present bytes. */
static void begin_devices(const struct mtr_rolling *r, struct mtr_ring_part *s,
			  const struct mtr_ring_span *before)
{
	for (uint32_t i = 0; i < before->n_devices; i++) {
		struct mtr_ring_device *d = device_of(&s->span, before->devices[i].device);

		mtr_rolling__level(r, d->device, &d->allocated, &d->reserved);
		d->peak_allocated = d->allocated;
		d->peak_reserved = d->reserved;
		d->peak_time = s->span.from;
	}
}

/* Opens the next part, whose events start at this time (ns), with the live blocks. Returns 0 or
 * -errno. */
static int begin_part(struct mtr_rolling *r, uint64_t time)
{
	struct mtr_ring_part s = { .number = r->number + 1,
				   .span = { .from = time, .to = time, .first_step = r->steps } };
	struct mtr_writer_opts opts = { .room = make_room_for, .ctx = r };
	int err, fd;

	if (r->n)
		begin_devices(r, &s, &open_part(r)->span);
	else if (r->has_gap)
		begin_devices(r, &s, &r->gap);
	r->own_facts = facts__new();
	r->renumber = renumber__new(r->dict);
	err = r->own_facts && r->renumber ? add_part(r, s) : -ENOMEM;
	if (err)
		return err;
	r->number++;
	err = copy_facts(r, NULL);
	if (err)
		return err;
	fd = r->opts.open(r->opts.ctx, open_part(r));
	if (fd < 0)
		return fd;
	r->writer = mtr_writer__new(fd, renumber__dict(r->renumber), r->own_facts, &opts);
	if (!r->writer)
		return -errno;
	if (s.number > 1)
		err = live_set__emit(r->base, time, put_event, r);
	err = err ?: mtr_writer__flush(r->writer);
	r->before = mtr_writer__bytes(r->writer);
	return err ?: r->opts.ready(r->opts.ctx, open_part(r));
}

/* Closes the open part. why: value of the fact stop_reason; NULL: leave the capture's. Returns 0 or
 * -errno. */
static int end_part(struct mtr_rolling *r, const char *why)
{
	struct mtr_ring_part *s = open_part(r);
	int err = copy_facts(r, why) ?: close_writer(r), done_err;

	r->used += on_disk(s->bytes);
	s->closed = !err;
	done_err = r->opts.done(r->opts.ctx, s, err);
	return err ?: done_err;
}

/* True if the open part reached its size, and at least half of it are new events. Without the
 * second rule, most of the space would describe earlier blocks if there are many of them. If the
 * part has a quarter of the space, fewer new events suffice.
 */
static bool is_full(const struct mtr_rolling *r)
{
	uint64_t bytes = mtr_writer__bytes(r->writer);

	if (bytes < r->opts.part_bytes)
		return false;
	if (bytes >= 2 * r->before)
		return true;
	return bytes >= r->opts.space / 4 && bytes > r->before + r->opts.part_bytes / 4;
}

/* True for events that a part's figures of a device take into account. */
static bool is_of_device(uint8_t kind)
{
	switch (kind) {
	case EVENT_ALLOC:
	case EVENT_FREE:
	case EVENT_OOM:
	case EVENT_BLOCK:
	case EVENT_STATE:
	case EVENT_TENSOR:
		return true;
	default:
		return false;
	}
}

/* Counts an event in the numbers of the open part. The base has it already. */
static void count_event(struct mtr_rolling *r, const struct event *e)
{
	struct mtr_ring_span *s = &open_part(r)->span;
	struct mtr_ring_device *d;

	if (e->time > s->to)
		s->to = e->time;
	if (e->kind == EVENT_LOST) {
		s->lost += e->size;
		return;
	}
	s->events += event__counts(e);
	s->ooms += e->kind == EVENT_OOM;
	if (e->kind == EVENT_STEP) {
		s->steps++;
		r->steps++;
	}
	if (!is_of_device(e->kind))
		return;
	d = device_of(s, e->device);
	if (!d)
		return;
	mtr_rolling__level(r, e->device, &d->allocated, &d->reserved);
	if (d->allocated > d->peak_allocated) {
		d->peak_allocated = d->allocated;
		d->peak_time = e->time;
	}
	if (d->reserved > d->peak_reserved)
		d->peak_reserved = d->reserved;
	d->allocs += e->kind == EVENT_ALLOC;
	d->frees += e->kind == EVENT_FREE;
	d->total_allocated += e->kind == EVENT_ALLOC ? e->size : 0;
}

/* Writes an event to the open part, which it opens on demand and closes when it is full. Returns 0
 * or -errno. */
static int add_event(struct mtr_rolling *r, const struct event *e)
{
	int err = r->writer ? 0 : begin_part(r, e->time);

	err = err ?: put_event(r, e);
	err = err ?: live_set__fold(r->base, e);
	if (err)
		return err;
	count_event(r, e);
	return is_full(r) ? end_part(r, "segment") : 0;
}

int mtr_rolling__event(struct mtr_rolling *r, const struct event *e)
{
	if (r->err)
		return r->err;
	if (e->kind < EVENT_ALLOC || e->kind >= EVENT_KINDS)
		return -EINVAL;
	if (e->walk >= MT_WALK_NR || e->how >= event__how_end(e->kind))
		return -EINVAL;
	if (e->category >= CATEGORY_OF_EVENTS)
		return -EINVAL;
	r->err = add_event(r, e);
	return r->err;
}

int mtr_rolling__flush(struct mtr_rolling *r)
{
	if (r->err || !r->writer)
		return r->err;
	r->err = copy_facts(r, NULL) ?: mtr_writer__flush(r->writer);
	return r->err;
}

int mtr_rolling__finish(struct mtr_rolling *r)
{
	int err;

	if (r->writer) {
		err = r->err;
		if (!err)
			err = end_part(r, NULL);
		else
			(void)r->opts.done(r->opts.ctx, open_part(r), err);
		r->err = err;
	}
	return r->err;
}
