/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/varint.h"

#include <endian.h>
#include <string.h>

#define TOP_BITS UINT64_C(0x8080808080808080)

/* Decodes a number of up to eight bytes without a branch on its length, which processors predict
 * badly. *p must have eight bytes. Returns false if the number is longer. */
static bool get_eight(const uint8_t **p, uint64_t *ret)
{
	uint64_t v, ends;

	memcpy(&v, *p, sizeof(v));
	v = le64toh(v);
	ends = ~v & TOP_BITS; /* the top bit of each byte that can end the number */
	if (!ends)
		return false;
	*p += __builtin_ctzll(ends) / 8 + 1;
	/* Keep the bytes up to the last one, the first byte with a clear top bit. */
	v &= (ends ^ (ends - 1)) & ~TOP_BITS;
	/* Close the gaps of one bit between the bytes, then of two, then of four. */
	v = (v & UINT64_C(0x007f007f007f007f)) | (v & UINT64_C(0x7f007f007f007f00)) >> 1;
	v = (v & UINT64_C(0x00003fff00003fff)) | (v & UINT64_C(0x3fff00003fff0000)) >> 2;
	*ret = (v & UINT64_C(0x000000000fffffff)) | (v & UINT64_C(0x0fffffff00000000)) >> 4;
	return true;
}

bool varint__get_long(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
	const uint8_t *at = *p;
	uint64_t v = 0;

	if ((size_t)(end - at) >= sizeof(v) && get_eight(p, ret))
		return true;
	for (unsigned int shift = 0; shift < 64; shift += 7) {
		uint8_t byte;

		if (at == end)
			return false;
		byte = *at++;
		if (shift == 63 && byte > 1) /* more than 64 bits */
			return false;
		v |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80) {
			*p = at;
			*ret = v;
			return true;
		}
	}
	return false;
}
