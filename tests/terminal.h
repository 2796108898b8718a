/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Checks that a text is safe to print on a terminal. Independent of user/base/text.c, which makes
 * texts safe. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes a character and its length in bytes; -1: not UTF-8. */
static inline int32_t terminal__char(const uint8_t *p, size_t left, size_t *len)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	uint32_t c;

	*len = p[0] < 0x80	       ? 1
	       : (p[0] & 0xe0) == 0xc0 ? 2
	       : (p[0] & 0xf0) == 0xe0 ? 3
	       : (p[0] & 0xf8) == 0xf0 ? 4
				       : 0;
	if (!*len || *len > left)
		return -1;
	c = *len == 1 ? p[0] : p[0] & (0x7fu >> *len);
	for (size_t i = 1; i < *len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return -1;
		c = c << 6 | (p[i] & 0x3f);
	}
	return c < least[*len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? -1 : (int32_t)c;
}

/* True for valid UTF-8, also with control characters. */
static inline bool terminal__utf8(const char *s, size_t size)
{
	size_t len;

	for (size_t i = 0; i < size; i += len) {
		if (terminal__char((const uint8_t *)s + i, size - i, &len) < 0)
			return false;
	}
	return true;
}

/* True for UTF-8 without control characters and characters that change the text's direction. */
static inline bool terminal__harmless(const char *s, size_t size)
{
	size_t len;

	for (size_t i = 0; i < size; i += len) {
		int32_t c = terminal__char((const uint8_t *)s + i, size - i, &len);

		if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e ||
		    c == 0x200f || c == 0x2028 || c == 0x2029 || (c >= 0x202a && c <= 0x202e) ||
		    (c >= 0x2066 && c <= 0x2069))
			return false;
	}
	return true;
}
