/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Shared by the files that implement cuda_calls.h. cuda_calls.c: records of calls, memory that is
 * taken, contexts. cuda_files.c: the files that are probed. cuda_figures.c: the driver's figures.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "capture/decode/cuda_calls.h"
#include "capture/decode/decode_ctx.h"
#include "inspect/cuda.h"
#include "inspect/cudaalloc.h"
#include "inspect/nvml.h"
#include "inspect/proc.h"

#define RANGES_MAX 64
#define NO_INDEX UINT32_MAX /* no entry of cuda_calls.taken */
#define CONTEXTS_MAX 64
#define POOLS_MAX 256

/* Kinds of addresses and handles, by which cuda_calls.at looks up memory. A value is unique within
 * one kind. */
enum space { SPACE_MEMORY, SPACE_PHYSICAL, SPACE_MAPPED, SPACE_RESERVED, SPACE_NR };

/* Memory that a call took and no call has given back; or a free entry of cuda_calls.taken. */
struct taken {
	uint64_t addr, size;
	uint64_t time;	   /* when the call that took the memory returned, CLOCK_MONOTONIC, ns */
	uint32_t physical; /* MEM_MAPPED: index in cuda_calls.taken of the physical memory, or
			      NO_INDEX; in a free entry: index of the next free one */
	uint32_t mappings; /* MEM_PHYSICAL: number of mappings */
	uint32_t holders;  /* MEM_PHYSICAL: number of handles that are not released */
	struct device device;
	uint8_t how; /* enum mem_how */
	bool block;  /* the event for this memory was an EVENT_ALLOC */
	bool owed;   /* the address was taken again before the record of its free, which is still to
			come */
	bool silent; /* makes no event: another process's memory, or a mapping of host memory that
			is counted already */
	bool in_context;	   /* the memory ends with the CUDA context that it was taken in */
	uint8_t context_device_no; /* with in_context: the context's device + 1, 0: unknown */
	uint64_t context; /* with in_context: the context's handle, or 0 for a device's primary one,
			     as in thread.cuda_context */
};

/* A CUDA context that was made since attach. */
struct context {
	uint64_t handle;
	uint8_t device; /* DEVICE_UNKNOWN: unknown */
	bool primary;
};

/* A memory pool of the program. */
struct pool {
	uint64_t handle;
	uint8_t how, device; /* enum mem_how and device of the memory that the pool gives */
};

enum file { NOTHING, HAS_CALLS, HAS_ALLOCATOR }; /* bits: what a mapped file has */

struct range {
	uint64_t start, end;
};

struct cuda_calls {
	struct map64 *files; /* files that were looked into: file_key() -> bits of enum file */
	struct range own[RANGES_MAX]; /* code of the recorded PyTorch's CUDA allocator */
	size_t n_own_ranges;
	/* Code that has called functions that take memory: that of NVIDIA's libraries, which take
	 * it for themselves, and all other code. */
	struct range library[RANGES_MAX], elsewhere[RANGES_MAX];
	size_t n_library, n_elsewhere;
	struct range runtime[RANGES_MAX]; /* code of the CUDA runtimes that are probed */
	size_t n_runtime;
	struct context context[CONTEXTS_MAX];
	size_t n_contexts;
	struct pool pool[POOLS_MAX];
	size_t n_pools;
	uint64_t driver_since; /* when functions of the driver were probed first, CLOCK_MONOTONIC,
				  ns; 0: not yet */
	uint64_t runtime_took; /* calls of the runtime that took memory since driver_since */
	bool bypassed;	       /* the warning that the driver is bypassed was given */
	struct map64 *at[SPACE_NR]; /* by space: address or handle -> index in taken */
	struct taken *taken;
	uint32_t n_taken, first_free; /* first_free: index of a free entry, or NO_INDEX */
	size_t cap_taken;
	uint64_t *done, *failed; /* calls that succeeded and that failed, by function */
	/* Calls with unreadable arguments, without room to keep them, and at an address that was
	 * taken already. */
	uint64_t unreadable, forgotten, replaced;
	int status, statm;	       /* files of /proc/PID, -1: unreadable */
	uint64_t lib_kib;	       /* mapped_library_kib() at the last scan */
	uint64_t pages;		       /* mapped_pages() when status was read */
	uint64_t next_look, next_scan; /* earliest times, ns since start */
	uint64_t next_sure;	       /* then status is read in any case */
	struct nvml *smi; /* source of the driver's figures; NULL: the process does not use CUDA so
			     far */
	uint64_t dry_run; /* address of the dry-run library's table, 0: not a dry run */
	uint32_t usdt_found; /* pairs of usdt_probes__attach() that files have */
	bool sites;	     /* a file with CUDA functions is mapped */
	bool by_pid; /* a file with CUDA functions is probed by PID: see probes__calls_each() */
	/* The driver's figures; times are ns since start. */
	struct nvml_figures figures;
	uint64_t next_used;    /* earliest time of their next reading */
	uint64_t next_regular; /* latest time of their next reading */
	bool moved;	       /* device memory was taken or given back since the last reading */
	bool asking;	       /* a dry run's figures were read before this drain */
	bool whole;	       /* the last drain emptied the ring */
	uint64_t asked_at; /* ticket of the question to NVML, for nvml__answered(); 0: none is open */
	bool asked_whole;		  /* the drain before the question emptied the ring */
	uint64_t changes, changes_at_ask; /* calls so far that may change a device's memory, and how
					     many there were when NVML got the question */
	uint64_t in_use;	    /* a bit for each device that the allocator has memory on */
	bool to_emit;		    /* .figures are to be emitted as events */
	enum alloc_backend backend; /* backend of PyTorch's allocator */
	bool asked;		    /* PyTorch's probe pytorch:malloc was looked for */
	bool warned_filtered;	    /* the warning that calls are not probed was given */
	bool backend_fixed;	    /* the allocator was used: its backend cannot change any more */
	unsigned devices;	    /* the process has at most so many devices; 0: unknown */
};

static inline bool in_ranges(const struct range *v, size_t n, uint64_t addr)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (addr >= v[i].start && addr < v[i].end)
			return true;
	return false;
}

/* True for device memory on any device. */
static inline bool on_device(uint8_t how)
{
	return how != MEM_HOST && how != MEM_REGISTERED && how != MEM_RESERVED;
}

/* ---- cuda_files.c ---- */

/* Looks into the files that are mapped and not known yet. */
void cuda_files__scan(struct decoder *decoder);
/* Adds the address ranges at which code of a file is mapped to ranges, up to RANGES_MAX. */
void cuda_files__add_ranges(struct range ranges[RANGES_MAX], size_t *n, const struct maps *maps,
			    const struct map *file);

/* ---- cuda_figures.c ---- */

/* Sets c->devices as soon as the driver tells them. */
void cuda_figures__count_devices(struct cuda_calls *calls);
/* Starts the helper process for the figures of GPUs. A start takes up to 0.1 s on a busy machine,
 * so it comes after the attach. */
void cuda_figures__open(struct decoder *decoder);
