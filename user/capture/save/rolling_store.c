/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/save/rolling_store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/outfile.h"
#include "base/text.h"
#include "record/folder.h"
#include "record/mtr_rolling.h"

#define SEGMENTS_MAX 256       /* segments at most, so that the index stays small */
#define ENTRY_BYTES (5u << 10) /* bytes of the index per segment, at most */
#define TOTALS_MAX (UINT64_C(64) << 20)
#define TOTALS_EVERY                                                                               \
	UINT64_C(10000000000) /* ns between two writes of the totals, more if the file is large:   \
				 ... */
#define TOTALS_RATE (UINT64_C(50) << 10) /* ... at most this many bytes a second */

struct rolling_store {
	struct ring_store_opts opts;
	const struct facts *facts;
	char *name;
	struct folder *folder;
	struct mtr_rolling *ring;
	struct totals *totals;
	struct outfile *file; /* segment that is being written */
	char file_name[32];
	uint64_t totals_room, totals_bytes, index_bytes; /* bytes */
	uint64_t most;					 /* bytes that the folder took at most */
	uint64_t next_totals;				 /* time to write the totals again, ns */
	uint64_t dropped;
	uint64_t start; /* start of the capture, ns since 1970; 0: unknown */
	char why[160];
};

void rolling_store__segments(uint64_t size, uint64_t *min, uint64_t *max)
{
	*min = size / SEGMENTS_MAX > MTR_RING_SEGMENT_MIN ? size / SEGMENTS_MAX
							  : MTR_RING_SEGMENT_MIN;
	*max = size / 4;
}

static uint64_t round_up(uint64_t bytes)
{
	return (bytes + MTR_RING_ROUND - 1) / MTR_RING_ROUND * MTR_RING_ROUND;
}

const char *rolling_store__why(const struct rolling_store *s, int err)
{
	if (s && *s->why)
		return s->why;
	switch (-err) {
	case EEXIST:
		return "it has recordings in it; name a folder that has none";
	case ENOENT:
		return "its parent folder does not exist";
	case EFBIG:
		return "the live blocks need more space than --rolling allows; use a larger SIZE. "
		       "The parts written before are readable";
	case EINVAL:
		return "an event that a recording cannot hold";
	default:
		return folder__why(err);
	}
}

const char *rolling_store__path(const struct rolling_store *s)
{
	return folder__path(s->folder);
}

const struct totals *rolling_store__totals(const struct rolling_store *s)
{
	return s->totals;
}

/* ---- index ---- */

static int64_t pid_fact(const struct rolling_store *s)
{
	uint64_t pid;

	return facts__number(s->facts, "pid", &pid) ? (int64_t)pid : -1;
}

static void segment_name(char buf[32], unsigned int number)
{
	snprintf(buf, 32, "segment-%06u.mtr", number);
}

static struct folder_entry entry_of(const struct rolling_store *s, const struct mtr_ring_segment *g)
{
	struct folder_entry e = {
		.kind = "segment",
		.pid = pid_fact(s),
		.from = g->span.from,
		.to = g->span.to,
		.first_step = (int64_t)g->span.first_step,
		.last_step = g->span.steps ? (int64_t)(g->span.first_step + g->span.steps - 1) : -1,
		.events = g->span.events,
		.lost = g->span.lost,
		.bytes = g->bytes
	};
	char file[32];
	size_t len;

	segment_name(file, g->number);
	snprintf(e.file, sizeof(e.file), "%s", file);
	len = text__utf8(e.name, 100, s->name, strlen(s->name));
	snprintf(e.name + len, sizeof(e.name) - len, "#%u", g->number);
	folder_entry__describe(&e, s->facts);
	if (s->start) {
		text__date(e.begin, sizeof(e.begin), s->start + g->span.from);
		text__date(e.end, sizeof(e.end), s->start + g->span.to);
	}
	snprintf(e.began, sizeof(e.began), "%s", g->number == 1 ? "start" : "segment");
	if (g->closed)
		snprintf(e.ended, sizeof(e.ended), "segment");
	for (uint32_t i = 0; i < g->span.n_devices && i < FOLDER_DEVICES; i++) {
		const struct mtr_ring_device *d = &g->span.devices[i];
		struct folder_device *to = &e.devices[e.n_devices++];

		device__name(d->device, to->name, sizeof(to->name));
		to->peak_allocated = d->peak_allocated;
		to->peak_reserved = d->peak_reserved;
		to->allocated = d->allocated;
		to->reserved = d->reserved;
	}
	return e;
}

/* Returns the bytes that a file of the folder takes; 0: no such file. */
static uint64_t file_bytes(const struct rolling_store *s, const char *name)
{
	struct stat st;
	uint64_t bytes = 0;
	char *path;

	if (asprintf(&path, "%s/%s", rolling_store__path(s), name) < 0)
		return 0;
	if (!stat(path, &st))
		bytes = round_up((uint64_t)st.st_size);
	free(path);
	return bytes;
}

