/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/flight.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memtrace.h"
#include "record/dict.h"
#include "record/mtr.h"
#include "record/mtr/live_set.h"
#include "record/mtr/mtr_events.h"
#include "record/mtr/mtr_format.h"

/* Number of chunks that the kept events have at a bound. Events are dropped by whole chunks. */
#define CHUNKS 8
#define FLUSH_EVERY UINT64_C(1000000000) /* ns between flushes of an open file */
#define MEASURE_EVERY 64		 /* events after which a chunk's bytes are counted */

struct chunk {
	uint8_t *data; /* encoded events: payload of an events block */
	size_t len;
	uint32_t n;    /* number of events */
	uint64_t last; /* time of the last event, ns */
};

struct dump;

struct flight {
	struct dict *dict;
	const struct facts *facts;
	struct flight_opts opts;
	struct live_set *base; /* live blocks before the first chunk */
	/* ring: first has the index of the oldest, room the number of entries */
	struct chunk *chunks;
	uint32_t first, n_chunks, room;
	uint64_t bytes, events;	      /* sums of the bytes and events in chunks */
	struct mtr_encoder *enc;      /* has the newest events, which are in no chunk yet */
	uint64_t enc_first, enc_last; /* times of the first and the last event in enc, ns */
	struct mtr_decoder *dec;
	uint64_t cut_until; /* time of the latest event that was dropped at a bound, ns; 0: none */
	unsigned int files; /* number of files written */
	struct dump *dump;  /* the open window of flight__begin(); NULL: none */
	uint64_t latest;    /* latest time of an event or of flight__tick(), ns */
	uint64_t closed;    /* the same when the last file was closed; 0: there is none */
	uint64_t steps;	    /* number of steps that ended in events that the base has */
	bool folded;	    /* true if the base contains events */
	uint64_t ooms;	    /* number of out-of-memory events for which no file was written yet */
	struct event oom;   /* the first of them */
	uint64_t last_oom;  /* time of the last of them, ns */
};

/* A window's file. */
struct dump {
	struct flight *fl;
	struct mtr_writer *w;
	struct facts *facts; /* the capture's facts, with those of this file */
	uint64_t begin;	     /* start of the window, ns */
	bool begun;	     /* start_dump() was called: the file has its live blocks */
	bool whole;	     /* true if a step begins with the window */
	int err;	     /* first error of writing; later events still update the base */
	uint64_t flushed;    /* time of the last flush, ns */
	uint64_t first_step; /* steps that ended before the window */
	struct flight_report report;
};

/* Closes the file and frees d; NULL is fine. */
static void drop_dump(struct dump *d)
{
	if (!d)
		return;
	mtr_writer__close(d->w);
	facts__free(d->facts);
	free(d);
}

