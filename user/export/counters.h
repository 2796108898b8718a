/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_EXPORT_COUNTERS_H
#define MT_EXPORT_COUNTERS_H
/*
 * Curves of memory by device, thinned out: of each window of time the smallest, the largest and the
 * last value are put, each at its own time, and nothing where nothing has changed. So no peak is
 * lost, and there are not many points.
 */
#include <stdint.h>

#include "model/model.h"

struct counters;
/* what: "allocated", "reserved", "in use (driver)". */
typedef void counters_put(void *ctx, const char *device, const char *what, uint64_t time,
			  uint64_t value);

/* duration: of the recording, ns; 0: not known. NULL on ENOMEM. */
struct counters *counters__new(uint64_t duration, counters_put *put, void *ctx);
void counters__free(struct counters *c); /* NULL is fine */
int counters__device(struct counters *c, const struct model_device *d,
		     uint64_t time); /* 0 or -ENOMEM */
int counters__used(struct counters *c, const struct model_device *d, uint64_t time,
		   uint64_t used);	/* the same */
void counters__end(struct counters *c); /* puts what is left */

#endif
