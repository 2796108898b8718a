/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/assets.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <zlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Writes the uncompressed file, of p->full bytes, to data. False: it is damaged, or there is no
 * memory. */
static bool inflate_into(void *data, const struct packed *p)
{
	z_stream stream = { .next_in = (unsigned char *)p->data,
			    .avail_in = p->size,
			    .next_out = data,
			    .avail_out = p->full };
	bool whole;

	if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) /* 16 selects gzip's header */
		return false;
	whole = inflate(&stream, Z_FINISH) == Z_STREAM_END && !stream.avail_out;
	inflateEnd(&stream);
	return whole;
}

static void *unpack(const struct packed *p)
{
	void *data = malloc(p->full);

	if (data && inflate_into(data, p))
		return data;
	free(data);
	return NULL;
}

const void *packed__unpack(struct packed *p)
{
	const void *data;

	pthread_mutex_lock(&lock);
	if (!p->unpacked)
		p->unpacked = unpack(p);
	data = p->unpacked;
	pthread_mutex_unlock(&lock);
	if (!data)
		errno = ENOMEM;
	return data;
}

int packed__write(struct packed *p, FILE *out)
{
	const void *data = packed__unpack(p);

	if (!data)
		return -ENOMEM;
	fwrite(data, 1, p->full, out);
	return 0;
}