void flight__free(struct flight *fl)
{
	if (!fl)
		return;
	for (uint32_t i = 0; i < fl->n_chunks; i++)
		free(fl->chunks[(fl->first + i) % fl->room].data);
	free(fl->chunks);
	drop_dump(fl->dump);
	live_set__free(fl->base);
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
	fl->base = live_set__new();
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

/* The i-th oldest chunk. */
static struct chunk *chunk_at(const struct flight *fl, uint32_t i)
{
	return &fl->chunks[(fl->first + i) % fl->room];
}

/* Makes room for one more chunk. Returns 0 or -ENOMEM. */
static int make_room_for_chunk(struct flight *fl)
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

/* Moves the encoder's events to a new chunk. Returns 0 or -ENOMEM. */
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
	if (!c.data || make_room_for_chunk(fl)) {
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

/* Forgets the events of the oldest chunk. */
static void drop_oldest_chunk(struct flight *fl)
{
	struct chunk *c = chunk_at(fl, 0);

	fl->bytes -= c->len;
	fl->events -= c->n;
	free(c->data);
	fl->first = (fl->first + 1) % fl->room;
	fl->n_chunks--;
}

/* Passes each event of the oldest chunk to fn and removes the chunk. Returns 0 or the
 * first error. */
static int drain_chunk(struct flight *fl, int (*fn)(void *ctx, const struct event *e), void *ctx)
{
	const struct chunk *c = chunk_at(fl, 0);
	const char *why;
	struct event e;
	int err = mtr_decoder__begin(fl->dec, MTR_VERSION, c->data, c->len, 0, &why);

	while (!err && mtr_decoder__some(fl->dec, &e, 1, &why))
		err = fn(ctx, &e);
	if (!err && why)
		err = -EBADMSG;
	drop_oldest_chunk(fl);
	return err;
}

/* Updates the base with an event that is not kept any more. */
static int fold_event(void *ctx, const struct event *e)
{
	struct flight *fl = ctx;

	fl->folded = true;
	fl->steps += e->kind == EVENT_STEP;
	return live_set__fold(fl->base, e);
}

/* True if the kept events have more bytes than allowed, or are more. max_events: 0: no bound. */
static bool over_bounds(const struct flight *fl)
{
	if (fl->bytes > fl->opts.max_bytes)
		return true;
	return fl->opts.max_events && fl->events > fl->opts.max_events;
}

/* True if the kept events exceed a bound by more than a quarter. Until the file of an out-of-memory
 * error is written, no events are dropped, so they may exceed the bounds so far. */
static bool far_over_bounds(const struct flight *fl)
{
	const struct flight_opts *o = &fl->opts;

	if (fl->bytes > o->max_bytes + o->max_bytes / 4)
		return true;
	return o->max_events && fl->events > o->max_events + o->max_events / 4;
}

/* Drops the oldest chunks while they are older than the kept time, or while there are too many.
 * now: ns. Returns 0 or the first error. */
static int trim_window(struct flight *fl, uint64_t now)
{
	while (fl->n_chunks) {
		int err;
		/* Keep events for FLIGHT_AFTER longer: the file of an out-of-memory event is
		 * written so much later. */
		bool old = chunk_at(fl, 0)->last + fl->opts.window + FLIGHT_AFTER < now;

		if (!old && !over_bounds(fl))
			return 0;
		if (!old && chunk_at(fl, 0)->last > fl->cut_until)
			fl->cut_until = chunk_at(fl, 0)->last;
		err = drain_chunk(fl, fold_event, fl);
		if (err)
			return err;
	}
	return 0;
}

/* True if the encoder has 1/CHUNKS of a bound, or cannot take more events. */
static bool chunk_is_full(const struct flight *fl)
{
	struct mtr_part parts[MTR_PARTS];
	size_t len = 0;

	uint32_t n = mtr_encoder__count(fl->enc);

	if (mtr_encoder__full(fl->enc))
		return true;
	if (fl->opts.max_events && n >= fl->opts.max_events / CHUNKS)
		return true;
	/* mtr_encoder__full() ends a chunk at 64 KiB. Smaller chunks are measured now and then. */
	if (fl->opts.max_bytes / CHUNKS >= 64 << 10 || n % MEASURE_EVERY)
		return false;
	mtr_encoder__parts(fl->enc, 0, parts);
	for (int i = 0; i < MTR_PARTS; i++)
		len += parts[i].len;
	return len >= fl->opts.max_bytes / CHUNKS;
}

/* ---- the file ---- */

/* For live_set__emit(): writes an event that stands for a live block. */
static int write_event(void *ctx, const struct event *e)
{
	struct dump *d = ctx;

	return mtr_writer__event(d->w, e);
}

/* Copies the capture's facts as they are now to the file's facts, then adds those that describe
 * this window. Returns an error as facts__set(). */
static int update_facts(struct dump *d)
{
	const struct facts *from = d->fl->facts;
	const struct flight_report *r = &d->report;
	const char *key, *value;
	int err = 0;

	for (size_t i = 0; i < facts__count(from); i++) {
		facts__at(from, i, &key, &value);
		if (strcmp(key, "attached_at") || !d->fl->folded)
			err = err ?: facts__set(d->facts, key, value);
	}
	if (d->fl->folded) /* the window has blocks from before its start, as after an attach */
		err = err ?: facts__set(d->facts, "attached_at", "live");
	if (d->whole)
		err = err ?: facts__set(d->facts, "window_begins", "step");
	if (r->began[0])
		err = err ?: facts__set(d->facts, "window_began", r->began);
	err = err ?: facts__setf(d->facts, "duration_ns", "%" PRIu64, r->to);
	err = err ?: facts__setf(d->facts, "events", "%" PRIu64, r->events);
	err = err ?: facts__setf(d->facts, "window_start_ns", "%" PRIu64, r->from);
	return err ?: facts__setf(d->facts, "window_first_step", "%" PRIu64, d->first_step);
}

/* Writes the facts and the live blocks, at the beginning of the file. time: start of the window,
 * ns. Returns 0 or -errno. */
static int start_dump(struct dump *d, uint64_t time)
{
	int err;

	d->begun = true;
	d->report.from = d->report.to = d->flushed = time;
	d->first_step = d->fl->steps;
	d->report.blocks = live_set__blocks(d->fl->base);
	live_set__new_peaks(d->fl->base);
	/* Readers need the facts before the first event. */
	err = update_facts(d);
	err = err ?: mtr_writer__flush(d->w);
	return err ?: live_set__emit(d->fl->base, time, write_event, d);
}

/* Writes an event to the file if the window has begun, and updates the base with it. Returns an
 * error of the base; that of writing is in d->err. */
static int dump_event(void *ctx, const struct event *e)
{
	struct dump *d = ctx;
	struct flight_report *r = &d->report;

	if (!d->begun && e->time >= d->begin)
		d->err = d->err ?: start_dump(d, e->time);
	if (!d->err && d->begun) {
		d->err = mtr_writer__event(d->w, e);
		r->events++;
		if (e->time > r->to)
			r->to = e->time;
	}
	return fold_event(d->fl, e);
}

/* Opens a new file as *ret. begin: start of the window, ns. why: what began it; "": nothing in
 * particular. Calls done() if an error follows after open(). Returns 0 or -errno. */
static int open_dump(struct flight *fl, uint64_t begin, const char *why, struct dump **ret)
{
	struct dump *d = calloc(1, sizeof(*d));
	int err, fd;

	if (!d)
		return -ENOMEM;
	d->fl = fl;
	d->begin = begin;
	d->report = (struct flight_report){ .number = fl->files + 1 };
	snprintf(d->report.began, sizeof(d->report.began), "%s", why);
	fd = fl->opts.open(fl->opts.ctx, d->report.number);
	if (fd < 0) {
		free(d);
		return fd;
	}
	d->facts = facts__new();
	d->w = d->facts ? mtr_writer__new(fd, fl->dict, d->facts, &fl->opts.bounds) : NULL;
	if (!d->w) {
		err = d->facts ? -errno : -ENOMEM;
		err = fl->opts.done(fl->opts.ctx, &d->report, err) ?: err;
		drop_dump(d);
		return err;
	}
	*ret = d;
	return 0;
}

/* Completes the file, calls done() and frees d. reason: the fact stop_reason. ended: what ended the
 * window. err: an earlier error. Returns 0 or the first error. */
static int close_dump(struct dump *d, const char *reason, const char *ended, int err)
{
	struct flight *fl = d->fl;
	struct flight_report *r = &d->report;
	int closed;

	if (!d->err && !d->begun)
		d->err = start_dump(d, fl->latest);
	snprintf(r->reason, sizeof(r->reason), "%s", reason);
	snprintf(r->ended, sizeof(r->ended), "%s", ended);
	err = d->err ?: err;
	err = err ?: update_facts(d);
	err = err ?: facts__set(d->facts, "stop_reason", reason);
	err = err ?: facts__set(d->facts, "window_ended", ended);
	err = err ?: mtr_writer__flush(d->w);
	r->dropped = mtr_writer__dropped(d->w);
	r->bytes = mtr_writer__bytes(d->w);
	closed = mtr_writer__close(d->w);
	d->w = NULL;
	fl->closed = fl->latest;
	err = err ?: closed;
	if (!err)
		fl->files++;
	err = fl->opts.done(fl->opts.ctx, r, err) ?: err;
	drop_dump(d);
	return err;
}

/* Drops all kept events; they update the base. Returns 0 or the first error. */
static int drop_all_kept(struct flight *fl)
{
	int err = 0;

	fl->cut_until = 0;
	while (fl->n_chunks && !err)
		err = drain_chunk(fl, fold_event, fl);
	return err;
}

/* Writes all kept events to the file, then drops them; they update the base. Returns 0 or the first
 * error. */
static int drain_window(struct dump *d)
{
	struct flight *fl = d->fl;
	int err = 0;

	d->report.cut = fl->cut_until && fl->cut_until >= d->begin;
	fl->cut_until = 0;
	while (fl->n_chunks && !err)
		err = drain_chunk(fl, dump_event, d);
	return err;
}

/* Moves the window's end to the present time, if the last event was long ago. */
static void set_end(struct dump *d)
{
	if (d->begun && d->fl->latest > d->report.to + FLIGHT_AFTER)
		d->report.to = d->fl->latest;
}

/* Begins a file for which there is no event: it has the time that the recorder keeps, as far as no
 * earlier file has it. */
static void start_without_events(struct dump *d)
{
	const struct flight *fl = d->fl;
	uint64_t kept = fl->latest > fl->opts.window ? fl->latest - fl->opts.window : 0;

	if (d->err || d->begun)
		return;
	d->err = start_dump(d, kept > fl->closed ? kept : fl->closed);
	d->report.to = fl->latest;
}

/* Writes a file of all kept events from the time `begin` (ns) on. The texts are as for open_dump()
 * and close_dump(). Returns 0 or the first error. */
static int write_kept(struct flight *fl, uint64_t begin, const char *why, const char *reason,
		      const char *ended)
{
	struct dump *d;
	int err = close_chunk(fl);

	err = err ?: open_dump(fl, begin, why, &d);
	if (err)
		return err;
	d->report.ooms = fl->ooms;
	d->report.oom = fl->oom;
	fl->ooms = 0;
	err = drain_window(d);
	start_without_events(d); /* does nothing if there was an event */
	if (!d->report.ooms)	 /* a file about an out of memory ends soon after it */
		set_end(d);
	return close_dump(d, reason, ended, err);
}

/* Writes the file that out-of-memory events caused. */
static int write_oom_file(struct flight *fl)
{
	return write_kept(fl, fl->oom.time > fl->opts.window ? fl->oom.time - fl->opts.window : 0,
			  "", "oom", "out of memory");
}

int flight__save(struct flight *fl, const char *reason)
{
	return fl->dump ? -EBUSY : write_kept(fl, 0, reason, "save", reason);
}

void flight__ignore_ooms(struct flight *fl)
{
	fl->opts.no_oom = true;
}

int flight__last(struct flight *fl, const char *reason, const char *ended)
{
	struct dump *d;
	int err = close_chunk(fl) ?: open_dump(fl, 0, "", &d);

	if (err)
		return err;
	err = drain_window(d);
	start_without_events(d);
	d->report.to = fl->latest;
	return close_dump(d, reason, ended, err);
}

int flight__begin(struct flight *fl, uint64_t before, bool whole, const char *why)
{
	uint64_t start = fl->latest > before ? fl->latest - before : 0;
	struct dump *d;
	int err;

	if (fl->dump)
		return -EBUSY;
	err = close_chunk(fl);
	err = err ?: open_dump(fl, start, why, &d);
	if (err)
		return err;
	d->whole = whole && !before;
	/* Without kept events the window starts now, even before its first event. */
	err = before ? drain_window(d) : drop_all_kept(fl);
	if (!err && !d->begun)
		d->err = start_dump(d, fl->latest);
	if (err || d->err)
		return close_dump(d, "", "", err);
	fl->dump = d;
	return 0;
}

int flight__end(struct flight *fl, const char *reason, const char *ended)
{
	struct dump *d = fl->dump;

	if (!d)
		return -EALREADY;
	fl->dump = NULL;
	set_end(d);
	return close_dump(d, reason, ended, 0);
}

bool flight__writing(const struct flight *fl, struct flight_report *ret)
{
	if (fl->dump && ret)
		*ret = fl->dump->report;
	return fl->dump;
}

bool flight__bounded(const struct flight *fl, const char **reason)
{
	return fl->dump && mtr_writer__full(fl->dump->w, reason);
}

bool flight__level(const struct flight *fl, size_t i, struct flight_level *ret)
{
	return live_set__level(fl->base, i, ret);
}

/* Handles an event that is not kept: writes it to the open file, or adds it to the base. */
static int add_unkept(struct flight *fl, const struct event *e)
{
	struct dump *d = fl->dump;
	int err;

	if (!d)
		return fold_event(fl, e);
	err = dump_event(d, e) ?: d->err;
	if (err) {
		fl->dump = NULL;
		return close_dump(d, "", "", err);
	}
	return 0;
}

/* True if the file that out-of-memory events caused has to be written. */
static bool oom_file_is_due(const struct flight *fl, uint64_t now)
{
	if (!fl->ooms)
		return false;
	return now >= fl->last_oom + FLIGHT_AFTER || now >= fl->oom.time + FLIGHT_AFTER_MAX;
}

int flight__event(struct flight *fl, const struct event *e)
{
	int err;

	if (!mtr_encoder__takes(fl->enc, e))
		return -EINVAL;
	if (flight__full(fl))
		return 0;
	if (e->time > fl->latest)
		fl->latest = e->time;
	if (fl->dump || !fl->opts.window) /* a window is open, or none looks back */
		return add_unkept(fl, e);
	/* The newest events are in enc, until they are enough for a chunk. */
	if (!mtr_encoder__count(fl->enc))
		fl->enc_first = fl->enc_last = e->time;
	if (e->time > fl->enc_last)
		fl->enc_last = e->time;
	err = mtr_encoder__add(fl->enc, e);
	if (err)
		return err;
	if (e->kind == EVENT_OOM && !fl->opts.no_oom) {
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
		return trim_window(fl, fl->enc_last);
	return far_over_bounds(fl) ? write_oom_file(fl) : 0;
}

/* Writes what the open file lacks, if FLUSH_EVERY has passed. A failure closes the file. Returns 0
 * or the first error. */
static int flush_dump(struct dump *d, uint64_t now)
{
	if (now < d->flushed + FLUSH_EVERY)
		return 0;
	d->flushed = now;
	d->err = update_facts(d) ?: mtr_writer__flush(d->w);
	if (!d->err)
		return 0;
	d->fl->dump = NULL;
	return close_dump(d, "", "", d->err);
}

int flight__tick(struct flight *fl, uint64_t now)
{
	int err = 0;

	if (flight__full(fl))
		return 0;
	if (now > fl->latest)
		fl->latest = now;
	if (fl->dump)
		return flush_dump(fl->dump, now);
	if (oom_file_is_due(fl, now))
		return write_oom_file(fl);
	if (fl->ooms)
		return 0;
	if (mtr_encoder__count(fl->enc) && fl->enc_first + fl->opts.window / CHUNKS < now)
		err = close_chunk(fl);
	return err ?: trim_window(fl, now);
}

int flight__finish(struct flight *fl)
{
	return fl->ooms && !flight__full(fl) ? write_oom_file(fl) : 0;
}
