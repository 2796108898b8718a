/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Figures of a process's device, read from outside: their names in each output of `serve` and
 * `watch`. */
#include "base/openmetrics.h"

enum device_figure {
	FIG_ALLOCATED,
	FIG_RESERVED,
	FIG_PEAK_ALLOCATED,
	FIG_TOTAL,
	FIG_USED,
	FIG_OOMS,
	FIG_RETRIES,
	FIG_FREE,
	FIG_NR
};

struct device_figure_names {
	const char *json;		  /* member of a JSON object, "allocated" */
	struct openmetrics_family family; /* type "counter" or "gauge" */
	const char *otlp, *otlp_unit;	  /* "memtrace.allocated", "By" */
};

extern const struct device_figure_names device_figures[FIG_NR];
