/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_WEB_METRICS_INTERNAL_H
#define MT_SERVE_WEB_METRICS_INTERNAL_H
/* Between the files of metrics.h. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/openmetrics.h"
#include "serve/state.h"

struct metrics_writer {
	FILE *out;
	const struct state *state;
	bool openmetrics;
	/* What was not shown, since there was too much of it. */
	uint64_t devices_left_out, captures_left_out;
};

void metrics__head(struct metrics_writer *w, const struct openmetrics_family *f);
/* Of a family without labels, head and all. */
void metrics__one(struct metrics_writer *w, const struct openmetrics_family *f, uint64_t value);
void metrics__one_real(struct metrics_writer *w, const struct openmetrics_family *f, double value);
/* What the last finished captures of the targets have found. */
void metrics__captures(struct metrics_writer *w);

#endif
