/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Steps: optimizer steps, or calls of the root module. */
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

struct dev;
struct model;
struct thread_state;

enum step_kind { STEP_OPT, STEP_CALL, STEP_KINDS };

/* Bytes of one device in one step. */
struct step_level {
	uint64_t peak, end_allocated; /* bytes, less dev.late at that time */
};

#define STEPS_KEPT 4096 /* the last steps, of each kind */
#define STEP_DEVICES 64 /* further devices have no step_level */

struct steps {
	struct step_span {
		uint64_t start, end;
	} * ring[STEP_KINDS];
	uint32_t cap[STEP_KINDS];
	uint64_t n[STEP_KINDS];	       /* number of steps that ended */
	uint64_t last_end[STEP_KINDS]; /* end of the last step, ns */
	bool called;		       /* an EVENT_CALL came */
	uint64_t begun;		       /* number of EVENT_CALLs */
	/* The call under way, the last one that began; NULL: none. call_last: time of the last
	 * event inside it. */
	struct thread_state *caller;
	uint32_t call_module;
	uint64_t call_last;
	bool growth_lacks_call; /* the last call has ended, and growth has no value for it yet */
};
/* The functions return 0 or -ENOMEM. steps__optimizer(): an EVENT_STEP. steps__call(): an
 * EVENT_CALL. steps__alloc(): an allocation, which may be the first one outside of the call under
 * way. */
int steps__optimizer(struct model *m, uint64_t time);
int steps__call(struct model *m, const struct event *e);
int steps__alloc(struct model *m, uint64_t time, uint32_t stack, uint8_t walk);
/* Ends the call under way. */
int steps__close_call(struct model *m);
