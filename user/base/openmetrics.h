/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Metrics: headers and labels of both Prometheus text formats, and the names of a device's figures.
 * All names get the prefix "memtrace_". */
#include <stdbool.h>
#include <stdio.h>

struct openmetrics_family {
	const char *name; /* "allocated_bytes", without the suffixes "_total" of a counter and
			     "_info" of an info */
	const char *type; /* "gauge", "counter", "info" */
	const char *unit; /* unit at the end of the name; NULL: none */
	const char *help; /* plain text */
};

/* Writes the header of a family. openmetrics: OpenMetrics 1.0; otherwise Prometheus text format
 * 0.0.4. */
void openmetrics__head(FILE *out, const struct openmetrics_family *f, bool openmetrics);
/* Writes memtrace_NAME with the suffix of its type: the start of a sample. */
void openmetrics__name(FILE *out, const struct openmetrics_family *f);
/* Writes key="value". more: with a comma before it. value may be any text; it is cleaned and
 * escaped. */
void openmetrics__label(FILE *out, const char *key, const char *value, bool more);

/* Figures of a process's device, read from outside: their names in each output of `serve` and
 * `watch`. */

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
