/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Calls into CUDA: the memory that they have taken and not given back, contexts, and the events
 * about both. */
#include "capture/decode/cuda_calls_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/log.h"
#include "base/map64.h"
#include "capture/decode/autograd.h"
#include "capture/probes.h"
#include "capture/target.h"
#include "inspect/cuda.h"
#include "inspect/cudaalloc.h"
#include "inspect/native_stacks.h"
#include "inspect/proc.h"

/* ---- memory that is taken. Each record gives 0, -ENOMEM or the sink's error ---- */

#define TAKEN_MAX (1u << 20) /* entries of cuda_calls.taken */
#define POOL_MANAGED 2	     /* CU_MEM_ALLOCATION_TYPE_MANAGED */

/* CUmemLocationType */
enum location {
	LOCATION_DEVICE = 1,
	LOCATION_HOST,
	LOCATION_HOST_NUMA,
	LOCATION_HOST_NUMA_CURRENT
};

/* The table for memory of this kind. how: enum mem_how. */
static enum space space_of(uint8_t how)
{
	switch (how) {
	case MEM_PHYSICAL:
		return SPACE_PHYSICAL;
	case MEM_MAPPED:
		return SPACE_MAPPED;
	case MEM_RESERVED:
		return SPACE_RESERVED;
	default:
		return SPACE_MEMORY;
	}
}

/* The memory at this address or handle. NULL: unknown, or taken before attach. */
static struct taken *find_taken(struct cuda_calls *calls, enum space space, uint64_t addr)
{
	uint64_t i;

	return map64__get(calls->at[space], addr, &i) ? &calls->taken[i] : NULL;
}

/* Index of a free entry of calls->taken. NO_INDEX: none, or out of memory. */
static uint32_t take_entry(struct cuda_calls *calls)
{
	uint32_t i = calls->first_free;

	if (i != NO_INDEX) {
		calls->first_free = calls->taken[i].physical;
		return i;
	}
	if (calls->n_taken == TAKEN_MAX || array__grow(&calls->taken, &calls->cap_taken,
						       calls->n_taken + 1, sizeof(*calls->taken)))
		return NO_INDEX;
	return calls->n_taken++;
}

static void free_entry(struct cuda_calls *calls, uint32_t i)
{
	calls->taken[i] = (struct taken){ .physical = calls->first_free };
	calls->first_free = i;
}

/* Keeps memory that was taken. Without room for it, the event of its end has no size and no
 * device. */
static void remember(struct cuda_calls *calls, enum space space, const struct taken *taken)
{
	uint32_t i = take_entry(calls);

	if (i == NO_INDEX) {
		calls->forgotten++;
		return;
	}
	calls->taken[i] = *taken;
	if (map64__set(calls->at[space], taken->addr, i)) {
		free_entry(calls, i);
		calls->forgotten++;
	} else if (taken->how == MEM_MAPPED && taken->physical != NO_INDEX) {
		calls->taken[taken->physical].mappings++;
	}
}

/* True for the CUDA libraries that allocate memory for themselves. */
static bool is_library(const char *path)
{
	static const char *const names[] = { "libnccl",	    "libcublas",   "libcudnn",	"libcufft",
					     "libcusolver", "libcusparse", "libcurand", "libcupti",
					     "libcutensor", "libnvshmem",  "libnvjpeg" };
	const char *base = strrchr(path, '/');
	size_t i;

	for (i = 0; base && i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(base + 1, names[i], strlen(names[i])))
			return true;
	return false;
}

/* True if code of NVIDIA's libraries made the call, for itself. All other calls make blocks of a
 * pluggable allocator. caller: the call's return address. */
static bool by_library(struct decoder *decoder, uint64_t caller)
{
	struct cuda_calls *calls = decoder->calls;
	const struct map *map;
	struct maps maps;
	bool library;

	if (in_ranges(calls->library, calls->n_library, caller))
		return true;
	if (in_ranges(calls->elsewhere, calls->n_elsewhere, caller) ||
	    calls->n_library == RANGES_MAX || calls->n_elsewhere == RANGES_MAX ||
	    proc__maps(decoder->target->proc, &maps))
		return false;
	map = maps__find(&maps, caller);
	library = map && is_library(map->path);
	if (library)
		cuda_files__add_ranges(calls->library, &calls->n_library, &maps, map);
	else if (map)
		cuda_files__add_ranges(calls->elsewhere, &calls->n_elsewhere, &maps, map);
	maps__free(&maps);
	return library;
}

