/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The bytes of an input that is read once from front to back: a file or a pipe, as it is or
 * compressed with gzip or zstd. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct inflow {
	const uint8_t *at, *end; /* bytes in memory that were not taken yet */
	int err;		 /* 0; -errno of a read; -EBADMSG: bad compressed data, see why */
	const char *why;	 /* static text for -EBADMSG */
	uint64_t position;	 /* bytes read from the file */
	uint64_t given;		 /* bytes before `at`, after decompression */
	struct inflow_source *source;
};

/* Opens fd, which stays the caller's. The first n bytes (at most 64) were already read and are in
 * `first`. at: position of the file for pread(); UINT64_MAX: use read(). Returns 0 or -ENOMEM. */
int inflow__open(struct inflow *in, int fd, uint64_t at, const uint8_t *first, size_t n);
void inflow__close(struct inflow *in);
/* Makes at least n bytes available at in->at, at most 1 MiB. Returns false at the end of the input
 * and on an error (in->err). */
bool inflow__fill(struct inflow *in, size_t n);

/* Returns the next n bytes, at most 1 MiB, and goes past them. NULL as inflow__fill(). The bytes
 * stay until the next call. */
static inline const uint8_t *inflow__take(struct inflow *in, size_t n)
{
	const uint8_t *p;

	if ((size_t)(in->end - in->at) < n && !inflow__fill(in, n))
		return NULL;
	p = in->at;
	in->at += n;
	return p;
}

/* Goes past n bytes without keeping them. False as inflow__fill(). */
bool inflow__skip(struct inflow *in, uint64_t n);
