/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_EXPORT_TIMELINE_H
#define MT_EXPORT_TIMELINE_H
/* The parts of the timeline document that come after the events. */
#include "export/export.h"
#include "lib/json.h"

int timeline__layers(struct export_ctx *c, struct json *j); /* "layer_stats"; 0 or -ENOMEM */
void timeline__summary(struct export_ctx *c, struct json *j, uint64_t written); /* "summary" */

#endif
