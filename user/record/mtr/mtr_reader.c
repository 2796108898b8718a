/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/mtr.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/io.h"
#include "base/text.h"
#include "memtrace.h"
#include "record/dict.h"
#include "record/mtr/mtr_ahead.h"
#include "record/mtr/mtr_events.h"
#include "record/mtr/mtr_format.h"
#include "record/snapshot/torch_snapshot.h"
#include "record/stream.h"
#include "record/stream/limits.h"
#include "record/varint.h"

/* ---- dictionary and facts blocks ---- */

/* The part of a payload that is not yet read. */
struct cursor {
	const uint8_t *at, *end;
};

static bool get32(struct cursor *c, uint32_t *v)
{
	return varint__get32(&c->at, c->end, v);
}

/* Reads a length and then so many bytes of UTF-8 text without NUL. Sets *s to the text in the
 * payload. Returns false if it is damaged or longer than max. */
static bool get_text(struct cursor *c, size_t max, const char **s, size_t *len)
{
	uint64_t n;

	if (!varint__get(&c->at, c->end, &n) || n > max || n > (uint64_t)(c->end - c->at))
		return false;
	*s = (const char *)c->at;
	*len = (size_t)n;
	c->at += n;
	for (size_t i = 0, step; i < n; i += step) {
		uint32_t cp;

		step = utf8__decode(*s + i, n - i, &cp);
		if (!step || !cp)
			return false;
	}
	return true;
}

/* Reads one entry of a section and adds it to d. have: numbers of entries that it may refer to.
 * Sets *id to the entry's number, or to UINT32_MAX with errno if the dict refused it. Returns false
 * if the entry is damaged. */
typedef bool (*read_entry)(struct dict *d, struct cursor *c, const struct dict_counts *have,
			   uint32_t *id);

static bool read_string(struct dict *d, struct cursor *c, const struct dict_counts *have,
			uint32_t *id)
{
	const char *s;
	size_t len;

	(void)have;
	if (!get_text(c, DICT_MAX_STRING, &s, &len))
		return false;
	*id = dict__string(d, s, len);
	return true;
}

static bool read_loc(struct dict *d, struct cursor *c, const struct dict_counts *have, uint32_t *id)
{
	struct dict_loc l;

	if (!get32(c, &l.file) || !get32(c, &l.func) || !get32(c, &l.line))
		return false;
	if (l.file >= have->strings || l.func >= have->strings)
		return false;
	*id = l.line >> 31 ? dict__native_loc(d, l) : dict__loc(d, l);
	return true;
}

static bool read_module(struct dict *d, struct cursor *c, const struct dict_counts *have,
			uint32_t *id)
{
	struct dict_module m;

	if (!get32(c, &m.name) || !get32(c, &m.cls) || !get32(c, &m.root))
		return false;
	if (m.name >= have->strings || m.cls >= have->strings || m.root >= have->strings)
		return false;
	*id = dict__module(d, m);
	return true;
}

static bool read_stack(struct dict *d, struct cursor *c, const struct dict_counts *have,
		       uint32_t *id)
{
	struct dict_frame frames[DICT_MAX_STACK_FRAMES];
	uint32_t walk, n;

	if (!get32(c, &walk) || walk >= MT_WALK_NR || !get32(c, &n) || n > DICT_MAX_STACK_FRAMES)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		if (!get32(c, &frames[i].loc) || !get32(c, &frames[i].module))
			return false;
		if (frames[i].loc >= have->locs || frames[i].module >= have->modules)
			return false;
	}
	*id = dict__recorded_stack(d, frames, n, (uint8_t)walk);
	return true;
}

static bool read_thread(struct dict *d, struct cursor *c, const struct dict_counts *have,
			uint32_t *id)
{
	struct dict_thread t;

	if (!get32(c, &t.tid) || !get32(c, &t.name) || t.name >= have->strings)
		return false;
	*id = dict__thread(d, t);
	return true;
}

static bool read_node(struct dict *d, struct cursor *c, const struct dict_counts *have,
		      uint32_t *id)
{
	struct dict_node n;

	if (!get32(c, &n.cls) || !get32(c, &n.stack) || !get32(c, &n.name) || !get32(c, &n.module))
		return false;
	if (n.cls >= have->strings || n.stack >= have->stacks || n.name >= have->strings ||
	    n.module >= have->modules)
		return false;
	*id = dict__node(d, n);
	return true;
}

