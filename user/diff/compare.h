/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_DIFF_COMPARE_H
#define MT_DIFF_COMPARE_H
/* Captures beside each other, one row each: how much memory, how much of it reserved in vain, how
 * long a step takes. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "archive/analysis.h"
#include "model/model.h"
#include "report/text.h"

struct compared {
	char *name,
		*recording; /* as told, or else the same: the file's, without folder and ".mtr" */
	char *torch, *device_name, *cwd; /* NULL: not known */
	char *file, *func, *module;	 /* of the allocation that made the peak; NULL: not known */
	uint32_t line;
	bool dry_run, complete, live; /* live: attached while it ran */
	uint64_t duration, events, lost;
	struct model_device device;
	uint64_t steps; /* in all */
	uint64_t timed,
		step_time; /* whole steps that step_time (ns) is the median of; 0, 0: none */
};

struct compare_opts {
	const char *device;   /* NULL: the main one of each */
	uint64_t skip, steps; /* of those seen whole, the ones to take the time of; steps 0: all */
};

/* Reads a recording to its end. 0 and *ret, for compare__drop(); or an exit code, logged. name
 * NULL: that of the file. */
int compare__read(const char *path, const char *name, const struct compare_opts *o,
		  struct compared *ret);
void compare__drop(struct compared *c);

double compare__fragmentation(const struct compared *c); /* at the peak */
double compare__most_fragmentation(
	const struct compared *c); /* when most bytes were reserved and not allocated */
const char *compare__peak_phase(const struct compared *c);

/*
 * Why one capture is not to be compared with the first, or its figures not to be trusted; i counts
 * from 0. False: no more. buf of COMPARE_TEXT.
 */
#define COMPARE_TEXT 320
bool compare__warning(const struct compared *all, size_t n, size_t which, size_t i, char *buf);
/* "x0.44" and "-56.0 %", of what is against what was; "" where that is 0. */
void compare__times(char times[24], char percent[24], uint64_t old, uint64_t new);

/* 0 or -ENOMEM. */
int compare_text__print(FILE *out, const struct compared *all, size_t n,
			const struct report_text_opts *o);
int compare_markdown__print(FILE *out, const struct compared *all, size_t n);
int compare_json__print(FILE *out, const struct compared *all, size_t n);

#endif
