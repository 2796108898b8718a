/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Parts of the export format perfetto that tests call, too. */
#include <stdint.h>

#include "model/model.h"

struct facts;
struct json;

/* Memory curves of devices for charts, with few points. Of each time window only the lowest, the
 * highest and the last value are written, each at its own time. So no peak is lost. A value equal
 * to the one before it is not written.
 */
struct counters;
/* Receives a point. what: "allocated", "reserved" or "in use (driver)". */
typedef void counters_put(void *ctx, const char *device, const char *what, uint64_t time,
			  uint64_t value);

/* duration: of the recording, ns; 0: unknown. Returns NULL if memory is short. */
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