/* Returns the number of entries of a kind, which is the number of the next one. */
static uint32_t count_of(const struct dict_counts *have, enum mtr_section kind)
{
	switch (kind) {
	case MTR_STRINGS:
		return have->strings;
	case MTR_LOCS:
		return have->locs;
	case MTR_MODULES:
		return have->modules;
	case MTR_STACKS:
		return have->stacks;
	case MTR_THREADS:
		return have->threads;
	case MTR_NODES:
		return have->nodes;
	}
	return 0;
}

/* Reads one section with its entries. Returns as read_dict(). */
static int read_section(struct dict *d, uint32_t version, struct cursor *c, const char **why)
{
	static const read_entry readers[] = {
		[MTR_STRINGS] = read_string, [MTR_LOCS] = read_loc,
		[MTR_MODULES] = read_module, [MTR_STACKS] = read_stack,
		[MTR_THREADS] = read_thread, [MTR_NODES] = read_node,
	};
	/* Entries refer only to earlier sections, never to their own kind. */
	struct dict_counts have = dict__counts(d);
	uint32_t kind, first, n, id, last = version < 3 ? MTR_THREADS : MTR_NODES;

	if (!get32(c, &kind) || kind < MTR_STRINGS || kind > last || !get32(c, &first) ||
	    !get32(c, &n))
		return -EBADMSG;
	if (first != count_of(&have, kind)) {
		*why = "a dictionary block that does not follow on the one before";
		return -EBADMSG;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (!readers[kind](d, c, &have, &id))
			return -EBADMSG;
		if (id == UINT32_MAX && errno == ENOMEM)
			return -ENOMEM;
		/* An entry that the dict already had is an error, too, because later numbers would
		 * shift. */
		if (id != first + i)
			return -EBADMSG;
	}
	return 0;
}

/* Adds the entries of a dictionary block to d. version: of the file. Returns 0 or -ENOMEM, or
 * returns -EBADMSG and sets *why to a static text. Entries before a bad one stay added. */
static int read_dict(struct dict *d, uint32_t version, const uint8_t *data, size_t len,
		     const char **why)
{
	struct cursor c = { data, data + len };
	int err = 0;

	*why = "a bad entry in a dictionary block";
	while (c.at < c.end && !err)
		err = read_section(d, version, &c, why);
	return err;
}

/* Sets a fact from texts that do not end in NUL. Returns 0, -ENOMEM or -EBADMSG. */
static int set_fact(struct facts *f, const char *key, size_t klen, const char *value, size_t vlen)
{
	char *copy = malloc(klen + vlen + 2);
	int err;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, key, klen);
	copy[klen] = '\0';
	memcpy(copy + klen + 1, value, vlen);
	copy[klen + 1 + vlen] = '\0';
	err = facts__set(f, copy, copy + klen + 1);
	free(copy);
	if (!err || err == -ENOMEM)
		return err;
	return -EBADMSG;
}

/* Adds the facts of a facts block to f. Returns as read_dict(). */
static int read_facts(struct facts *f, const uint8_t *data, size_t len, const char **why)
{
	struct cursor c = { data, data + len };
	uint32_t n;

	*why = "a bad facts block";
	if (!get32(&c, &n))
		return -EBADMSG;
	for (uint32_t i = 0; i < n; i++) {
		const char *key, *value;
		size_t klen, vlen;
		int err;

		if (!get_text(&c, FACTS_MAX_KEY, &key, &klen) ||
		    !get_text(&c, FACTS_MAX_VALUE, &value, &vlen))
			return -EBADMSG;
		err = set_fact(f, key, klen, value, vlen);
		if (err)
			return err;
	}
	return c.at == c.end ? 0 : -EBADMSG;
}

#define CHECK_EVERY (1u << 16) /* number of events between two calls of room__check() */
/* Bounds on the compression ratio, because events in memory take a hundred times their compressed
 * bytes. Writers close a block after 64 KiB. Real recordings reach a ratio of 30:1; made-up ones,
 * in which all events are equal and come at equal intervals, 860:1.
 */
