/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Records between ring and decoder, in one growing buffer: 8 bytes with a record's length, then
 * the record, padded to a multiple of 8 bytes. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memtrace.h"

#define QUEUE_KEPT (4u << 20) /* bytes; a larger buffer is freed when the queue is empty */
#define QUEUE_EARLY                                                                                \
	(8u << 20) /* bytes; the most that a process may have here before it is attached */

struct queue {
	uint8_t *buf;
	size_t len, cap; /* bytes used, and allocated */
	uint64_t floor;	 /* epoch of the last record about a freed code object that
			    queue__push_early() dropped; 0: none */
};

/* Copies a record to the end of the queue. 0 or -ENOMEM. */
static inline int queue__push(struct queue *queue, const void *rec, size_t len)
{
	size_t need = 8 + ((len + 7) & ~(size_t)7);

	if (queue->cap - queue->len < need) {
		size_t cap = queue->cap ? queue->cap * 2 : 1 << 16;
		uint8_t *buf;

		while (cap - queue->len < need)
			cap *= 2;
		buf = realloc(queue->buf, cap);
		if (!buf)
			return -ENOMEM;
		queue->buf = buf;
		queue->cap = cap;
	}
	memcpy(queue->buf + queue->len, &(uint64_t){ len }, 8);
	memcpy(queue->buf + queue->len + 8, rec, len);
	queue->len += need;
	return 0;
}

/* Like queue__push(), for a process that is not attached yet, for which we may wait for hours.
 * Drops records about freed code objects if the queue is empty, since no record before them may
 * refer to the object, or has more than max bytes. 0 or -ENOMEM. */
static inline int queue__push_early(struct queue *queue, const void *rec, size_t len, size_t max)
{
	const struct mt_rec_gone *gone = rec;

	if (gone->h.type != MT_REC_CODE_GONE || (queue->len && queue->len <= max))
		return queue__push(queue, rec, len);
	if (gone->epoch > queue->floor)
		queue->floor = gone->epoch;
	return 0;
}

/* The record at *pos, with its length in *len; moves *pos to the next one. NULL: *pos has reached
 * `end`. */
static inline const void *queue__at(const struct queue *queue, size_t *pos, size_t end, size_t *len)
{
	const uint8_t *p = queue->buf + *pos;
	uint64_t length;

	if (*pos >= end)
		return NULL;
	memcpy(&length, p, 8);
	*len = length;
	*pos += 8 + ((length + 7) & ~(uint64_t)7);
	return p + 8;
}

/* Drops all records before pos. */
static inline void queue__drop(struct queue *queue, size_t pos)
{
	if (queue->len > pos)
		memmove(queue->buf, queue->buf + pos, queue->len - pos);
	queue->len -= pos;
	if (!queue->len && queue->cap > QUEUE_KEPT) {
		free(queue->buf);
		*queue = (struct queue){ 0 };
	}
}
