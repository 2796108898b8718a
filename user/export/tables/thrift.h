/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Thrift's compact protocol. Parquet's headers use it
 * (github.com/apache/thrift, doc/specs/thrift-compact-protocol.md). Fields of a struct are written
 * in the order of their numbers. Writes into memory; after an error all calls do nothing. */
#include <stddef.h>
#include <stdint.h>

#define THRIFT_DEPTH 16

struct thrift {
	uint8_t *buf; /* owned by the caller, who frees it */
	size_t n, cap;
	int err;		    /* 0 or -ENOMEM */
	int16_t last[THRIFT_DEPTH]; /* number of the last field, of each open struct */
	unsigned depth;
};

enum thrift_type { THRIFT_I32 = 5, THRIFT_I64 = 6, THRIFT_BINARY = 8, THRIFT_STRUCT = 12 };

/* Bytes without a field, for the protocol's own use and for other encodings. */
void thrift__bytes(struct thrift *t, const void *bytes, size_t n);
void thrift__varint(struct thrift *t, uint64_t v);

void thrift__i32(struct thrift *t, int field, int32_t v);
void thrift__i64(struct thrift *t, int field, int64_t v);
void thrift__text(struct thrift *t, int field, const char *s);
/* Opens a struct as a field; 0: as an element of a list, or the outermost one. */
void thrift__open(struct thrift *t, int field);
void thrift__close(struct thrift *t);
/* Begins a list of n elements, which follow: structs, or the two kinds below. */
void thrift__list(struct thrift *t, int field, enum thrift_type of, size_t n);
void thrift__i32_element(struct thrift *t, int32_t v);
void thrift__text_element(struct thrift *t, const char *s);