/* True if memory that a call takes or gives back is a block: PyTorch's allocator does not cache
 * and made the call (own), or there is no PyTorch. */
static bool is_block(struct decoder *decoder, uint8_t how, bool own, uint64_t caller)
{
	const struct cuda_calls *calls = decoder->calls;

	if (decoder->no_torch)
		return how == MEM_DEVICE || how == MEM_ASYNC || how == MEM_MANAGED ||
		       how == MEM_PHYSICAL;
	if (calls->backend == ALLOC_CUDA_ASYNC)
		return own && how == MEM_ASYNC;
	return calls->backend == ALLOC_PLUGGABLE && (how == MEM_DEVICE || how == MEM_ASYNC) &&
	       !by_library(decoder, caller);
}

/* The device of memory that a call takes. physical: what a mapping maps; pool: the pool that gives
 * it; both NULL for other calls. The index is DEVICE_UNKNOWN if none of them tells. */
static struct device device_of(struct cuda_calls *calls, const struct cuda_function *fn,
			       const struct thread *thread, const struct mt_rec_call *record,
			       const struct taken *physical, const struct pool *pool)
{
	struct device d = { DEVICE_CUDA, DEVICE_UNKNOWN };

	switch (fn->device) {
	case CUDA_DEVICE_CURRENT:
		if (thread->cuda_device_no)
			d.index = thread->cuda_device_no - 1;
		else if (calls->devices == 1)
			d.index = 0;
		break;
	case CUDA_DEVICE_NONE:
		if (on_device(fn->how) && calls->devices == 1)
			d.index = 0;
		break;
	case CUDA_DEVICE_POOL:
		if (pool)
			d.index = pool->device;
		else if (calls->devices == 1)
			d.index = 0;
		break;
	case CUDA_DEVICE_PROP: /* arg[2]: type of the location, and its ID in the upper half */
		if ((uint32_t)record->arg[2] == LOCATION_DEVICE &&
		    record->arg[2] >> 32 < DEVICE_UNKNOWN)
			d.index = record->arg[2] >> 32;
		break;
	case CUDA_DEVICE_HANDLE:
		if (physical)
			d = physical->device;
		break;
	}
	return d;
}

static const struct pool *find_pool(const struct cuda_calls *calls, uint64_t handle)
{
	size_t i;

	for (i = 0; i < calls->n_pools; i++)
		if (calls->pool[i].handle == handle)
			return &calls->pool[i];
	return NULL;
}

static bool is_host_location(uint32_t location)
{
	return location >= LOCATION_HOST && location <= LOCATION_HOST_NUMA_CURRENT;
}

/* The kind of memory that a call takes, an enum mem_how. For some functions it depends on the
 * arguments. */
static uint8_t how_of(const struct cuda_function *fn, const struct mt_rec_call *record,
		      const struct pool *pool)
{
	if (pool)
		return pool->how;
	return fn->device == CUDA_DEVICE_PROP && is_host_location((uint32_t)record->arg[2])
		       ? MEM_HOST
		       : fn->how;
}

/* Sets *size to the bytes that a call took. False: the arguments are unreadable, or the size is
 * impossible. */
static bool get_size(const struct cuda_function *fn, const struct mt_rec_call *record,
		     uint64_t *size)
{
	uint64_t bytes = record->arg[1];

	if (fn->size == CUDA_SIZE_PITCH && __builtin_mul_overflow(bytes, record->arg[3], &bytes))
		return false;
	if (fn->size == CUDA_SIZE_EXTENT &&
	    (__builtin_mul_overflow(bytes, record->arg[2], &bytes) ||
	     __builtin_mul_overflow(bytes, record->arg[3], &bytes)))
		return false;
	*size = bytes;
	return bytes <= INT64_MAX;
}

/* Emits the event that memory was given back. event: its thread, time and flags. 0, -ENOMEM or the
 * sink's error. */
static int emit_end(struct decoder *decoder, const struct taken *taken, struct event event)
{
	if (taken->silent)
		return 0;
	event.kind = taken->block ? EVENT_FREE : EVENT_CUDA_FREE;
	event.how = taken->how;
	event.addr = taken->addr;
	event.size = taken->size;
	event.device = taken->device;
	return decoder__emit(decoder, &event);
}

