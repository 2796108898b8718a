/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by the parts of the timeline export: events (timeline.c), and statistics at the end
 * (timeline_stats.c). */
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "export/export.h"
#include "export/formats/passing.h"
#include "export/formats/spans.h"
#include "model/model.h"
#include "record/stream.h"

struct snapshot_peak {
	struct device device;
	uint64_t shown; /* peak for which a snapshot was written */
};

struct timeline {
	struct json *j;
	const struct dict *dict;
	struct passing wait;
	struct spans *spans;
	/* device shown with layer events, since module calls have none */
	struct model_device layer_device;
	uint64_t written;
	uint64_t next_snapshot;
	size_t steps; /* steps for which snapshots were written */
	struct snapshot_peak *highs;
	size_t nhighs, room_highs;
};

int timeline__layers(struct export_ctx *c, struct json *j); /* writes "layer_stats"; 0 or -ENOMEM */
/* writes "summary" */
void timeline__summary(struct export_ctx *c, struct json *j, uint64_t written);
