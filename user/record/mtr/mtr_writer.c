/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/mtr.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "base/array.h"
#include "memtrace.h"
#include "record/dict.h"
#include "record/mtr/mtr_events.h"
#include "record/mtr/mtr_format.h"
#include "record/varint.h"

/* Blocks are built in a buffer and written together. */
struct buf {
	uint8_t *data;
	size_t len, room;
	bool failed; /* memory was short: data lacks something */
};

#define ZSTD_LEVEL 3	     /* of 22; fast enough for every event of a capture */
#define WORTH_COMPRESSING 64 /* bytes; smaller payloads are stored as they are */
#define PART_OVERHEAD 64     /* upper bound of a zstd block boundary, bytes */

/* Makes room for len more bytes. Returns false, and sets b->failed, without memory. */
static bool buf__reserve(struct buf *b, size_t len)
{
	size_t need;

	if (__builtin_add_overflow(b->len, len, &need) || need > SIZE_MAX / 2 ||
	    array__grow(&b->data, &b->room, need, 1))
		b->failed = true;
	return !b->failed;
}

static void buf__put(struct buf *b, const void *data, size_t len)
{
	if (!buf__reserve(b, len))
		return;
	memcpy(b->data + b->len, data, len);
	b->len += len;
}

static void buf__varint(struct buf *b, uint64_t v)
{
	if (buf__reserve(b, VARINT_MAX))
		b->len = (size_t)(varint__put(b->data + b->len, v) - b->data);
}

static void buf__free(struct buf *b)
{
	free(b->data);
	*b = (struct buf){ 0 };
}

/* Compresses all parts into one zstd frame at dst, which has `room` bytes. raw: sum of the parts'
 * lengths. Each part is a zstd block with its own Huffman table, because the times, which look
 * random, would spoil the compression of the other columns. Returns the frame's length, or 0 on
 * failure.
 */
static size_t compress(ZSTD_CCtx *zstd, uint8_t *dst, size_t room, const struct mtr_part *parts,
		       size_t n, size_t raw)
{
	ZSTD_outBuffer out = { dst, room, 0 };

	if (ZSTD_isError(ZSTD_CCtx_reset(zstd, ZSTD_reset_session_and_parameters)))
		return 0;
	if (ZSTD_isError(ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL)))
		return 0;
	if (ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(zstd, raw)))
		return 0;
	for (size_t i = 0; i < n; i++) {
		ZSTD_inBuffer in = { parts[i].data, parts[i].len, 0 };

		/* A remainder means that dst is too short. */
		if (ZSTD_compressStream2(zstd, &out, &in, i + 1 < n ? ZSTD_e_flush : ZSTD_e_end))
			return 0;
	}
	return out.pos;
}

/* Appends one block to out. Its payload is the concatenation of the parts, compressed if that makes
 * it smaller. Returns 0 or -ENOMEM. */
static int mtr_block__append(struct buf *out, ZSTD_CCtx *zstd, enum mtr_block type,
			     const struct mtr_part *parts, size_t n)
{
	size_t raw = 0, stored = 0, start = out->len;
	uint8_t *header, *payload;

	for (size_t i = 0; i < n; i++)
		raw += parts[i].len;
	if (!buf__reserve(out, MTR_BLOCK_HEADER + ZSTD_compressBound(raw) + n * PART_OVERHEAD))
		return -ENOMEM;
	header = out->data + start;
	payload = header + MTR_BLOCK_HEADER;
	if (raw >= WORTH_COMPRESSING)
		stored = compress(zstd, payload, out->room - start - MTR_BLOCK_HEADER, parts, n,
				  raw);
	put_le32(header + MTR_AT_TYPE, type);
	put_le32(header + MTR_AT_FLAGS, stored && stored < raw ? MTR_ZSTD : 0);
	if (!stored || stored >= raw) {
		stored = 0;
		for (size_t i = 0; i < n; i++) {
			if (parts[i].len)
				memcpy(payload + stored, parts[i].data, parts[i].len);
			stored += parts[i].len;
		}
	}
	put_le32(header + MTR_AT_STORED, (uint32_t)stored);
	put_le32(header + MTR_AT_RAW, (uint32_t)raw);
	put_le32(header + MTR_AT_CRC, crc32c(payload, stored));
	put_le32(header + MTR_AT_HEADER_CRC, crc32c(header, MTR_AT_HEADER_CRC));
	out->len = start + MTR_BLOCK_HEADER + stored;
	return 0;
}

