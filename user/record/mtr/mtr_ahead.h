/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A thread that decodes events while their reader handles earlier ones. It fills batches, which the
 * reader takes in order. The dict grows only while the thread waits: see mtr_ahead__settle().
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/stream.h"

struct mtr_ahead;

#define MTR_AHEAD_EVENTS 512 /* most events of a batch */

struct mtr_batch {
	struct event *events; /* has room for MTR_AHEAD_EVENTS */
	int n;
	bool last;
	/* A block of facts or of the dict, which the reader takes after the events; type 0: none. */
	struct mtr_ahead_block {
		uint32_t type;
		const uint8_t *data;
		size_t len;
		uint64_t begin; /* position in the file */
	} block;
	uint8_t *copy; /* fill() may keep the block's data in this buffer, and change its size */
	size_t copy_room;
	uint64_t position; /* bytes of the file that were read for this batch and those before */
};

/* Starts a thread that calls fill() for one batch after another, until it sets last. NULL with
 * errno: there is no thread. */
struct mtr_ahead *mtr_ahead__new(void (*fill)(void *ctx, struct mtr_ahead *a, struct mtr_batch *b),
				 void *ctx);
/* Stops the thread if it still runs. NULL is fine. */
void mtr_ahead__free(struct mtr_ahead *a);
/* For the reader: waits for the next batch, which is valid until the next call. Do not call it
 * after the last one. */
const struct mtr_batch *mtr_ahead__take(struct mtr_ahead *a);
/* For fill(): waits until the reader has asked for the batch after all earlier ones, and so uses
 * none of them. Returns false if the thread is to stop. */
bool mtr_ahead__settle(struct mtr_ahead *a);
