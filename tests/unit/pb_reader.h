/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Reads the protobuf wire format field by field and asserts that it is well-formed. Include after
 * cmocka.h. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct pb_field {
	uint32_t number, wire;
	uint64_t value;	  /* for wire types 0, 1 and 5 */
	const char *data; /* for wire type 2 */
	size_t len;
};

struct pb_reader {
	const char *p, *end;
};

static inline uint64_t pb_varint(struct pb_reader *r)
{
	uint64_t v = 0;

	for (unsigned int shift = 0;; shift += 7) {
		assert_true(r->p < r->end && shift < 64);
		v |= (uint64_t)(*r->p & 0x7f) << shift;
		if (!(*r->p++ & 0x80))
			return v;
	}
}

static inline bool pb_next(struct pb_reader *r, struct pb_field *f)
{
	uint64_t key;
	size_t n;

	if (r->p == r->end)
		return false;
	key = pb_varint(r);
	*f = (struct pb_field){ .number = (uint32_t)(key >> 3), .wire = key & 7 };
	if (f->wire == 0) {
		f->value = pb_varint(r);
	} else if (f->wire == 2) {
		f->len = pb_varint(r);
		assert_true(f->len <= (size_t)(r->end - r->p));
		f->data = r->p;
		r->p += f->len;
	} else {
		n = f->wire == 1 ? 8 : 4;
		assert_true(f->wire == 1 || f->wire == 5);
		assert_true(n <= (size_t)(r->end - r->p));
		memcpy(&f->value, r->p, n); /* little-endian, as this machine */
		r->p += n;
	}
	return true;
}
