/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "kernel/packed.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <zlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *unpack(const void *packed, size_t n, size_t size)
{
	void *data = malloc(size);
	uLongf got = size;

	if (!data)
		return NULL;
	if (uncompress(data, &got, packed, n) != Z_OK || got != size) {
		free(data);
		errno = ENOMEM;
		return NULL;
	}
	return data;
}

const void *packed__unpack(const void *packed, size_t n, size_t size, void **kept)
{
	const void *data;

	pthread_mutex_lock(&lock);
	if (!*kept)
		*kept = unpack(packed, n, size);
	data = *kept;
	pthread_mutex_unlock(&lock);
	return data;
}
