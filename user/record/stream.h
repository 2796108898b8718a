/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The record stream: the output of a capture and the input of every consumer (writer, model, live
 * view, exports), live or from a file. A stream consists of a struct dict that only grows, facts
 * (keys and values about target and capture), and events in the allocator's order.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* c10::DeviceType, with PyTorch's values (c10/core/DeviceType.h). */
enum device_type {
	DEVICE_CPU = 0,
	DEVICE_CUDA = 1,
	DEVICE_HIP = 6,
	DEVICE_XPU = 12,
	DEVICE_PRIVATE = 20,
	/* Not PyTorch's: memory that the process mapped from the kernel:
	 * docs/internals/HOST_LINES.md. Tensors on the CPU are a part of it. */
	DEVICE_HOST = 30,
};

struct device {
	uint8_t type;  /* enum device_type */
	uint8_t index; /* device index; always 0 for the CPU */
};

/* True for memory of the host. There is one such device of each type. */
static inline bool device__on_host(struct device d)
{
	return d.type == DEVICE_CPU || d.type == DEVICE_HOST;
}

static inline bool device__same(struct device a, struct device b)
{
	return a.type == b.type && a.index == b.index;
}

enum event_kind {
	EVENT_ALLOC = 1,
	EVENT_FREE = 2,
	EVENT_OOM = 3,	/* failed allocation; size: bytes requested */
	EVENT_STEP = 4, /* end of an optimizer's step */
	EVENT_CALL = 5, /* call of a root module: module */
	/* Loss of records. size > 0: records dropped since the last EVENT_LOST; the gap lies before
	 * or among the next events. 0: the gap is over, and all further events are complete. */
	EVENT_LOST = 6,
	/* Memory taken from CUDA, by the allocator or by other code. */
	EVENT_CUDA_ALLOC = 7, /* memory taken: how, addr, size, device, flags, stack */
	/* Memory given back: how, addr, and size if the call has it, otherwise 0. */
	EVENT_CUDA_FREE = 8,
	/* Entries of the allocator's own tables, read at attach (time 0, before all other events)
	 * and periodically. */

	/* A segment: addr, size, device, cuda_stream, pool, flags. Replaces earlier data
	 * about it. */
	EVENT_SEGMENT = 9,
	/* A block from before the first event: addr, size, requested, cuda_stream, flags. stack,
	 * walk, thread and node are set only if a flight recorder saw the allocation. */
	EVENT_BLOCK = 10,
	/* End of a reading of this device: totals at this moment, flags. */
	EVENT_STATE = 11,
	/* Data for the block at addr that this thread just allocated: requested, cuda_stream. */
	EVENT_REQUESTED = 12,
	/* The driver's figure of the process's memory on the device, as in nvidia-smi: size. */
	EVENT_USED = 13,
	/* Roles of blocks, read from the program's own objects, at attach and periodically. */

	/*
	 * A tensor's storage at addr: size, device, category, name, module. time: start of the
	 * reading; all events up to its end come before this event, so the block existed during all
	 * of it. With CENSUS_FIRST and no known block at addr, the storage is from before the first
	 * event.
	 */
	EVENT_TENSOR = 14,
	/* End of one reading: size (bytes of storages on this device), flags. */
	EVENT_CENSUS = 15,
	/* Calls of modules, nested on each thread. Unknown calls are missing. */

	/* This thread entered module (0: without a name). node: the autograd node that was
	 * running. */
	EVENT_ENTER = 16,
	/* This thread left module, at this time or earlier. Has no EVENT_ENTER if the call began
	 * before the first event. */
	EVENT_LEAVE = 17,
	/* A mark: name. A person or a script set it, or the recorder at a change of detail or of a
	 * server's sleep mode. Belongs to the whole process. */
	EVENT_MARK = 18,
	/* Free bytes on the device according to the driver, after all processes' use: size. */
	EVENT_LEFT = 19,
	/*
	 * A part of the process's host memory (record/host.h): how (enum host_part), size, addr
	 * (its second figure) and flags, on the device DEVICE_HOST. A reading is one event for each
	 * part and ends with HOST_TOTAL. Parts that it lacks are 0.
	 */
	EVENT_HOST = 20,
	EVENT_KINDS,
};

