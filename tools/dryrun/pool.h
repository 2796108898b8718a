/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Pools of cudaMallocAsync. A pool takes chunks from its device (32 MiB, or more for a larger
 * allocation) and allocates pieces of 512 bytes, first fit. Work completes at once, so freed memory
 * is reusable at once. An empty chunk returns to the device if the host waits while more than the
 * release threshold is reserved, at TrimTo, and when the device has no memory left.
 */
#include "core.h"

struct pool;

/*
 * Creates a pool from CUmemPoolProps: type, location and its id. Pools of managed or host memory
 * charge no device. 0 or a CUDA error.
 */
int pool__create(int type, int location, int id, struct pool **pool);
/* Destroys a pool and frees its allocations. */
int pool__destroy(struct pool *pool);
/* The device's default pool; NULL: no host memory. */
struct pool *pool__default(int device);
struct pool *pool__current(int device);
int pool__set_current(int device, struct pool *pool);
/* True if the pointer is a pool: handles come from the program. */
bool pool__valid(const struct pool *pool);
int pool__alloc(struct pool *pool, uint64_t size, void **ptr);
int pool__get(struct pool *pool, int attribute, void *value);
int pool__set(struct pool *pool, int attribute, const void *value);
int pool__trim(struct pool *pool, uint64_t keep);
