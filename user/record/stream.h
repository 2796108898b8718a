/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The record stream: the output of a capture and the input of everything that reads one (writer,
 * model, live view, exports), live or from a file. A stream consists of a struct dict that only
 * grows, facts (keys and values about target and capture), and events in the allocator's order.
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
	DEVICE_META = 14, /* tensors without memory; no event has it */
	DEVICE_PRIVATE = 20,
	/* Not one of PyTorch's types: all memory that the process mapped from the kernel, tensors
	   on the CPU included. See docs/internals/HOST_LINES.md. */
	DEVICE_HOST = 30,
	/* Not one of PyTorch's types either: blocks inside malloc, a sample (--malloc-probes).
	   Their memory is also a part of DEVICE_HOST. */
	DEVICE_MALLOC = 31,
};

struct device {
	uint8_t type;  /* enum device_type */
	uint8_t index; /* device index; always 0 for the CPU */
};

/* True if the device is memory of the host. Each such type has a single device. */
static inline bool device__on_host(struct device d)
{
	return d.type == DEVICE_CPU || d.type == DEVICE_HOST || d.type == DEVICE_MALLOC;
}

/* True if the device's blocks are pieces or a sample: their "requested" bytes are the data for
 * sampling__pieces(). */
static inline bool device__in_pieces(struct device d)
{
	return d.type == DEVICE_HOST || d.type == DEVICE_MALLOC;
}

static inline bool device__same(struct device a, struct device b)
{
	return a.type == b.type && a.index == b.index;
}

enum event_kind {
	EVENT_ALLOC = 1,
	EVENT_FREE = 2,
	EVENT_OOM = 3,	/* an allocation that failed; size: bytes requested */
	EVENT_STEP = 4, /* end of an optimizer's step */
	EVENT_CALL = 5, /* call of a root module; module: its number */
	/* Loss of records. size > 0: so many records were lost since the last EVENT_LOST, before or
	   among the next events. size 0: the loss is over, and no further events are missing. */
	EVENT_LOST = 6,
	/* Next two: memory taken from CUDA and given back, by PyTorch's allocator or by other code.
	 */
	EVENT_CUDA_ALLOC = 7, /* memory taken; has how, addr, size, device, flags, stack */
	/* Memory given back; has how, addr, and size if the call has a size, otherwise 0. */
	EVENT_CUDA_FREE = 8,
	/* Next three: entries of the allocator's own tables, which the recorder reads at attach
	   (time 0, before all other events) and periodically. */

	/* A segment; has addr, size, device, cuda_stream, pool, flags. Replaces earlier data about
	   the segment. */
	EVENT_SEGMENT = 9,
	/* A block that was allocated before the first event; has addr, size, requested,
	   cuda_stream, flags. stack, walk, thread and node are set only if a flight recorder saw
	   the allocation. */
	EVENT_BLOCK = 10,
	/* End of a reading of this device's tables; has the totals at this moment, and flags. */
	EVENT_STATE = 11,
	/* More data on the block at addr that this thread has just allocated: requested,
	   cuda_stream. */
	EVENT_REQUESTED = 12,
	/* Driver-reported use of the process on the device, as in nvidia-smi; size: bytes. */
	EVENT_USED = 13,
	/* Next two: roles of blocks, which the recorder reads from the program's own objects, at
	   attach and periodically. */
	/*
	 * A tensor's storage at addr; has size, device, category, name, module. time: start of the
	 * reading. All events up to the reading's end come before this event, so the block existed
	 * during the whole reading. With CENSUS_FIRST and no known block at addr, the storage is
	 * from before the first event.
	 */
	EVENT_TENSOR = 14,
	/* End of one reading of roles; size: bytes of all storages on this device; has flags. */
	EVENT_CENSUS = 15,
	/* Next two: calls of modules, nested on each thread. Calls that the recorder could not
	   identify are missing. */

