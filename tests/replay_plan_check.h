/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Decodes a plan as the replayer does, into text: "alloc 0 512 300 @7", "free 0 @9" ... NULL: the
 * replayer would reject it. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "estimate/replay/wire.h"
#include "record/varint.h"

struct plan_reader {
	struct replay_plan head;
	uint8_t *bytes;
	const uint8_t *at, *end;
	uint8_t *live;	/* live slots */
	uint8_t *taken; /* memory taken outside of the allocator, by number */
	uint64_t event, n[8];
	FILE *out;
};

static bool plan_numbers(struct plan_reader *r, size_t from, size_t n)
{
	for (size_t i = from; i < from + n; i++)
		if (!varint__get(&r->at, r->end, &r->n[i]))
			return false;
	return true;
}

/* Changes the state of slot i. False: it has that state already. */
static bool plan_turn(uint8_t *is, uint64_t n, uint64_t i, bool live)
{
	if (i >= n || is[i] == live)
		return false;
	is[i] = live;
	return true;
}

static bool plan_segment(struct plan_reader *r)
{
	uint64_t at = 0, size, n;

	if (!plan_numbers(r, 0, 5) || r->n[0] >= r->head.segments || !r->n[2] || r->n[2] % 512 ||
	    r->n[1] % 512)
		return false;
	size = r->n[2];
	n = r->n[4];
	fprintf(r->out, "segment %s%llu:", r->n[3] ? "small " : "", (unsigned long long)size);
	for (uint64_t i = 0; i < n; i++) {
		if (!plan_numbers(r, 0, 4) || r->n[0] < at || r->n[1] > size ||
		    r->n[0] > size - r->n[1] ||
		    (r->n[3] && !plan_turn(r->live, r->head.slots, r->n[3] - 1, true)))
			return false;
		at = r->n[0] + r->n[1];
		fprintf(r->out, " %llu+%llu%s", (unsigned long long)r->n[0],
			(unsigned long long)r->n[1], r->n[3] ? "" : " waits");
	}
	fprintf(r->out, "\n");
	return true;
}

static bool plan_op(struct plan_reader *r, uint8_t op)
{
	bool has_event = op == REPLAY_ALLOC || op == REPLAY_FREE || op == REPLAY_OOM;

	if (has_event && !plan_numbers(r, 0, 2))
		return false;
	r->event += has_event ? r->n[0] : 0;
	switch (op) {
	case REPLAY_ALLOC:
		if (!plan_numbers(r, 2, 5) || !plan_turn(r->live, r->head.slots, r->n[2], true) ||
		    !r->n[3] || r->n[4] > r->n[3])
			return false;
		fprintf(r->out, "alloc %llu %llu %llu @%llu\n", (unsigned long long)r->n[2],
			(unsigned long long)r->n[3], (unsigned long long)r->n[4],
			(unsigned long long)r->event);
		return true;
	case REPLAY_FREE:
		if (!plan_numbers(r, 2, 1) || !plan_turn(r->live, r->head.slots, r->n[2], false))
			return false;
		fprintf(r->out, "free %llu @%llu\n", (unsigned long long)r->n[2],
			(unsigned long long)r->event);
		return true;
	case REPLAY_OOM:
		fprintf(r->out, "oom @%llu\n", (unsigned long long)r->event);
		return plan_numbers(r, 2, 3);
	case REPLAY_EMPTY:
		fprintf(r->out, "empty\n");
		return true;
	case REPLAY_TAKE:
		if (!plan_numbers(r, 0, 2) || !plan_turn(r->taken, r->head.takes, r->n[0], true))
			return false;
		fprintf(r->out, "take %llu\n", (unsigned long long)r->n[1]);
		return true;
	case REPLAY_GIVE:
		fprintf(r->out, "give\n");
		return plan_numbers(r, 0, 1) && plan_turn(r->taken, r->head.takes, r->n[0], false);
	case REPLAY_POOL: {
		uint32_t pool;

		if (!plan_numbers(r, 0, 1) || r->n[0] >= r->head.segments)
			return false;
		memcpy(&pool, r->bytes + r->head.ops_end + 4 * r->n[0], sizeof(pool));
		fprintf(r->out, "pool %u\n", pool);
		return pool < r->head.pools;
	}
	case REPLAY_RESERVED:
		if (!plan_numbers(r, 0, 1))
			return false;
		fprintf(r->out, "reserved %llu\n", (unsigned long long)r->n[0]);
		return true;
	case REPLAY_PLACE:
		return plan_numbers(r, 0, 2);
	case REPLAY_SEGMENT:
		return plan_segment(r);
	case REPLAY_BLOCK:
		fprintf(r->out, "block\n");
		return plan_numbers(r, 0, 3) && r->n[2] &&
		       plan_turn(r->live, r->head.slots, r->n[2] - 1, true);
	case REPLAY_STATE:
		fprintf(r->out, "state\n");
		return plan_numbers(r, 0, 2);
	default:
		return false;
	}
}

static bool plan_ops(struct plan_reader *r)
{
	while (r->at < r->end) {
		uint8_t op = *r->at++;

		if (op == REPLAY_END)
			return r->at == r->end;
		if (!plan_op(r, op))
			return false;
	}
	return false;
}

/* The result is malloc'd. */
static char *plan_text(int fd)
{
	off_t size = lseek(fd, 0, SEEK_END);
	struct plan_reader r = { 0 };
	char *text = NULL;
	size_t len;
	bool ok;

	r.bytes = malloc((size_t)size + 1);
	ok = r.bytes && size >= (off_t)sizeof(r.head) &&
	     pread(fd, r.bytes, (size_t)size, 0) == size;
	if (ok)
		memcpy(&r.head, r.bytes, sizeof(r.head));
	ok = ok && r.head.magic == REPLAY_MAGIC && r.head.ops_end >= sizeof(r.head) &&
	     r.head.ops_end + 4 * r.head.segments == (uint64_t)size &&
	     r.head.slots <= REPLAY_MAX_SLOTS && r.head.pools <= REPLAY_MAX_POOLS;
	r.live = ok ? calloc(1, (size_t)r.head.slots + 1) : NULL;
	r.taken = ok ? calloc(1, (size_t)r.head.takes + 1) : NULL;
	r.out = r.live && r.taken ? open_memstream(&text, &len) : NULL;
	if (r.out) {
		r.at = r.bytes + sizeof(r.head);
		r.end = r.bytes + r.head.ops_end;
		ok = plan_ops(&r);
		fclose(r.out);
	}
	free(r.bytes);
	free(r.live);
	free(r.taken);
	if (ok && text)
		return text;
	free(text);
	return NULL;
}
