/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_RECORD_MTR_FORMAT_H
#define MT_RECORD_MTR_FORMAT_H
/* The numbers of docs/FORMAT.md, shared by writer and reader. */
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

/* As in PNG: not ASCII, and broken by whatever converts line ends. */
#define MTR_MAGIC "\x89MTR\r\n\x1a\n"
#define MTR_MAGIC_SIZE 8
/* Read too: 4, with the kinds up to EVENT_MARK, 3, with the kinds up to EVENT_LEAVE, 2, with the
 * kinds up to EVENT_USED and no nodes, and 1, with those up to EVENT_LOST. */
#define MTR_VERSION 5
#define MTR_BYTE_ORDER UINT32_C(0x01020304)
#define MTR_FILE_HEADER 16

#define MTR_BLOCK_HEADER 24
#define MTR_MAX_BLOCK (16u << 20) /* stored and raw */
#define MTR_MAX_BLOCK_EVENTS (1u << 20)
#define MTR_MAX_BLOCK_DEVICES 256

enum mtr_block { MTR_FACTS = 1, MTR_DICT = 2, MTR_EVENTS = 3, MTR_END = 4 };

#define MTR_ZSTD 1u /* block flag */

/* Sections of a dictionary block. */
enum mtr_section {
	MTR_STRINGS = 1,
	MTR_LOCS = 2,
	MTR_MODULES = 3,
	MTR_STACKS = 4,
	MTR_THREADS = 5,
	MTR_NODES = 6,
};

/* Columns of an events block, in this order. */
enum mtr_column {
	MTR_COL_TAG,
	MTR_COL_TIME,
	MTR_COL_ADDR,
	MTR_COL_SIZE,
	MTR_COL_STACK,
	MTR_COL_REST,
	MTR_COLS,
};

/*
 * An event's tag: three bits of code, for rare kinds four more that say which, then a bit for each
 * field that is not as predicted and thus stored. The codes leave the tags of the two frequent
 * kinds one byte long.
 */
#define MTR_CODE_ASKED 0u
#define MTR_CODE_MAX 6u /* from EVENT_ALLOC up to here the code is the kind */
#define MTR_CODE_RARE 7u
#define MTR_RARE_FIRST 7u /* the kind is this plus what the four bits say */

enum mtr_field {
	MTR_THREAD = 1 << 0,
	MTR_DEVICE = 1 << 1,
	MTR_TOTALS = 1 << 2,
	MTR_SIZE = 1 << 3, /* of EVENT_REQUESTED: requested */
	MTR_ADDR = 1 << 4, /* an address that is new in this block; of EVENT_REQUESTED: not that of
			      the block just told of */
	MTR_WALK = 1 << 5,
	MTR_FIELDS_V1 = (1 << 6) - 1,
	MTR_HOW = 1 << 6, /* and flags */
	MTR_REQUESTED = 1 << 7,
	MTR_STREAM = 1 << 8,
	MTR_POOL = 1 << 9,
	MTR_FIELDS_V2 = (1 << 10) - 1,
	MTR_NODE = 1 << 10, /* there is one */
};

static inline uint32_t mtr_tag(unsigned int kind, unsigned int fields)
{
	if (kind <= MTR_CODE_MAX)
		return kind | fields << 3;
	if (kind == EVENT_REQUESTED)
		return MTR_CODE_ASKED | fields << 3;
	return MTR_CODE_RARE | (kind - MTR_RARE_FIRST) << 3 | fields << 7;
}

/* The kind, which may be none (EVENT_KINDS or more), and *fields, which may have any bit. */
static inline unsigned int mtr_tag_kind(uint64_t tag, uint64_t *fields)
{
	unsigned int code = tag & 7;

	*fields = code == MTR_CODE_RARE ? tag >> 7 : tag >> 3;
	if (code == MTR_CODE_ASKED)
		return EVENT_REQUESTED;
	return code == MTR_CODE_RARE ? MTR_RARE_FIRST + (tag >> 3 & 15) : code;
}

/*
 * Which kinds carry which fields. Those below the blocks have addresses and sizes too, each kind by
 * itself: they come in order of address, or seldom.
 */
static inline bool mtr_has_block(unsigned int kind) /* an address, mostly one that came before */
{
	return kind == EVENT_ALLOC || kind == EVENT_FREE;
}

static inline bool mtr_has_range(
	unsigned int kind) /* an address and a size, predicted from the last of the kind */
{
	return kind == EVENT_CUDA_ALLOC || kind == EVENT_CUDA_FREE || kind == EVENT_SEGMENT ||
	       kind == EVENT_BLOCK || kind == EVENT_TENSOR;
}

