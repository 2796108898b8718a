/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_OPENMETRICS_H
#define MT_LIB_OPENMETRICS_H
/* Heads and labels of the text that Prometheus reads, in both its forms. Every name begins with
 * "memtrace_", which is added. */
#include <stdbool.h>
#include <stdio.h>

struct openmetrics_family {
	const char *name; /* "allocated_bytes"; of a counter without "_total", of an info without
			     "_info" */
	const char *type; /* "gauge", "counter", "info" */
	const char *unit; /* that the name ends with; NULL: none */
	const char *help; /* plain text */
};

/* openmetrics: as OpenMetrics 1.0 wants it; else as Prometheus' text format 0.0.4. */
void openmetrics__head(FILE *out, const struct openmetrics_family *f, bool openmetrics);
/* memtrace_NAME with what its type adds: a sample begins so. */
void openmetrics__name(FILE *out, const struct openmetrics_family *f);
/* key="value", with a comma before it where more; value is made fit for it, whatever is in it. */
void openmetrics__label(FILE *out, const char *key, const char *value, bool more);

#endif
