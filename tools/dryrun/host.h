/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
#include "core.h"

/* Allocates pinned memory (cudaHostAlloc): readable and writable zeros, whole pages. 0 or a CUDA
 * error. */
int host__alloc(uint64_t size, unsigned int flags, void **ptr);
/* Frees pinned memory; NULL is allowed. */
int host__free(void *ptr);
/* Allocates managed memory in host pages; no device is charged. */
int host__alloc_managed(uint64_t size, void **ptr);
/* Frees managed memory. CUDA_INVALID_VALUE: another kind of memory. */
int host__free_managed(void *ptr);
/* Allocate and free pinned or managed memory of a pool. */
int host__alloc_pooled(uint64_t size, bool managed, void **ptr);
int host__free_pooled(void *ptr);
/* Registers the caller's memory as pinned. */
int host__register(void *ptr, uint64_t size, unsigned int flags);
int host__unregister(void *ptr);
