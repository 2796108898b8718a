/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_WEB_METRICS_H
#define MT_SERVE_WEB_METRICS_H
/*
 * What is known of the targets and of the server itself, as text for Prometheus. The number of
 * series is bounded by what is there at the moment, and their labels do not change when a job is
 * started again: a process is its target's name and a small number, and the PID is a label of one
 * series alone.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct state;

#define METRICS_COUNTS 512
#define METRICS_DEVICES 1024 /* of all processes together */
#define METRICS_CAPTURES 64  /* targets whose last capture is shown */
#define METRICS_LINES 10     /* of each */
#define METRICS_PATH 160     /* bytes of a file name or function, its last ones */

struct metrics_count {
	const char *method, *route; /* of the table of calls, never what a client sent */
	int status;
	uint64_t n;
};

/* Begins as zeroes. */
struct metrics {
	struct metrics_count requests[METRICS_COUNTS];
	size_t n_requests;
	uint64_t others; /* that found no place above */
};

/* A request was answered. method and route: of the table, both NULL where none was meant; they are
 * kept. */
void metrics__count(struct metrics *m, const char *method, const char *route, int status);
/* openmetrics: OpenMetrics 1.0; else Prometheus' text format 0.0.4. Errors are out's. */
void metrics__write(FILE *out, const struct state *s, const struct metrics *m, bool openmetrics);

#endif
