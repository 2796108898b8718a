/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "export/tables/thrift.h"

#include <errno.h>
#include <string.h>

#include "base/array.h"

enum { LIST = 9 };

void thrift__bytes(struct thrift *t, const void *bytes, size_t n)
{
	if (t->err || !n)
		return;
	t->err = array__grow(&t->buf, &t->cap, t->n + n, 1);
	if (t->err)
		return;
	memcpy(t->buf + t->n, bytes, n);
	t->n += n;
}

static void byte(struct thrift *t, unsigned v)
{
	uint8_t b = (uint8_t)v;

	thrift__bytes(t, &b, 1);
}

void thrift__varint(struct thrift *t, uint64_t v)
{
	for (; v > 127; v >>= 7)
		byte(t, (unsigned)(v & 127) | 128);
	byte(t, (unsigned)v);
}

static void zigzag(struct thrift *t, int64_t v)
{
	thrift__varint(t, (uint64_t)v << 1 ^ (uint64_t)(v >> 63));
}

/* Fields of Parquet are less than 16 apart. */
static void header(struct thrift *t, int field, unsigned type)
{
	int16_t *last = &t->last[t->depth];

	byte(t, (unsigned)(field - *last) << 4 | type);
	*last = (int16_t)field;
}

void thrift__i32(struct thrift *t, int field, int32_t v)
{
	header(t, field, THRIFT_I32);
	zigzag(t, v);
}

void thrift__i64(struct thrift *t, int field, int64_t v)
{
	header(t, field, THRIFT_I64);
	zigzag(t, v);
}

void thrift__text_element(struct thrift *t, const char *s)
{
	thrift__varint(t, strlen(s));
	thrift__bytes(t, s, strlen(s));
}

void thrift__text(struct thrift *t, int field, const char *s)
{
	header(t, field, THRIFT_BINARY);
	thrift__text_element(t, s);
}

void thrift__i32_element(struct thrift *t, int32_t v)
{
	zigzag(t, v);
}

void thrift__open(struct thrift *t, int field)
{
	if (field)
		header(t, field, THRIFT_STRUCT);
	if (t->depth + 1 == THRIFT_DEPTH)
		t->err = -EOVERFLOW;
	else
		t->last[++t->depth] = 0;
}

void thrift__close(struct thrift *t)
{
	byte(t, 0);
	if (t->depth)
		t->depth--;
}

void thrift__list(struct thrift *t, int field, enum thrift_type of, size_t n)
{
	header(t, field, LIST);
	if (n < 15) {
		byte(t, (unsigned)n << 4 | of);
		return;
	}
	byte(t, 0xf0 | of);
	thrift__varint(t, n);
}
