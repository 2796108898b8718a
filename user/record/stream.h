/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_RECORD_STREAM_H
#define MT_RECORD_STREAM_H
/*
 * The record stream: what a capture produces and what every consumer (writer, model, live view,
 * exports) reads, from a live process or from a file alike. A stream is a struct dict that only
 * grows, key/value facts about target and capture, and events in the order in which the allocator
 * saw them.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dict;

/* c10::DeviceType; the values are PyTorch's (c10/core/DeviceType.h). */
enum device_type {
	DEVICE_CPU = 0,
	DEVICE_CUDA = 1,
	DEVICE_HIP = 6,
	DEVICE_XPU = 12,
	DEVICE_PRIVATE = 20
};

struct device {
	uint8_t type;  /* enum device_type */
	uint8_t index; /* 0 for the CPU, whatever the event said */
};

enum event_kind {
	EVENT_ALLOC = 1,
	EVENT_FREE = 2,
	EVENT_OOM = 3,	/* size: what was asked for */
	EVENT_STEP = 4, /* an optimizer's step ended */
	EVENT_CALL = 5, /* a root module was called; module says which */
	EVENT_LOST = 6, /* size: records dropped since the last such event, before whatever comes
			   from here on or in the middle of it; 0: none, and all that comes from
			   here on was recorded after them */
	/* Below the blocks: what is taken from CUDA, by the allocator and by others. */
	EVENT_CUDA_ALLOC = 7, /* memory was taken: how, addr, size, device, flags, stack */
	EVENT_CUDA_FREE =
		8, /* memory was given back: how, addr; size where the call says it, else 0 */
	/* Read from the allocator's own tables, at attach (time 0, before all other events) and now
	   and then. */
	EVENT_SEGMENT = 9, /* a segment is there: addr, size, device, cuda_stream, pool, flags;
			      replaces what was known of it */
	EVENT_BLOCK = 10,  /* a block was there before the first event: addr, size, requested,
			      cuda_stream, flags; stack,  walk, thread and node if we saw it come (a
			      flight recorder's): else they are 0 */
	EVENT_STATE = 11,  /* of this device all has been told that could be read: totals as of this
			      moment, flags */
	EVENT_REQUESTED = 12, /* of the block at addr, just allocated by this thread: requested,
				 cuda_stream */
	EVENT_USED = 13, /* size: the driver's own figure of what the process holds on the device,
			    as nvidia-smi shows it */
	/* What blocks are, read from the program's own objects, at attach and now and then. */
	EVENT_TENSOR =
		14, /* a tensor's storage is at addr: size, device, category, name, module; time is
		       when the reading began, and all events up to its end come before: it speaks
		       of the block that was there all the while. CENSUS_FIRST: it was there before
		       the first event, if no block is known at addr */
	EVENT_CENSUS =
		15, /* that was all of one reading: size: bytes of storages on this device, flags */
	/* Calls of modules: they nest on each thread, what is not known of some left out. */
	EVENT_ENTER = 16, /* this thread entered module (0: one that cannot be named); node: the one
			     that it ran in */
	EVENT_LEAVE = 17, /* it left it, at the latest now; without an EVENT_ENTER where that came
			     before the first event */
	EVENT_MARK = 18,  /* the person, or a script, says that something begins here: name. Of the
			     whole process */
	EVENT_LEFT = 19,  /* size: bytes that the driver has left on the device, those of other
			     processes counted */
	EVENT_KINDS,
};

/* What a block is for. The order is that of the reports. */
enum category {
	CATEGORY_UNKNOWN = 0,
	CATEGORY_PARAMETER,
	CATEGORY_BUFFER, /* of a module */
	CATEGORY_GRADIENT,
	CATEGORY_OPTIMIZER_STATE,
	CATEGORY_ACTIVATION, /* made in forward, alive when backward begins */
	CATEGORY_INPUT, /* made outside of forward, backward and the optimizer, alive when forward
			   begins */
	CATEGORY_TEMPORARY, /* given back in the phase that it came in */
	CATEGORY_NR,
};

/* How memory is taken from CUDA, for EVENT_CUDA_ALLOC and EVENT_CUDA_FREE; runtime and driver calls
 * of one kind are one. */
enum mem_how {
	MEM_DEVICE = 1,	    /* cudaMalloc, cuMemAlloc and their pitched forms */
	MEM_ASYNC = 2,	    /* stream-ordered: cudaMallocAsync, from pools, cuMemAllocAsync */
	MEM_MANAGED = 3,    /* cudaMallocManaged */
	MEM_HOST = 4,	    /* pinned host memory: cudaHostAlloc, cudaMallocHost */
	MEM_REGISTERED = 5, /* host memory of the program's own, pinned: cudaHostRegister */
	MEM_PHYSICAL = 6,   /* cuMemCreate: addr is the handle; this is what a device has less of */
	MEM_MAPPED = 7,	    /* cuMemMap: such memory at an address */
	MEM_RESERVED = 8,   /* cuMemAddressReserve: addresses without memory */
	MEM_HOW_NR,
};

enum event_flag {
	MEM_BY_ALLOCATOR = 1 << 0,   /* TAKE, GIVE: the caller is PyTorch's allocator (its code lies
					in libc10_cuda) */
	SEGMENT_SMALL = 1 << 1,	     /* SEGMENT: of the pool for small blocks */
	SEGMENT_EXPANDABLE = 1 << 2, /* SEGMENT */
	BLOCK_PENDING = 1 << 3, /* BLOCK: freed, and waits for a stream to be done with it: not in
				   the allocated total */
	STATE_EXACT = 1 << 4,	/* STATE: blocks and segments told of add up to the allocator's
				   totals, to the byte */
	STATE_SEGMENTS_EXACT = 1 << 5, /* STATE: the segments do, the blocks may not */
	TENSOR_ITEM = 7, /* TENSOR, a mask: 1 + log2 of the bytes of an element; 0: not known */
	CENSUS_FIRST = 1 << 6, /* TENSOR, CENSUS: of the reading at attach */
	CENSUS_TORN = 1 << 7,  /* CENSUS: parts kept changing and are left out */
};

