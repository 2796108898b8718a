/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Metrics of the targets and the server for Prometheus. The number of series is bounded by the
 * current targets and processes. Labels stay the same when a job restarts: a process is identified
 * by its target's name and a small number. Only the process's own series, and those of the
 * machine's GPUs, have the PID as a label.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct state;

#define METRICS_COUNTS 512
#define METRICS_DEVICES 1024 /* devices shown for all processes together */
#define METRICS_HOLDERS 16   /* processes shown of each GPU of the machine */
#define METRICS_CAPTURES 64  /* targets whose last capture is shown */
#define METRICS_LINES 10     /* lines of code shown per capture */
#define METRICS_PATH 160     /* bytes of a file or function name; the end is kept */

struct metrics_count {
	const char *method, *route; /* strings of the route table, never from the client */
	int status;
	uint64_t n;
};

/* Initialize with zeroes. */
struct metrics {
	struct metrics_count requests[METRICS_COUNTS];
	size_t n_requests;
	uint64_t others; /* requests that had no place in `requests` */
};

/* Counts an answered request. method and route: strings of the route table, not copied; both
 * NULL if no route matched. */
void metrics__count(struct metrics *m, const char *method, const char *route, int status);
/* Writes OpenMetrics 1.0 or, if openmetrics is false, Prometheus text format 0.0.4. Check `out`
 * for write errors. */
void metrics__write(FILE *out, const struct state *s, const struct metrics *m, bool openmetrics);