#define SMALL_BLOCK (128u << 10) /* uncompressed bytes; MAX_RATIO_OF_BLOCK is for larger blocks */
#define MAX_RATIO_OF_BLOCK 500u
#define MAX_RATIO_OF_FILE 1000u
/* Uncompressed bytes of events, and of dictionaries, that a file may have at any ratio. */
#define FREE_EVENTS (1u << 20)
#define FREE_DICTS (16u << 20)

#define VIEWED 24	      /* most events of mtr_reader__view() without a thread */
#define COPY_MOST (64u << 10) /* bytes of facts for which the thread does not wait */

/* A block's header. stored, raw: bytes of the payload in the file, and uncompressed. */
struct block {
	uint32_t type, flags, stored, raw, crc;
};

struct mtr_reader {
	int fd;
	bool close_fd;
	/* Read with pread(), so that other users of the file description do not interfere. */
	bool by_position;
	uint32_t version;
	uint64_t size;	      /* size of the file, bytes; 0: not a regular file */
	uint64_t position;    /* number of bytes read */
	uint64_t good;	      /* position of the end of the last whole block */
	uint64_t events;      /* number of events in earlier blocks */
	uint64_t unpacked[2]; /* uncompressed bytes so far: [0] of events, [1] of dictionaries */
	uint64_t given;	      /* number of events that the caller has */
	uint64_t checked_at;  /* value of given at the last room__check() */
	struct dict *dict;
	struct facts *facts;
	struct torch_snapshot *snapshot; /* NULL: the input is a recording */
	struct mtr_decoder *dec;
	ZSTD_DCtx *zstd;
	uint8_t *stored, *raw; /* buffers of the current block */
	size_t stored_room, raw_room;
	bool in_events; /* dec has events left */
	bool ended;	/* nothing more is read; end and why are valid */
	int err;	/* the error that ended reading, -errno; 0: none */
	enum mtr_end end;
	const char *why;
	struct event viewed[VIEWED];
	/* The thread that decodes; NULL: there is none. Until its last batch, all above but dict,
	 * facts, given, checked_at and viewed belongs to it. */
	struct mtr_ahead *ahead;
	const struct mtr_batch *batch; /* the caller's present one; NULL: none yet */
	int used;		       /* number of its events that the caller has */
	uint64_t shown;		       /* its position; before the first batch, that of the file */
	bool lent; /* for the thread: the last batch has a block in one of its own buffers */
};

/* Reads len bytes, or fewer at the end of the file. Returns the number of bytes or -errno. */
static ssize_t read_bytes(struct mtr_reader *r, void *dst, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = r->by_position ? pread(r->fd, (char *)dst + done, len - done,
						   (off_t)r->position)
					   : read(r->fd, (char *)dst + done, len - done);

		if (n == 0)
			break;
		if (n > 0) {
			done += (size_t)n;
			r->position += (uint64_t)n;
			continue;
		}
		if (errno == EAGAIN) {
			struct pollfd p = { .fd = r->fd, .events = POLLIN };

			if (poll(&p, 1, -1) >= 0 || errno == EINTR)
				continue;
		}
		if (errno != EINTR)
			return -errno;
	}
	return (ssize_t)done;
}

/* Ends reading, with the reason for mtr_reader__end(). Returns 0, which callers return, too. */
static int end_reading(struct mtr_reader *r, enum mtr_end end, const char *why)
{
	r->ended = true;
	r->end = end;
	r->why = why;
	return 0;
}

/* Ends reading because of an error, and returns the error. */
static int fail_with(struct mtr_reader *r, int err)
{
	r->ended = true;
	r->err = err;
	r->end = MTR_TRUNCATED;
	r->why = "could not be read";
	return err;
}

/* Makes the buffer, which has *room bytes, at least `need` bytes large. Returns 0 or -ENOMEM. */
static int make_room(uint8_t **buf, size_t *room, size_t need)
{
	uint8_t *bigger;

	if (*buf && need <= *room)
		return 0;
	bigger = realloc(*buf, need + 1); /* one byte more, so that an empty buffer is not NULL */
	if (!bigger)
		return -ENOMEM;
	*buf = bigger;
	*room = need;
	return 0;
}

