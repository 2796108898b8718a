/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Parquet's RLE and bit-packing hybrid (parquet-format, Encodings.md): runs of equal numbers, and
 * groups of eight numbers as packed bits. */
#include "export/tables/levels.h"

#include <string.h>

#define GROUP 8
#define GROUPS 63 /* a packed run's most, so that its header has one byte */

unsigned levels__width(size_t n)
{
	unsigned width = 1;

	while (width < 32 && (size_t)1 << width < n)
		width++;
	return width;
}

static size_t run_at(const uint32_t *v, size_t n, size_t at)
{
	size_t end = at + 1;

	while (end < n && v[end] == v[at])
		end++;
	return end - at;
}

static void put_run(struct thrift *t, uint32_t v, size_t n, unsigned width)
{
	uint8_t bytes[4] = { (uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16),
			     (uint8_t)(v >> 24) };

	thrift__varint(t, (uint64_t)n << 1);
	thrift__bytes(t, bytes, (width + 7) / 8);
}

/* Packs n numbers, the last group filled up with zeroes. */
static void put_packed(struct thrift *t, const uint32_t *v, size_t n, unsigned width)
{
	size_t groups = (n + GROUP - 1) / GROUP;

	thrift__varint(t, (uint64_t)groups << 1 | 1);
	for (size_t g = 0; g < groups; g++) {
		uint8_t bytes[4 * GROUP] = { 0 };

		for (size_t i = 0; i < GROUP && g * GROUP + i < n; i++)
			for (unsigned b = 0; b < width; b++)
				if (v[g * GROUP + i] >> b & 1)
					bytes[(i * width + b) / 8] |= (uint8_t)(1U << (i * width +
										       b) % 8);
		thrift__bytes(t, bytes, width);
	}
}

void levels__put(struct thrift *t, const uint32_t *v, size_t n, unsigned width)
{
	size_t packed = 0, run; /* packed: numbers before `at` that wait for put_packed() */

	for (size_t at = 0; at < n;) {
		run = run_at(v, n, at);
		if (run >= GROUP) {
			if (packed)
				put_packed(t, v + at - packed, packed, width);
			packed = 0;
			put_run(t, v[at], run, width);
			at += run;
			continue;
		}
		run = n - at < GROUP ? n - at : GROUP;
		packed += run;
		at += run;
		if (packed == GROUPS * GROUP || at == n) {
			put_packed(t, v + at - packed, packed, width);
			packed = 0;
		}
	}
}
