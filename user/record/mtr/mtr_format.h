/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Constants of docs/reference/mtr.md, shared by writer and reader. */
#include <stdbool.h>
#include <stdint.h>

#include "record/mtr.h"
#include "record/stream.h"

/* Not ASCII and with both line ends, as in PNG, so that conversions of line ends damage it
 * visibly. */
#define MTR_MAGIC "\x89MTR\r\n\x1a\n"
#define MTR_MAGIC_SIZE 8
#define MTR_BYTE_ORDER UINT32_C(0x01020304)
#define MTR_FILE_HEADER 16
/* Offsets in the file header, after the magic. */
#define MTR_AT_VERSION 8
#define MTR_AT_BYTE_ORDER 12

#define MTR_BLOCK_HEADER 24
/* Offsets in a block's header. Its checksum is last and covers what is before it. */
#define MTR_AT_TYPE 0
#define MTR_AT_FLAGS 4
#define MTR_AT_STORED 8 /* bytes of the payload in the file */
#define MTR_AT_RAW 12	/* bytes of the payload, uncompressed */
#define MTR_AT_CRC 16	/* checksum of the payload in the file */
#define MTR_AT_HEADER_CRC 20
/* Bounds of a block: bytes, both stored and uncompressed; events; devices. */
#define MTR_MAX_BLOCK (16u << 20)
#define MTR_MAX_BLOCK_EVENTS (1u << 20)
#define MTR_MAX_BLOCK_DEVICES 256

enum mtr_block { MTR_FACTS = 1, MTR_DICT = 2, MTR_EVENTS = 3, MTR_END = 4 };

#define MTR_ZSTD 1u /* flag in a block's header: the payload is compressed with zstd */

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

/* Each event has a tag: three bits of code, which give the kind; four more bits if the kind is
 * rare; and one bit (enum mtr_field) for each field that the event stores. An event stores only
 * fields that differ from their prediction. With these codes the tags of EVENT_ALLOC and EVENT_FREE
 * take one byte.
 */
#define MTR_CODE_REQUESTED 0u /* EVENT_REQUESTED */
#define MTR_CODE_MAX 6u	      /* a code from EVENT_ALLOC to this one is the kind itself */
#define MTR_CODE_RARE 7u      /* the four extra bits have the kind minus MTR_RARE_FIRST */
#define MTR_RARE_FIRST 7u

enum mtr_field {
	MTR_THREAD = 1 << 0,
	MTR_DEVICE = 1 << 1,
	MTR_TOTALS = 1 << 2,
	MTR_SIZE = 1 << 3, /* the size; in an EVENT_REQUESTED the requested bytes */
	/* An address that is new in this events block. In an EVENT_REQUESTED: an address that is
	   not the latest one. */
	MTR_ADDR = 1 << 4,
	MTR_WALK = 1 << 5,
	MTR_FIELDS_V1 = (1 << 6) - 1, /* all fields of version 1 */
	MTR_HOW = 1 << 6,	      /* how and flags */
	MTR_REQUESTED = 1 << 7,
	MTR_STREAM = 1 << 8,
	MTR_POOL = 1 << 9,
	MTR_FIELDS_V2 = (1 << 10) - 1, /* all fields of version 2 */
	MTR_NODE = 1 << 10,	       /* the autograd node */
};

/* Returns the tag of an event of this kind that stores these fields (bits of enum mtr_field). */
static inline uint32_t mtr_tag(unsigned int kind, unsigned int fields)
{
	if (kind <= MTR_CODE_MAX)
		return kind | fields << 3;
	if (kind == EVENT_REQUESTED)
		return MTR_CODE_REQUESTED | fields << 3;
	return MTR_CODE_RARE | (kind - MTR_RARE_FIRST) << 3 | fields << 7;
}

/* The inverse of mtr_tag(): returns the kind (enum event_kind) and sets *fields. Checks nothing, so
 * a damaged tag may give EVENT_KINDS or more, and fields that the kind does not have. */
