/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by formats that write every event. Because the totals after an event are known only
 * when the next event arrives, each event waits here until then. */
#include <stdbool.h>
#include <stddef.h>

#include "export/export.h"
#include "model/model.h"
#include "record/stream.h"

struct passing {	    /* initialize with zeroes */
	bool any;	    /* an event is waiting */
	struct event event; /* the waiting event */
	/* its device before the event; zeroes: the model had no such device */
	struct model_device before;
	size_t device; /* index of the device of the last event, where a search begins */
};

/* Stores e as the waiting event. The model must not have processed it yet. */
void passing__hold(const struct export_ctx *c, struct passing *p, const struct event *e);
/* True if --device is not given or selects this device. "cuda" means "cuda:0". */
bool passing__is_selected(const struct export_ctx *c, const char *device);
/* Gets the current state of the model's i-th device. Adds CPU tensors that existed already, but
 * that the model finds only later in the recording. */
void passing__device_at(const struct export_ctx *c, size_t i, struct model_device *ret);
/* Gets the current state of a device. Returns false if the model does not have the device yet. */
bool passing__device(const struct export_ctx *c, struct passing *p, struct device want,
		     struct model_device *ret);
/* Gets the current state of the document's main device, with zero totals if the model does not have
 * it yet. Returns false if the recording has no device. */
bool passing__main(const struct export_ctx *c, struct model_device *ret);
/* Returns the number of finished steps: of optimizer steps, if the recording has them anywhere,
 * otherwise of calls of the model. */
size_t passing__steps(const struct export_ctx *c);
/* Returns the phase of an allocation or out-of-memory event. */
enum phase passing__phase(const struct export_ctx *c, const struct event *e);
