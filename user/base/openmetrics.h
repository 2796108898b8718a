/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Writes headers and labels of both Prometheus text formats. All names get the prefix
 * "memtrace_". */
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
