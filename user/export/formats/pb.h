/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Writes the wire format of protocol buffers. A message is built in memory and then added to its
 * parent. After a failed allocation `failed` stays set, and the content must not be used. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pb { /* starts zeroed */
	char *data;
	size_t len, cap;
	bool failed;
};

void pb__free(struct pb *b);
void pb__clear(struct pb *b); /* empties the message, but keeps its memory and its `failed` */
void pb__uint(struct pb *b, uint32_t field, uint64_t v); /* uint64, int64, bool, enum */
void pb__float(struct pb *b, uint32_t field, float v);
void pb__double(struct pb *b, uint32_t field, double v);
void pb__fixed64(struct pb *b, uint32_t field, uint64_t v);
/* Adds a value of a packed list, which pb__message() then adds to its message. */
void pb__varint(struct pb *b, uint64_t v);
void pb__string(struct pb *b, uint32_t field, const char *s); /* must be UTF-8 */
/* Adds a message as a field of b. If it has failed, b fails, too. */
void pb__message(struct pb *b, uint32_t field, const struct pb *message);