/* Ends the physical memory with index i, unless a handle or a mapping still holds it. 0 or the
 * sink's error. */
static int drop_physical(struct decoder *decoder, uint32_t i, struct event event)
{
	struct cuda_calls *calls = decoder->calls;
	struct taken taken = calls->taken[i];

	if (taken.holders || taken.mappings)
		return 0;
	free_entry(calls, i);
	return emit_end(decoder, &taken, event);
}

/* Removes the memory at this address or handle, and emits its end. 0 or the sink's error. */
static int end_taken(struct decoder *decoder, enum space space, uint64_t addr, struct event event)
{
	struct cuda_calls *calls = decoder->calls;
	struct taken taken;
	uint64_t i;
	int err;

	if (!map64__del(calls->at[space], addr, &i))
		return 0;
	taken = calls->taken[i];
	if (space == SPACE_PHYSICAL) {
		calls->taken[i].holders = 0;
		return drop_physical(decoder, i, event);
	}
	free_entry(calls, i);
	err = emit_end(decoder, &taken, event);
	if (err || taken.how != MEM_MAPPED || taken.physical == NO_INDEX)
		return err;
	calls->taken[taken.physical].mappings--;
	return drop_physical(decoder, taken.physical, event);
}

/* Adds the native frames of a call, unless PyTorch's allocator made it. 0 or -ENOMEM. */
static int set_native_stack(struct decoder *decoder, const struct mt_rec_call *record,
			    struct event *event)
{
	if (!(event->flags & MEM_BY_ALLOCATOR))
		return decoder__join_native(decoder, record->h.tid, record->entered, &event->stack,
					    &event->walk);
	if (decoder->native)
		native_stacks__drop(decoder->native, record->h.tid);
	return 0;
}

/* cudaErrorMemoryAllocation, and CUDA_ERROR_OUT_OF_MEMORY of the driver */
#define CUDA_NO_MEMORY 2

/* Keeps what CUDA refused to PyTorch's allocator, which may give back cached memory and repeat the
 * call. */
static void note_refused(const struct cuda_calls *calls, const struct cuda_function *fn,
			 const struct mt_rec_call *record, struct thread *thread)
{
	uint64_t size;

	if (record->result == CUDA_NO_MEMORY && fn->op == CUDA_TAKE && on_device(fn->how) &&
	    in_ranges(calls->own, calls->n_own_ranges, record->caller) &&
	    get_size(fn, record, &size))
		thread->refused = size;
}

/* Marks the first call by PyTorch's allocator that succeeded after CUDA had refused the same. An
 * expandable segment gets all its handles before it maps the first one. If CUDA refuses one, PyTorch
 * gives back the others and begins again, so only a mapping shows that CUDA refused none. */
static void mark_retried(struct thread *thread, const struct taken *taken, struct event *event)
{
	if (!(event->flags & MEM_BY_ALLOCATOR) || !on_device(taken->how) ||
	    taken->how == MEM_PHYSICAL)
		return;
	if (thread->refused && thread->refused == taken->size)
		event->flags |= MEM_RETRIED;
	thread->refused = 0;
}

/* A call took memory: keeps it, and emits its event. event: its thread, time and flags. 0, -ENOMEM
 * or the sink's error. */
