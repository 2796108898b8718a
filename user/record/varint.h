/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Encoding of numbers in recordings (LEB128), and the checksum of blocks. LEB128 has seven bits in
 * each byte, least significant first; bit 7 is set in all bytes but the last. A number takes at
 * most ten bytes. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VARINT_MAX 10

/* Writes v at p, which must have room for VARINT_MAX bytes. Returns the address after the last
 * byte. */
static inline uint8_t *varint__put(uint8_t *p, uint64_t v)
{
	while (v >= 0x80) {
		*p++ = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	*p++ = (uint8_t)v;
	return p;
}

/* As varint__get(), for numbers of any length. */
bool varint__get_long(const uint8_t **p, const uint8_t *end, uint64_t *ret);

/* Reads a number into *ret and moves *p after it. Returns false if the number has no end before
 * `end` or exceeds 64 bits. */
static inline bool varint__get(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
	const uint8_t *at = *p;

	if (__builtin_expect(at < end && at[0] < 0x80, 1)) {
		*ret = at[0];
		*p = at + 1;
		return true;
	}
	if (__builtin_expect(end - at > 1 && at[1] < 0x80, 1)) {
		*ret = (at[0] & 0x7fu) | (uint64_t)at[1] << 7;
		*p = at + 2;
		return true;
	}
	return varint__get_long(p, end, ret);
}

/* As varint__get(); also returns false if the number exceeds 32 bits. */
static inline bool varint__get32(const uint8_t **p, const uint8_t *end, uint32_t *ret)
{
	uint64_t v;

	if (!varint__get(p, end, &v) || v > UINT32_MAX)
		return false;
	*ret = (uint32_t)v;
	return true;
}

/* Maps differences modulo 2^64 to numbers so that small differences of either sign take few bytes:
 * 0, -1, 1, -2, ... become 0, 1, 2, 3, ... */
static inline uint64_t zigzag(uint64_t difference)
{
	return difference << 1 ^ (0 - (difference >> 63));
}

static inline uint64_t unzigzag(uint64_t v)
{
	return v >> 1 ^ (0 - (v & 1));
}

/* CRC-32C (Castagnoli) of len bytes. The CRC of "123456789" is e3069283. */
uint32_t crc32c(const void *data, size_t len);