/* True if this program can read the block, or can skip it because it does not know its type. */
static bool good_header(const struct block *b)
{
	if (b->stored > MTR_MAX_BLOCK || b->raw > MTR_MAX_BLOCK)
		return false;
	/* Blocks of an unknown type may have any flags. */
	if (b->type < MTR_FACTS || b->type > MTR_END)
		return true;
	if (b->flags & ~MTR_ZSTD)
		return false;
	return b->flags & MTR_ZSTD || b->stored == b->raw;
}

/* Reads the header and the stored payload of the next block. Returns 1, 0 at the end of the
 * readable part (r->end has the reason), or -errno. */
static int read_stored(struct mtr_reader *r, struct block *b)
{
	uint8_t h[MTR_BLOCK_HEADER];
	ssize_t n;

	n = read_bytes(r, h, sizeof(h));
	if (n < 0)
		return fail_with(r, (int)n);
	if (n == 0)
		return end_reading(r, MTR_TRUNCATED, "the end is missing");
	if ((size_t)n < sizeof(h))
		return end_reading(r, MTR_TRUNCATED, "it stops within a block's header");
	if (crc32c(h, MTR_AT_HEADER_CRC) != get_le32(h + MTR_AT_HEADER_CRC))
		return end_reading(r, MTR_DAMAGED, "a block's header has a wrong checksum");
	*b = (struct block){ .type = get_le32(h + MTR_AT_TYPE),
			     .flags = get_le32(h + MTR_AT_FLAGS),
			     .stored = get_le32(h + MTR_AT_STORED),
			     .raw = get_le32(h + MTR_AT_RAW),
			     .crc = get_le32(h + MTR_AT_CRC) };
	if (!good_header(b))
		return end_reading(r, MTR_DAMAGED, "a block's header makes no sense");
	if (make_room(&r->stored, &r->stored_room, b->stored))
		return fail_with(r, -ENOMEM);
	n = read_bytes(r, r->stored, b->stored);
	if (n < 0)
		return fail_with(r, (int)n);
	if ((size_t)n < b->stored)
		return end_reading(r, MTR_TRUNCATED, "it stops within a block");
	if (crc32c(r->stored, b->stored) != b->crc)
		return end_reading(r, MTR_DAMAGED, "a block has a wrong checksum");
	return 1;
}

/* Decompresses the payload and sets *data to it. Returns as read_stored(). */
static int unpack_block(struct mtr_reader *r, const struct block *b, const uint8_t **data)
{
	size_t n;

	if (!(b->flags & MTR_ZSTD)) {
		*data = r->stored;
		return 1;
	}
	if (make_room(&r->raw, &r->raw_room, b->raw))
		return fail_with(r, -ENOMEM);
	n = ZSTD_decompressDCtx(r->zstd, r->raw, b->raw, r->stored, b->stored);
	if (ZSTD_isError(n) || n != b->raw)
		return end_reading(r, MTR_DAMAGED, "a block does not decompress");
	*data = r->raw;
	return 1;
}

/* Counts the block, and returns true if its compression shows that it was made to exhaust memory. */
static bool is_bomb(struct mtr_reader *r, const struct block *b)
{
	bool events = b->type == MTR_EVENTS;
	uint64_t *all = &r->unpacked[!events];

	if (!events && b->type != MTR_DICT)
		return false;
	*all += b->raw;
	if (events && b->raw > SMALL_BLOCK && b->raw / MAX_RATIO_OF_BLOCK > b->stored)
		return true;
	return *all > (events ? FREE_EVENTS : FREE_DICTS) && *all / MAX_RATIO_OF_FILE > r->position;
}

/* Reads the end block, which has the number of all events. Returns 0. */
static int read_end(struct mtr_reader *r, const uint8_t *data, size_t len)
{
	const uint8_t *p = data;
	uint64_t events;

	if (!varint__get(&p, data + len, &events) || events != r->events)
		return end_reading(r, MTR_DAMAGED,
				   "the end block counts other events than there are");
	r->good = r->position;
	return end_reading(r, MTR_COMPLETE, "complete");
}

/* Takes a block of facts or of the dict. Returns 0, -errno, or -EBADMSG and sets *why. */
static int take_block(struct mtr_reader *r, uint32_t type, const uint8_t *data, size_t len,
		      const char **why)
{
	if (type == MTR_FACTS)
		return read_facts(r->facts, data, len, why);
	return read_dict(r->dict, r->version, data, len, why) ?: room__check();
}

