/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_TORCH_CUDA_H
#define MT_TORCH_CUDA_H
/*
 * CUDA inside a process: the runtime's and the driver's functions that hand memory out and take it
 * back, and where they are. There may be several runtimes (torchvision brings one of its own), and
 * a file that exports the functions under any name is one. NAME_ptsz and NAME_ptds are NAME with a
 * default stream per thread. NAME_v3 beside a known NAME_v2 is not probed: the driver adds a form
 * when the arguments change.
 */
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memtrace.h"
#include "process/site.h"
#include "record/stream.h"
#include "process/proc.h"

enum cuda_op {
	CUDA_TAKE,
	CUDA_GIVE,
	CUDA_RETAIN, /* one more holder of the physical memory whose handle is handed out */
	CUDA_SET_DEVICE,
	CUDA_IMPORT,	 /* hands out a handle of memory that another process has taken */
	CUDA_POOL,	 /* makes a pool: MT_CALL_POOL */
	CUDA_RESET,	 /* ends a device's primary context, and what was taken in it */
	CUDA_CTX_RETAIN, /* hands out a device's primary context */
	CUDA_CTX_CREATE, /* makes another context, which is the thread's current one from then on */
	CUDA_CTX_DESTROY, /* arg[0]: ends it, and what was taken in it */
	CUDA_CTX_SET,	  /* arg[0]: the thread's current context; 0: none */
	CUDA_CTX_PUSH,	  /* arg[0]: the same, and the one before comes back with: */
	CUDA_CTX_POP,
};

/* How a call says how much it takes. */
enum cuda_size {
	CUDA_SIZE_NONE,
	CUDA_SIZE_ARG1,	  /* arg[1] */
	CUDA_SIZE_PITCH,  /* pitch (arg[1]) x height (arg[3]) */
	CUDA_SIZE_EXTENT, /* pitch (arg[1]) x height (arg[2]) x depth (arg[3]): see MT_CALL_EXTENT */
};

/* Whose device a call is about. */
enum cuda_device {
	CUDA_DEVICE_NONE,    /* no device's memory, or not to be told from the call */
	CUDA_DEVICE_CURRENT, /* the thread's current one */
	CUDA_DEVICE_PROP,    /* in the properties that are passed: MT_CALL_PROP */
	CUDA_DEVICE_HANDLE,  /* that of the physical memory whose handle is arg[3] */
	CUDA_DEVICE_POOL,    /* that of the pool arg[2] */
	CUDA_DEVICE_ARG0,    /* arg[0] itself, and so on */
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

/* A function by its number, as sites and records have it; NULL where there is no such number. */
const struct cuda_function *cuda__function(uint32_t fn);
uint32_t cuda__functions(void); /* how many there are */

#define CUDA_SITES_MAX 128

struct cuda_site {
	uint32_t fn;
	uint64_t offset; /* in the file: of the function's first instruction, of cudaSetDevice the
			    cheapest */
	struct site site;
};

/* What is of interest in a mapped file. */
struct cuda_file {
	char path[512]; /* what the kernel is given, as proc__map_path() has it; "" where no
			   function is found */
	bool allocator; /* defines PyTorch's caching allocator, as libc10_cuda does: calls from here
			   are its own */
	uint64_t usage; /* address in the target of the dry-run library's memtrace_dryrun_usage; 0:
			   is not it */
	size_t n;
	size_t refused;		  /* functions at whose beginning no probe is possible */
	const char *refused_take; /* one of them that takes memory, static; NULL: none */
	bool throws; /* it has such functions, but a C++ exception may leave them: none is probed */
	char newer[64]; /* a later form of a known function, with arguments that are not known:
			   "cuMemAlloc_v3"; "" */
	struct cuda_site site[CUDA_SITES_MAX];
};

/*
 * Looks into a mapped file (map: any executable mapping of it). 0, also where nothing of interest
 * is in it; -errno where it cannot be looked at.
 */
int cuda__look(const struct proc *p, const struct maps *m, const struct map *map,
	       struct cuda_file *ret);

#endif