/* ---- dictionary ---- */
/* A dictionary block ends after so many bytes. With the largest entry it stays far below
 * MTR_MAX_BLOCK. */
#define DICT_BLOCK_BYTES (1u << 20)

static void put_text(struct buf *b, const char *s)
{
	size_t len = strlen(s);

	buf__varint(b, len);
	buf__put(b, s, len);
}

static void put_string(struct buf *b, const struct dict *d, uint32_t id)
{
	put_text(b, dict__str(d, id));
}

static void put_loc(struct buf *b, const struct dict *d, uint32_t id)
{
	struct dict_loc l = dict__get_loc(d, id);

	buf__varint(b, l.file);
	buf__varint(b, l.func);
	buf__varint(b, l.line | (uint32_t)dict__is_native(d, id) << 31);
}

static void put_module(struct buf *b, const struct dict *d, uint32_t id)
{
	struct dict_module m = dict__get_module(d, id);

	buf__varint(b, m.name);
	buf__varint(b, m.cls);
	buf__varint(b, m.root);
}

static void put_stack(struct buf *b, const struct dict *d, uint32_t id)
{
	struct dict_stack s = dict__get_stack(d, id);

	buf__varint(b, s.walk);
	buf__varint(b, s.n);
	for (uint32_t i = 0; i < s.n; i++) {
		buf__varint(b, s.frames[i].loc);
		buf__varint(b, s.frames[i].module);
	}
}

static void put_thread(struct buf *b, const struct dict *d, uint32_t id)
{
	struct dict_thread t = dict__get_thread(d, id);

	buf__varint(b, t.tid);
	buf__varint(b, t.name);
}

static void put_node(struct buf *b, const struct dict *d, uint32_t id)
{
	struct dict_node n = dict__get_node(d, id);

	buf__varint(b, n.cls);
	buf__varint(b, n.stack);
	buf__varint(b, n.name);
	buf__varint(b, n.module);
}

/* Appends one section to a block: the entries from *from up to `to`, or as many as fit. Sets *from
 * to the first entry that did not fit. */
static void put_section(struct buf *b, const struct dict *d, enum mtr_section kind, uint32_t *from,
			uint32_t to)
{
	static void (*const put[])(struct buf *, const struct dict *, uint32_t) = {
		[MTR_STRINGS] = put_string, [MTR_LOCS] = put_loc,	[MTR_MODULES] = put_module,
		[MTR_STACKS] = put_stack,   [MTR_THREADS] = put_thread, [MTR_NODES] = put_node,
	};
	uint32_t first = *from, id = first;
	struct buf entries = { 0 };

	for (; id < to && b->len + entries.len < DICT_BLOCK_BYTES && !entries.failed; id++)
		put[kind](&entries, d, id);
	buf__varint(b, kind);
	buf__varint(b, first);
	buf__varint(b, id - first);
	if (entries.len)
		buf__put(b, entries.data, entries.len);
	b->failed |= entries.failed;
	buf__free(&entries);
	*from = id;
}

/* Appends the sections in b to out as a dictionary block, and empties b. Returns 0 or -ENOMEM. */
static int append_dict_block(struct buf *out, ZSTD_CCtx *zstd, struct buf *b)
{
	struct mtr_part part = { b->data, b->len };

	if (b->failed)
		return -ENOMEM;
	b->len = 0;
	return part.len ? mtr_block__append(out, zstd, MTR_DICT, &part, 1) : 0;
}

/* Appends dictionary blocks with the entries of each kind from `from` up to, not including, `to`.
 * The kinds are in an order in which entries refer only to earlier ones. Returns 0 or -ENOMEM. */
