/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_OPENMETRICS_H
#define MT_LIB_OPENMETRICS_H
/* Heads and labels of the text that Prometheus reads, in both its forms. Every name begins with
 * "memtrace_", which is added. */
#include <stdbool.h>
#include <stdio.h>

struct om_family {
	const char *name; /* "allocated_bytes"; of a counter without "_total", of an info without
			     "_info" */
	const char *type; /* "gauge", "counter", "info" */
	const char *unit; /* that the name ends with; NULL: none */
	const char *help; /* plain text */
};

/* openmetrics: as OpenMetrics 1.0 wants it; else as Prometheus' text format 0.0.4. */
void om__head(FILE *out, const struct om_family *f, bool openmetrics);
/* memtrace_NAME with what its type adds: a sample begins so. */
void om__name(FILE *out, const struct om_family *f);
/* key="value", with a comma before it where more; value is made fit for it, whatever is in it. */
void om__label(FILE *out, const char *key, const char *value, bool more);

#endif
