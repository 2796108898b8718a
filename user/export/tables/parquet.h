/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Writes a table as a Parquet file (github.com/apache/parquet-format), row by row, in bounded
 * memory and without seeking. Each value may be null. Pages are compressed with zstd; texts are
 * numbers of a dictionary.
 *
 * Debian 12 and 13 have no C or C++ library that writes Parquet or Arrow, and the program must
 * build there and link statically. Replace this writer by libparquet when the oldest supported
 * Debian has it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum column_type {
	COLUMN_INT,  /* 64 bits, signed */
	COLUMN_TIME, /* microseconds since 1970, UTC */
	COLUMN_DOUBLE,
	COLUMN_BOOL,
	COLUMN_TEXT, /* UTF-8 */
};

struct column {
	const char *name;
	enum column_type type;
};

struct parquet;

/* Borrows out and columns. Returns NULL if memory is short. */
struct parquet *parquet__new(FILE *out, const struct column *columns, size_t n);
void parquet__free(struct parquet *p); /* NULL is fine */

/* Each of these functions adds the next value of the row, in the order of the columns. If known is
 * false, the value is null. */
void parquet__int(struct parquet *p, bool known, int64_t v);   /* also times */
void parquet__uint(struct parquet *p, bool known, uint64_t v); /* above INT64_MAX: null */
void parquet__double(struct parquet *p, bool known, double v); /* not finite: null */
void parquet__bool(struct parquet *p, bool known, bool v);
void parquet__text(struct parquet *p, const char *s); /* NULL: null; invalid UTF-8 is repaired */
/* Ends the row, which must have a value for each column. Returns 0 or -errno. */
int parquet__row(struct parquet *p);
/* Writes the rows that are in memory and the end of the file. Returns 0, or the first error of all
 * calls as -errno. The caller also checks the stream. */
int parquet__finish(struct parquet *p);
uint64_t parquet__rows(const struct parquet *p); /* number of rows so far */

/* ---- for parquet.c and its test ---- */

/* Thrift's compact protocol, in memory. Parquet's headers use it
 * (github.com/apache/thrift, doc/specs/thrift-compact-protocol.md). Fields of a struct are written
 * in the order of their numbers. After an error all calls do nothing. */
#define THRIFT_DEPTH 16

struct thrift {
	uint8_t *buf; /* owned by the caller, who frees it */
	size_t n, cap;
	int err;		    /* 0 or -ENOMEM */
	int16_t last[THRIFT_DEPTH]; /* for each open struct: number of its last field */
	unsigned depth;		    /* number of open structs */
};

/* Writes n numbers of `width` bits (1 to 32) in Parquet's hybrid of runs and packed bits. */
void parquet__put_levels(struct thrift *t, const uint32_t *v, size_t n, unsigned width);
/* Returns the number of bits that numbers below n need, at least 1. */
unsigned parquet__level_width(size_t n);
