/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Other processes that have memory on the device when an allocation fails or the process ends
 * badly, from NVML to the facts of record/oom.h. */
#include <stdint.h>

#include "record/stream.h"

struct decoder;
struct neighbours_stage;

void neighbours_stage__free(struct neighbours_stage *stage); /* NULL is fine */
/* Notes that an allocation failed on a device. time: ns since start. 0 or -ENOMEM. */
int neighbours_stage__failed(struct decoder *decoder, struct device device, uint64_t time);
/* Asks NVML for the processes, takes its answer, and sets the facts of failures: whatever is due.
 * Does not wait. 0 or -ENOMEM. */
int neighbours_stage__tick(struct decoder *decoder);
/* The last tick. If the process was killed or failed, also sets the facts of its end, from NVML's
 * last answer. Waits at most LAST_WITHIN for NVML and for the names of processes, and only if a
 * failure or an end is without its fact. 0 or -ENOMEM. */
int neighbours_stage__last(struct decoder *decoder);