/* Counts both the old and the new file: both existed until the new one took the name. */
static void note_rewritten(struct rolling_store *s, const char *name, uint64_t *bytes)
{
	uint64_t now = file_bytes(s, name);
	uint64_t all = mtr_rolling__used(s->ring) + s->totals_bytes + s->index_bytes + now;

	*bytes = now;
	if (all > s->most)
		s->most = all;
}

static int index_segment(struct rolling_store *s, const struct mtr_ring_segment *g,
			 const char *ended)
{
	struct folder_entry e = entry_of(s, g);
	int err;

	if (ended)
		snprintf(e.ended, sizeof(e.ended), "%s", ended);
	err = folder__add(s->folder, &e);
	note_rewritten(s, FOLDER_INDEX, &s->index_bytes);
	return err;
}

/* ---- callbacks of mtr_rolling.h ---- */

static int open_segment(void *ctx, const struct mtr_ring_segment *g)
{
	struct rolling_store *s = ctx;
	const char *start = facts__get(s->facts, "start");
	char *path;
	int err;

	if (!start || text__parse_date(start, &s->start))
		s->start = 0;
	segment_name(s->file_name, g->number);
	if (asprintf(&path, "%s/%s", rolling_store__path(s), s->file_name) < 0)
		return -ENOMEM;
	err = outfile__create(path, OUTFILE_DIRECT, false, &s->file);
	free(path);
	return err ? err : outfile__fd(s->file);
}

/* Lists the part while it is written, so that it is found if we are killed. Before this it lacks
 * blocks, and the part before it is the newest to read. */
static int segment_ready(void *ctx, const struct mtr_ring_segment *g)
{
	return index_segment(ctx, g, NULL);
}

static int segment_done(void *ctx, const struct mtr_ring_segment *g, int err)
{
	struct rolling_store *s = ctx;
	const char *ended = facts__get(s->facts, "stop_reason") ?: "segment";
	int closed = outfile__commit(s->file), noted;

	s->file = NULL;
	err = err ?: closed;
	noted = index_segment(s, g, err ? strerror(-err) : ended);
	return err ?: noted;
}

static int drop_segment(void *ctx, const struct mtr_ring_segment *g,
			const struct mtr_ring_span *gap)
{
	struct rolling_store *s = ctx;
	/* The gap ends where the next segment begins, whatever the index rounds. */
	struct folder_gap note = {
		.from = gap->from, .to = g->span.to, .events = g->span.events, .bytes = g->bytes
	};
	char name[32];
	int err;

	snprintf(note.why, sizeof(note.why), "the ring was full");
	segment_name(name, g->number);
	err = folder__drop(s->folder, name, &note);
	note_rewritten(s, FOLDER_INDEX, &s->index_bytes);
	s->dropped++;
	return err;
}

/* ---- totals ---- */

