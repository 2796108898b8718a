/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/varint.h"

#include <pthread.h>

#define POLY_REVERSED UINT32_C(0x82f63b78) /* the polynomial of CRC-32C, lowest bit first */

/* tables[n][b]: CRC of the byte b and n zero bytes after it. With eight tables a round takes eight
 * bytes, which is fast enough for readers without special instructions. */
static uint32_t tables[8][256];

/* Fills the tables. */
static void make_tables(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int bit = 0; bit < 8; bit++)
			c = c >> 1 ^ (c & 1 ? POLY_REVERSED : 0);
		tables[0][i] = c;
	}
	for (uint32_t i = 0; i < 256; i++) {
		for (int t = 1; t < 8; t++)
			tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xff];
	}
}

uint32_t crc32c(const void *data, size_t len)
{
	static pthread_once_t made = PTHREAD_ONCE_INIT;
	const unsigned char *p = data;
	uint32_t c = UINT32_MAX;

	pthread_once(&made, make_tables);
	for (; len >= 8; len -= 8, p += 8) {
		c ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
		     (uint32_t)p[3] << 24;
		c = tables[7][c & 0xff] ^ tables[6][c >> 8 & 0xff] ^ tables[5][c >> 16 & 0xff] ^
		    tables[4][c >> 24] ^ tables[3][p[4]] ^ tables[2][p[5]] ^ tables[1][p[6]] ^
		    tables[0][p[7]];
	}
	while (len--)
		c = c >> 8 ^ tables[0][(c ^ *p++) & 0xff];
	return ~c;
}