static int on_take(struct decoder *decoder, const struct cuda_function *fn,
		   const struct mt_rec_call *record, struct thread *thread, struct event event)
{
	struct cuda_calls *calls = decoder->calls;
	struct taken *physical = NULL; /* what a mapping maps */
	const struct pool *pool = NULL;
	struct taken taken = { .time = record->h.time,
			       .physical = NO_INDEX,
			       .context = thread->cuda_context };
	struct taken *old;
	struct event ended = event;
	int err;

	if (fn->device == CUDA_DEVICE_HANDLE)
		physical = find_taken(calls, SPACE_PHYSICAL, record->arg[3]);
	if (fn->device == CUDA_DEVICE_POOL)
		pool = find_pool(calls, record->arg[2]);
	taken.how = how_of(fn, record, pool);
	taken.addr = fn->flags & MT_CALL_OUT ? record->out : record->arg[0];
	if (!get_size(fn, record, &taken.size) || taken.addr == UINT64_MAX) {
		calls->unreadable++;
		return 0;
	}
	if (!taken.addr || !taken.size)
		return 0;			 /* a call that asked for 0 bytes */
	taken.holders = fn->how == MEM_PHYSICAL; /* the handle that the call returned */
	if (physical) {
		taken.physical = physical - calls->taken;
		taken.silent = physical->silent || physical->how == MEM_HOST;
	}
	if (on_device(taken.how))
		taken.device = device_of(calls, fn, thread, record, physical, pool);
	else
		taken.device = (struct device){ DEVICE_CUDA, DEVICE_UNKNOWN };
	taken.in_context = fn->how == MEM_DEVICE || fn->how == MEM_MANAGED || fn->how == MEM_HOST;
	taken.context_device_no = thread->cuda_device_no;
	if (!taken.context_device_no && calls->devices == 1)
		taken.context_device_no = 1; /* the only device */
	taken.block = is_block(decoder, taken.how, event.flags & MEM_BY_ALLOCATOR, record->caller);
	old = find_taken(calls, space_of(fn->how), taken.addr);
	if (old) {
		/* Another thread freed the old memory, by a call that has not returned yet: its
		 * record comes later. */
		calls->replaced++;
		taken.owed = true; /* that record does not end the new memory */
		ended.flags = 0;
		err = end_taken(decoder, space_of(fn->how), taken.addr, ended);
		if (err)
			return err;
	}
	remember(calls, space_of(fn->how), &taken);
	mark_retried(thread, &taken, &event);
	if (taken.silent)
		return 0;

	event.kind = taken.block ? EVENT_ALLOC : EVENT_CUDA_ALLOC;
	event.how = taken.how;
	event.addr = taken.addr;
	event.size = taken.size;
	event.device = taken.device;
	event.walk = record->h.walk;
	event.stack = decoder__stack(decoder, record->stack, &event.walk);
	err = set_native_stack(decoder, record, &event);
	if (err)
		return err;
	if (taken.block && autograd__node(decoder, thread, &record->h, &event.node))
		return -ENOMEM;
	return decoder__emit(decoder, &event);
}

/* Ends all mappings in a range, in order of address: one call may unmap several. 0, -ENOMEM or the
 * sink's error. */
static int on_unmap(struct decoder *decoder, uint64_t addr, uint64_t size, struct event event)
{
	struct map64 *mappings = decoder->calls->at[SPACE_MAPPED];
	uint64_t at, i, *addrs;
	size_t pos = 0, n = 0, k;
	int err = 0;

	if (map64__get(mappings, addr, &i) && decoder->calls->taken[i].size >= size)
		return end_taken(decoder, SPACE_MAPPED, addr, event);
	addrs = malloc((map64__count(mappings) + 1) * sizeof(*addrs));
	if (!addrs)
		return -ENOMEM;
	while (map64__next(mappings, &pos, &at, &i))
		if (at >= addr && at - addr < size)
			addrs[n++] = at;
	qsort(addrs, n, sizeof(*addrs), array__compare_u64);
	for (k = 0; k < n && !err; k++)
		err = end_taken(decoder, SPACE_MAPPED, addrs[k], event);
	free(addrs);
	return err;
}

/* A call gave memory back: emits the end of the memory. event: its thread, time and flags. 0,
 * -ENOMEM or the sink's error. */
static int on_give(struct decoder *decoder, const struct cuda_function *fn,
		   const struct mt_rec_call *record, struct event event)
{
	struct cuda_calls *calls = decoder->calls;
	enum space space = space_of(fn->how);
	struct taken *taken;

	if (!record->arg[0])
		return 0;
	taken = find_taken(calls, space, record->arg[0]);
	if (taken && taken->owed && record->entered < taken->time) {
		/* the free of the memory that was here before, which has ended already */
		taken->owed = false;
		return 0;
	}
	if (!taken) {
		/* Taken before attach, or by a function that is not probed. */
		event.kind = is_block(decoder, fn->how, event.flags & MEM_BY_ALLOCATOR,
				      record->caller)
				     ? EVENT_FREE
				     : EVENT_CUDA_FREE;
		event.how = fn->how;
		event.addr = record->arg[0];
		event.size = fn->size == CUDA_SIZE_ARG1 ? record->arg[1] : 0;
		event.device = (struct device){
			DEVICE_CUDA, on_device(fn->how) && calls->devices == 1 ? 0 : DEVICE_UNKNOWN
		};
		return decoder__emit(decoder, &event);
	}
	if (fn->how == MEM_MAPPED)
		return on_unmap(decoder, record->arg[0], record->arg[1], event);
	if (fn->how == MEM_PHYSICAL && taken->holders > 1) {
		taken->holders--;
		return 0;
	}
	return end_taken(decoder, space, record->arg[0], event);
}