static int mtr_block__append_dict(struct buf *out, ZSTD_CCtx *zstd, const struct dict *d,
				  const struct dict_counts *from, const struct dict_counts *to)
{
	const struct {
		enum mtr_section kind;
		uint32_t from, to;
	} sections[] = {
		{ MTR_STRINGS, from->strings, to->strings },
		{ MTR_LOCS, from->locs, to->locs },
		{ MTR_MODULES, from->modules, to->modules },
		{ MTR_STACKS, from->stacks, to->stacks },
		{ MTR_THREADS, from->threads, to->threads },
		{ MTR_NODES, from->nodes, to->nodes },
	};
	struct buf b = { 0 };
	int err = 0;

	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]) && !err; i++) {
		uint32_t next = sections[i].from;

		while (next < sections[i].to && !err) {
			put_section(&b, d, sections[i].kind, &next, sections[i].to);
			if (b.failed || b.len >= DICT_BLOCK_BYTES)
				err = append_dict_block(out, zstd, &b);
		}
	}
	err = err ?: append_dict_block(out, zstd, &b);
	buf__free(&b);
	return err;
}

/* Bytes kept free under max_size for new or longer facts and for the end block. */
#define ROOM_FOR_NEW_FACTS (16u << 10)
#define ROOM_FOR_END (2 * MTR_BLOCK_HEADER + 2 * VARINT_MAX)

static const char full_by_events[] = "max-events", full_by_size[] = "max-size";

struct mtr_writer {
	int fd;
	int err; /* error of the first failed write; nothing is written after it */
	const struct dict *dict;
	const struct facts *facts;
	struct mtr_writer_opts opts;
	struct facts *written;	    /* the facts in the file, with their latest values there */
	struct dict_counts defined; /* numbers of dictionary entries in the file */
	struct mtr_encoder *enc;
	ZSTD_CCtx *zstd;
	struct buf out;	   /* blocks that are not written yet */
	uint64_t bytes;	   /* number of bytes written */
	uint64_t events;   /* number of events in the file */
	uint64_t happened; /* number of events that count for opts.max_events */
	uint64_t dropped;  /* number of events dropped at a bound */
	const char *full;  /* the bound that was reached; NULL: none */
};

static void writer__free(struct mtr_writer *w)
{
	if (!w)
		return;
	facts__free(w->written);
	mtr_encoder__free(w->enc);
	ZSTD_freeCCtx(w->zstd);
	buf__free(&w->out);
	free(w);
}

