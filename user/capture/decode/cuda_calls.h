/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Calls into the CUDA runtime and driver: probes them, and turns their records into events. These
 * are EVENT_CUDA_ALLOC and EVENT_CUDA_FREE. With backends of PyTorch that do not cache
 * (cudaMallocAsync, pluggable allocators) a call is a block: EVENT_ALLOC and EVENT_FREE. With a
 * pluggable allocator, calls of CUDA's own libraries (NCCL, cuBLAS, cuDNN ...) are not blocks.
 *
 * cuMemCreate and pools on the host are pinned host memory. Mappings of such memory, and of
 * another process's (cuMemImportFromShareableHandle), make no event: memory counts where it was
 * taken. A reset and the end of a context end all memory that was taken in that context; pools and
 * memory of cuMemCreate belong to none. A context from before attach makes the thread's device
 * unknown until the next block. cudaMallocArray and memory nodes of graphs are not seen.
 *
 * A driver could also return functions that it does not export. After ten calls of the runtime
 * that took memory without a call of a probed driver function, the recorder warns, and the
 * recording has the fact driver_bypassed.
 */
#include <stdbool.h>
#include <stdint.h>

#include "memtrace.h"

struct decoder;
struct cuda_calls;

/* Opens d->calls, and probes the files that are mapped now. 0 or -ENOMEM; a refused probe is no
 * error. */
int cuda_calls__attach(struct decoder *decoder);
/* Opens d->calls for a forked process. Its files are mapped as in its parent, and probed if the
 * parent's probes also fire in its children. 0 or -ENOMEM. */
int cuda_calls__fork(struct decoder *decoder, const struct cuda_calls *parent);
/* True if a file with CUDA functions is probed by PID, since it could not be opened
 * (elf__is_memory()). */
bool cuda_calls__by_pid(const struct cuda_calls *calls);
/* True if a call has taken memory since the attach. */
bool cuda_calls__any(const struct cuda_calls *calls);
void cuda_calls__free(struct cuda_calls *calls); /* NULL is fine */
/* Probes files that were mapped since the last look. Looks every 20 ms at most; now: ns since
 * start. */
void cuda_calls__look(struct decoder *decoder, uint64_t now);
/*
 * Both read the driver's figures around a drain of the ring: how much memory the process has on
 * each device. They read when memory was taken or given back, and once a second. A figure must
 * belong to its place in the stream. A dry run answers at once, so it is read before the drain and
 * after it, and counts if both are the same. NVML answers later: a figure counts if it is the same
 * as the last one, and no call that changes it came in between. whole: the ring was drained to its
 * end.
 */
void cuda_calls__before_drain(struct decoder *decoder);
void cuda_calls__after_drain(struct decoder *decoder, bool whole);
/* At the end: warns of pairs of USDT probes, opts->usdt, that no file had. */
void cuda_calls__warn_missing(const struct decoder *decoder);
/* Notes that PyTorch's allocator has memory on this device. */
void cuda_calls__in_use(struct decoder *decoder, unsigned device);
/* Emits EVENT_USED and EVENT_LEFT for each figure of the driver that has changed. Call it after
 * the events of the drain. last: no more records come. 0 or the sink's error. */
int cuda_calls__used(struct decoder *decoder, bool last);
/*
 * Number of reports of PyTorch's allocator that hit no probe, as the dry-run library counts them:
 * other probes in the same places may have taken the hits. 0: none, or unknown (no dry run, or not
 * recorded from its start).
 */
uint64_t cuda_calls__unseen(const struct decoder *decoder);
/* Call it after an out of memory: a dry run's figures are read with the next drain. */
void cuda_calls__used_soon(struct decoder *decoder);

/* Takes how many bytes tensors hold on a device. If a pluggable allocator has a larger block, it
 * hands out parts of blocks: sets the facts allocator_block and allocator_tensors. */
void cuda_calls__tensors(struct decoder *decoder, unsigned device, uint64_t bytes);

/* Each decodes one record. 0, -ENOMEM, or the sink's error. */
int cuda_calls__record(struct decoder *decoder, const struct mt_rec_call *record);
int cuda_calls__set_device(struct decoder *decoder, const struct mt_rec_call *record);
int cuda_calls__asked(struct decoder *decoder, const struct mt_rec_asked *record);

/* Sets the counters as facts: counter.calls.<function>, counter.calls_failed.<function>, ... */
void cuda_calls__set_facts(struct decoder *decoder, const uint64_t counters[MT_CNT_NR]);
