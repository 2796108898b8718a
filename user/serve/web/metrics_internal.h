/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by metrics.c and metrics_captures.c. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/openmetrics.h"
#include "serve/server/state.h"

struct metrics_writer {
	FILE *out;
	const struct state *state;
	bool openmetrics;
	/* Devices and captures that are not shown because of the limits in metrics.h. */
	uint64_t devices_left_out, captures_left_out;
};

static inline void metrics__head(struct metrics_writer *w, const struct openmetrics_family *f)
{
	openmetrics__head(w->out, f, w->openmetrics);
}

/* Writes the results of each target's last finished capture. */
void metrics__captures(struct metrics_writer *w);
