/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* All events of a recording, described for csv and ndjson. An event is put when the model has
 * its totals, that is when the next event arrives. */
#include <stdbool.h>
#include <stdint.h>

#include "export/export.h"
#include "export/formats/passing.h"
#include "model/model.h"
#include "record/stream.h"

struct event_row {
	const struct event *event;
	/* number in the recording, from 1; events excluded by --device count too */
	uint64_t number;
	const char *kind;   /* kind of event, "alloc" */
	const char *device; /* device name; NULL: event without a device */
	const char *how;    /* CUDA function, "cudaMalloc"; NULL: not applicable */
	uint64_t size;	    /* bytes; also of a free if its block is known; 0: none or not known */
	uint64_t requested; /* requested bytes; 0: not known */
	bool has_totals, has_reserved;
	uint64_t allocated, reserved; /* the device's totals after the event */
	uint32_t tid;
	const char *thread;
	uint64_t step; /* current step, from 0 */
	/* Place of the allocation; for a free, of the freed block's allocation. NULL: none or
	 * not known. */
	const char *phase, *module, *module_class, *file, *function, *source;
	uint32_t line, stack;
	/* Category and name of a freed block or a tensor; name of a mark. NULL: none. */
	const char *category, *name;
	bool has_lifetime;
	uint64_t lifetime; /* lifetime of the freed block, in ns */
};

struct events {
	struct passing wait;
	struct live_block block; /* block freed by the waiting event */
	bool block_known;
	uint64_t number;
	/* receives each event; 0 or -errno */
	int (*put)(struct export_ctx *c, void *state, const struct event_row *t);
};

enum event_field_type { FIELD_TEXT, FIELD_NUMBER, FIELD_NS, FIELD_ADDRESS };

struct event_field {
	const char *name;
	enum event_field_type type;
	bool known;
	uint64_t number;
	const char *text;
};

#define EVENT_FIELDS 23

/* The fields of an event, in the order of csv and ndjson. Texts belong to t. */
void events__fields(const struct event_row *t, struct event_field ret[EVENT_FIELDS]);
/* Sets the place of a block's allocation, its category, name and requested size. */
void events__place(const struct export_ctx *c, const struct live_block *b, struct event_row *t);
int events__pass(struct export_ctx *c, struct events *ev, void *state, const struct event *e);
int events__end(struct export_ctx *c, struct events *ev, void *state);
