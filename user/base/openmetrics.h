/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Metrics: headers and labels of both Prometheus text formats, and the names of a device's figures.
 * All names get the prefix "memtrace_". */
#include <stdbool.h>
#include <stdio.h>

struct openmetrics_family {
	const char *name; /* "allocated_bytes", without the suffixes "_total" of a counter and
			     "_info" of an info */
	const char *type; /* "gauge", "counter" or "info" */
	const char *unit; /* unit at the end of the name; NULL: none */
	const char *help; /* plain text */
};

/* Writes the header of a family. openmetrics: OpenMetrics 1.0; otherwise Prometheus text format
 * 0.0.4. */
void openmetrics__head(FILE *out, const struct openmetrics_family *f, bool openmetrics);
/* Writes memtrace_NAME with the suffix of its type: the start of a sample. */
void openmetrics__name(FILE *out, const struct openmetrics_family *f);
/* Writes key="value". more: writes a comma before it. value may be any text; it is cleaned and
 * escaped. */
void openmetrics__label(FILE *out, const char *key, const char *value, bool more);

/* Names of the figures of a process's device, which are read from outside, in each output of
 * `serve` and `watch`. */

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
	const char *json;		  /* name of the member in JSON objects: "allocated" */
	struct openmetrics_family family; /* for Prometheus; its type is "counter" or "gauge" */
	const char *otlp, *otlp_unit;	  /* for OTLP: "memtrace.allocated", "By" (bytes) */
};

extern const struct device_figure_names device_figures[FIG_NR];
