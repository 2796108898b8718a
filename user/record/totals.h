/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Numbers of a capture of any length in bounded memory: time series of the process and of each
 * device. Recent rows are fine, older rows coarser. The coarsest series always reaches back to the
 * start; its interval doubles when it is full. An interval without events has no row.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

struct totals;

#define TOTALS_FILE "totals.json" /* name of the file in a rolling folder */
#define TOTALS_VERSION 1	  /* of its form; readers refuse a newer one */
#define TOTALS_DEVICES                                                                             \
	64 /* devices with a series; events of further devices count for the process alone */

/* Numbers of a device since the start. */
struct totals_device {
	struct device device;
	uint64_t allocated, reserved; /* present bytes */
	uint64_t peak_allocated, peak_time,
		peak_step; /* first occurrence of the peak: time in ns, steps before it */
	uint64_t peak_reserved, peak_reserved_time;
	uint64_t allocs, frees, total_allocated, ooms;
};
struct totals_whole {
	uint64_t events, lost, steps, last; /* last: time of an event, ns */
	uint32_t devices;
};

/* max_bytes bounds the text of totals__json(); at least 16 KiB. NULL if memory is short. */
struct totals *totals__new(uint64_t max_bytes);
void totals__free(struct totals *t); /* NULL is fine */
/* Adds an event. allocated and reserved: bytes on its device after it. Returns 0 or -ENOMEM. */
int totals__event(struct totals *t, const struct event *e, uint64_t allocated, uint64_t reserved);
void totals__whole(const struct totals *t, struct totals_whole *ret);
/* Fills *ret for the i-th device. Returns false after the last device. */
bool totals__device(const struct totals *t, uint32_t i, struct totals_device *ret);

struct json;
/* Writes the members "whole" and "series" of docs/reference/folder.md into the open JSON object. */
void totals__json(const struct totals *t, struct json *j);