/* Keeps another process's memory that this one imported. It is silent: it counts there. */
static void on_import(struct cuda_calls *calls, const struct mt_rec_call *record)
{
	struct taken taken = { .addr = record->out,
			       .how = MEM_PHYSICAL,
			       .physical = NO_INDEX,
			       .holders = 1,
			       .silent = true };
	struct taken *there = find_taken(calls, SPACE_PHYSICAL, record->out);

	if (there)
		there->holders++;
	else if (record->out != UINT64_MAX) /* the handle could be read */
		remember(calls, SPACE_PHYSICAL, &taken);
}

/* Keeps a memory pool that the program made. arg[1]: type of its location, and its ID in the upper
 * half; arg[2]: kind of its memory. */
static void on_pool(struct cuda_calls *calls, const struct mt_rec_call *record)
{
	struct pool p = { .handle = record->out, .how = MEM_ASYNC, .device = DEVICE_UNKNOWN };
	struct pool *known = (struct pool *)find_pool(calls, record->out);

	if (is_host_location((uint32_t)record->arg[1]))
		p.how = MEM_HOST;
	else if ((uint32_t)record->arg[2] == POOL_MANAGED)
		p.how = MEM_MANAGED;
	if ((uint32_t)record->arg[1] == LOCATION_DEVICE && record->arg[1] >> 32 < DEVICE_UNKNOWN)
		p.device = record->arg[1] >> 32;
	if (known)
		*known = p;
	else if (calls->n_pools < POOLS_MAX)
		calls->pool[calls->n_pools++] = p;
}

/* Counts one more handle of physical memory. */
static void on_retain(struct cuda_calls *calls, uint64_t handle)
{
	struct taken *held = find_taken(calls, SPACE_PHYSICAL, handle);

	if (held)
		held->holders++;
}

/* ---- contexts: which device a thread uses, and what ends with one ---- */

#define CONTEXT_UNKNOWN UINT64_MAX

/* Keeps which device a context is of, also if its handle was known. primary: it is the device's
 * primary context. */
static void keep_context(struct cuda_calls *calls, uint64_t handle, uint64_t device, bool primary)
{
	size_t i;

	for (i = 0; i < calls->n_contexts && calls->context[i].handle != handle; i++)
		;
	if (i == CONTEXTS_MAX)
		return;
	calls->n_contexts += i == calls->n_contexts;
	calls->context[i] = (struct context){ handle,
					      device < DEVICE_UNKNOWN ? device : DEVICE_UNKNOWN,
					      primary };
}

/* Makes a context the thread's current one. One from before attach makes the device unknown. */
static void use_context(const struct cuda_calls *calls, struct thread *thread, uint64_t handle)
{
	size_t i;

	thread->cuda_context = CONTEXT_UNKNOWN;
	thread->cuda_device_no = 0;
	for (i = 0; i < calls->n_contexts; i++) {
		if (calls->context[i].handle != handle)
			continue;
		thread->cuda_context = calls->context[i].primary ? 0 : handle;
		thread->cuda_device_no = calls->context[i].device == DEVICE_UNKNOWN
						 ? 0
						 : calls->context[i].device + 1;
	}
}

/* Keeps the thread's context below the one that is pushed. */
static void push_context(struct thread *thread)
{
	size_t i;

	if (thread->n_pushed == CUDA_PUSHED) { /* drop the lowest one */
		for (i = 1; i < CUDA_PUSHED; i++)
			thread->pushed[i - 1] = thread->pushed[i];
		thread->n_pushed--;
	}
	thread->pushed[thread->n_pushed].context = thread->cuda_context;
	thread->pushed[thread->n_pushed++].device = thread->cuda_device_no;
}

/* Makes the context below the thread's current one; unknown: more were pushed than are kept. */
static void pop_context(struct thread *thread)
{
	thread->cuda_context = CONTEXT_UNKNOWN;
	thread->cuda_device_no = 0;
	if (!thread->n_pushed)
		return;
	thread->cuda_context = thread->pushed[--thread->n_pushed].context;
	thread->cuda_device_no = thread->pushed[thread->n_pushed].device;
}