	/* This thread entered a module; module: its number, 0 if it has no name; node: the running
	   autograd node. */
	EVENT_ENTER = 16,
	/* This thread left a module, at this time or earlier; module: its number. If the call began
	   before the first event, there was no EVENT_ENTER. */
	EVENT_LEAVE = 17,
	/* A mark of the whole process; name: its text. A person or a script set it, or the recorder
	   at a change of detail or of a server's sleep mode. */
	EVENT_MARK = 18,
	/* Memory of the device that no process uses, according to the driver; size: bytes. */
	EVENT_LEFT = 19,
	/* A part of the process's host memory (record/host.h), on the device DEVICE_HOST; how: enum
	 * host_part; size: bytes; addr: the part's second figure; has flags. A reading has one
	 * event for each part and ends with HOST_TOTAL. A part without an event has 0 bytes.
	 */
	EVENT_HOST = 20,
	/*
	 * A named scope of the program begins, ends, is suspended or goes on; name: its text; how:
	 * enum scope_source; flags: enum scope_flag. addr: the scope's number, which the program
	 * chose. 0: it has none, and scopes nest on each thread: END is about the thread's
	 * innermost one. size, for BEGIN with a number: the number of the scope around it; 0: none.
	 */
	EVENT_SCOPE = 21,
	EVENT_KINDS,
};

/* Who says that a scope begins and ends. Readers also accept other values. */
enum scope_source {
	SCOPE_PHASE = 1,	   /* memtrace_bpf.phase() and its C header */
	SCOPE_RECORD_FUNCTION = 2, /* torch.profiler.record_function */
	SCOPE_NVTX = 3,
	/* Pairs of USDT probes that the user named: SCOPE_USDT to SCOPE_USDT_LAST, one for each
	   pair, so that the end of one ends no other. */
	SCOPE_USDT = 16,
	SCOPE_USDT_LAST = 31,
};

/* The flags of an EVENT_SCOPE: one of the first four, and perhaps SCOPE_EARLIER. */
enum scope_flag {
	SCOPE_BEGIN = 1,
	SCOPE_END = 2,
	SCOPE_SUSPEND = 3, /* a coroutine or generator: the thread does other work until RESUME */
	SCOPE_RESUME = 4,
	SCOPE_WHAT = 7,	   /* mask of these */
	SCOPE_EARLIER = 8, /* BEGIN: the scope began before the first event */
};

/* The role of a block, in the order of reports. */
enum category {
	CATEGORY_UNKNOWN = 0,
	CATEGORY_PARAMETER,
	CATEGORY_BUFFER, /* buffer of a module */
	CATEGORY_GRADIENT,
	CATEGORY_OPTIMIZER_STATE,
	CATEGORY_ACTIVATION, /* created in forward, live when backward begins */
	/* Allocated outside of forward, backward and the optimizer, and live when forward begins. */
	CATEGORY_INPUT,
	CATEGORY_TEMPORARY, /* freed in the phase that allocated it */
	CATEGORY_KV_CACHE,  /* keys and values of attention, kept for the next tokens */
	/* The model finds the following roles from other data; EVENT_TENSOR never has them. */
	CATEGORY_WORKSPACE,    /* memory that PyTorch lends to cuBLAS or cuDNN */
	CATEGORY_BUCKET,       /* bucket of gradients that DistributedDataParallel sends */
	CATEGORY_PRIVATE_POOL, /* in the pool of a CUDA graph or a MemPool, without another role */
	CATEGORY_NR,
};
#define CATEGORY_OF_EVENTS CATEGORY_WORKSPACE /* the categories in events are below this one */

/* The kind of call that takes memory from CUDA, for EVENT_CUDA_ALLOC and EVENT_CUDA_FREE. Runtime
 * and driver calls of one kind share a value. */
enum mem_how {
	MEM_DEVICE = 1,	    /* cudaMalloc, cuMemAlloc and their pitched forms */
	MEM_ASYNC = 2,	    /* stream-ordered: cudaMallocAsync, from pools, cuMemAllocAsync */
	MEM_MANAGED = 3,    /* cudaMallocManaged */
	MEM_HOST = 4,	    /* pinned host memory: cudaHostAlloc, cudaMallocHost */
	MEM_REGISTERED = 5, /* host memory of the program that cudaHostRegister pinned */
	MEM_PHYSICAL = 6,   /* cuMemCreate: physical device memory without an address; event.addr is
			       the handle */
	MEM_MAPPED = 7,	    /* cuMemMap: physical memory mapped at an address */
	MEM_RESERVED = 8,   /* cuMemAddressReserve: addresses without memory */
	MEM_HOW_NR,
};