static inline unsigned int mtr_tag_kind(uint64_t tag, uint64_t *fields)
{
	unsigned int code = tag & 7;

	*fields = code == MTR_CODE_RARE ? tag >> 7 : tag >> 3;
	if (code == MTR_CODE_REQUESTED)
		return EVENT_REQUESTED;
	return code == MTR_CODE_RARE ? MTR_RARE_FIRST + (tag >> 3 & 15) : code;
}

/* The functions mtr_has_ say which kinds of events have which fields. */

/* Kinds whose address usually occurred before in the events block. */
static inline bool mtr_has_block(unsigned int kind)
{
	return kind == EVENT_ALLOC || kind == EVENT_FREE;
}

/* Kinds whose address and size are predicted from the last event of the same kind. */
static inline bool mtr_has_range(unsigned int kind)
{
	return kind == EVENT_CUDA_ALLOC || kind == EVENT_CUDA_FREE || kind == EVENT_SEGMENT ||
	       kind == EVENT_BLOCK || kind == EVENT_TENSOR || kind == EVENT_HOST;
}

/* Kinds without an address whose size is predicted from the last event of the same kind. */
static inline bool mtr_repeats_size(unsigned int kind)
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
	       kind == EVENT_CENSUS || kind == EVENT_SCOPE;
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

/* Kinds for calls of modules. They have no device. */
static inline bool mtr_is_call(unsigned int kind)
{
	return kind == EVENT_ENTER || kind == EVENT_LEAVE;
}

static inline bool mtr_has_device(unsigned int kind)
{
	return !mtr_is_call(kind) && kind != EVENT_MARK && kind != EVENT_SCOPE;
}

/* Fields of the last event of a kind on a device. They are the prediction for the next event of the
 * kind. */
struct mtr_last {
	uint64_t end; /* the event's address plus its size */
	uint64_t size;
	uint64_t cuda_stream, pool[2];
	uint32_t name, module; /* EVENT_TENSOR only */
	uint8_t how, flags;
	bool requested; /* the event's requested bytes were known */
};

/* The state of a device within an events block. */
struct mtr_device {
	struct device device;
	bool totals; /* the device's last event had the totals allocated and reserved */
	uint64_t allocated, reserved;
	struct mtr_last last[EVENT_KINDS];
};

/* The state of an allocator block after an EVENT_ALLOC, EVENT_FREE, EVENT_BLOCK or EVENT_REQUESTED
 * with its address. */
struct mtr_touched {
	uint64_t addr, size;
	uint64_t requested; /* requested bytes; 0: unknown */
};

/* Returns the state of an allocator block after the event e. before: its state until then. A free
 * without a size keeps the size of the allocation. */
static inline struct mtr_touched mtr_touch(const struct event *e, const struct mtr_touched *before)
{
	struct mtr_touched t = { e->addr, e->size ? e->size : before->size, e->requested };

	/* The allocator often reuses a cached block for a request of the same size. */
	if (!t.requested && t.size == before->size)
		t.requested = before->requested;
	return t;
}

/* Returns the prediction of e->requested. t: state of the allocator block; last: of the event's
 * kind. */
static inline uint64_t mtr_predict_requested(const struct event *e, const struct mtr_touched *t,
					     const struct mtr_last *last)
{
	if (e->kind == EVENT_BLOCK)
		return last->requested ? e->size : 0;
	return t->requested ? t->requested : t->size;
}

/* Returns the size from which the requested bytes are subtracted in the file. */
static inline uint64_t mtr_requested_base(const struct event *e, const struct mtr_touched *t)
{
	return e->kind == EVENT_BLOCK ? e->size : t->size;
}

/* Stores an event, the last of its kind. */
static inline void mtr_remember(struct mtr_last *last, unsigned int kind, const struct event *e)
{
	last->how = e->how;
	last->flags = e->flags;
	if (mtr_has_block(kind)) /* nothing predicts from the other fields */
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