/* Ends all memory that cudaMalloc, cudaMallocHost and cudaMallocManaged took in a context. Pools,
 * and memory of cuMemCreate, outlive it. context 0: the primary context of device. */
static int end_context(struct decoder *decoder, uint64_t context, unsigned device, struct event e)
{
	struct cuda_calls *calls = decoder->calls;
	uint32_t i;
	int err = 0;

	calls->moved = true;
	for (i = 0; i < calls->n_taken && !err; i++) {
		const struct taken *taken = &calls->taken[i];

		if (taken->in_context && taken->context == context &&
		    (context || taken->context_device_no == device + 1))
			err = end_taken(decoder, SPACE_MEMORY, taken->addr, e);
	}
	return err;
}

/* Takes a call that makes, ends or chooses a context. 0, -ENOMEM or the sink's error. */
static int on_context(struct decoder *decoder, const struct cuda_function *fn,
		      const struct mt_rec_call *record, struct thread *thread, struct event event)
{
	struct cuda_calls *calls = decoder->calls;
	unsigned i = calls->n_contexts;

	/* The runtime's own call: the program's call that caused it is recorded, too. */
	if (in_ranges(calls->runtime, calls->n_runtime, record->caller))
		return 0;
	switch (fn->op) {
	case CUDA_RESET:
		if (fn->device == CUDA_DEVICE_ARG0)
			return end_context(decoder, 0, (uint32_t)record->arg[0], event);
		if (thread->cuda_context) /* resets only the runtime's state of that context */
			return 0;
		if (thread->cuda_device_no)
			return end_context(decoder, 0, thread->cuda_device_no - 1u, event);
		return calls->devices == 1 ? end_context(decoder, 0, 0, event) : 0;
	case CUDA_CTX_RETAIN:
		keep_context(calls, record->out, (uint32_t)record->arg[1], /*primary=*/true);
		break;
	case CUDA_CTX_CREATE:
		keep_context(calls, record->out,
			     fn->device == CUDA_DEVICE_NONE
				     ? DEVICE_UNKNOWN
				     : (uint32_t)record->arg[fn->device - CUDA_DEVICE_ARG0],
			     /*primary=*/false);
		push_context(thread);
		use_context(calls, thread, record->out);
		break;
	case CUDA_CTX_DESTROY:
		if (thread->cuda_context == record->arg[0])
			pop_context(thread);
		while (i-- > 0)
			if (calls->context[i].handle == record->arg[0])
				calls->context[i] = calls->context[--calls->n_contexts];
		return end_context(decoder, record->arg[0], 0, event);
	case CUDA_CTX_PUSH:
		push_context(thread);
		use_context(calls, thread, record->arg[0]);
		break;
	case CUDA_CTX_SET:
		use_context(calls, thread, record->arg[0]);
		break;
	case CUDA_CTX_POP:
		pop_context(thread);
		break;
	}
	return 0;
}

/* ---- records ---- */

/* We warn after so many calls of the runtime that took memory, without a probed driver call. */
#define BYPASS_CALLS 10

/* Reads the allocator's backend again at each call until it is fixed: by the allocator's first
 * call, or when it is pluggable. own: the allocator made the call. */
static void update_backend(struct decoder *decoder, bool own)
{
	struct cuda_calls *calls = decoder->calls;

	if (calls->backend_fixed || !calls->n_own_ranges)
		return;
	calls->backend = target__backend(decoder->target, decoder->facts, decoder__now(decoder));
	calls->backend_fixed = own || calls->backend == ALLOC_PLUGGABLE;
}

/* Makes decoder->calls. 0 or -ENOMEM; the caller frees it with the decoder. */
static int open_calls(struct decoder *decoder)
{
	struct cuda_calls *calls = calloc(1, sizeof(*calls));
	int i;

	if (!calls)
		return -ENOMEM;
	decoder->calls = calls;
	calls->first_free = NO_INDEX;
	calls->status = proc__open_own(decoder->target->proc, "status");
	calls->statm = proc__open_own(decoder->target->proc, "statm");
	calls->done = calloc(cuda__functions(), sizeof(*calls->done));
	calls->failed = calloc(cuda__functions(), sizeof(*calls->failed));
	for (i = 0; i < SPACE_NR; i++)
		calls->at[i] = map64__new();
	calls->files = map64__new();
	for (i = 0; i < SPACE_NR; i++)
		if (!calls->at[i])
			return -ENOMEM;
	return calls->files && calls->done && calls->failed ? 0 : -ENOMEM;
}

