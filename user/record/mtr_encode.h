/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_RECORD_MTR_ENCODE_H
#define MT_RECORD_MTR_ENCODE_H
/*
 * Events to the payload of an events block. One column a field, since like compresses well with
 * like; predictions start anew with each block, so that a block needs nothing but the dictionary.
 */
#include <stddef.h>
#include <stdint.h>

#include "record/mtr_format.h"
#include "record/stream.h"

struct dict;
struct mtr_encoder;

struct mtr_part {
	const uint8_t *data;
	size_t len;
};
#define MTR_PARTS (MTR_COLS + 1)

struct mtr_encoder *mtr_encoder__new(const struct dict *d); /* NULL on ENOMEM; borrows d */
void mtr_encoder__free(struct mtr_encoder *enc);
/* The event must be fit: see mtr_writer.c. 0 or -ENOMEM, after which the encoder is of no more use.
 */
int mtr_encoder__add(struct mtr_encoder *enc, const struct event *e);
bool mtr_encoder__full(
	const struct mtr_encoder *enc); /* time for a block: no event may be added any more */
uint32_t mtr_encoder__count(const struct mtr_encoder *enc);
/* The payload, as head and columns; valid until the next call. first: events in earlier blocks. */
void mtr_encoder__parts(struct mtr_encoder *enc, uint64_t first, struct mtr_part parts[MTR_PARTS]);
void mtr_encoder__reset(struct mtr_encoder *enc);

#endif