/* Gives a block of facts or of the dict to the reader, with the batch that the thread fills. */
static int lend_block(struct mtr_reader *r, struct mtr_batch *to, const struct block *b,
		      uint64_t begin, const uint8_t *data)
{
	to->block = (struct mtr_ahead_block){ b->type, data, b->raw, begin };
	r->lent = b->type != MTR_FACTS || b->raw > COPY_MOST;
	if (r->lent)
		return 0;
	if (make_room(&to->copy, &to->copy_room, b->raw))
		return -ENOMEM;
	memcpy(to->copy, data, b->raw);
	to->block.data = to->copy;
	return 0;
}

/* Reads the next block and takes its content, or lends it to the reader with batch `to`, which is
 * NULL without a thread. Returns as read_stored(). */
static int next_block(struct mtr_reader *r, struct mtr_batch *to)
{
	const uint8_t *data;
	const char *why;
	struct block b = { 0 };
	uint64_t begin = r->position;
	int err = read_stored(r, &b);

	if (err <= 0)
		return err;
	if (b.type < MTR_FACTS || b.type > MTR_END) { /* of a later version: skip it */
		r->good = r->position;
		return 1;
	}
	if (is_bomb(r, &b))
		return end_reading(r, MTR_DAMAGED,
				   "it is compressed more than any recording, to exhaust memory");
	err = unpack_block(r, &b, &data);
	if (err <= 0)
		return err;
	if (b.type == MTR_END)
		return read_end(r, data, b.raw);
	if (b.type == MTR_EVENTS)
		err = mtr_decoder__begin(r->dec, r->version, data, b.raw, r->events, &why);
	else if (to)
		err = lend_block(r, to, &b, begin, data);
	else
		err = take_block(r, b.type, data, b.raw, &why);
	if (err == -EBADMSG)
		return end_reading(r, MTR_DAMAGED, why);
	if (err)
		return fail_with(r, err);
	if (b.type == MTR_EVENTS)
		r->in_events = true; /* its end is good once all its events are decoded */
	else
		r->good = r->position;
	return 1;
}

/* Reads up to `most` events of the current block, and returns their number. */
static int read_events(struct mtr_reader *r, struct event *e, int most)
{
	const char *why;
	int n = mtr_decoder__some(r->dec, e, most, &why);

	r->events += (uint64_t)n;
	if (n == most)
		return n;
	r->in_events = false;
	if (why)
		end_reading(r, MTR_DAMAGED, why);
	else
		r->good = r->position;
	return n;
}

/* Checks now and then how much memory is in use, because callers keep what they read. Returns 0 or
 * -errno. */
static int check_room(struct mtr_reader *r)
{
	if (r->given < r->checked_at + CHECK_EVERY)
		return 0;
	r->checked_at = r->given;
	return room__check();
}

/* As mtr_reader__some(), for a snapshot. */
static int read_snapshot_events(struct mtr_reader *r, struct event *e, int most)
{
	int n = r->ended ? r->err : torch_snapshot__some(r->snapshot, e, most);

	if (n < 0)
		return r->ended ? n : fail_with(r, n);
	return n || r->ended ? n : end_reading(r, MTR_COMPLETE, "complete");
}

/* Reads up to `most` events. With `to`, stops at a block that the reader has to take. Returns as
 * mtr_reader__some(). */
static int read_some(struct mtr_reader *r, struct event *e, int most, struct mtr_batch *to)
{
	int n = 0;

	while (!n && !r->ended && !(to && to->block.type)) {
		int got = r->in_events ? 1 : next_block(r, to); /* 1, 0 or -errno */

		if (got < 0)
			return got;
		if (r->in_events)
			n = read_events(r, e, most);
	}
	return n ? n : r->err;
}

/* In the thread: fills a batch. */
static void fill_batch(void *reader, struct mtr_ahead *a, struct mtr_batch *b)
{
	struct mtr_reader *r = reader;
	int n;

	b->last = r->lent && !mtr_ahead__settle(a);
	r->lent = false;
	if (b->last)
		return;
	n = read_some(r, b->events, MTR_AHEAD_EVENTS, b);
	b->n = n > 0 ? n : 0;
	b->position = r->position;
	b->last = r->ended;
}

/* Ends the thread. From then on, r has what its last batch left. */
static void stop_ahead(struct mtr_reader *r)
{
	mtr_ahead__free(r->ahead);
	r->ahead = NULL;
	r->batch = NULL;
}

