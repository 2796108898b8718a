/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* What the core's own files share: device memory, contents, pools, mapped memory. */
#include "dryrun.h"
#include "space.h"

void log__lock(void);
void log__unlock(void);

struct pool;

struct device {
	bool up;	     /* has a context */
	uint64_t base, size; /* reserved addresses; size 0: none yet */
	uint64_t charged;    /* bytes taken, without the context */
	struct space arena;  /* what of the addresses is taken */
	struct space small;  /* allocations below a granule, in granules of the arena */
	struct pool *default_pool, *pool; /* pool: of cudaMallocAsync */
	uint64_t peers;			  /* devices that access was enabled to, a bit each */
};

/* Of a valid device; state under dryrun__lock(). */
struct device *core__device(int device);

/* ---- memory.c; all with the lock held ---- */

/* Addresses and charge for size bytes (a multiple of the granule). */
int memory__take(int device, uint64_t size, uint64_t *addr);
void memory__give(int device, uint64_t addr);
int memory__charge(int device, uint64_t size);
void memory__refund(int device, uint64_t size);
/* Tells the outside what a device has taken. */
void memory__publish(int device);

/* ---- contents.c: bytes of device memory; those that nobody put there are zero. Own lock. ---- */

void contents__lock(void);
void contents__unlock(void);
void contents__write(uint64_t addr, const void *from, size_t size);
void contents__fill(uint64_t addr, int byte, size_t size);
/* What is not known is read as 0. */
void contents__read(uint64_t addr, void *to, size_t size);
void contents__clear(uint64_t addr, uint64_t size);
enum contents { CONTENTS_NONE, CONTENTS_IN_PART, CONTENTS_KNOWN };
/* Whether all of it was put there. What a kernel has changed in place since is not noticed. */
enum contents contents__state(uint64_t addr, size_t size);
/* The bytes stay, but are known no more. */
void contents__doubt(uint64_t addr, size_t size);

/* ---- pool.c ---- */

#define POOL_DEFAULT_THRESHOLD 0

/* The device's pools give back what is free in them. True when anything was. Lock held. */
bool pool__trim_all(int device);
/* At a point where the host waits: pools give back what is free above their thresholds. Takes the
 * lock. */
void pool__at_sync(int device);
/* Whether the address is in a pool, and then its allocation; lock held. */
bool pool__find(int device, uint64_t addr, struct space_range *range);
/* Lock held: 0, or CUDA_INVALID_VALUE when it is in none. */
int pool__free(uint64_t addr);
/* Whether a pool has taken it; lock held. */
bool pool__chunk(int device, uint64_t addr);

/* ---- vmm.c ---- */

/* Lock held. True: in a reserved range; range->size is 0 where nothing is mapped. */
bool vmm__find(uint64_t addr, struct dryrun_range *range);

/* ---- host.c ---- */

/* What was taken in a device's context goes, but not what came out of pools. Lock held. */
void host__reset(int device);
/* Lock held. */
bool host__find(uint64_t addr, struct dryrun_range *range);
