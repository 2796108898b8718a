/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_EXPORT_TIMELINE_H
#define MT_EXPORT_TIMELINE_H
/* What the parts of the timeline export share: events (timeline.c), what comes after
 * (timeline_stats.c). */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "export/export.h"
#include "export/passing.h"
#include "export/spans.h"
#include "lib/json.h"
#include "model/model.h"
#include "record/stream.h"

struct high {
	struct device device;
	uint64_t shown; /* the peak that a snapshot was written for */
};

struct timeline {
	struct json *j;
	const struct dict *dict;
	struct passing wait;
	struct spans *spans;
	struct model_device beside; /* that layers are told beside: calls of modules have none */
	uint64_t written;
	uint64_t next_snapshot;
	size_t steps; /* that snapshots were written for */
	struct high *highs;
	size_t nhighs;
};

/* The fields that all kinds of event have. The object stays open. */
void timeline__open_event(struct timeline *t, uint64_t time, const char *type, uint64_t size,
			  const char *layer, const struct model_device *d);
int timeline__layers(struct export_ctx *c, struct json *j); /* "layer_stats"; 0 or -ENOMEM */
void timeline__summary(struct export_ctx *c, struct json *j, uint64_t written); /* "summary" */

#endif
