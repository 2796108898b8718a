/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * What the host reads where it reads a kernel's result. That is zero, with which some programs do
 * not go on; what a place reads instead is said by MEMTRACE_DRYRUN_VALUES, or is plain from the
 * place itself.
 */
#include "depends.h"

struct truth {
	unsigned char size; /* 0: zeros */
	unsigned char bytes[8];
	uint64_t from; /* the read from which on these are what is read, the first is 1 */
};

/* Whether reads of that size may be anything but zeros. */
bool truth__wanted(size_t size);
/* What reads of size bytes at a place get. Writes a line into the log where that is not zero. */
void truth__of(struct truth *truth, const struct operation *op, const struct python_read *read,
	       size_t size);
/* Into the host's memory, where the zeros are; count: which read of the place it is. */
void truth__put(const struct truth *truth, uint64_t count, void *to, size_t size);

/* ---- values.c: MEMTRACE_DRYRUN_VALUES ---- */

struct said {
	const char *file;
	size_t file_size;
	long line;
	double number;
	unsigned long long from;
	bool is_float; /* it has a point */
};

/* Whether a text for it is understood. */
bool values__valid(const char *text);
/* What it says of a place. */
bool values__find(const struct place *place, struct said *said);
/* A number in so many bytes; false, and truth is as before: that is not known. */
bool values__encode(struct truth *truth, const struct said *said, size_t size);
