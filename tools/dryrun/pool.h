/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Pools of cudaMallocAsync. A pool takes chunks of 32 MiB (or what one allocation needs, in chunks)
 * from its device and hands out 512 bytes a piece, first fit. Work is done at once here, so what is
 * freed is free at once; a chunk with nothing in it goes back to the device when the host waits for
 * a stream, an event or the device while more than the release threshold is reserved, at TrimTo,
 * and when the device has no memory left.
 */
#include "core.h"

struct pool;

/*
 * As CUmemPoolProps has type, location and its number: a device's, and managed memory or the
 * host's, which is charged to no device. 0 or an error of CUDA's.
 */
int pool__create(int type, int location, int id, struct pool **pool);
/* Its allocations go with it. */
int pool__destroy(struct pool *pool);
/* The device's own; NULL without host memory. */
struct pool *pool__default(int device);
struct pool *pool__current(int device);
int pool__set_current(int device, struct pool *pool);
/* Whether it is a pool: handles come from the program. */
bool pool__valid(const struct pool *pool);
int pool__alloc(struct pool *pool, uint64_t size, void **ptr);
int pool__get(struct pool *pool, int attribute, void *value);
int pool__set(struct pool *pool, int attribute, const void *value);
int pool__trim(struct pool *pool, uint64_t keep);
