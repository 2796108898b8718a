/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Records between ring and decoder: one growing buffer, records aligned to 8 bytes. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memtrace.h"

#define QUEUE_KEPT (4u << 20)  /* bytes; a larger buffer is freed once it is empty */
#define QUEUE_EARLY (8u << 20) /* bytes, for a process that is not attached yet */

struct queue {
	uint8_t *buf;
	size_t len, cap; /* bytes used, and allocated */
	uint64_t floor;	 /* epoch of the last end that queue__push_early() left out; 0: none */
};

static inline int queue__push(struct queue *q, const void *rec, size_t len)
{
	size_t need = 8 + ((len + 7) & ~(size_t)7);

	if (q->cap - q->len < need) {
		size_t cap = q->cap ? q->cap * 2 : 1 << 16;
		uint8_t *buf;

		while (cap - q->len < need)
			cap *= 2;
		buf = realloc(q->buf, cap);
		if (!buf)
			return -ENOMEM;
		q->buf = buf;
		q->cap = cap;
	}
	memcpy(q->buf + q->len, &(uint64_t){ len }, 8);
	memcpy(q->buf + q->len + 8, rec, len);
	q->len += need;
	return 0;
}

/* As queue__push(), for a process that we may wait for for hours. Drops ends of code objects unless
 * an earlier record may need them and the queue has at most max bytes. 0 or -ENOMEM. */
static inline int queue__push_early(struct queue *q, const void *rec, size_t len, size_t max)
{
	const struct mt_rec_gone *gone = rec;

	if (gone->h.type != MT_REC_CODE_GONE || (q->len && q->len <= max))
		return queue__push(q, rec, len);
	if (gone->epoch > q->floor)
		q->floor = gone->epoch;
	return 0;
}

/* The record at *pos, which moves to the next one; NULL at `end`. */
static inline const void *queue__at(const struct queue *q, size_t *pos, size_t end, size_t *len)
{
	const uint8_t *p = q->buf + *pos;
	uint64_t n;

	if (*pos >= end)
		return NULL;
	memcpy(&n, p, 8);
	*len = n;
	*pos += 8 + ((n + 7) & ~(uint64_t)7);
	return p + 8;
}

/* Drops everything before pos. */
static inline void queue__drop(struct queue *q, size_t pos)
{
	if (q->len > pos)
		memmove(q->buf, q->buf + pos, q->len - pos);
	q->len -= pos;
	if (!q->len && q->cap > QUEUE_KEPT) {
		free(q->buf);
		*q = (struct queue){ 0 };
	}
}