static void span_json(struct json *j, const struct mtr_ring_span *g, uint64_t segments)
{
	char name[DEVICE_NAME];

	json__open_object(j, "gap");
	json__uint(j, "from_ns", g->from);
	json__uint(j, "to_ns", g->to);
	json__uint(j, "segments", segments);
	json__uint(j, "events", g->events);
	json__uint(j, "lost", g->lost);
	json__uint(j, "steps", g->steps);
	json__uint(j, "ooms", g->ooms);
	json__open_array(j, "devices");
	for (uint32_t i = 0; i < g->n_devices; i++) {
		const struct mtr_ring_device *d = &g->devices[i];

		json__open_object(j, NULL);
		json__string(j, "device", device__name(d->device, name, sizeof(name)));
		json__uint(j, "peak_allocated", d->peak_allocated);
		json__uint(j, "peak_time_ns", d->peak_time);
		json__uint(j, "peak_reserved", d->peak_reserved);
		json__uint(j, "allocs", d->allocs);
		json__uint(j, "frees", d->frees);
		json__uint(j, "total_allocated", d->total_allocated);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}

static int put_totals(FILE *out, const void *ctx)
{
	const struct rolling_store *s = ctx;
	const char *start = facts__get(s->facts, "start");
	const struct mtr_ring_span *gap = mtr_rolling__gap(s->ring);
	struct json *j = json__new(out, false);

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	json__int(j, "memtrace_totals", TOTALS_VERSION);
	json__string(j, "version", MEMTRACE_VERSION);
	json__string(j, "start", start);
	json__int(j, "pid", pid_fact(s));
	json__uint(j, "ring_bytes", s->opts.size);
	if (gap)
		span_json(j, gap, s->dropped);
	totals__json(s->totals, j);
	json__close_object(j);
	json__free(j);
	return 0;
}

static int write_totals(struct rolling_store *s)
{
	int err = outfile__rewrite(rolling_store__path(s), TOTALS_FILE, put_totals, s);

	note_rewritten(s, TOTALS_FILE, &s->totals_bytes);
	return err;
}

/* ---- open and close ---- */

/* Returns the bytes for segments: all but twice the index and the totals, which exist twice while
 * they are replaced. */
static uint64_t space_of(struct rolling_store *s)
{
	uint64_t index = round_up((s->opts.size / s->opts.segment + 4) * ENTRY_BYTES);

	s->totals_room = s->opts.size / 32 < TOTALS_MAX ? s->opts.size / 32 : TOTALS_MAX;
	s->totals_room = s->totals_room / MTR_RING_ROUND * MTR_RING_ROUND;
	return s->opts.size - 2 * index - 2 * s->totals_room;
}

static int open_folder(struct rolling_store *s, const char *path)
{
	size_t n = 0;
	int err = folder__create(path, false, &s->folder);

	if (err)
		return err;
	folder__entries(s->folder, &n);
	return n ? -EEXIST : 0;
}

int rolling_store__open(const char *path, const struct dict *d, const struct facts *f,
			const struct ring_store_opts *opts, struct rolling_store **ret)
{
	struct rolling_store *s = calloc(1, sizeof(*s));
	struct mtr_ring_opts ro = { .open = open_segment,
				    .ready = segment_ready,
				    .done = segment_done,
				    .drop = drop_segment,
				    .ctx = s };
	const char *slash;
	uint64_t min, max;
	int err;

	if (!s)
		return -ENOMEM;
	s->opts = *opts;
	s->facts = f;
	rolling_store__segments(opts->size, &min, &max);
	if (!s->opts.segment)
		s->opts.segment = opts->size / 16 < (256u << 20) ? opts->size / 16 : 256u << 20;
	if (s->opts.segment < min)
		s->opts.segment = min;
	if (s->opts.segment > max)
		s->opts.segment = max;
	err = open_folder(s, path);
	if (err)
		goto fail;
	slash = strrchr(rolling_store__path(s), '/');
	s->name = strdup(slash ? slash + 1 : rolling_store__path(s));
	ro.space = space_of(s);
	ro.segment = s->opts.segment;
	s->ring = mtr_rolling__new(d, f, &ro);
	if (!s->ring) {
		err = -errno;
		goto fail;
	}
	s->totals = totals__new(s->totals_room - MTR_RING_ROUND);
	if (s->name && s->totals) {
		*ret = s;
		return 0;
	}
	err = -ENOMEM;
fail:
	rolling_store__free(s, err != -EEXIST);
	return err;
}

void rolling_store__free(struct rolling_store *s, bool empty)
{
	char *index;

	if (!s)
		return;
	mtr_rolling__free(s->ring);
	totals__free(s->totals);
	if (s->file)
		(void)outfile__commit(s->file);
	if (empty && s->folder &&
	    asprintf(&index, "%s/%s", rolling_store__path(s), FOLDER_INDEX) >= 0) {
		/* rmdir() removes the folder only if nothing else is in it. */
		(void)unlink(index);
		(void)rmdir(rolling_store__path(s));
		free(index);
	}
	folder__free(s->folder);
	free(s->name);
	free(s);
}

int rolling_store__event(struct rolling_store *s, const struct event *e)
{
	uint64_t allocated, reserved;
	int err = mtr_rolling__event(s->ring, e);

	if (err)
		return err;
	mtr_rolling__level(s->ring, e->device, &allocated, &reserved);
	return totals__event(s->totals, e, allocated, reserved);
}

static const struct mtr_ring_segment *last_segment(const struct rolling_store *s)
{
	const struct mtr_ring_segment *g, *last = NULL;

	for (uint32_t i = 0; (g = mtr_rolling__segment(s->ring, i)); i++)
		last = g;
	return last;
}

int rolling_store__tick(struct rolling_store *s, uint64_t now)
{
	const struct mtr_ring_segment *last;
	uint64_t pause;
	int err = mtr_rolling__flush(s->ring);

	if (err || now < s->next_totals)
		return err;
	last = last_segment(s);
	if (!last)
		return 0;
	err = write_totals(s);
	if (!err && !last->closed)
		err = index_segment(s, last, NULL);
	pause = (s->totals_bytes + s->index_bytes) * UINT64_C(1000000000) / TOTALS_RATE;
	s->next_totals = now + (pause > TOTALS_EVERY ? pause : TOTALS_EVERY);
	return err;
}

int rolling_store__finish(struct rolling_store *s)
{
	int err = mtr_rolling__finish(s->ring), said = 0;

	if (last_segment(s))
		said = write_totals(s);
	return err ?: said;
}

struct ring_store_sum rolling_store__sum(const struct rolling_store *s)
{
	const struct mtr_ring_span *gap = mtr_rolling__gap(s->ring);
	struct ring_store_sum sum = { .dropped = s->dropped,
				      .bytes = mtr_rolling__used(s->ring) + s->totals_bytes +
					       s->index_bytes };
	uint64_t most = mtr_rolling__most_used(s->ring) + s->totals_bytes + s->index_bytes;
	struct totals_whole whole;

	totals__whole(s->totals, &whole);
	sum.events = whole.events;
	sum.lost = whole.lost;
	sum.most_bytes = s->most > most ? s->most : most;
	while (mtr_rolling__segment(s->ring, (uint32_t)sum.segments))
		sum.segments++;
	if (gap) {
		sum.gap_events = gap->events;
		sum.gap_to = gap->to;
	}
	return sum;
}