static inline bool mtr_repeats_size(
	unsigned int kind) /* no address; the size is predicted from the last of the kind */
{
	return kind == EVENT_USED || kind == EVENT_CENSUS || kind == EVENT_LEFT;
}

static inline bool mtr_has_size(unsigned int kind)
{
	return mtr_has_block(kind) || mtr_has_range(kind) || kind == EVENT_OOM ||
	       kind == EVENT_LOST || mtr_repeats_size(kind);
}

static inline bool mtr_has_stack(unsigned int kind)
{
	return kind == EVENT_ALLOC || kind == EVENT_OOM || kind == EVENT_STEP ||
	       kind == EVENT_CALL || kind == EVENT_CUDA_ALLOC || kind == EVENT_BLOCK;
}

static inline bool mtr_has_totals(unsigned int kind)
{
	return kind <= EVENT_LOST || kind == EVENT_STATE;
}

static inline bool mtr_has_how(unsigned int kind)
{
	return mtr_has_block(kind) || mtr_has_range(kind) || kind == EVENT_STATE ||
	       kind == EVENT_CENSUS;
}

static inline bool mtr_has_requested(unsigned int kind)
{
	return kind == EVENT_BLOCK || kind == EVENT_REQUESTED;
}

static inline bool mtr_has_stream(unsigned int kind)
{
	return mtr_has_requested(kind) || kind == EVENT_SEGMENT;
}

static inline bool mtr_has_pool(unsigned int kind)
{
	return kind == EVENT_SEGMENT;
}

static inline bool mtr_has_node(unsigned int kind)
{
	return kind == EVENT_ALLOC || kind == EVENT_OOM || kind == EVENT_BLOCK ||
	       kind == EVENT_ENTER;
}

static inline bool mtr_is_call(unsigned int kind) /* of a module: no device, and not alone */
{
	return kind == EVENT_ENTER || kind == EVENT_LEAVE;
}

static inline bool mtr_has_device(unsigned int kind)
{
	return !mtr_is_call(kind) && kind != EVENT_MARK;
}

/* What the last event of a kind on a device said: what the next one is predicted from. */
struct mtr_last {
	uint64_t end; /* address and size, one after the other */
	uint64_t size;
	uint64_t cuda_stream, pool[2];
	uint32_t name, module; /* of EVENT_TENSOR */
	uint8_t how, flags;
	bool requested; /* it was known */
};

/* Of a device within a block. */
struct mtr_device {
	struct device device;
	bool totals;
	uint64_t allocated, reserved;
	struct mtr_last last[EVENT_KINDS];
};

/* What is remembered of a block by the events that have one: EVENT_ALLOC, _FREE, _BLOCK, and
 * EVENT_REQUESTED of it. */
struct mtr_touched {
	uint64_t addr, size;
	uint64_t requested; /* 0: not known */
};

/* What an event remembers of its block: a free that does not say its size leaves what the
 * allocation said. */
static inline struct mtr_touched mtr_touch(const struct event *e, const struct mtr_touched *before)
{
	struct mtr_touched t = { e->addr, e->size ? e->size : before->size, e->requested };

	/* The cache hands out a block again for what is asked for again. */
	if (!t.requested && t.size == before->size)
		t.requested = before->requested;
	return t;
}

static inline uint64_t mtr_predict_requested(const struct event *e, const struct mtr_touched *t,
					     const struct mtr_last *last)
{
	if (e->kind == EVENT_BLOCK)
		return last->requested ? e->size : 0;
	return t->requested ? t->requested : t->size;
}

/* Of EVENT_REQUESTED and _BLOCK: how much smaller than the block. */
static inline uint64_t mtr_requested_base(const struct event *e, const struct mtr_touched *t)
{
	return e->kind == EVENT_BLOCK ? e->size : t->size;
}

static inline void mtr_remember(struct mtr_last *last, const struct event *e)
{
	last->how = e->how;
	last->flags = e->flags;
	if (mtr_has_block(e->kind)) /* the rest has no use */
		return;
	last->end = e->addr + e->size;
	last->size = e->size;
	last->requested = e->requested;
	last->cuda_stream = e->cuda_stream;
	last->pool[0] = e->pool[0];
	last->pool[1] = e->pool[1];
	last->name = e->name;
	last->module = e->module;
}

static inline void put_le32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
	p[2] = (uint8_t)(v >> 16);
	p[3] = (uint8_t)(v >> 24);
}

static inline uint32_t get_le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

#endif
