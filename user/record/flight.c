/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/flight.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <linux/types.h>

#include "memtrace.h"
#include "record/dict.h"
#include "record/flight_base.h"
#include "record/mtr.h"
#include "record/mtr_decode.h"
#include "record/mtr_encode.h"
#include "record/mtr_format.h"

/* The window moves on by chunks: of so much of what it may hold. */
#define CHUNKS 8

struct chunk {
	uint8_t *data; /* the payload of an events block */
	size_t len;
	uint32_t n;
	uint64_t last; /* time */
};

struct flight {
	struct dict *dict;
	const struct facts *facts;
	struct flight_opts opts;
	struct flight_base *base; /* before the first chunk */
	struct chunk *chunks;	  /* a ring */
	uint32_t first, n_chunks, room;
	uint64_t bytes, events; /* in chunks */
	struct mtr_encoder *enc; /* the chunk that fills */
	uint64_t enc_first, enc_last; /* times */
	struct mtr_decoder *dec;
	uint64_t cut_until; /* time of the last event that left the window for want of room */
	unsigned int files;
	/* An out of memory that waits to be written. */
	uint64_t ooms;
	struct event oom; /* the first */
	uint64_t last_oom; /* time */
};

void flight__free(struct flight *fl)
{
	if (!fl)
		return;
	for (uint32_t i = 0; i < fl->n_chunks; i++)
		free(fl->chunks[(fl->first + i) % fl->room].data);
	free(fl->chunks);
	flight_base__free(fl->base);
	mtr_encoder__free(fl->enc);
	mtr_decoder__free(fl->dec);
	free(fl);
}

struct flight *flight__new(struct dict *d, const struct facts *f, const struct flight_opts *opts)
{
	struct flight *fl = calloc(1, sizeof(*fl));

	if (!fl)
		return NULL;
	fl->dict = d;
	fl->facts = f;
	fl->opts = *opts;
	if (!fl->opts.max_bytes)
		fl->opts.max_bytes = FLIGHT_BYTES;
	fl->base = flight_base__new();
	fl->enc = mtr_encoder__new(d);
	fl->dec = mtr_decoder__new(d);
	if (!fl->base || !fl->enc || !fl->dec) {
		flight__free(fl);
		errno = ENOMEM;
		return NULL;
	}
	return fl;
}

unsigned int flight__files(const struct flight *fl)
{
	return fl->files;
}

bool flight__full(const struct flight *fl)
{
	return fl->opts.max_files && fl->files >= fl->opts.max_files;
}

/* ---- the window ---- */

static struct chunk *chunk_at(const struct flight *fl, uint32_t i)
{
	return &fl->chunks[(fl->first + i) % fl->room];
}

static int make_room(struct flight *fl)
{
	uint32_t room = fl->room ? fl->room * 2 : 16;
	struct chunk *bigger;

	if (fl->n_chunks < fl->room)
		return 0;
	bigger = malloc(room * sizeof(*bigger));
	if (!bigger)
		return -ENOMEM;
	for (uint32_t i = 0; i < fl->n_chunks; i++)
		bigger[i] = *chunk_at(fl, i);
	free(fl->chunks);
	fl->chunks = bigger;
	fl->room = room;
	fl->first = 0;
	return 0;
}

/* What was encoded becomes a chunk. */
static int close_chunk(struct flight *fl)
{
	struct mtr_part parts[MTR_PARTS];
	struct chunk c = { .n = mtr_encoder__count(fl->enc), .last = fl->enc_last };

	if (!c.n)
		return 0;
	mtr_encoder__parts(fl->enc, 0, parts);
	for (int i = 0; i < MTR_PARTS; i++)
		c.len += parts[i].len;
	c.data = malloc(c.len);
	if (!c.data || make_room(fl)) {
		free(c.data);
		return -ENOMEM;
	}
	c.len = 0;
	for (int i = 0; i < MTR_PARTS; i++) {
		memcpy(c.data + c.len, parts[i].data, parts[i].len);
		c.len += parts[i].len;
	}
	mtr_encoder__reset(fl->enc);
	fl->n_chunks++;
	*chunk_at(fl, fl->n_chunks - 1) = c;
	fl->bytes += c.len;
	fl->events += c.n;
	return 0;
}

