/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by the core's files: device memory, contents, pools, mapped memory. core.c calls none of
 * the others but contents.c. */
#include "dryrun.h"
#include "space.h"

/* Opens the log, so that its file is there from the start. Says on stderr why it cannot. */
void log__open(void);
void log__lock(void);
void log__unlock(void);

struct pool;

struct device {
	bool up;	     /* the device has a context */
	uint64_t base, size; /* reserved addresses; size 0: none yet */
	uint64_t charged;    /* bytes charged, without the context */
	struct space arena;  /* allocated ranges of the addresses */
	struct space small;  /* allocations smaller than a granule, in granules of the arena */
	struct pool *default_pool, *pool; /* pool: the current one for cudaMallocAsync */
	/* Returns the free memory of the device's pools to the device. True if there was any. Lock
	 * held. NULL: no pool yet. */
	bool (*trim)(int device);
	uint64_t peers; /* bit mask of devices with access enabled */
};

/* device must be valid. The caller holds dryrun__lock() to use the state. */
struct device *core__device(int device);

/* The device whose reserved addresses contain addr; -1: none. */
int core__device_of(uint64_t addr);

/* Sets the lock of another file that is held across fork(), too: taken before the core's locks and
 * released after them. Call it when the library is loaded. */
void core__hold_at_fork(void (*lock)(void), void (*unlock)(void));

/* ---- call with the lock held ---- */

/* Takes addresses and charges the device for them. size: bytes, a multiple of the granule. */
int core__take(int device, uint64_t size, uint64_t *addr);
void core__give(int device, uint64_t addr);
/* Charges bytes without an address. 0 or CUDA_OUT_OF_MEMORY. */
int core__charge(int device, uint64_t size);
void core__refund(int device, uint64_t size);
/* Updates the device's usage in memtrace_dryrun_usage. */
void core__publish(int device);

/* ---- contents.c: known bytes of device memory; all others read as zero. Has its own lock. ---- */

void contents__lock(void);
void contents__unlock(void);
void contents__write(uint64_t addr, const void *from, size_t size);
void contents__fill(uint64_t addr, int byte, size_t size);
/* Reads device memory; unknown bytes read as 0. */
void contents__read(uint64_t addr, void *to, size_t size);
void contents__clear(uint64_t addr, uint64_t size);
enum contents { CONTENTS_NONE, CONTENTS_IN_PART, CONTENTS_KNOWN };
/* Whether copies wrote the whole range. Kernels that change it in place are not noticed. */
enum contents contents__state(uint64_t addr, size_t size);
/* Marks bytes of device memory as unknown and keeps them. */
void contents__doubt(uint64_t addr, size_t size);

/* ---- pool.c ---- */

#define POOL_DEFAULT_THRESHOLD 0

/* Called when the host waits: pools return free memory above their thresholds. Takes the lock. */
void pool__at_sync(int device);
/* Finds the pool allocation at an address. Lock held. */
bool pool__find(int device, uint64_t addr, struct space_range *range);
/* Frees a pool allocation. 0, or CUDA_INVALID_VALUE if no pool owns the address. Lock held. */
int pool__free(uint64_t addr);
/* True if the address is in a pool's chunk. Lock held. */
bool pool__chunk(int device, uint64_t addr);

/* ---- vmm.c ---- */

/* True: the address is in a reserved range; range->size is 0 if nothing is mapped there. Lock
 * held. */
bool vmm__find(uint64_t addr, struct dryrun_range *range);

/* ---- host.c ---- */

/* Frees the host memory of a device's context, except memory from pools. Lock held. */
void host__reset(int device);
/* Finds the host memory known to CUDA at an address. Lock held. */
bool host__find(uint64_t addr, struct dryrun_range *range);