int cuda_calls__attach(struct decoder *decoder)
{
	int err = open_calls(decoder);

	if (!err)
		cuda_files__scan(decoder);
	return err;
}

bool cuda_calls__any(const struct cuda_calls *calls)
{
	return calls->n_taken > 0;
}

bool cuda_calls__by_pid(const struct cuda_calls *calls)
{
	return calls->by_pid;
}

int cuda_calls__fork(struct decoder *decoder, const struct cuda_calls *parent)
{
	int err = open_calls(decoder);
	struct cuda_calls *calls = decoder->calls;
	uint64_t key, value;
	size_t pos = 0;

	if (err || !parent)
		return err;
	calls->backend = parent->backend;
	calls->backend_fixed = parent->backend_fixed;
	calls->devices = parent->devices;
	calls->by_pid = parent->by_pid;
	if (probes__calls_each(decoder->probes, NULL) || calls->by_pid)
		return 0; /* the parent's probes do not hit here: scan as in a new process */
	memcpy(calls->own, parent->own, parent->n_own_ranges * sizeof(*calls->own));
	memcpy(calls->runtime, parent->runtime, parent->n_runtime * sizeof(*calls->runtime));
	while (map64__next(parent->files, &pos, &key, &value))
		if (map64__set(calls->files, key, value))
			return -ENOMEM;
	calls->n_own_ranges = parent->n_own_ranges;
	calls->n_runtime = parent->n_runtime;
	calls->driver_since = parent->driver_since;
	calls->lib_kib = parent->lib_kib;
	calls->dry_run = parent->dry_run;
	calls->sites = parent->sites;
	calls->asked = parent->asked;
	calls->usdt_found = parent->usdt_found;
	return 0;
}

void cuda_calls__free(struct cuda_calls *calls)
{
	int i;

	if (!calls)
		return;
	for (i = 0; i < SPACE_NR; i++)
		map64__free(calls->at[i]);
	map64__free(calls->files);
	nvml__free(calls->smi);
	if (calls->status >= 0)
		close(calls->status);
	if (calls->statm >= 0)
		close(calls->statm);
	free(calls->taken);
	free(calls->done);
	free(calls->failed);
	free(calls);
}

int cuda_calls__record(struct decoder *decoder, const struct mt_rec_call *record)
{
	const struct cuda_function *fn = cuda__function(record->fn);
	struct thread *thread = decoder__thread(decoder, record->h.tid);
	struct cuda_calls *calls = decoder->calls;
	struct event event = { 0 };

	if (!fn || !calls)
		return -EBADMSG;
	if (!thread)
		return -ENOMEM;
	if (record->result) {
		calls->failed[record->fn]++;
		note_refused(calls, fn, record, thread);
		return 0;
	}
	calls->done[record->fn]++;
	if (!calls->smi) /* the first use of CUDA in a forked process */
		calls->smi = nvml__open(decoder->target->proc, calls->dry_run);
	/* The driver's figure changes. */
	calls->moved = calls->moved || (fn->how && on_device(fn->how));
	calls->changes += !fn->how || on_device(fn->how);
	cuda_figures__count_devices(calls);
	event.thread = thread->number;
	event.time = decoder__since(decoder, record->h.time);
	event.flags = in_ranges(calls->own, calls->n_own_ranges, record->caller) ? MEM_BY_ALLOCATOR
										 : 0;
	if (fn->op == CUDA_TAKE && record->flags & MT_CALL_RUNTIME && calls->driver_since &&
	    record->entered > calls->driver_since)
		calls->runtime_took++;
	switch (fn->op) {
	case CUDA_TAKE:
		update_backend(decoder, event.flags & MEM_BY_ALLOCATOR);
		return on_take(decoder, fn, record, thread, event);
	case CUDA_GIVE:
		return on_give(decoder, fn, record, event);
	case CUDA_RETAIN:
		on_retain(calls, record->out);
		return 0;
	case CUDA_IMPORT:
		on_import(calls, record);
		return 0;
	case CUDA_POOL:
		on_pool(calls, record);
		return 0;
	}
	return on_context(decoder, fn, record, thread, event);
}

