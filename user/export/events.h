/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_EXPORT_EVENTS_H
#define MT_EXPORT_EVENTS_H
/* Every event of a recording in words, one after the other, when the model knows the totals after
 * it: for csv and ndjson. */
#include <stdbool.h>
#include <stdint.h>

#include "export/export.h"
#include "export/passing.h"
#include "model/model.h"
#include "record/stream.h"

struct told {
	const struct event *event;
	uint64_t number;    /* from 1, of the recording; what --device leaves out counts too */
	const char *kind;   /* "alloc" */
	const char *device; /* NULL: of none */
	const char *how;    /* "cudaMalloc"; NULL: not about that */
	uint64_t size;	    /* of a free too, if its block is known; 0: none, or not known */
	uint64_t requested; /* 0: not known */
	bool has_totals, has_reserved;
	uint64_t allocated, reserved; /* of the device, after it */
	uint32_t tid;
	const char *thread;
	uint64_t step; /* that it came in, from 0 */
	/* Where: of a free that of its block's allocation. NULL: not known, or none. */
	const char *phase, *module, *module_class, *file, *function, *source;
	uint32_t line, stack;
	const char *category, *name; /* of what goes: what it turned out to be; of a tensor, what
					the program's objects say */
	bool has_lifetime;
	uint64_t lifetime; /* ns, of what goes */
};

struct events {
	struct passing wait;
	struct live_block block; /* that goes with the event that waits */
	bool block_known;
	uint64_t number;
	int (*put)(struct export_ctx *c, void *state, const struct told *t); /* 0 or -errno */
};

int events__pass(struct export_ctx *c, struct events *ev, void *state, const struct event *e);
int events__end(struct export_ctx *c, struct events *ev, void *state);

#endif