/* Writes all of w->out. Returns 0 or -errno, which is then in w->err, too. */
static int write_out(struct mtr_writer *w)
{
	size_t done = 0;

	if (w->opts.room && w->out.len)
		w->err = w->opts.room(w->opts.ctx, w->out.len);
	if (w->err)
		return w->err;
	while (done < w->out.len) {
		ssize_t n = write(w->fd, w->out.data + done, w->out.len - done);

		if (n > 0) {
			done += (size_t)n;
			w->bytes += (uint64_t)n;
			continue;
		}
		if (n < 0 && errno == EAGAIN) {
			struct pollfd p = { .fd = w->fd, .events = POLLOUT };

			if (poll(&p, 1, -1) >= 0 || errno == EINTR)
				continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		/* write() returned 0, which gives no error: treat it as a full disk. */
		w->err = n < 0 ? -errno : -ENOSPC;
		return w->err;
	}
	w->out.len = 0;
	return 0;
}

/* ---- facts ---- */

/* Returns the bytes that a fact takes at most, uncompressed. */
static size_t fact_bytes(const char *key, const char *value)
{
	return strlen(key) + strlen(value) + 2 * VARINT_MAX;
}

/* True if the file does not have this value of the fact yet. */
static bool fact_is_new(const struct mtr_writer *w, const char *key, const char *value)
{
	const char *old = facts__get(w->written, key);

	return !old || strcmp(old, value);
}

/* Returns the bytes that a block of all facts takes at most: that of the uncompressed facts, and
 * room for new ones. */
static uint64_t facts_room(const struct mtr_writer *w)
{
	uint64_t bytes = MTR_BLOCK_HEADER + VARINT_MAX + ROOM_FOR_NEW_FACTS;
	const char *key, *value;

	for (size_t i = 0; i < facts__count(w->facts); i++) {
		facts__at(w->facts, i, &key, &value);
		bytes += fact_bytes(key, value);
	}
	return bytes;
}

/* Appends a block of the facts that are new or changed since the last call. dropped: value of the
 * fact dropped_events, which comes first; NULL: leave it out, because the file does not end yet.
 * Facts that would make the block longer than max bytes are left out. Returns 0, -EFBIG if facts
 * were left out, or -ENOMEM. If memory is short, w->written can lack a fact, which is then written
 * twice.
 */
static int append_facts(struct mtr_writer *w, const char *dropped, uint64_t max)
{
	struct buf pairs = { 0 }, head = { 0 };
	struct mtr_part parts[2];
	const char *key, *value;
	uint64_t n = 0;
	bool cut = false;
	int err = 0;

	if (dropped) {
		put_text(&pairs, "dropped_events");
		put_text(&pairs, dropped);
		n++;
	}
	for (size_t i = 0; i < facts__count(w->facts) && !err; i++) {
		facts__at(w->facts, i, &key, &value);
		if (!fact_is_new(w, key, value) || (dropped && !strcmp(key, "dropped_events")))
			continue;
		if (MTR_BLOCK_HEADER + VARINT_MAX + pairs.len + fact_bytes(key, value) > max) {
			cut = true;
			continue;
		}
		put_text(&pairs, key);
		put_text(&pairs, value);
		err = facts__set(w->written, key, value);
		n++;
	}
	if (err || !n)
		goto out;
	buf__varint(&head, n);
	parts[0] = (struct mtr_part){ head.data, head.len };
	parts[1] = (struct mtr_part){ pairs.data, pairs.len };
	if (pairs.failed || head.failed)
		err = -ENOMEM;
	else
		err = mtr_block__append(&w->out, w->zstd, MTR_FACTS, parts, 2);
out:
	buf__free(&pairs);
	buf__free(&head);
	return cut && !err ? -EFBIG : err;
}

/* ---- events ---- */
/* Returns the bytes that blocks can still take before those at the end of the file. w->out counts
 * as taken. */
static uint64_t room_left(const struct mtr_writer *w)
{
	uint64_t taken = w->bytes + w->out.len + facts_room(w) + ROOM_FOR_END;

	if (!w->opts.max_size)
		return UINT64_MAX;
	return taken < w->opts.max_size ? w->opts.max_size - taken : 0;
}

/* Appends the dictionary entries that are not in the file yet, then the block of events. Sets
 * *defined to the numbers of entries that the file then has. Returns 0 or -ENOMEM. */
static int append_events(struct mtr_writer *w, struct dict_counts *defined)
{
	struct mtr_part parts[MTR_PARTS];
	int err;

	*defined = dict__counts(w->dict);
	err = mtr_block__append_dict(&w->out, w->zstd, w->dict, &w->defined, defined);
	if (err)
		return err;
	mtr_encoder__parts(w->enc, w->events, parts);
	return mtr_block__append(&w->out, w->zstd, MTR_EVENTS, parts, MTR_PARTS);
}

/* Writes the encoder's events with the dictionary entries they need. Drops the events if they do
 * not fit max_size. Returns 0 or -errno, which is then in w->err, too. */
static int flush_events(struct mtr_writer *w)
{
	uint32_t n = mtr_encoder__count(w->enc);
	struct dict_counts defined;
	int err;

	if (!n)
		return 0;
	err = append_events(w, &defined);
	if (err) {
		w->out.len = 0;
		w->err = err;
		return err;
	}
	mtr_encoder__reset(w->enc);
	if (w->opts.max_size &&
	    w->bytes + w->out.len + facts_room(w) + ROOM_FOR_END > w->opts.max_size) {
		w->out.len = 0;
		w->dropped += n;
		w->full = full_by_size;
		return 0;
	}
	w->defined = defined;
	w->events += n;
	return write_out(w);
}

/* True for events that a reading of the target makes. If one of the first reading is missing, the
 * figures of a recording are wrong. */
static bool is_reading(const struct event *e)
{
	switch (e->kind) {
	case EVENT_SEGMENT:
	case EVENT_BLOCK:
	case EVENT_STATE:
	case EVENT_TENSOR:
	case EVENT_CENSUS:
	case EVENT_USED:
	case EVENT_LEFT:
	case EVENT_HOST:
		return true;
	}
	return false;
}

int mtr_writer__event(struct mtr_writer *w, const struct event *e)
{
	bool reading = is_reading(e);
	int err;

	if (w->err)
		return w->err;
	if (!mtr_encoder__takes(w->enc, e))
		return -EINVAL;
	w->happened += !reading;
	if (!w->full && w->opts.max_events && w->happened > w->opts.max_events)
		w->full = full_by_events;
	/* A bound on the events that happened leaves room for readings. */
	if (w->full && !(reading && w->full == full_by_events)) {
		w->dropped++;
		return 0;
	}
	err = mtr_encoder__add(w->enc, e);
	if (err) {
		w->err = err;
		return err;
	}
	return mtr_encoder__full(w->enc) ? flush_events(w) : 0;
}

int mtr_writer__flush(struct mtr_writer *w)
{
	size_t before;
	int err;

	if (w->err)
		return w->err;
	err = flush_events(w);
	/* At the bound, the remaining room is reserved for the facts at the end. */
	if (err || (w->full && w->opts.max_size))
		return err;
	before = w->out.len;
	err = append_facts(w, /*dropped=*/NULL, room_left(w));
	if (err == -EFBIG) /* what was left out follows at the end, which has room for it */
		err = 0;
	if (err) {
		w->out.len = before;
		w->err = err;
		return err;
	}
	return write_out(w);
}

struct mtr_writer *mtr_writer__new(int fd, const struct dict *d, const struct facts *f,
				   const struct mtr_writer_opts *opts)
{
	struct mtr_writer *w = calloc(1, sizeof(*w));
	uint8_t header[MTR_FILE_HEADER];
	int err = -ENOMEM;

	if (!w)
		goto fail;
	w->fd = fd;
	w->dict = d;
	w->facts = f;
	if (opts)
		w->opts = *opts;
	/* Entry 0 of each kind is never written. */
	w->defined = (struct dict_counts){ 1, 1, 1, 1, 1, 1 };
	w->written = facts__new();
	w->enc = mtr_encoder__new(d);
	w->zstd = ZSTD_createCCtx();
	if (!w->written || !w->enc || !w->zstd)
		goto fail;
	memcpy(header, MTR_MAGIC, MTR_MAGIC_SIZE);
	put_le32(header + MTR_AT_VERSION, MTR_VERSION);
	put_le32(header + MTR_AT_BYTE_ORDER, MTR_BYTE_ORDER);
	buf__put(&w->out, header, sizeof(header));
	if (w->out.failed)
		goto fail;
	if (w->opts.max_size && w->out.len + facts_room(w) + ROOM_FOR_END > w->opts.max_size) {
		err = -EFBIG;
		goto fail;
	}
	err = append_facts(w, /*dropped=*/NULL, UINT64_MAX) ?: write_out(w);
	if (err)
		goto fail;
	return w;
fail:
	writer__free(w);
	errno = -err;
	return NULL;
}

bool mtr_writer__full(const struct mtr_writer *w, const char **reason)
{
	if (w->full)
		*reason = w->full;
	return w->full;
}

uint64_t mtr_writer__bytes(const struct mtr_writer *w)
{
	return w->bytes;
}

uint64_t mtr_writer__dropped(const struct mtr_writer *w)
{
	return w->dropped;
}

/* Writes the last facts and the end block, within max_size. Returns as mtr_writer__close(). */
static int write_end(struct mtr_writer *w)
{
	uint64_t end = w->bytes + ROOM_FOR_END, max = UINT64_MAX;
	char dropped[24];
	uint8_t total[VARINT_MAX];
	struct mtr_part part = { total, 0 };
	int err, cut;

	if (w->opts.max_size)
		max = end < w->opts.max_size ? w->opts.max_size - end : 0;
	snprintf(dropped, sizeof(dropped), "%llu", (unsigned long long)w->dropped);
	cut = append_facts(w, dropped, max);
	if (cut && cut != -EFBIG)
		return cut;
	part.len = (size_t)(varint__put(total, w->events) - total);
	err = mtr_block__append(&w->out, w->zstd, MTR_END, &part, 1);
	if (err)
		return err;
	return write_out(w) ?: cut;
}

int mtr_writer__close(struct mtr_writer *w)
{
	int err;

	if (!w)
		return 0;
	err = w->err ?: flush_events(w);
	err = err ?: write_end(w);
	writer__free(w);
	return err;
}
