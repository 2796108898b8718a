/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_CUDA_CALLS_H
#define MT_CAPTURE_CUDA_CALLS_H
/*
 * Calls into the CUDA runtime and driver: where they are probed, and what they mean. Records become
 * EVENT_CUDA_ALLOC and EVENT_CUDA_FREE, and EVENT_ALLOC and EVENT_FREE where PyTorch's allocator
 * hands on what CUDA gives it, block by block.
 */
#include <linux/types.h>
#include <stdbool.h>
#include <stdint.h>

#include "memtrace.h"

struct decoder;
struct cuda_calls;

/* Probes what is mapped by now; d->calls is there afterwards. 0 or -ENOMEM: that nothing could be
 * probed is no error. */
int cuda_calls__attach(struct decoder *d);
/* Of a process that was forked: what its parent has mapped it has too, and that is probed. 0 or
 * -ENOMEM. */
int cuda_calls__fork(struct decoder *d, const struct cuda_calls *parent);
void cuda_calls__free(struct cuda_calls *c); /* NULL is fine */
/* Probes what has been mapped since, which is cheap where nothing has; now: ns since the start. */
void cuda_calls__look(struct decoder *d, uint64_t now);
/*
 * What the driver says, asked for when memory was taken or given back, and once a second. A dry run
 * answers at once, before the ring is drained and after it. NVML answers later: a figure is that of
 * its place in the stream if it is the same as the last one and no call that changes it came in
 * between. whole: all there was has been drained.
 */
void cuda_calls__before_drain(struct decoder *d);
void cuda_calls__after_drain(struct decoder *d, bool whole);
/* The allocator has memory on a device. */
void cuda_calls__in_use(struct decoder *d, unsigned device);
/* Tells of it (EVENT_USED, EVENT_LEFT) where it has changed, behind what that drain brought; last:
 * at the end. 0 or a sink's error. */
int cuda_calls__used(struct decoder *d, bool last);
/*
 * Of a dry run that is recorded from its start: reports of PyTorch's allocator, as its library has
 * counted them, that no probe was hit by. 0: none, or not known. Other probes in the same places
 * may have taken the hits.
 */
uint64_t cuda_calls__unseen(const struct decoder *d);
/* At an out of memory: asks as soon as may be, where that is cheap with the next drain. */
void cuda_calls__used_soon(struct decoder *d);

/*
 * Tensors hold so many bytes of a device together. A pluggable allocator with a larger block hands
 * out parts of it: facts allocator_block, allocator_tensors.
 */
void cuda_calls__tensors(struct decoder *d, unsigned device, uint64_t bytes);

/* One record each. 0, -ENOMEM, or a sink's error. */
int cuda_calls__record(struct decoder *d, const struct mt_rec_call *r);
int cuda_calls__set_device(struct decoder *d, const struct mt_rec_call *r);
int cuda_calls__asked(struct decoder *d, const struct mt_rec_asked *r);

/* What has been counted, as facts: counter.calls.<function>, counter.calls_failed.<function>, ... */
void cuda_calls__set_facts(struct decoder *d, const uint64_t c[MT_CNT_NR]);

#endif
