/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/varint.h"

bool varint__get_long(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
	const uint8_t *at = *p;
	uint64_t v = 0;

	for (unsigned int shift = 0; shift < 64; shift += 7) {
		uint8_t byte;

		if (at == end)
			return false;
		byte = *at++;
		if (shift == 63 && byte > 1)
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
