/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by formats that write every event. Because the totals after an event are known only
 * when the next event arrives, each event waits here until then. */
#include <stdbool.h>
#include <stddef.h>

#include "export/export.h"
#include "model/model.h"
#include "record/stream.h"

struct passing {  /* initialize with zeroes */
	bool any; /* an event is waiting */
	struct event event;
	struct model_device before; /* the event's device before the event; zeroes if it had none */
	size_t device;		    /* index of the last event's device, as a search hint */
};

/* Stores e, which the model has not processed, as the waiting event. */
void passing__hold(const struct export_ctx *c, struct passing *p, const struct event *e);
/* True if --device is not given or selects this device. "cuda" means "cuda:0". */
bool passing__is_selected(const struct export_ctx *c, const char *device);
/* The current state of device i. Adds CPU tensors that the model found later but that existed
 * before. */
void passing__device_at(const struct export_ctx *c, size_t i, struct model_device *ret);
/* The state of an event's device in the model. False: the device does not exist yet. */
bool passing__device(const struct export_ctx *c, struct passing *p, struct device want,
		     struct model_device *ret);
/* The current state of the document's main device, with zero totals if it does not exist yet.
 * False: no device. */
bool passing__main(const struct export_ctx *c, struct model_device *ret);
/* Number of finished steps. Counts optimizer steps if the whole recording has them. */
size_t passing__steps(const struct export_ctx *c);
/* Phase of an allocation or out-of-memory event. */
enum phase passing__phase(const struct export_ctx *c, const struct event *e);
