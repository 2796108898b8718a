/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Memory curves of a device for charts, with few points. For each time window the lowest, highest
 * and last value are put, each at its own time. Unchanged values are not repeated, and no peak is
 * lost.
 */
#include <stdint.h>

#include "model/model.h"

struct counters;
/* Receives a point. what: "allocated", "reserved" or "in use (driver)". */
typedef void counters_put(void *ctx, const char *device, const char *what, uint64_t time,
			  uint64_t value);

/* duration: of the recording, in ns; 0: not known. NULL: no memory. */
struct counters *counters__new(uint64_t duration, counters_put *put, void *ctx);
void counters__free(struct counters *c); /* NULL is fine */
/* Adds a device's totals at `time`. Returns 0 or -ENOMEM. */
int counters__device(struct counters *c, const struct model_device *d, uint64_t time);
/* Adds driver-reported use in bytes at `time`. Returns 0 or -ENOMEM. */
int counters__used(struct counters *c, const struct model_device *d, uint64_t time, uint64_t used);
void counters__end(struct counters *c); /* puts the remaining points */
