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
#define MTR_VERSION 1
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

/* An event's tag: its kind, and which fields are not as predicted and thus stored. */
#define MTR_TAG_KIND 7u
#define MTR_TAG_THREAD (1u << 3)
#define MTR_TAG_DEVICE (1u << 4)
#define MTR_TAG_TOTALS (1u << 5)
#define MTR_TAG_SIZE (1u << 6)
#define MTR_TAG_ADDR (1u << 7) /* an address that is new in this block */
#define MTR_TAG_WALK (1u << 8)
#define MTR_TAG_ALL ((1u << 9) - 1)

/* Which kinds carry which fields. */
static inline bool mtr_has_addr(unsigned int kind)
{
	return kind == EVENT_ALLOC || kind == EVENT_FREE;
}

static inline bool mtr_has_size(unsigned int kind)
{
	return mtr_has_addr(kind) || kind == EVENT_OOM || kind == EVENT_LOST;
}

static inline bool mtr_has_stack(unsigned int kind)
{
	return kind == EVENT_ALLOC || kind == EVENT_OOM || kind == EVENT_STEP || kind == EVENT_CALL;
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
