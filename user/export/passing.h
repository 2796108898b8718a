/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_EXPORT_PASSING_H
#define MT_EXPORT_PASSING_H
/*
 * What formats that write events as they pass have in common. An event is written when the next one
 * comes, since the totals after it are the model's by then; until that it waits here.
 */
#include <stdbool.h>
#include <stddef.h>

#include "export/export.h"
#include "model/model.h"
#include "record/stream.h"

struct passing {  /* begins as all 0 */
	bool any; /* an event waits */
	struct event event;
	struct model_device before; /* its device before it; all 0 when that was not there yet */
	size_t device;		    /* of the last event, as a hint */
};

/* e, which the model has not seen, waits from now on. */
void passing__wait(const struct export_ctx *c, struct passing *p, const struct event *e);
/* Is the device one that --device, if given, asks for? "cuda" is "cuda:0". */
bool passing__wanted(const struct export_ctx *c, const char *device);
/*
 * A device as it is, with what is known only later to have been there: what tensors hold on the CPU
 * is read when events come already.
 */
void passing__look(const struct export_ctx *c, size_t i, struct model_device *ret);
/* The device of an event as the model has it now. False: not there (yet). */
bool passing__device(const struct export_ctx *c, struct passing *p, struct device want,
		     struct model_device *ret);
/* The device that the document is about, as it is now: with totals of 0 where it is not there yet.
 * False: none. */
bool passing__main(const struct export_ctx *c, struct model_device *ret);
/* Steps that have ended, of the kind that the recording has in the end, if it is known. */
size_t passing__steps(const struct export_ctx *c);
/* The phase of an allocation or an out-of-memory event. */
enum phase passing__phase(const struct export_ctx *c, const struct event *e);

#endif