#define DEVICE_UNKNOWN 255 /* index, where a call's current device is not known */

struct event {
	uint8_t kind;  /* enum event_kind */
	uint8_t walk;  /* enum mt_walk, for kinds with a stack */
	uint8_t how;   /* enum mem_how; of EVENT_ALLOC and _FREE: not 0 where the block is a runtime
			  call (other backends) */
	uint8_t flags; /* enum event_flag */
	bool totals;   /* allocated and reserved are valid: the allocator's own, after this event */
	struct device device;
	uint32_t thread; /* dict thread number */
	uint32_t stack;	 /* dict stack number; 0: none (walk says why) */
	uint32_t module; /* EVENT_CALL, _ENTER, _LEAVE; EVENT_TENSOR: the one it belongs to, 0: none
			  */
	uint32_t node;	 /* EVENT_ALLOC, _OOM, _BLOCK, _ENTER: dict number of the autograd node that
			    was running, 0: none */
	uint32_t name;	 /* EVENT_TENSOR: dict string, as a person is to read it: "layers.3.weight",
			    "AdamW exp_avg of layers.3.weight";   EVENT_MARK: as it was given */
	uint8_t category; /* EVENT_TENSOR: enum category */
	uint64_t time; /* ns since the capture's start; not sorted across threads, off by < 1 ms */
	uint64_t addr;
	uint64_t size; /* bytes, rounded as handed out; 0 for a free whose allocator does not say it
			*/
	uint64_t allocated, reserved;
	uint64_t requested;   /* bytes the program asked for, before rounding; 0: not known */
	uint64_t cuda_stream; /* the handle; 0: the default stream; of EVENT_REQUESTED odd: a stream
				 of PyTorch's own, as it numbers them (c10::StreamId) */
	uint64_t pool[2]; /* id of a private pool (CUDA graphs, MemPool); 0, 0: the device's own */
};

/* Is it one of the events that recordings and reports count? A loss is a note about others, a mark
 * moves nothing. */
static inline bool event__counts(const struct event *e)
{
	return e->kind != EVENT_LOST && e->kind != EVENT_MARK;
}

/* Facts. Keys are lower_snake_case ASCII; values UTF-8. Later values of a key replace earlier ones.
 */
struct facts;
struct facts *facts__new(void);
void facts__free(struct facts *f);
int facts__set(struct facts *f, const char *key, const char *value);
/* 0, -ENOMEM, -EINVAL (key), -E2BIG (a value over 1 MiB, over 4096 facts, over 4 MiB in all); as
 * facts__set. */
int facts__setf(struct facts *f, const char *key, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
const char *facts__get(const struct facts *f, const char *key); /* NULL: not there; owned by f */
size_t facts__count(const struct facts *f);
/* The i-th fact in order of first setting. */
void facts__at(const struct facts *f, size_t i, const char **key, const char **value);
/*
 * Keys in use. Target: pid, parent, rank, local_rank, world_size, comm, cmdline (JSON array),
 * python, torch, cuda_runtime, exe, allocator ("native" | "cudaMallocAsync" | "pluggable" | "cpu"),
 * alloc_conf (the CUDA allocator's settings, as its environment has them; "": none), torch_lib
 * (folder of libc10_cuda), device.<index>.name and device.<index>.total (bytes); where it ran, if
 * that is known: cgroup (path), container (id, or the name where there is none), container.runtime,
 * container.name, pod (name, else UID), pod.uid, pod.namespace, and where a name is from:
 * container.name_from, pod.name_from. Capture: version, start (RFC 3339), kernel, attached_at
 * ("start" | "live" | "fork"), children, dry_run ("1": no GPU computed). At the end, and about
 * every second as far as they are known by then: duration_ns, events, lost, counter.<name> (from
 * the kernel side: hits, walks by outcome, losses), stop_reason
 * ("duration" | "steps" | "signal" | "target exited" | "exec" | "max-size" | "max-events" | "oom";
 * of a window also "condition" | "mark" | "ctl" | "save"), dropped_events, census (readings of what
 * blocks are for), counter.census.torn (of them, those that left parts out), census_problem (why
 * there are none), window_start_ns (a flight recorder's: the time of the first event; what was
 * there before stands in front of it), segment and window_first_step (of one of several that follow
 * one another: its number, steps that ended before it), window_begins ("step": with a whole step),
 * window_began and window_ended (why, for people).
 */

/* A device by its name, "cuda:0" or "cpu", in buf; DEVICE_NAME bytes are enough. */
#define DEVICE_NAME 16
const char *device__name(struct device d, char *buf, size_t size);

/* The outcome of a walk (enum mt_walk) as in counter.walks.<name>: "no_thread". Of none: "unknown".
 */
const char *facts__walk_name(unsigned walk);
/* An enum mem_how by the runtime's or driver's call for it: "cudaMalloc". Of none: "unknown". */
const char *facts__how_name(unsigned how);

/* A consumer of a stream. Each call returns 0 or -errno; the producer stops on an error. */
struct sink {
	int (*event)(struct sink *s, const struct event *e);
	/* Facts changed, or time passed with no event: now is ns since the start. May be NULL. */
	int (*tick)(struct sink *s, uint64_t now);
};

#endif
