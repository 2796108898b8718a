/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_EXPORT_TIMELINE_H
#define MT_EXPORT_TIMELINE_H
/* What the parts of the timeline export share: events (timeline.c), layers (timeline_layers.c), what comes after (timeline_stats.c). */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "export/export.h"
#include "lib/json.h"
#include "model/model.h"
#include "record/stream.h"

struct inside; /* what a thread is in */

struct high {
	struct device device;
	uint64_t shown; /* the peak that a snapshot was written for */
};

struct timeline {
	struct json *j;
	bool any; /* an event waits */
	bool calls; /* the recording has calls of modules */
	struct event event;
	struct model_device before; /* its device before it; all 0 when that was not there yet */
	uint64_t layer_events, written;
	uint64_t next_snapshot;
	size_t steps;		 /* that snapshots were written for */
	struct inside **threads; /* by thread number */
	uint32_t nthreads;
	struct high *highs;
	size_t nhighs, device; /* device: of the last event, as a hint */
};

/* The fields that all kinds of event have. The object stays open. */
void timeline__open_event(struct timeline *t, uint64_t time, const char *type, uint64_t size, const char *layer,
			  const struct model_device *d);
/* The device that calls of modules are told beside, as it is now: with the totals of 0 where it is not there yet. */
bool timeline__main_device(const struct export_ctx *c, struct model_device *ret);
const char *timeline__layer_name(const struct export_ctx *c, uint32_t module); /* NULL: none */

/* EVENT_ENTER, EVENT_LEAVE: beside the device that the document is about, since they have none. 0 or -ENOMEM. */
int timeline__call(struct export_ctx *c, struct timeline *t, const struct event *e);
/* Leaves and enters what an allocation shows to have been left and entered since the thread's last one. 0 or -ENOMEM. */
int timeline__layers_of(struct export_ctx *c, struct timeline *t, const struct event *e, const struct model_device *d);
/* Every thread leaves what it is in. */
void timeline__close_layers(struct export_ctx *c, struct timeline *t, uint64_t time);

int timeline__layers(struct export_ctx *c, struct json *j); /* "layer_stats"; 0 or -ENOMEM */
void timeline__summary(struct export_ctx *c, struct json *j, uint64_t written); /* "summary" */

#endif
