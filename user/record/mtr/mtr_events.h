/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Encodes events as the payload of an events block. Each field has its own column, because similar
 * values compress well together. Predictions restart with each block, so a block depends only on
 * the dictionary.
 */
#include <stddef.h>
#include <stdint.h>

#include "record/mtr/mtr_format.h"
#include "record/stream.h"

struct dict;
struct mtr_encoder;

struct mtr_part {
	const uint8_t *data;
	size_t len;
};
#define MTR_PARTS (MTR_COLS + 1)

struct mtr_encoder *mtr_encoder__new(const struct dict *d); /* NULL if memory is short; borrows d */
void mtr_encoder__free(struct mtr_encoder *enc);
/* True if the event can be encoded: its fields are in range, and the dict has all its numbers. */
bool mtr_encoder__takes(const struct mtr_encoder *enc, const struct event *e);
/* Encodes an event for which mtr_encoder__takes() is true. Returns 0, or -ENOMEM, after which the
 * encoder is unusable. */
int mtr_encoder__add(struct mtr_encoder *enc, const struct event *e);
/* True if the block is full; the caller must then add no more events. */
bool mtr_encoder__full(const struct mtr_encoder *enc);
uint32_t mtr_encoder__count(const struct mtr_encoder *enc); /* number of events in the block */
/* Sets parts to the block's payload, its head and its columns, which stay valid until the next
 * call. first_event: number of events in the file's earlier blocks. */
void mtr_encoder__parts(struct mtr_encoder *enc, uint64_t first_event,
			struct mtr_part parts[MTR_PARTS]);
void mtr_encoder__reset(struct mtr_encoder *enc); /* begins a new, empty block */

/* Decodes the payload of an events block. The decoder checks all input. */

struct mtr_decoder;

struct mtr_decoder *mtr_decoder__new(const struct dict *d); /* NULL if memory is short; borrows d */
void mtr_decoder__free(struct mtr_decoder *dec);
/* Starts to decode a block. version: of the file. data must stay valid until the last event is
 * read. first: number of events in the file's earlier blocks, which the block must have, too.
 * Returns 0 or -ENOMEM, or returns -EBADMSG and sets *why to a static text.
 */
int mtr_decoder__begin(struct mtr_decoder *dec, uint32_t version, const uint8_t *data, size_t len,
		       uint64_t first, const char **why);
/* Decodes up to `most` events and returns their number. It is smaller at the end of the block, and
 * before an invalid event. Sets *why to a static text at an invalid event, otherwise to NULL. */
int mtr_decoder__some(struct mtr_decoder *dec, struct event *e, int most, const char **why);