static void drop_chunk(struct flight *fl)
{
	struct chunk *c = chunk_at(fl, 0);

	fl->bytes -= c->len;
	fl->events -= c->n;
	free(c->data);
	fl->first = (fl->first + 1) % fl->room;
	fl->n_chunks--;
}

/* Each event of the oldest chunk goes to fn, then the chunk goes. 0 or the first error. */
static int empty_chunk(struct flight *fl, int (*fn)(void *ctx, const struct event *e), void *ctx)
{
	const struct chunk *c = chunk_at(fl, 0);
	const char *why;
	struct event e;
	int err = mtr_decoder__begin(fl->dec, MTR_VERSION, c->data, c->len, 0, &why);

	while (!err) {
		int got = mtr_decoder__next(fl->dec, &e, &why);

		if (got <= 0) {
			err = got;
			break;
		}
		err = fn(ctx, &e);
	}
	drop_chunk(fl);
	return err;
}

static int fold(void *ctx, const struct event *e)
{
	return flight_base__fold(ctx, e);
}

static bool over_bounds(const struct flight *fl)
{
	return fl->bytes > fl->opts.max_bytes || (fl->opts.max_events && fl->events > fl->opts.max_events);
}

/* Lets go of what is older than the window at the time now, or more than there is room for. */
static int move_on(struct flight *fl, uint64_t now)
{
	int err = 0;

	while (fl->n_chunks && !err) {
		/* A little more than the window: what comes later may have happened before now. */
		bool old = chunk_at(fl, 0)->last + fl->opts.window + FLIGHT_AFTER < now;

		if (!old && !over_bounds(fl))
			break;
		if (!old && chunk_at(fl, 0)->last > fl->cut_until)
			fl->cut_until = chunk_at(fl, 0)->last;
		err = empty_chunk(fl, fold, fl->base);
	}
	return err;
}

static bool chunk_is_full(const struct flight *fl)
{
	struct mtr_part parts[MTR_PARTS];
	size_t len = 0;

	if (mtr_encoder__full(fl->enc) ||
	    (fl->opts.max_events && mtr_encoder__count(fl->enc) >= fl->opts.max_events / CHUNKS))
		return true;
	if (fl->opts.max_bytes / CHUNKS >= 64 << 10 || mtr_encoder__count(fl->enc) % 64)
		return false;
	mtr_encoder__parts(fl->enc, 0, parts);
	for (int i = 0; i < MTR_PARTS; i++)
		len += parts[i].len;
	return len >= fl->opts.max_bytes / CHUNKS;
}

/* ---- the file ---- */

struct dump {
	struct flight *fl;
	struct mtr_writer *w;
	uint64_t begin; /* of the window, ns */
	bool begun;
	int err; /* of writing; the window is folded all the same */
	struct flight_report report;
};

static int put(void *ctx, const struct event *e)
{
	struct dump *d = ctx;

	return mtr_writer__event(d->w, e);
}

static int dump_event(void *ctx, const struct event *e)
{
	struct dump *d = ctx;
	struct flight_report *r = &d->report;

	if (!d->err && !d->begun && e->time >= d->begin) {
		d->begun = true;
		r->from = r->to = e->time;
		r->blocks = flight_base__blocks(d->fl->base);
		d->err = flight_base__tell(d->fl->base, e->time, put, d);
	}
	if (!d->err && d->begun) {
		d->err = mtr_writer__event(d->w, e);
		r->events++;
		if (e->time > r->to)
			r->to = e->time;
	}
	return flight_base__fold(d->fl->base, e);
}

/* The capture's facts, and what is different for this file. */
static struct facts *facts_of(const struct flight *fl)
{
	struct facts *f = facts__new();
	const char *key, *value;
	int err = 0;

	for (size_t i = 0; f && i < facts__count(fl->facts) && !err; i++) {
		facts__at(fl->facts, i, &key, &value);
		err = facts__set(f, key, value);
	}
	if (err) {
		facts__free(f);
		return NULL;
	}
	return f;
}

