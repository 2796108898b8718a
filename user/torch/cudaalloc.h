/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_TORCH_CUDAALLOC_H
#define MT_TORCH_CUDAALLOC_H
/*
 * PyTorch's CUDA caching allocator, read from outside: what it has handed out, what it keeps, and
 * the segments that both lie in. Nothing is stopped, so a pass over a running program's allocator
 * may be torn; it says so.
 *
 * No table of offsets and no version: the object is found by the one symbol that every libc10_cuda
 * exports, the layout by looking for structures that agree with one another (libstdc++'s std::set,
 * ska::flat_hash_map, Block's own links).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct maps;
struct proc;
struct cudaalloc;

enum alloc_backend {
	ALLOC_NONE,	  /* the library is mapped, but has not made its allocator yet */
	ALLOC_NATIVE,	  /* the caching allocator: the only one that can be read */
	ALLOC_CUDA_ASYNC, /* backend:cudaMallocAsync */
	ALLOC_PLUGGABLE,  /* torch.cuda.memory.CUDAPluggableAllocator */
	ALLOC_UNKNOWN,
};

/*
 * Finds the allocator of a process. Borrows p, which has to outlive it; m is used only here. NULL
 * with errno, and *why set to static text: ENOENT no mapped libc10_cuda exports it, or what the
 * reading failed with.
 */
struct cudaalloc *cudaalloc__open(const struct proc *p, const struct maps *m, const char **why);
void cudaalloc__free(struct cudaalloc *a); /* NULL is fine */

/* As it was when last looked at, by any function that reads: a program may change its allocator
 * until it first uses CUDA. */
enum alloc_backend cudaalloc__backend(const struct cudaalloc *a);
/* Looks, which is one short read where nothing has changed. 0 or -errno, and all is as it was: the
 * process may have ended. */
int cudaalloc__look(struct cudaalloc *a);
const char *alloc_backend__name(
	enum alloc_backend b); /* "native", "cudaMallocAsync", "pluggable", ... */
/* The C++ type's mangled name, "" where there is none. Hostile text; owned by a. */
const char *cudaalloc__type(const struct cudaalloc *a);

/*
 * Finds out how this build lays its structures out. May be called again at any time. 0, or
 *   -EAGAIN   there is not enough to see yet: CUDA not used, or nothing allocated. Try again later.
 *   -ENOTSUP  another backend, or structures that are not understood
 *   -EFAULT, -ESRCH, -EPERM, -ENOMEM
 * cudaalloc__why() then has it in words. A failure keeps the layout that was known before.
 */
int cudaalloc__calibrate(struct cudaalloc *a);
bool cudaalloc__calibrated(const struct cudaalloc *a);
const char *cudaalloc__why(
	const struct cudaalloc *a); /* of the last failure; owned by a, until the next call */

/* ---- what a pass finds ---- */

enum cuda_block_state {
	CUDA_BLOCK_LIVE,    /* handed out; snapshots call it active_allocated */
	CUDA_BLOCK_PENDING, /* freed, but another stream may still use it: active_pending_free */
	CUDA_BLOCK_CACHED,  /* kept for later: inactive */
};

/* Addresses are the device's, sizes bytes. */
struct cuda_block {
	uint64_t addr, size;
	uint64_t requested; /* what the program asked for; 0 where the block is cached */
	uint64_t stream;    /* the cudaStream_t; 0 is the default stream */
	uint32_t segment;   /* index into segments */
	uint8_t device;
	uint8_t state; /* enum cuda_block_state */
};

struct cuda_segment {
	uint64_t addr, size;
	uint64_t stream;
	uint64_t pool[2];	 /* the private pool's id; both 0: the device's own pools */
	uint32_t first, nblocks; /* its blocks */
	uint8_t device;
	bool small;	 /* of the pool for allocations up to 1 MiB */
	bool expandable; /* one mapped stretch of an expandable segment */
	bool whole; /* false: blocks of it could not be read, and it may be larger on either side */
};

/* The allocator's own statistics. */
struct cuda_totals {
	uint64_t allocated, reserved;
	uint64_t active, requested; /* with what is pending; only where more_known */
	uint64_t count;		    /* of live blocks */
};

struct cuda_device_state {
	struct cuda_totals before, after; /* the pass */
	bool more_known;		  /* active and requested were found in this build */
	bool consistent;
	const char *why; /* static text; "" where consistent */
};

/*
 * One pass. A consistent device's blocks and segments are all that there is, and add up to its
 * totals, which did not move while it was read. In a torn one, some are missing, and those that are
 * there were so at some moment of the pass: each live block is in the allocator's own map under its
 * address, in a known pool, in range, and overlaps no other. What is not certain is left out.
 */
struct cudaalloc_state {
	struct cuda_device_state *devices;
	struct cuda_segment *segments; /* by address */
	struct cuda_block *blocks;     /* by segment, then by address */
	size_t ndevices, nsegments, nblocks;
	bool consistent; /* all devices are */
	const char *why; /* of the first one that is not; static text */
};

/*
 * Makes one pass. *ret is untouched on failure: -EINVAL not calibrated, -ESTALE the program has
 * another allocator now or its structures are no longer where they were (calibrate again), -EFBIG,
 * -ENOMEM, -EFAULT, -ESRCH, -EPERM.
 */
int cudaalloc__read(struct cudaalloc *a, struct cudaalloc_state *ret);
void cudaalloc_state__free(struct cudaalloc_state *s); /* what it holds, not s; zeroes it */

/* What the allocator says of a device, and no block of it: some four short reads for all of them. */
struct cuda_figures {
	uint64_t allocated, reserved, peak_allocated, peak_reserved;
	uint64_t blocks;	/* live */
	bool counts_known;	/* those below were found in this build */
	uint64_t ooms, retries; /* since the process began */
};

/*
 * The figures of the first max devices, as they are now; the program goes on, so two of them may be
 * of two moments. How many devices; or -errno as cudaalloc__read(), -EINVAL not calibrated.
 */
int cudaalloc__figures(struct cudaalloc *a, struct cuda_figures *v, size_t max);

/* How many devices the allocator knows, used or not; 0 before CUDA's first use. Or -errno. */
int cudaalloc__devices(struct cudaalloc *a);

#endif
