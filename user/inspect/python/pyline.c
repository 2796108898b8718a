/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Each function reads its table from the start, as PyCode_Addr2Line does. Lines are 64-bit, so no
 * table can overflow them, and are checked at the end. */
#include <stdbool.h>

#include "inspect/python.h"

/* The line number; 0 for an impossible one, which hostile deltas can lead to. */
static uint32_t line_or_none(int64_t line)
{
	return line > 0 && line <= INT32_MAX ? (uint32_t)line : 0;
}

/* To 3.9: pairs {byte delta, line delta (signed)}. The last line has no end. */
static uint32_t find_lnotab(const uint8_t *table, size_t len, int64_t line, int64_t at)
{
	int64_t addr = 0;

	for (size_t i = 0; i + 1 < len; i += 2) {
		addr += table[i];
		if (addr > at)
			break;
		line += (int8_t)table[i + 1];
	}
	return line_or_none(line);
}

/* 3.10: pairs {bytes of the line, line delta (signed)}; -128: bytes without a line. */
static uint32_t find_linetable(const uint8_t *table, size_t len, int64_t line, int64_t at)
{
	int64_t end = 0;

	for (size_t i = 0; i + 1 < len; i += 2) {
		int8_t delta = (int8_t)table[i + 1];

		end += table[i];
		if (delta != INT8_MIN)
			line += delta;
		if (at < end)
			return delta == INT8_MIN ? 0 : line_or_none(line);
	}
	return 0;
}

/* Reads a number of six bits per byte, low bits first; bit 6 of a byte: more bytes follow. The
 * lowest bit of the number is its sign. False: incomplete, or too long. */
static bool read_signed_varint(const uint8_t *at, const uint8_t *end, int64_t *ret)
{
	uint64_t value = 0;

	for (unsigned shift = 0; at < end && shift <= 30; shift += 6, at++) {
		value |= (uint64_t)(*at & 63) << shift;
		if (!(*at & 64)) {
			*ret = value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
			return true;
		}
	}
	return false;
}

/* Reads the line delta of an entry of the location table. False: incomplete entry. */
static bool read_line_delta(const uint8_t *p, const uint8_t *end, int64_t *ret)
{
	unsigned code = (*p >> 3) & 15;

	switch (code) {
	case 13: /* no columns */
	case 14: /* long form */
		return read_signed_varint(p + 1, end, ret);
	case 10: /* one line, long columns */
	case 11:
	case 12:
		*ret = code - 10;
		return true;
	default: /* 15: no line; 0 to 9: same line */
		*ret = 0;
		return true;
	}
}

/* Searches a location table (from 3.11 on) for the code at offset `at`. line: the first line. Only
 * the first byte of each entry has bit 7. */
static uint32_t find_location(const uint8_t *table, size_t len, int64_t line, int64_t at)
{
	const uint8_t *at_byte = table, *end = table + len;
	int64_t entry_end = 0, delta;

	while (at_byte < end) {
		if (!(*at_byte & 128) || !read_line_delta(at_byte, end, &delta))
			return 0;
		line += delta;
		/* The first byte: length in code units of 2 bytes less 1, kind (15: no line). */
		entry_end += ((*at_byte & 7) + 1) * 2;
		if (at < entry_end)
			return ((*at_byte >> 3) & 15) == 15 ? 0 : line_or_none(line);
		do
			at_byte++;
		while (at_byte < end && !(*at_byte & 128));
	}
	return 0;
}

uint32_t pyline__find(int minor, const uint8_t *table, size_t len, uint32_t firstlineno, int32_t at)
{
	if (at < 0)
		return firstlineno;
	if (!len)
		return minor <= 9 ? line_or_none(firstlineno) : 0;
	if (minor <= 9)
		return find_lnotab(table, len, firstlineno, at);
	if (minor == 10)
		return find_linetable(table, len, firstlineno, at);
	return find_location(table, len, firstlineno, at);
}