static int last_facts(struct facts *f, const struct flight_report *r)
{
	return facts__set(f, "stop_reason", "oom") ?: facts__setf(f, "duration_ns", "%" PRIu64, r->to) ?:
	       facts__setf(f, "events", "%" PRIu64, r->events) ?:
	       facts__setf(f, "window_start_ns", "%" PRIu64, r->from);
}

static int dump_window(struct dump *d, int fd)
{
	struct flight *fl = d->fl;
	struct facts *f = facts_of(fl);
	int err = 0, closed;

	d->w = f ? mtr_writer__new(fd, fl->dict, f, NULL) : NULL;
	if (!d->w) {
		err = f ? -errno : -ENOMEM;
		facts__free(f);
		return err;
	}
	while (fl->n_chunks && !err)
		err = empty_chunk(fl, dump_event, d);
	d->err = d->err ?: err ?: last_facts(f, &d->report) ?: mtr_writer__flush(d->w);
	d->report.bytes = mtr_writer__bytes(d->w);
	closed = mtr_writer__close(d->w);
	facts__free(f);
	return d->err ?: closed;
}

/* The file of what waits, and the window begins anew. */
static int write_file(struct flight *fl)
{
	struct dump d = { .fl = fl, .report = { .number = fl->files + 1, .ooms = fl->ooms, .oom = fl->oom } };
	int err = close_chunk(fl), fd;

	if (err)
		return err;
	d.begin = fl->oom.time > fl->opts.window ? fl->oom.time - fl->opts.window : 0;
	d.report.cut = fl->cut_until && fl->cut_until >= d.begin;
	fl->ooms = 0;
	fl->cut_until = 0;
	fd = fl->opts.open(fl->opts.ctx, d.report.number);
	if (fd < 0)
		return fd;
	err = dump_window(&d, fd);
	if (!err)
		fl->files++;
	return fl->opts.done(fl->opts.ctx, &d.report, err) ?: err;
}

static bool is_time(const struct flight *fl, uint64_t now)
{
	if (!fl->ooms)
		return false;
	return now >= fl->last_oom + FLIGHT_AFTER || now >= fl->oom.time + FLIGHT_AFTER_MAX;
}

int flight__event(struct flight *fl, const struct event *e)
{
	struct dict_counts have = dict__counts(fl->dict);
	int err;

	if (e->kind < EVENT_ALLOC || e->kind >= EVENT_KINDS || e->walk >= MT_WALK_NR || e->how >= MEM_HOW_NR ||
	    e->thread >= have.threads || e->stack >= have.stacks || e->module >= have.modules || e->node >= have.nodes ||
	    e->name >= have.strings || e->category >= CATEGORY_NR)
		return -EINVAL;
	if (flight__full(fl))
		return 0;
	if (!mtr_encoder__count(fl->enc))
		fl->enc_first = fl->enc_last = e->time;
	if (e->time > fl->enc_last)
		fl->enc_last = e->time;
	err = mtr_encoder__add(fl->enc, e);
	if (err)
		return err;
	if (e->kind == EVENT_OOM) {
		if (!fl->ooms++)
			fl->oom = *e;
		if (fl->ooms == 1 || e->time > fl->last_oom)
			fl->last_oom = e->time;
	}
	if (!chunk_is_full(fl))
		return 0;
	err = close_chunk(fl);
	if (err)
		return err;
	if (!fl->ooms)
		return move_on(fl, fl->enc_last);
	/* What led up to the out of memory must stay, what comes after it may fill only so much. */
	if (fl->bytes > fl->opts.max_bytes + fl->opts.max_bytes / 4 ||
	    (fl->opts.max_events && fl->events > fl->opts.max_events + fl->opts.max_events / 4))
		return write_file(fl);
	return 0;
}

int flight__tick(struct flight *fl, uint64_t now)
{
	int err = 0;

	if (flight__full(fl))
		return 0;
	if (is_time(fl, now))
		return write_file(fl);
	if (fl->ooms)
		return 0;
	if (mtr_encoder__count(fl->enc) && fl->enc_first + fl->opts.window / CHUNKS < now)
		err = close_chunk(fl);
	return err ?: move_on(fl, now);
}

int flight__finish(struct flight *fl)
{
	return fl->ooms && !flight__full(fl) ? write_file(fl) : 0;
}