/* Takes the block after the batch's events, and the next batch. Returns 1, or 0 or -errno at the
 * end. */
static int next_batch(struct mtr_reader *r)
{
	struct mtr_ahead_block block = { 0 };
	const char *why;
	int err = 0;

	if (r->batch)
		block = r->batch->block;
	if (block.type)
		err = take_block(r, block.type, block.data, block.len, &why);
	if (err) {
		stop_ahead(r);
		r->good = block.begin;
		r->in_events = false;
		return err == -EBADMSG ? end_reading(r, MTR_DAMAGED, why) : fail_with(r, err);
	}
	if (r->batch && r->batch->last) {
		stop_ahead(r);
		return r->err;
	}
	r->batch = mtr_ahead__take(r->ahead);
	r->shown = r->batch->position;
	r->used = 0;
	return 1;
}

/* As mtr_reader__view(), from the thread's batches. */
static int view_batch(struct mtr_reader *r, int most, const struct event **ret)
{
	int n = 0, left;

	while (!n) {
		int got = !r->batch || r->used == r->batch->n ? next_batch(r) : 1;

		if (got <= 0)
			return got;
		left = r->batch->n - r->used;
		n = left < most ? left : most;
	}
	*ret = r->batch->events + r->used;
	r->used += n;
	return n;
}

int mtr_reader__some(struct mtr_reader *r, struct event *e, int most)
{
	int err = check_room(r), n;

	if (err)
		return fail_with(r, err);
	n = r->snapshot ? read_snapshot_events(r, e, most) : read_some(r, e, most, /*to=*/NULL);
	r->given += n > 0 ? (uint64_t)n : 0;
	return n;
}

int mtr_reader__view(struct mtr_reader *r, int most, const struct event **ret)
{
	int err, n;

	if (!r->ahead) {
		*ret = r->viewed;
		return mtr_reader__some(r, r->viewed, most < VIEWED ? most : VIEWED);
	}
	err = check_room(r);
	if (err) {
		stop_ahead(r);
		return fail_with(r, err);
	}
	n = view_batch(r, most, ret);
	r->given += n > 0 ? (uint64_t)n : 0;
	return n;
}

void mtr_reader__read_ahead(struct mtr_reader *r, uint64_t least)
{
	cpu_set_t cores;

	if (r->ahead || r->snapshot || !r->by_position || r->size < least)
		return;
	if (sched_getaffinity(0, sizeof(cores), &cores) || CPU_COUNT(&cores) < 2)
		return;
	r->shown = r->position;
	r->ahead = mtr_ahead__new(fill_batch, r);
}

int mtr_reader__next(struct mtr_reader *r, struct event *e)
{
	return mtr_reader__some(r, e, 1);
}

/* ---- opening ---- */
/* Reads a file that begins with h, n bytes, as a snapshot of PyTorch. Returns as
 * read_file_header(). */
static int open_snapshot(struct mtr_reader *r, const char *path, const uint8_t *h, size_t n,
			 const char **why)
{
	return torch_snapshot__read(path, r->fd, r->by_position ? r->position : UINT64_MAX, r->size,
				    h, n, r->dict, r->facts, &r->snapshot, why);
}

/* Reads and checks the file header. Returns 0, or -errno with *why. */
static int read_file_header(struct mtr_reader *r, const char *path, const char **why)
{
	uint8_t h[MTR_FILE_HEADER];
	ssize_t n = read_bytes(r, h, sizeof(h));

	if (n < 0) {
		*why = "could not be read";
		return (int)n;
	}
	if (torch_snapshot__is(h, (size_t)n))
		return open_snapshot(r, path, h, (size_t)n, why);
	*why = n == 0 ? "an empty file"
		      : "not a memtrace-bpf recording, and no memory snapshot of PyTorch";
	if ((size_t)n < sizeof(h)) {
		if (n >= MTR_MAGIC_SIZE && !memcmp(h, MTR_MAGIC, MTR_MAGIC_SIZE))
			*why = "a recording that stops within its first bytes";
		return -EINVAL;
	}
	if (memcmp(h, MTR_MAGIC, MTR_MAGIC_SIZE))
		return -EINVAL;
	r->version = get_le32(h + MTR_AT_VERSION);
	if (get_le32(h + MTR_AT_BYTE_ORDER) != MTR_BYTE_ORDER || !r->version) {
		*why = "a recording whose header is damaged";
		return -EINVAL;
	}
	if (r->version > MTR_VERSION) {
		*why = "made by a newer memtrace-bpf in a format that this version cannot read; "
		       "read it with the version that wrote it or a later one";
		return -ENOTSUP;
	}
	r->good = r->position;
	return 0;
}