enum event_flag {
	/* Each flag is for some kinds of events only, so that values repeat. */
	/* CUDA_ALLOC, CUDA_FREE: the caller is PyTorch's allocator (code in libc10_cuda). */
	MEM_BY_ALLOCATOR = 1 << 0,
	/* CUDA_ALLOC: CUDA had refused the same call. The allocator gave back cached memory and
	 * repeated the call. */
	MEM_RETRIED = 1 << 6,
	SEGMENT_SMALL = 1 << 1,	     /* SEGMENT: belongs to the pool for small blocks */
	SEGMENT_EXPANDABLE = 1 << 2, /* SEGMENT: an expandable segment of PyTorch's allocator */
	/* BLOCK: the program freed the block, but a CUDA stream still uses it. The allocated total
	   does not count it. */
	BLOCK_PENDING = 1 << 3,
	/* STATE: the blocks and the segments of the reading add up exactly to the allocator's
	   totals. */
	STATE_EXACT = 1 << 4,
	STATE_SEGMENTS_EXACT =
		1 << 5, /* STATE: the segments add up exactly, the blocks perhaps not */
	/* TENSOR: mask for three bits with 1 + log2 of the bytes per element; 0: unknown. */
	TENSOR_ITEM = 7,
	TENSOR_INFERRED = 1 << 3, /* TENSOR: the role follows from frames and lifetimes */
	CENSUS_FIRST = 1 << 6,	  /* TENSOR, CENSUS: from the reading at attach */
	CENSUS_TORN = 1 << 7,	  /* CENSUS: incomplete, because some objects kept changing */
	HOST_SECOND = 1 << 0,	  /* HOST: addr has the part's second figure */
	HOST_NOT_KNOWN = 1 << 1,  /* HOST: the tables of this part could not be read */
};

#define DEVICE_UNKNOWN 255 /* device.index of a call whose current device is unknown */

struct event {
	uint8_t kind; /* enum event_kind */
	uint8_t walk; /* enum mt_walk: how reading the stack ended; for kinds with a stack */
	/* enum mem_how; for EVENT_HOST enum host_part. Not 0 in ALLOC and FREE if the block comes
	 * directly from a call of CUDA's runtime (allocator backends without a cache). */
	uint8_t how;
	uint8_t flags; /* enum event_flag */
	/* True if allocated and reserved are valid. They are the allocator's own totals after this
	 * event. */
	bool totals;
	struct device device;
	uint32_t thread; /* thread number in the dict */
	uint32_t stack;	 /* stack number in the dict; 0: no stack, and walk has the reason */
	/* Module number in the dict: for CALL, ENTER and LEAVE the called module; for TENSOR the
	 * module that owns the tensor. 0: none. */
	uint32_t module;

	/* Node number in the dict: the running autograd node, for ALLOC, OOM, BLOCK and ENTER. 0:
	 * none. */
	uint32_t node;
	/* String number in the dict: for TENSOR a name such as "layers.3.weight" or "AdamW exp_avg
	 * of layers.3.weight"; for MARK and SCOPE their text. */
	uint32_t name;
	uint8_t category; /* enum category, for TENSOR */
	/* Time in ns since the capture's start. Events of different threads may be out of order by
	 * less than 1 ms. */
	uint64_t time;
	uint64_t addr;
	/* Size in bytes, after the allocator rounded it; 0 for a free whose size is unknown. */
	uint64_t size;
	uint64_t allocated, reserved;
	uint64_t requested; /* bytes requested, before rounding; 0: unknown */
	/* Handle of the CUDA stream; 0: default stream. In REQUESTED, odd values are PyTorch's own
	 * stream numbers (c10::StreamId). */
	uint64_t cuda_stream;
	/* ID of a private pool (CUDA graphs, MemPool); both 0: the device's default pool. */
	uint64_t pool[2];
};

