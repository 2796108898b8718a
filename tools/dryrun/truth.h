/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Values that the host reads where it reads a kernel's result. The default is zero, which stops
 * some programs. MEMTRACE_DRYRUN_VALUES can name another value for a place, and some places imply
 * one.
 */
#include "depends.h"

struct truth {
	unsigned char size; /* 0: zeros */
	unsigned char bytes[8];
	uint64_t from;	 /* number of the first read with these bytes, from 1 */
	uint64_t every;	 /* 0: all later reads; otherwise each read whose number is a multiple */
	bool generation; /* the loop of generate(): ask Python at each read */
};

/* True if reads of that size may differ from zeros. */
bool truth__wanted(size_t size);
/* Finds the value for reads of `size` bytes at a place. Logs a value other than zero. */
void truth__of(struct truth *truth, const struct operation *op, const struct python_read *read,
	       size_t size);
/* Writes the value into host memory. count: number of the read at this place. Takes the GIL: hold
 * no lock. */
void truth__put(const struct truth *truth, uint64_t count, void *to, size_t size);

/* The calling thread's next `reads` reads of 8 bytes get `number`, whatever their place. 0 reads:
 * none. */
void truth__set_next(uint64_t number, unsigned int reads);
/* Writes the number that is set for the calling thread's next read of that size. False: none. */
bool truth__take_next(void *to, size_t size);

/* ---- values.c: MEMTRACE_DRYRUN_VALUES ---- */

struct said {
	const char *file;
	size_t file_size;
	long line;
	double number;
	unsigned long long from, every; /* as in struct truth */
	bool is_float;			/* has a decimal point */
};

/* True if `text` is valid. */
bool values__valid(const char *text);
/* Finds a place's value in the text, which is valid or NULL. */
bool values__find(const char *text, const struct place *place, struct said *said);
/* Encodes a number in `size` bytes. False: unknown type; truth is unchanged. */
bool values__encode(struct truth *truth, const struct said *said, size_t size);