/* Opens the file or takes standard input, and reads the file header. Returns 0, or -errno with
 * *why. */
static int open_file(struct mtr_reader *r, const char *path, const char **why)
{
	struct stat st;

	*why = "could not be opened";
	if (!strcmp(path, "-")) {
		r->fd = STDIN_FILENO;
	} else {
		r->fd = passed_files__open(path);
		if (r->fd < 0) {
			*why = errno == EINVAL ? "not a file" : *why;
			return -errno;
		}
		r->close_fd = true;
	}
	if (!fstat(r->fd, &st) && S_ISREG(st.st_mode)) {
		r->size = (uint64_t)st.st_size;
		r->by_position = r->close_fd; /* standard input is read from its present position */
	}
	return read_file_header(r, path, why);
}

struct mtr_reader *mtr_reader__open(const char *path, const char **why)
{
	struct mtr_reader *r = calloc(1, sizeof(*r));
	const char *text = "not enough memory";
	int err = -ENOMEM;

	if (!r)
		goto fail;
	r->dict = dict__new();
	r->facts = facts__new();
	r->zstd = ZSTD_createDCtx();
	if (!r->dict || !r->facts || !r->zstd)
		goto fail;
	r->dec = mtr_decoder__new(r->dict);
	if (!r->dec)
		goto fail;
	err = open_file(r, path, &text);
	if (err)
		goto fail;
	return r;
fail:
	mtr_reader__free(r);
	if (why)
		*why = text;
	errno = -err;
	return NULL;
}

bool mtr_reader__is_recording(const char *path)
{
	uint8_t h[MTR_MAGIC_SIZE];
	struct stat st;
	bool is;
	int fd;

	if (stat(path, &st) || !S_ISREG(st.st_mode))
		return false;
	fd = passed_files__open(path);
	if (fd < 0)
		return false;
	is = io__pread(fd, h, sizeof(h), 0) == sizeof(h) && !memcmp(h, MTR_MAGIC, sizeof(h));
	close(fd);
	return is;
}

bool mtr_reader__names_snapshot(const char *name)
{
	static const char *const ends[] = { ".pickle", ".pickle.gz", ".pickle.zst" };
	size_t len = strlen(name);

	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		size_t n = strlen(ends[i]);

		if (len > n && !strcmp(name + len - n, ends[i]))
			return true;
	}
	return false;
}

void mtr_reader__free(struct mtr_reader *r)
{
	if (!r)
		return;
	mtr_ahead__free(r->ahead);
	if (r->close_fd)
		close(r->fd);
	torch_snapshot__free(r->snapshot); /* borrows dict and facts */
	mtr_decoder__free(r->dec);
	facts__free(r->facts);
	dict__free(r->dict);
	ZSTD_freeDCtx(r->zstd);
	free(r->stored);
	free(r->raw);
	free(r);
}

const struct dict *mtr_reader__dict(const struct mtr_reader *r)
{
	return r->dict;
}

const struct facts *mtr_reader__facts(const struct mtr_reader *r)
{
	return r->facts;
}

enum mtr_end mtr_reader__end(const struct mtr_reader *r, uint64_t *offset, const char **why)
{
	if (offset)
		*offset = r->good;
	if (why)
		*why = r->why;
	return r->end;
}

uint64_t mtr_reader__position(const struct mtr_reader *r)
{
	if (r->ahead)
		return r->shown;
	return r->snapshot ? torch_snapshot__position(r->snapshot) : r->position;
}

uint64_t mtr_reader__size(const struct mtr_reader *r)
{
	return r->snapshot ? torch_snapshot__size(r->snapshot) : r->size;
}

bool mtr_reader__is_snapshot(const struct mtr_reader *r)
{
	return r->snapshot;
}

uint32_t mtr_reader__version(const struct mtr_reader *r)
{
	return r->version;
}