int cuda_calls__set_device(struct decoder *decoder, const struct mt_rec_call *record)
{
	struct thread *thread = decoder__thread(decoder, record->h.tid);
	/* an int: the register's upper half is undefined */
	uint32_t device = (uint32_t)record->arg[0];

	if (!thread)
		return -ENOMEM;
	/* The runtime refuses a device that the process does not have. */
	if (device >= DEVICE_UNKNOWN ||
	    (decoder->calls && decoder->calls->devices && device >= decoder->calls->devices))
		return 0;
	thread->cuda_device_no = (uint8_t)device + 1;
	thread->cuda_context = 0;
	return 0;
}

int cuda_calls__asked(struct decoder *decoder, const struct mt_rec_asked *record)
{
	struct thread *thread = decoder__thread(decoder, record->h.tid);
	struct event event = { .kind = EVENT_REQUESTED, .device = { DEVICE_CUDA, DEVICE_UNKNOWN } };

	if (!thread)
		return -ENOMEM;
	if (!record->addr)
		return 0;
	if (record->device < DEVICE_UNKNOWN)
		event.device.index = record->device;
	event.thread = thread->number;
	event.time = decoder__since(decoder, record->h.time);
	event.addr = record->addr;
	event.requested = record->requested;
	event.cuda_stream = record->stream;
	return decoder__emit(decoder, &event);
}

/* Sets the fact counter.<prefix><name>, unless the value is 0. */
static void set_counter(struct decoder *decoder, const char *prefix, const char *name,
			uint64_t value)
{
	char key[96];

	if (!value)
		return;
	snprintf(key, sizeof(key), "counter.%s%s", prefix, name);
	facts__setf(decoder->facts, key, "%" PRIu64, value);
}

/* Warns if the runtime takes memory without a call of a probed driver function. Then the driver
 * gave it functions that it does not export. */
static void warn_of_bypass(struct cuda_calls *calls, const uint64_t counters[MT_CNT_NR])
{
	if (calls->bypassed || calls->runtime_took < BYPASS_CALLS || counters[MT_CNT_CALL_DRIVER])
		return;
	calls->bypassed = true;
	log_warn("calls into CUDA's driver bypass the probes: memory of libraries (cuBLAS, NCCL) "
		 "and expandable segments is not recorded. PyTorch's tensors are. Please report "
		 "the driver's version");
}

void cuda_calls__set_facts(struct decoder *decoder, const uint64_t counters[MT_CNT_NR])
{
	struct cuda_calls *calls = decoder->calls;
	uint32_t i;

	if (!calls)
		return;
	warn_of_bypass(calls, counters);
	for (i = 0; i < cuda__functions(); i++) {
		set_counter(decoder, "calls.", cuda__function(i)->name, calls->done[i]);
		set_counter(decoder, "calls_failed.", cuda__function(i)->name, calls->failed[i]);
	}
	if (calls->bypassed)
		facts__set(decoder->facts, "driver_bypassed", "1");
	set_counter(decoder, "calls_", "inner", counters[MT_CNT_CALL_INNER]);
	set_counter(decoder, "calls_", "stale", counters[MT_CNT_CALL_STALE]);
	set_counter(decoder, "calls_", "faults", counters[MT_CNT_CALL_FAULT]);
	set_counter(decoder, "calls_", "unreadable", calls->unreadable);
	set_counter(decoder, "calls_", "forgotten", calls->forgotten);
	set_counter(decoder, "calls_", "replaced", calls->replaced);
	set_counter(decoder, "asked_", "faults", counters[MT_CNT_ASKED_FAULT]);
}

void cuda_calls__tensors(struct decoder *decoder, unsigned device, uint64_t bytes)
{
	const struct cuda_calls *calls = decoder->calls;
	uint64_t largest = 0;
	uint32_t i;

	if (!calls || calls->backend != ALLOC_PLUGGABLE || !bytes ||
	    facts__get(decoder->facts, "allocator_block"))
		return;
	for (i = 0; i < calls->n_taken; i++)
		if (calls->taken[i].block && calls->taken[i].device.index == device &&
		    calls->taken[i].size > largest)
			largest = calls->taken[i].size;
	if (largest <= bytes)
		return;
	facts__setf(decoder->facts, "allocator_block", "%" PRIu64, largest);
	facts__setf(decoder->facts, "allocator_tensors", "%" PRIu64, bytes);
}
