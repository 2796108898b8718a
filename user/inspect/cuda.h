/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Functions of the CUDA runtime and driver that allocate and free memory, and their locations in a
 * process. Any file that exports them counts, and there may be several runtimes (torchvision brings
 * its own). NAME_ptsz and NAME_ptds are NAME with a default stream per thread. A newer form, such
 * as NAME_v3 next to a known NAME_v2, is not probed: its arguments differ.
 * Memory that a library takes within 10 to 41 ms of its dlopen() is not recorded. A driver first
 * makes its context, which takes longer. A checkpoint (cuda-checkpoint) is not recorded either:
 * another process requests it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memtrace.h"
#include "inspect/site.h"
#include "record/stream.h"
#include "inspect/elf.h"
#include "inspect/proc.h"

/* Effect of a function. */
enum cuda_op {
	CUDA_TAKE,   /* allocates memory or reserves addresses */
	CUDA_GIVE,   /* frees or releases it */
	CUDA_RETAIN, /* adds a reference to the physical memory of the returned handle */
	CUDA_SET_DEVICE,
	CUDA_IMPORT,	  /* returns a handle of memory that another process allocated */
	CUDA_POOL,	  /* creates a pool: MT_CALL_POOL */
	CUDA_RESET,	  /* ends a device's primary context and frees its memory */
	CUDA_CTX_RETAIN,  /* returns a device's primary context */
	CUDA_CTX_CREATE,  /* creates a context and makes it the thread's current one */
	CUDA_CTX_DESTROY, /* arg[0]: context to destroy with its memory */
	CUDA_CTX_SET,	  /* arg[0]: the thread's new current context; 0: none */
	CUDA_CTX_PUSH,	  /* arg[0]: as for CUDA_CTX_SET, until CUDA_CTX_POP */
	CUDA_CTX_POP,
};

/* Argument with the size of the allocation. */
enum cuda_size {
	CUDA_SIZE_NONE,
	CUDA_SIZE_ARG1,	  /* arg[1] */
	CUDA_SIZE_PITCH,  /* pitch (arg[1]) x height (arg[3]) */
	CUDA_SIZE_EXTENT, /* pitch (arg[1]) x height (arg[2]) x depth (arg[3]): see MT_CALL_EXTENT */
};

/* Device that a call allocates on. */
enum cuda_device {
	CUDA_DEVICE_NONE,    /* not device memory, or not known from the call */
	CUDA_DEVICE_CURRENT, /* the thread's current device */
	CUDA_DEVICE_PROP,    /* from the properties argument: MT_CALL_PROP */
	CUDA_DEVICE_HANDLE,  /* device of the physical memory with handle arg[3] */
	CUDA_DEVICE_POOL,    /* device of pool arg[2] */
	CUDA_DEVICE_ARG0,    /* arg[0] is the device index */
	CUDA_DEVICE_ARG1,
	CUDA_DEVICE_ARG2,
	CUDA_DEVICE_ARG3,
};

struct cuda_function {
	const char *name; /* as exported */
	uint8_t op;	  /* enum cuda_op */
	uint8_t how;	  /* enum mem_how */
	uint8_t size;	  /* enum cuda_size */
	uint8_t device;	  /* enum cuda_device */
	uint8_t flags;	  /* enum mt_call_flag */
};

/* Function by number, as used in sites and records. NULL: no such number. */
const struct cuda_function *cuda__function(uint32_t fn);
uint32_t cuda__functions(void); /* number of functions */

#define CUDA_SITES_MAX 128

struct cuda_site {
	uint32_t fn; /* for cuda__function() */
	/* File offset of the probed instruction: the function's first, or in cudaSetDevice the
	 * cheapest to probe. */
	uint64_t offset;
	struct site site;
};

/* CUDA functions in a mapped file. */
struct cuda_file {
	/* The file, owned by the caller, for elf__name(); NULL if no function or allocator is
	 * found. */
	struct elf *elf;
	/* The file defines PyTorch's caching allocator, as libc10_cuda does: calls from it are the
	 * allocator's. */
	bool allocator;
	/* Address of memtrace_dryrun_usage in the target, from the dry-run library; 0: another
	 * library. */
	uint64_t usage;
	size_t n;
	size_t refused; /* number of functions that cannot be probed at entry */
	/* Name of a refused function that allocates memory, static text; NULL: none. */
	const char *refused_take;
	/* The file has CUDA functions that C++ exceptions may leave, so none is probed. */
	bool throws;
	/* A newer form of a known function, whose arguments are not known: "cuMemAlloc_v3"; "":
	 * none. */
	char newer[64];
	struct cuda_site site[CUDA_SITES_MAX];
};

/* Finds CUDA functions in a mapped file. map: an executable mapping of the file. 0 also if none is
 * found; -errno if the file cannot be read, and *ret is unchanged. */
int cuda__look(const struct proc *proc, const struct maps *maps, const struct map *map,
	       struct cuda_file *ret);
