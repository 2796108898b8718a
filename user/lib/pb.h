/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_PB_H
#define MT_LIB_PB_H
/*
 * The wire format of protocol buffers, writing only: a message is bytes in memory, put into the one
 * around it when it is whole. Where memory runs out the message says so from then on, and what is
 * in it must not be used.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pb { /* begins as all 0 */
	char *data;
	size_t len, cap;
	bool failed;
};

void pb__free(struct pb *b);
void pb__clear(struct pb *b); /* empty again; keeps the memory, and that it failed */
void pb__uint(struct pb *b, uint32_t field, uint64_t v); /* uint64, int64, bool, enum */
void pb__float(struct pb *b, uint32_t field, float v);
void pb__double(struct pb *b, uint32_t field, double v);
void pb__string(struct pb *b, uint32_t field, const char *s); /* must be UTF-8 */
/* message into b; failed goes along. */
void pb__message(struct pb *b, uint32_t field, const struct pb *message);

#endif