/* The role of a block, in the order of reports. */
enum category {
	CATEGORY_UNKNOWN = 0,
	CATEGORY_PARAMETER,
	CATEGORY_BUFFER, /* buffer of a module */
	CATEGORY_GRADIENT,
	CATEGORY_OPTIMIZER_STATE,
	CATEGORY_ACTIVATION, /* created in forward, live when backward begins */
	/* Created outside forward, backward and the optimizer, live when forward begins. */
	CATEGORY_INPUT,
	CATEGORY_TEMPORARY, /* freed in the phase that allocated it */
	CATEGORY_KV_CACHE,  /* keys and values of attention, kept for the next tokens */
	/* Found by whoever reads the events; no event has these. */
	CATEGORY_WORKSPACE,    /* memory that PyTorch lends to cuBLAS or cuDNN */
	CATEGORY_BUCKET,       /* bucket of gradients that DistributedDataParallel sends */
	CATEGORY_PRIVATE_POOL, /* in the pool of a CUDA graph or a MemPool, without another role */
	CATEGORY_NR,
};
#define CATEGORY_OF_EVENTS CATEGORY_WORKSPACE /* roles that events have are below this one */

/* The kind of call that takes memory from CUDA, for EVENT_CUDA_ALLOC and EVENT_CUDA_FREE. Runtime
 * and driver calls of one kind share a value. */
enum mem_how {
	MEM_DEVICE = 1,	    /* cudaMalloc, cuMemAlloc and their pitched forms */
	MEM_ASYNC = 2,	    /* stream-ordered: cudaMallocAsync, from pools, cuMemAllocAsync */
	MEM_MANAGED = 3,    /* cudaMallocManaged */
	MEM_HOST = 4,	    /* pinned host memory: cudaHostAlloc, cudaMallocHost */
	MEM_REGISTERED = 5, /* the program's own host memory, pinned by cudaHostRegister */
	MEM_PHYSICAL = 6,   /* cuMemCreate: physical device memory; addr is the handle */
	MEM_MAPPED = 7,	    /* cuMemMap: physical memory mapped at an address */
	MEM_RESERVED = 8,   /* cuMemAddressReserve: addresses without memory */
	MEM_HOW_NR,
};

enum event_flag {
	/* CUDA_ALLOC, CUDA_FREE: the caller is PyTorch's allocator (code in libc10_cuda). */
	MEM_BY_ALLOCATOR = 1 << 0,
	SEGMENT_SMALL = 1 << 1,	     /* SEGMENT: of the pool for small blocks */
	SEGMENT_EXPANDABLE = 1 << 2, /* SEGMENT: expandable */
	/* BLOCK: freed, but still used by a stream; not in the allocated total. */
	BLOCK_PENDING = 1 << 3,
	/* STATE: the blocks and segments of the reading add up to the allocator's totals, to the
	 * byte. */
	STATE_EXACT = 1 << 4,
	STATE_SEGMENTS_EXACT = 1 << 5, /* STATE: the segments add up, the blocks may not */
	/* TENSOR, a mask: 1 + log2 of the bytes per element; 0: unknown. */
	TENSOR_ITEM = 7,
	CENSUS_FIRST = 1 << 6,	 /* TENSOR, CENSUS: from the reading at attach */
	CENSUS_TORN = 1 << 7,	 /* CENSUS: incomplete, because some objects kept changing */
	HOST_SECOND = 1 << 0,	 /* HOST: addr is the part's second figure */
	HOST_NOT_KNOWN = 1 << 1, /* HOST: the tables of this part could not be read */
};

#define DEVICE_UNKNOWN 255 /* index if the current device of a call is unknown */

struct event {
	uint8_t kind; /* enum event_kind */
	uint8_t walk; /* enum mt_walk, for kinds with a stack */
	/* enum mem_how. ALLOC, FREE: not 0 if the block is itself a runtime call (allocator
	 * backends without a cache). */
	uint8_t how;
	uint8_t flags; /* enum event_flag */
	/* True if allocated and reserved are valid: the allocator's own totals after this event. */
	bool totals;
	struct device device;
	uint32_t thread; /* thread number in the dict */
	uint32_t stack;	 /* stack number in the dict; 0: none, and walk has the reason */
	/* Module number in the dict, for CALL, ENTER and LEAVE; for TENSOR: its owner, 0: none. */
	uint32_t module;

