/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Files of the program: compressed ones that it contains (BPF programs, pages, schemas, the helper
 * for NVML), and the documents next to it. tools/dev/packed.py makes the arrays. */
#include <stddef.h>
#include <stdio.h>

struct packed {
	const unsigned char *data; /* gzip's format */
	size_t size, full;	   /* bytes of data, and bytes after decompression */
	void *unpacked;		   /* NULL before the first packed__unpack() */
};

/* Decompresses p at the first call. Thread-safe. The result, of p->full bytes, lives until the end
 * of the program. Returns NULL with errno ENOMEM if there is no memory. */
const void *packed__unpack(struct packed *p);

/* Writes the decompressed content of p to out. 0 or -ENOMEM; the caller checks ferror(out). */
int packed__write(struct packed *p, FILE *out);

/*
 * The path of a document of the guide or the reference, such as docs__path("guide/growth.md"), or
 * with "" the folder with all of them: ../share/doc/memtrace-bpf next to an installed program,
 * ../docs next to a build folder. The string is valid until the next call. Not for several threads.
 */
const char *docs__path(const char *name);
