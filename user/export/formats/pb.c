/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "export/formats/pb.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* Protocol Buffers: a varint has 7 bits a byte, lowest first; the top bit says that more follow. */
#define VARINT_MAX 10 /* most bytes of a 64-bit varint */
#define VARINT_MORE 0x80

/* How a value is encoded, in the low 3 bits of a field's key. */
enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

void pb__free(struct pb *b)
{
	free(b->data);
	*b = (struct pb){ 0 };
}

void pb__clear(struct pb *b)
{
	b->len = 0;
}

/* Makes room for n more bytes. Returns false, and sets b->failed, without memory. */
static bool make_room(struct pb *b, size_t n)
{
	size_t need;

	if (b->failed || __builtin_add_overflow(b->len, n, &need) ||
	    array__grow(&b->data, &b->cap, need, 1))
		b->failed = true;
	return !b->failed;
}

/* Appends bytes. */
static void put(struct pb *b, const void *data, size_t n)
{
	if (!n || !make_room(b, n))
		return;
	memcpy(b->data + b->len, data, n);
	b->len += n;
}

void pb__varint(struct pb *b, uint64_t v)
{
	if (!make_room(b, VARINT_MAX))
		return;
	for (; v >= VARINT_MORE; v >>= 7)
		b->data[b->len++] = (char)(v | VARINT_MORE);
	b->data[b->len++] = (char)v;
}

static void put_key(struct pb *b, uint32_t field, enum wire wire)
{
	pb__varint(b, (uint64_t)field << 3 | wire);
}

void pb__uint(struct pb *b, uint32_t field, uint64_t v)
{
	put_key(b, field, WIRE_VARINT);
	pb__varint(b, v);
}

void pb__float(struct pb *b, uint32_t field, float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	bits = htole32(bits);
	put_key(b, field, WIRE_32);
	put(b, &bits, sizeof(bits));
}

void pb__fixed64(struct pb *b, uint32_t field, uint64_t v)
{
	uint64_t bits = htole64(v);

	put_key(b, field, WIRE_64);
	put(b, &bits, sizeof(bits));
}

void pb__double(struct pb *b, uint32_t field, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	pb__fixed64(b, field, bits);
}

static void put_bytes(struct pb *b, uint32_t field, const void *data, size_t len)
{
	put_key(b, field, WIRE_BYTES);
	pb__varint(b, len);
	put(b, data, len);
}

void pb__string(struct pb *b, uint32_t field, const char *s)
{
	put_bytes(b, field, s, strlen(s));
}

void pb__message(struct pb *b, uint32_t field, const struct pb *message)
{
	b->failed |= message->failed;
	put_bytes(b, field, message->data, message->len);
}
