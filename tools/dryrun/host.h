/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
#include "core.h"

/* Pinned memory (cudaHostAlloc): readable and writable, zeros, of whole pages. 0 or an error of
 * CUDA's. */
int host__alloc(uint64_t size, unsigned int flags, void **ptr);
/* NULL is no error. */
int host__free(void *ptr);
/* Managed memory: the host's pages; a device is not charged for it. */
int host__alloc_managed(uint64_t size, void **ptr);
/* CUDA_INVALID_VALUE: it is none. */
int host__free_managed(void *ptr);
/* Both out of a pool. */
int host__alloc_pooled(uint64_t size, bool managed, void **ptr);
int host__free_pooled(void *ptr);
/* The caller's memory, known as pinned from now on. */
int host__register(void *ptr, uint64_t size, unsigned int flags);
int host__unregister(void *ptr);
