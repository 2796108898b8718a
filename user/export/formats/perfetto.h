/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Parts of the export to Perfetto, for its tests. */
#include <stdint.h>

#include "model/model.h"

struct facts;
struct json;

/*
 * Memory curves of a device for charts, with few points. For each time window the lowest, highest
 * and last value are put, each at its own time. Unchanged values are not repeated, and no peak is
 * lost.
 */
struct counters;
/* Receives a point. what: "allocated", "reserved" or "in use (driver)". */
typedef void counters_put(void *ctx, const char *device, const char *what, uint64_t time,
			  uint64_t value);

/* duration: of the recording, in ns; 0: not known. NULL: no memory. */
struct counters *perfetto_counters__new(uint64_t duration, counters_put *put, void *ctx);
void perfetto_counters__free(struct counters *c); /* NULL is fine */
/* Adds a device's totals at `time`. Returns 0 or -ENOMEM. */
int perfetto_counters__device(struct counters *c, const struct model_device *d, uint64_t time);
/* Adds driver-reported use in bytes at `time`. Returns 0 or -ENOMEM. */
int perfetto_counters__used(struct counters *c, const struct model_device *d, uint64_t time,
			    uint64_t used);
void perfetto_counters__end(struct counters *c); /* puts the remaining points */

/* Writes the events of a trace of torch.profiler (Kineto), whose times are microseconds from
 * baseTimeNanoseconds on by the host's clock, into the open array, with their times in microseconds
 * since the recording's start. Reads the file twice. Returns 0, or -errno: -EBADMSG: not such a
 * trace; -EMSGSIZE: an event is too large; -ESTALE: the start of the recording is not known. */
int perfetto__merge(struct json *j, const char *path, const struct facts *f);
