/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Steps of several recordings with equal numbers of the job. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model;

/* The durations of a recording's steps, by the job's numbers. Zeroes: none. */
struct job_spans {
	uint64_t first; /* number of ns[0] */
	uint64_t *ns; /* owned; the last steps that the model keeps, without an incomplete first one
		       */
	size_t n;
};

/* Copies the durations, or none if the job's numbers are not known. 0 or -ENOMEM. */
int job_spans__of(const struct model *m, struct job_spans *ret);
void job_spans__free(struct job_spans *s);
/* Narrows the range *first to *last to the numbers that s has. False: there are none. */
bool job_spans__narrow(const struct job_spans *s, uint64_t *first, uint64_t *last);
/* Median duration, ns, of a range that s has. Sorts these durations. */
uint64_t job_spans__median(struct job_spans *s, uint64_t first, uint64_t last);
