/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Handlers of the kinds of events, called by model.c. Functions return 0 or -ENOMEM. */
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

struct dev;
struct model;

/* ---- known_at_attach.c: blocks from before attach ---- */

int known_at_attach__add_block(struct model *m, struct dev *dev, const struct event *e);
int known_at_attach__asked(struct model *m, struct dev *dev, const struct event *e);
/* For EVENT_TENSOR and EVENT_CENSUS. */
int known_at_attach__tensor(struct model *m, struct dev *dev, const struct event *e);
void known_at_attach__census(struct dev *dev, const struct event *e);

/* ---- cuda_memory.c: memory taken from and returned to CUDA, and the allocator's tables ---- */

/* Handles EVENT_CUDA_ALLOC, _CUDA_FREE, _SEGMENT, _STATE, _USED and _LEFT; ignores others. 0 or
 * -ENOMEM. */
int cuda_memory__event(struct model *m, const struct event *e);
/* Bytes that the driver has available now: its last figure, less the bytes taken since.
 * False: no figure came. */
bool cuda_memory__left(const struct dev *dev, uint64_t *ret);
/* Notes that a block of dev is at addr: memory of an unknown device there becomes dev's. */
int cuda_memory__found(struct model *m, struct dev *dev, uint64_t addr);

/* ---- oom.c ---- */

int oom__event(struct model *m, struct dev *dev, const struct event *e);
