/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Describes every event of a recording for the formats csv and ndjson and for tables. An event is
 * passed on when the next one arrives, because only then does the model have the totals after it. */
#include <stdbool.h>
#include <stdint.h>

#include "export/export.h"
#include "export/formats/passing.h"
#include "model/model.h"
#include "record/stream.h"

struct event_row {
	const struct event *event;
	/* Number of the event in the recording, from 1. Events of devices that --device excludes
	 * count, too. */
	uint64_t number;
	const char *kind;   /* kind of event, "alloc" */
	const char *device; /* device name; NULL: event without a device */
	/* CUDA function, "cudaMalloc", or part of host memory; NULL: not applicable */
	const char *how;
	uint64_t size; /* bytes of the event or, for a free, of the freed block; 0: none or unknown */
	uint64_t requested;	       /* requested bytes; 0: not known */
	bool has_totals, has_reserved; /* allocated is valid; reserved is valid */
	uint64_t allocated, reserved;  /* the device's totals after the event, bytes */
	uint32_t tid;
	const char *thread;
	uint64_t step; /* current step, from 0 */
	/* Place in the program that allocated the block; for a free, the freed block. NULL: none or
	 * unknown. */
	const char *phase, *module, *module_class, *file, *function, *source;
	uint32_t line, stack;
	/* Category and name of a freed block or a tensor; name of a mark. NULL: none. */
	const char *category, *name;
	bool has_lifetime;
	uint64_t lifetime; /* time from the allocation of the freed block to its free, ns */
};

struct events {
	struct passing wait;
	struct live_block block; /* block that the waiting event frees */
	bool block_known;	 /* the waiting event is a free, and block is valid */
	uint64_t number;	 /* number of the waiting event, from 1 */
	/* The format's function for each event. Returns 0 or -errno. */
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

/* Sets ret to the fields of an event, in the order of csv and ndjson. The texts belong to t. */
void events__fields(const struct event_row *t, struct event_field ret[EVENT_FIELDS]);
/* Sets in t the place of a block's allocation, its category, name and requested size. */
void events__place(const struct export_ctx *c, const struct live_block *b, struct event_row *t);
/* For export_format.event(): passes the waiting event on to ev->put(), and keeps e as the waiting
 * one. Returns 0 or -errno. */
int events__pass(struct export_ctx *c, struct events *ev, void *state, const struct event *e);
/* For export_format.end(): passes the last waiting event on. Returns 0 or -errno. */
int events__end(struct export_ctx *c, struct events *ev, void *state);
