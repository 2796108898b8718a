/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Files that the program contains compressed: BPF programs, pages, schemas, the helper for NVML.
 * tools/dev/packed.py makes the arrays. */
#include <stddef.h>
#include <stdio.h>

struct packed {
	const unsigned char *data; /* gzip's format */
	size_t size, full;	   /* bytes of data, and bytes after decompression */
	void *unpacked;		   /* NULL before the first packed__unpack() */
};

/* Decompresses at the first call. Thread-safe. The result, of p->full bytes, lives until the end of
 * the program. Returns NULL with errno ENOMEM if there is no memory. */
const void *packed__unpack(struct packed *p);

/* Writes the decompressed content. 0 or -ENOMEM; the caller checks `out` for errors. */
int packed__write(struct packed *p, FILE *out);