/* True for events that the number of events in recordings and reports includes: all but losses,
 * marks and scopes. */
static inline bool event__counts(const struct event *e)
{
	return e->kind != EVENT_LOST && e->kind != EVENT_MARK && e->kind != EVENT_SCOPE;
}

/* Returns the bound below which event.how must be for this kind. Any value is fine for EVENT_HOST
 * and EVENT_SCOPE, because readers accept parts and sources that they do not know. */
static inline unsigned event__how_end(unsigned kind)
{
	return kind == EVENT_HOST || kind == EVENT_SCOPE ? UINT8_MAX + 1u : MEM_HOW_NR;
}

/* True if a later EVENT_SCOPE is about the open scope that `begin` began. Look at the scopes that
 * began last first: without a number, an event is about the innermost one of its thread. */
static inline bool event__same_scope(const struct event *begin, const struct event *e)
{
	if (begin->how != e->how || begin->addr != e->addr)
		return false;
	return e->addr || (begin->thread == e->thread && (!e->name || begin->name == e->name));
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
/* Reads a fact that is a whole number from 0 on. Values larger than 2^62 become 2^62, so that the
 * sum and the difference of two numbers fit in an int64_t, even if a file or a target is hostile.
 * Returns false and sets *ret to 0 if there is no such fact, or if it has anything but digits.
 */
#define STREAM_MOST                                                                                \
	(1ULL << 62) /* largest number that facts__number() and facts__digits() return */
bool facts__number(const struct facts *f, const char *key, uint64_t *ret);
/* As facts__number(), for facts that may be negative: from -2^62 to 2^62. */
bool facts__signed(const struct facts *f, const char *key, int64_t *ret);
/* Reads the digits at *at and moves *at after them. Bounds the value as facts__number(). Returns
 * false and sets *ret to 0 if *at does not begin with a digit. */
bool facts__digits(const char **at, uint64_t *ret);
size_t facts__count(const struct facts *f);
/* Gets the i-th fact, in the order in which the keys were first set. f owns both texts. */
void facts__at(const struct facts *f, size_t i, const char **key, const char **value);
/*
 * True for the name of a scope. It is a Python function's name, "rollout", or the end of its
 * qualified name, "Trainer.evaluate". The end of its file's path may stand before it:
 * "train.py:rollout". The fact "scopes" is a JSON array of such names.
 */
bool facts__is_scope(const char *name);
#define STREAM_SCOPES 12 /* scopes of a recording or a report */
#define STREAM_SCOPE 512 /* bytes of a name, with its NUL */
/* Writes a device's name, such as "cuda:0" or "cpu". DEVICE_NAME bytes suffice. Returns buf. */
#define DEVICE_NAME 16
const char *device__name(struct device d, char *buf, size_t size);

/* Returns the name of an enum mt_walk, such as "no_thread", as in the fact counter.walks.no_thread;
 * "unknown" for other values. */
const char *facts__walk_name(unsigned walk);
/* Returns the name of the main call of an enum mem_how, such as "cudaMalloc"; "unknown" for other
 * values. */
const char *facts__how_name(unsigned how);
/* Returns the name of an enum scope_source, such as "phase"; 0: "function"; "unknown" for other
 * values. */
const char *scope_source__name(unsigned source);
/* Returns what the flags of an EVENT_SCOPE say: "begin", "end", "suspend", "resume" or "unknown". */
const char *scope_flag__name(unsigned flags);

/* True if the name of an EVENT_MARK is equal to `asked`, or matches `asked` as a pattern: * is any
 * text, ? any character, [abc] one of these. */
bool event__mark_is(const char *name, const char *asked);

/* A consumer of a stream. Each call returns 0 or -errno; the producer stops at an error. */
struct sink {
	int (*event)(struct sink *s, const struct event *e);
	/* Called when facts changed or time passed without an event. now: ns since the capture's
	 * start. tick may be NULL. */
	int (*tick)(struct sink *s, uint64_t now);
};
