/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "export/formats/gzip.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <zlib.h>

struct gzip {
	FILE *out;
	z_stream z;
	bool failed; /* some was not written */
	unsigned char buf[64 << 10];
};

struct gzip *gzip__new(FILE *out)
{
	struct gzip *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->out = out;
	/* 16 selects gzip's header, without a time. */
	if (deflateInit2(&g->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 9,
			 Z_DEFAULT_STRATEGY) != Z_OK) {
		free(g);
		errno = ENOMEM;
		return NULL;
	}
	return g;
}

static void squeeze(struct gzip *g, int flush)
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
		squeeze(g, Z_NO_FLUSH);
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
	squeeze(g, Z_FINISH);
	deflateEnd(&g->z);
	failed = g->failed;
	free(g);
	return !failed;
}
