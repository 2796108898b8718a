/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * PyTorch's CUDA caching allocator, read from outside: its live and cached blocks, and their
 * segments. The process runs on, so a reading may be torn, which the result says.
 * The allocator object is found by a symbol that every libc10_cuda exports. Offsets are found
 * without version tables, by structures that agree with one another: libstdc++'s std::set,
 * ska::flat_hash_map, and the links between Blocks.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct maps;
struct proc;
struct cudaalloc;

enum alloc_backend {
	ALLOC_NONE,	  /* the library is mapped, and no allocator exists yet */
	ALLOC_NATIVE,	  /* the caching allocator, the only one that can be read */
	ALLOC_CUDA_ASYNC, /* backend:cudaMallocAsync */
	ALLOC_PLUGGABLE,  /* torch.cuda.memory.CUDAPluggableAllocator */
	ALLOC_UNKNOWN,
};

/* Finds the allocator of a process. Borrows proc, which must outlive the result; uses maps only
 * during the call. NULL with errno and *why, a static text. ENOENT: no mapped libc10_cuda exports
 * it. */
struct cudaalloc *cudaalloc__open(const struct proc *proc, const struct maps *maps,
				  const char **why);
void cudaalloc__free(struct cudaalloc *alloc); /* accepts NULL */

/* Backend at the last read. A program may change its allocator until it first uses CUDA. */
enum alloc_backend cudaalloc__backend(const struct cudaalloc *alloc);
/* Updates the backend; one short read if nothing changed. 0, or -errno without a change: the
 * process may have ended. */
int cudaalloc__update_backend(struct cudaalloc *alloc);
/* "native", "cudaMallocAsync", "pluggable", ... */
const char *alloc_backend__name(enum alloc_backend b);
/* Mangled name of the allocator's C++ type, "" if none. Hostile text; owned by a. */
const char *cudaalloc__type(const struct cudaalloc *alloc);

/*
 * Finds the layout of this build's structures. May be repeated at any time. 0, or
 *     -EAGAIN   too little to see: CUDA is not used yet, or nothing is allocated. Try again later.
 *     -ENOTSUP  another backend, or unknown structures
 *     -EFAULT, -ESRCH, -EPERM, -ENOMEM
 * cudaalloc__why() then returns the reason. A failure keeps an earlier layout.
 */
int cudaalloc__calibrate(struct cudaalloc *alloc);
bool cudaalloc__calibrated(const struct cudaalloc *alloc);
/* Reason of the last failure; owned by a, valid until the next call. */
const char *cudaalloc__why(const struct cudaalloc *alloc);

/* ---- result of a pass over the allocator ---- */

enum cuda_block_state {
	CUDA_BLOCK_LIVE,    /* allocated; snapshots call it active_allocated */
	CUDA_BLOCK_PENDING, /* freed, but another stream may use it: active_pending_free */
	CUDA_BLOCK_CACHED,  /* cached by the allocator: inactive */
};

/* Addresses are device addresses, sizes are bytes. */
struct cuda_block {
	uint64_t addr, size;
	uint64_t requested; /* requested bytes; 0 for a cached block */
	uint64_t stream;    /* the cudaStream_t; 0: default stream */
	uint32_t segment;   /* index into segments */
	uint8_t device;
	uint8_t state; /* enum cuda_block_state */
};

struct cuda_segment {
	uint64_t addr, size;
	uint64_t stream;
	uint64_t pool[2];	 /* id of its private pool; both 0: a pool of the device */
	uint32_t first, nblocks; /* its blocks: index of the first, and number */
	uint8_t device;
	bool small;	 /* in the pool for allocations up to 1 MiB */
	bool expandable; /* one mapped range of an expandable segment */
	/* False: some of its blocks could not be read, so it may be larger on either side. */
	bool whole;
};

/* The allocator's own statistics. */
struct cuda_totals {
	uint64_t allocated, reserved;
	/* Bytes, with those of blocks that wait to be freed; valid if more_known. */
	uint64_t active, requested;
	uint64_t count; /* number of live blocks */
};

struct cuda_device_state {
	struct cuda_totals before, after; /* totals before and after the pass */
	bool more_known;		  /* active and requested were found in this build */
	bool consistent;
	const char *why; /* static text; "" if consistent */
};

/*
 * Result of one pass. On a consistent device, blocks and segments are complete and match its
 * totals, which did not change during the pass. On a torn device, some are missing. The others
 * existed at some moment of the pass. Each live block is in the allocator's map under its address,
 * in a known pool, in range, and overlaps no other block.
 */
struct cudaalloc_state {
	struct cuda_device_state *devices;
	struct cuda_segment *segments; /* sorted by address */
	struct cuda_block *blocks;     /* sorted by segment, then by address */
	size_t ndevices, nsegments, nblocks;
	bool consistent; /* all devices are consistent */
	const char *why; /* why the first other device is not consistent; static text */
};

/*
 * Makes one pass. The caller frees *ret with cudaalloc_state__free(); it is unchanged on failure.
 * -EINVAL: not calibrated. -ESTALE: another allocator, or its structures moved; calibrate again. Or
 * -EFBIG, -ENOMEM, -EFAULT, -ESRCH, -EPERM.
 */
int cudaalloc__read(struct cudaalloc *alloc, struct cudaalloc_state *ret);
void cudaalloc_state__free(struct cudaalloc_state *s); /* frees its contents and zeroes it */

/* The allocator's own figures for a device, without blocks: about four short reads for all
 * devices. */
struct cuda_figures {
	uint64_t allocated, reserved, peak_allocated, peak_reserved;
	uint64_t blocks;	/* live blocks */
	bool counts_known;	/* ooms and retries were found in this build */
	uint64_t ooms, retries; /* since the process began */
};

/* Current figures of the first max devices. The program runs on, so two figures may be from
 * different moments. Returns the number of devices, or -errno as cudaalloc__read(). */
int cudaalloc__figures(struct cudaalloc *alloc, struct cuda_figures *figures, size_t max);

/* Number of devices that the allocator knows, used or not; 0 before CUDA's first use. Or -errno. */
int cudaalloc__devices(struct cudaalloc *alloc);
