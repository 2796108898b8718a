/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "export/formats/gzip.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <zlib.h>

/* Arguments of zlib's deflateInit2(). */
#define GZIP_HEADER 16 /* a gzip header instead of a zlib header; its time is 0 */
#define MEM_LEVEL 9    /* most memory, for speed */

struct gzip {
	FILE *out;
	z_stream z;
	bool failed; /* a write to out failed */
	unsigned char buf[64 << 10];
};

struct gzip *gzip__new(FILE *out)
{
	struct gzip *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->out = out;
	if (deflateInit2(&g->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_HEADER + MAX_WBITS,
			 MEM_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK) {
		free(g);
		errno = ENOMEM;
		return NULL;
	}
	return g;
}

/* Compresses the input and writes what comes out. flush: of deflate(). */
static void compress_input(struct gzip *g, int flush)
{
	size_t n;

	do {
		g->z.next_out = g->buf;
		g->z.avail_out = sizeof(g->buf);
		deflate(&g->z, flush);
		n = sizeof(g->buf) - g->z.avail_out;
		g->failed |= fwrite(g->buf, 1, n, g->out) != n;
	} while (!g->z.avail_out);
}

void gzip__write(struct gzip *g, const void *data, size_t len)
{
	const unsigned char *p = data;

	while (len) {
		uInt part = len < INT_MAX ? (uInt)len : INT_MAX;

		g->z.next_in = (unsigned char *)(uintptr_t)p;
		g->z.avail_in = part;
		compress_input(g, Z_NO_FLUSH);
		p += part;
		len -= part;
	}
}

bool gzip__end(struct gzip *g)
{
	bool failed;

	if (!g)
		return true;
	g->z.next_in = NULL;
	g->z.avail_in = 0;
	compress_input(g, Z_FINISH);
	deflateEnd(&g->z);
	failed = g->failed;
	free(g);
	return !failed;
}
