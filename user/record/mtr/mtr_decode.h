/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Decodes the payload of an events block. The decoder checks all input. */
#include <stddef.h>
#include <stdint.h>

#include "record/stream.h"

struct dict;
struct mtr_decoder;

struct mtr_decoder *mtr_decoder__new(const struct dict *d); /* NULL if memory is short; borrows d */
void mtr_decoder__free(struct mtr_decoder *dec);
/*
 * Starts a block of a file of this version. data must stay valid until its last event is read.
 * first: number of events in earlier blocks; the block must agree. Returns 0, -ENOMEM, or -EBADMSG
 * and *why, a static text.
 */
int mtr_decoder__begin(struct mtr_decoder *dec, uint32_t version, const uint8_t *data, size_t len,
		       uint64_t first, const char **why);
/* Reads up to `most` events and returns their number: fewer at the end of the block, and before an
 * event that makes no sense. *why: a static text after such an event, otherwise NULL. */
int mtr_decoder__some(struct mtr_decoder *dec, struct event *e, int most, const char **why);