	/* Number of the running autograd node in the dict, for ALLOC, OOM, BLOCK and ENTER; 0:
	 * none. */
	uint32_t node;
	/* String number in the dict. TENSOR: a name such as "layers.3.weight" or "AdamW exp_avg of
	 * layers.3.weight"; MARK: its text. */
	uint32_t name;
	uint8_t category; /* enum category, for TENSOR */
	/* ns since the capture's start; events of different threads may be out of order by less
	 * than 1 ms. */
	uint64_t time;
	uint64_t addr;
	/* Bytes, rounded by the allocator; 0 for a free whose size is unknown. */
	uint64_t size;
	uint64_t allocated, reserved;
	uint64_t requested; /* bytes requested, before rounding; 0: unknown */
	/* CUDA stream handle; 0: default stream. REQUESTED: odd values are PyTorch's own stream
	 * numbers (c10::StreamId). */
	uint64_t cuda_stream;
	uint64_t pool[2]; /* id of a private pool (CUDA graphs, MemPool); 0, 0: the device's default
			     pool */
};

/* True for events that recordings and reports count: all but losses and marks. */
static inline bool event__counts(const struct event *e)
{
	return e->kind != EVENT_LOST && e->kind != EVENT_MARK;
}

/* Values of `how` of a kind are below this: readers ignore parts of host memory that they do not
 * know. */
static inline unsigned event__how_end(unsigned kind)
{
	return kind == EVENT_HOST ? UINT8_MAX + 1u : MEM_HOW_NR;
}

/* Facts: keys are lower_snake_case ASCII, values UTF-8. A later value of a key replaces the
 * earlier. docs/reference/mtr.md has a table of the keys in use. */
struct facts;
struct facts *facts__new(void);
void facts__free(struct facts *f);
int facts__set(struct facts *f, const char *key, const char *value);
/* As facts__set(). Both return 0, -ENOMEM, -EINVAL (bad key), or -E2BIG: a value over 1 MiB, more
 * than 4096 facts, or more than 4 MiB in all. */
int facts__setf(struct facts *f, const char *key, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
const char *facts__get(const struct facts *f, const char *key); /* NULL: no such key; owned by f */
/*
 * A fact that is a number. Files and targets are hostile, so there is one way to read them: digits
 * only, without a sign, and 2^62 for anything larger. The sum and the difference of two numbers or
 * times then fit in an int64_t. False, and *ret is 0: no such fact, or it is not a number.
 */
#define STREAM_MOST (1ULL << 62)
bool facts__number(const struct facts *f, const char *key, uint64_t *ret);
/* As facts__number(), for facts that may be negative: from -2^62 to 2^62. */
bool facts__signed(const struct facts *f, const char *key, int64_t *ret);
/* Reads digits from *at, up to the first other character, and moves *at there. Bounded as
 * facts__number(). False, with *ret 0: *at does not begin with a digit. */
bool facts__digits(const char **at, uint64_t *ret);
size_t facts__count(const struct facts *f);
/* The i-th fact, ordered by when its key was first set. */
void facts__at(const struct facts *f, size_t i, const char **key, const char **value);
/* Writes a device's name, "cuda:0" or "cpu", to buf; DEVICE_NAME bytes are enough. */
#define DEVICE_NAME 16
const char *device__name(struct device d, char *buf, size_t size);

/* Name of a walk's outcome (enum mt_walk) as in counter.walks.<name>, such as "no_thread";
 * "unknown" for other values. */
const char *facts__walk_name(unsigned walk);
/* Name of an enum mem_how after its main call, such as "cudaMalloc"; "unknown" for other values. */
const char *facts__how_name(unsigned how);

/* Whether the name of an EVENT_MARK is the one asked for, or matches it as a pattern: * is any
 * text, ? any character, [abc] one of these. */
bool event__mark_is(const char *name, const char *asked);

/* A consumer of a stream. Each call returns 0 or -errno; the producer stops at an error. */
struct sink {
	int (*event)(struct sink *s, const struct event *e);
	/* Called when facts changed or time passed without an event. now: ns since the start. May
	 * be NULL. */
	int (*tick)(struct sink *s, uint64_t now);
};
