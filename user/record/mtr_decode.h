/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_RECORD_MTR_DECODE_H
#define MT_RECORD_MTR_DECODE_H
/* The payload of an events block back to events. Nothing in it is trusted. */
#include <stddef.h>
#include <stdint.h>

#include "record/stream.h"

struct dict;
struct mtr_decoder;

struct mtr_decoder *mtr_decoder__new(const struct dict *d); /* NULL on ENOMEM; borrows d */
void mtr_decoder__free(struct mtr_decoder *dec);
/*
 * Takes up a block of a file of that version; data must stay until its last event was read. first:
 * events in earlier blocks, which the block must agree with. 0, -ENOMEM, or -EBADMSG and *why, a
 * static text.
 */
int mtr_decoder__begin(struct mtr_decoder *dec, uint32_t version, const uint8_t *data, size_t len,
		       uint64_t first, const char **why);
/* The next event: 1; 0 at the end of the block; -EBADMSG and *why, and *e is anything. */
int mtr_decoder__next(struct mtr_decoder *dec, struct event *e, const char **why);

#endif
