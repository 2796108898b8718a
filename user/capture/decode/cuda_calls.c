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
static struct taken *find_taken(struct cuda_calls *c, enum space space, uint64_t addr)
{
	uint64_t i;

	return map64__get(c->at[space], addr, &i) ? &c->taken[i] : NULL;
}

/* Index of a free entry of c->taken. NO_INDEX: none, or out of memory. */
static uint32_t take_entry(struct cuda_calls *c)
{
	uint32_t i = c->first_free;

	if (i != NO_INDEX) {
		c->first_free = c->taken[i].physical;
		return i;
	}
	if (c->n_taken == TAKEN_MAX ||
	    array__grow(&c->taken, &c->cap_taken, c->n_taken + 1, sizeof(*c->taken)))
		return NO_INDEX;
	return c->n_taken++;
}

static void free_entry(struct cuda_calls *c, uint32_t i)
{
	c->taken[i] = (struct taken){ .physical = c->first_free };
	c->first_free = i;
}

/* Keeps memory that was taken. Without room for it, the event of its end has no size and no
 * device. */
static void remember(struct cuda_calls *c, enum space space, const struct taken *t)
{
	uint32_t i = take_entry(c);

	if (i == NO_INDEX) {
		c->forgotten++;
		return;
	}
	c->taken[i] = *t;
	if (map64__set(c->at[space], t->addr, i)) {
		free_entry(c, i);
		c->forgotten++;
	} else if (t->how == MEM_MAPPED && t->physical != NO_INDEX) {
		c->taken[t->physical].mappings++;
	}
}

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
static bool by_library(struct decoder *d, uint64_t caller)
{
	struct cuda_calls *c = d->calls;
	const struct map *map;
	struct maps maps;
	bool library;

	if (in_ranges(c->library, c->n_library, caller))
		return true;
	if (in_ranges(c->elsewhere, c->n_elsewhere, caller) || c->n_library == RANGES_MAX ||
	    c->n_elsewhere == RANGES_MAX || proc__maps(d->target->proc, &maps))
		return false;
	map = maps__find(&maps, caller);
	library = map && is_library(map->path);
	if (library)
		cuda_files__add_ranges(c->library, &c->n_library, &maps, map);
	else if (map)
		cuda_files__add_ranges(c->elsewhere, &c->n_elsewhere, &maps, map);
	maps__free(&maps);
	return library;
}

/* True if memory that a call takes or gives back is a block: PyTorch's allocator does not cache
 * and made the call (own), or there is no PyTorch. */
static bool is_block(struct decoder *d, uint8_t how, bool own, uint64_t caller)
{
	const struct cuda_calls *c = d->calls;

	if (d->no_torch)
		return how == MEM_DEVICE || how == MEM_ASYNC || how == MEM_MANAGED ||
		       how == MEM_PHYSICAL;
	if (c->backend == ALLOC_CUDA_ASYNC)
		return own && how == MEM_ASYNC;
	return c->backend == ALLOC_PLUGGABLE && (how == MEM_DEVICE || how == MEM_ASYNC) &&
	       !by_library(d, caller);
}

/* The device of memory that a call takes. physical: what a mapping maps; pool: the pool that gives
 * it; both NULL for other calls. The index is DEVICE_UNKNOWN if none of them tells. */
static struct device device_of(struct cuda_calls *c, const struct cuda_function *fn,
			       const struct thread *t, const struct mt_rec_call *r,
			       const struct taken *physical, const struct pool *pool)
{
	struct device d = { DEVICE_CUDA, DEVICE_UNKNOWN };

	switch (fn->device) {
	case CUDA_DEVICE_CURRENT:
		if (t->cuda_device_no)
			d.index = t->cuda_device_no - 1;
		else if (c->devices == 1)
			d.index = 0;
		break;
	case CUDA_DEVICE_NONE:
		if (on_device(fn->how) && c->devices == 1)
			d.index = 0;
		break;
	case CUDA_DEVICE_POOL:
		if (pool)
			d.index = pool->device;
		else if (c->devices == 1)
			d.index = 0;
		break;
	case CUDA_DEVICE_PROP:
		if ((uint32_t)r->arg[2] == LOCATION_DEVICE && r->arg[2] >> 32 < DEVICE_UNKNOWN)
			d.index = r->arg[2] >> 32;
		break;
	case CUDA_DEVICE_HANDLE:
		if (physical)
			d = physical->device;
		break;
	}
	return d;
}

static const struct pool *find_pool(const struct cuda_calls *c, uint64_t handle)
{
	size_t i;

	for (i = 0; i < c->n_pools; i++)
		if (c->pool[i].handle == handle)
			return &c->pool[i];
	return NULL;
}

static bool is_host_location(uint32_t location)
{
	return location >= LOCATION_HOST && location <= LOCATION_HOST_NUMA_CURRENT;
}

/* The kind of memory that a call takes, an enum mem_how. For some functions it depends on the
 * arguments. */
static uint8_t how_of(const struct cuda_function *fn, const struct mt_rec_call *r,
		      const struct pool *pool)
{
	if (pool)
		return pool->how;
	return fn->device == CUDA_DEVICE_PROP && is_host_location((uint32_t)r->arg[2]) ? MEM_HOST
										       : fn->how;
}

/* Sets *size to the bytes that a call took. False: the arguments are unreadable, or the size is
 * impossible. */
static bool get_size(const struct cuda_function *fn, const struct mt_rec_call *r, uint64_t *size)
{
	uint64_t bytes = r->arg[1];

	if (fn->size == CUDA_SIZE_PITCH && __builtin_mul_overflow(bytes, r->arg[3], &bytes))
		return false;
	if (fn->size == CUDA_SIZE_EXTENT && (__builtin_mul_overflow(bytes, r->arg[2], &bytes) ||
					     __builtin_mul_overflow(bytes, r->arg[3], &bytes)))
		return false;
	*size = bytes;
	return bytes <= INT64_MAX;
}

/* Emits the event that memory was given back. e: its thread, time and flags. */
static int emit_end(struct decoder *d, const struct taken *t, struct event e)
{
	if (t->silent)
		return 0;
	e.kind = t->block ? EVENT_FREE : EVENT_CUDA_FREE;
	e.how = t->how;
	e.addr = t->addr;
	e.size = t->size;
	e.device = t->device;
	return decoder__emit(d, &e);
}

/* Ends the physical memory with index i, unless a handle or a mapping still holds it. 0 or the
 * sink's error. */
static int drop_physical(struct decoder *d, uint32_t i, struct event e)
{
	struct cuda_calls *c = d->calls;
	struct taken t = c->taken[i];

	if (t.holders || t.mappings)
		return 0;
	free_entry(c, i);
	return emit_end(d, &t, e);
}

/* Removes the memory at this address or handle, and emits its end. 0 or the sink's error. */
static int end_taken(struct decoder *d, enum space space, uint64_t addr, struct event e)
{
	struct cuda_calls *c = d->calls;
	struct taken t;
	uint64_t i;
	int err;

	if (!map64__del(c->at[space], addr, &i))
		return 0;
	t = c->taken[i];
	if (space == SPACE_PHYSICAL) {
		c->taken[i].holders = 0;
		return drop_physical(d, i, e);
	}
	free_entry(c, i);
	err = emit_end(d, &t, e);
	if (err || t.how != MEM_MAPPED || t.physical == NO_INDEX)
		return err;
	c->taken[t.physical].mappings--;
	return drop_physical(d, t.physical, e);
}

/* Adds the native frames of a call, unless PyTorch's allocator made it. 0 or -ENOMEM. */
static int set_native_stack(struct decoder *d, const struct mt_rec_call *r, struct event *e)
{
	if (!(e->flags & MEM_BY_ALLOCATOR))
		return decoder__join_native(d, r->h.tid, r->entered, &e->stack, &e->walk);
	if (d->native)
		native_stacks__drop(d->native, r->h.tid);
	return 0;
}

/* cudaErrorMemoryAllocation, and CUDA_ERROR_OUT_OF_MEMORY of the driver */
#define CUDA_NO_MEMORY 2

/* Keeps what CUDA refused to PyTorch's allocator, which may give back cached memory and repeat the
 * call. */
static void note_refused(const struct cuda_calls *c, const struct cuda_function *fn,
			 const struct mt_rec_call *r, struct thread *t)
{
	uint64_t size;

	if (r->result == CUDA_NO_MEMORY && fn->op == CUDA_TAKE && on_device(fn->how) &&
	    in_ranges(c->own, c->n_own, r->caller) && get_size(fn, r, &size))
		t->refused = size;
}

/* Marks the first call by PyTorch's allocator that succeeded after CUDA had refused the same. An
 * expandable segment gets all its handles before it maps the first one. If CUDA refuses one, PyTorch
 * gives back the others and begins again, so only a mapping shows that CUDA refused none. */
static void mark_retried(struct thread *t, const struct taken *taken, struct event *e)
{
	if (!(e->flags & MEM_BY_ALLOCATOR) || !on_device(taken->how) || taken->how == MEM_PHYSICAL)
		return;
	if (t->refused && t->refused == taken->size)
		e->flags |= MEM_RETRIED;
	t->refused = 0;
}

/* A call took memory: keeps it, and emits its event. */
static int on_take(struct decoder *d, const struct cuda_function *fn, const struct mt_rec_call *r,
		   struct thread *thread, struct event e)
{
	struct cuda_calls *c = d->calls;
	struct taken *physical = fn->device == CUDA_DEVICE_HANDLE
					 ? find_taken(c, SPACE_PHYSICAL, r->arg[3])
					 : NULL;
	const struct pool *pool = fn->device == CUDA_DEVICE_POOL ? find_pool(c, r->arg[2]) : NULL;
	struct taken t = { .how = how_of(fn, r, pool),
			   .time = r->h.time,
			   .physical = NO_INDEX,
			   .context = thread->cuda_context };
	struct taken *old;
	struct event ended = e;
	int err;

	t.addr = fn->flags & MT_CALL_OUT ? r->out : r->arg[0];
	if (!get_size(fn, r, &t.size) || t.addr == UINT64_MAX) {
		c->unreadable++;
		return 0;
	}
	if (!t.addr || !t.size)
		return 0; /* a call that asked for 0 bytes */
	t.holders = fn->how == MEM_PHYSICAL;
	if (physical) {
		t.physical = physical - c->taken;
		t.silent = physical->silent || physical->how == MEM_HOST;
	}
	if (on_device(t.how))
		t.device = device_of(c, fn, thread, r, physical, pool);
	else
		t.device = (struct device){ DEVICE_CUDA, DEVICE_UNKNOWN };
	t.in_context = fn->how == MEM_DEVICE || fn->how == MEM_MANAGED || fn->how == MEM_HOST;
	t.context_device_no = thread->cuda_device_no ?: c->devices == 1;
	t.block = is_block(d, t.how, e.flags & MEM_BY_ALLOCATOR, r->caller);
	old = find_taken(c, space_of(fn->how), t.addr);
	if (old) {
		/* Another thread freed the old memory, by a call that has not returned yet: its
		 * record comes later. */
		c->replaced++;
		t.owed = true;
		ended.flags = 0;
		err = end_taken(d, space_of(fn->how), t.addr, ended);
		if (err)
			return err;
	}
	remember(c, space_of(fn->how), &t);
	mark_retried(thread, &t, &e);
	if (t.silent)
		return 0;
	e.kind = t.block ? EVENT_ALLOC : EVENT_CUDA_ALLOC;
	e.how = t.how;
	e.addr = t.addr;
	e.size = t.size;
	e.device = t.device;
	e.walk = r->h.walk;
	e.stack = decoder__stack(d, r->stack, &e.walk);
	err = set_native_stack(d, r, &e);
	if (err)
		return err;
	if (t.block && autograd__node(d, thread, &r->h, &e.node))
		return -ENOMEM;
	return decoder__emit(d, &e);
}

/* Ends all mappings in a range, in order of address: one call may unmap several. 0, -ENOMEM or the
 * sink's error. */
static int on_unmap(struct decoder *d, uint64_t addr, uint64_t size, struct event e)
{
	struct map64 *mappings = d->calls->at[SPACE_MAPPED];
	uint64_t at, i, *addrs;
	size_t pos = 0, n = 0, k;
	int err = 0;

	if (map64__get(mappings, addr, &i) && d->calls->taken[i].size >= size)
		return end_taken(d, SPACE_MAPPED, addr, e);
	addrs = malloc((map64__count(mappings) + 1) * sizeof(*addrs));
	if (!addrs)
		return -ENOMEM;
	while (map64__next(mappings, &pos, &at, &i))
		if (at >= addr && at - addr < size)
			addrs[n++] = at;
	qsort(addrs, n, sizeof(*addrs), array__compare_u64);
	for (k = 0; k < n && !err; k++)
		err = end_taken(d, SPACE_MAPPED, addrs[k], e);
	free(addrs);
	return err;
}

/* A call gave memory back: emits the end of the memory. */
static int on_give(struct decoder *d, const struct cuda_function *fn, const struct mt_rec_call *r,
		   struct event e)
{
	struct cuda_calls *c = d->calls;
	enum space space = space_of(fn->how);
	struct taken *t;

	if (!r->arg[0])
		return 0;
	t = find_taken(c, space, r->arg[0]);
	if (t && t->owed && r->entered < t->time) {
		/* the free of the memory that was here before, which has ended already */
		t->owed = false;
		return 0;
	}
	if (!t) {
		/* Taken before attach, or by a function that is not probed. */
		e.kind = is_block(d, fn->how, e.flags & MEM_BY_ALLOCATOR, r->caller)
				 ? EVENT_FREE
				 : EVENT_CUDA_FREE;
		e.how = fn->how;
		e.addr = r->arg[0];
		e.size = fn->size == CUDA_SIZE_ARG1 ? r->arg[1] : 0;
		e.device = (struct device){ DEVICE_CUDA, on_device(fn->how) && c->devices == 1
								 ? 0
								 : DEVICE_UNKNOWN };
		return decoder__emit(d, &e);
	}
	if (fn->how == MEM_MAPPED)
		return on_unmap(d, r->arg[0], r->arg[1], e);
	if (fn->how == MEM_PHYSICAL && t->holders > 1) {
		t->holders--;
		return 0;
	}
	return end_taken(d, space, r->arg[0], e);
}

/* Keeps another process's memory that this one imported. It counts there. */
static void on_import(struct cuda_calls *c, const struct mt_rec_call *r)
{
	struct taken t = { .addr = r->out,
			   .how = MEM_PHYSICAL,
			   .physical = NO_INDEX,
			   .holders = 1,
			   .silent = true };
	struct taken *there = find_taken(c, SPACE_PHYSICAL, r->out);

	if (there)
		there->holders++;
	else if (r->out != UINT64_MAX)
		remember(c, SPACE_PHYSICAL, &t);
}

/* Keeps a memory pool that the program made. */
static void on_pool(struct cuda_calls *c, const struct mt_rec_call *r)
{
	struct pool p = { .handle = r->out, .how = MEM_ASYNC, .device = DEVICE_UNKNOWN };
	struct pool *known = (struct pool *)find_pool(c, r->out);

	if (is_host_location((uint32_t)r->arg[1]))
		p.how = MEM_HOST;
	else if ((uint32_t)r->arg[2] == POOL_MANAGED)
		p.how = MEM_MANAGED;
	if ((uint32_t)r->arg[1] == LOCATION_DEVICE && r->arg[1] >> 32 < DEVICE_UNKNOWN)
		p.device = r->arg[1] >> 32;
	if (known)
		*known = p;
	else if (c->n_pools < POOLS_MAX)
		c->pool[c->n_pools++] = p;
}

/* Counts one more handle of physical memory. */
static void on_retain(struct cuda_calls *c, uint64_t handle)
{
	struct taken *held = find_taken(c, SPACE_PHYSICAL, handle);

	if (held)
		held->holders++;
}

/* ---- contexts: which device a thread uses, and what ends with one ---- */

#define CONTEXT_UNKNOWN UINT64_MAX

/* Keeps which device a context is of, also if its handle was known. */
static void keep_context(struct cuda_calls *c, uint64_t handle, uint64_t device, bool primary)
{
	size_t i;

	for (i = 0; i < c->n_contexts && c->context[i].handle != handle; i++)
		;
	if (i == CONTEXTS_MAX)
		return;
	c->n_contexts += i == c->n_contexts;
	c->context[i] = (struct context){ handle, device < DEVICE_UNKNOWN ? device : DEVICE_UNKNOWN,
					  primary };
}

/* Makes a context the thread's current one. One from before attach makes the device unknown. */
static void use_context(const struct cuda_calls *c, struct thread *t, uint64_t handle)
{
	size_t i;

	t->cuda_context = CONTEXT_UNKNOWN;
	t->cuda_device_no = 0;
	for (i = 0; i < c->n_contexts; i++) {
		if (c->context[i].handle != handle)
			continue;
		t->cuda_context = c->context[i].primary ? 0 : handle;
		t->cuda_device_no = c->context[i].device == DEVICE_UNKNOWN
					    ? 0
					    : c->context[i].device + 1;
	}
}

static void push_context(struct thread *t)
{
	size_t i;

	if (t->n_pushed == CUDA_PUSHED) { /* drop the lowest one */
		for (i = 1; i < CUDA_PUSHED; i++)
			t->pushed[i - 1] = t->pushed[i];
		t->n_pushed--;
	}
	t->pushed[t->n_pushed].context = t->cuda_context;
	t->pushed[t->n_pushed++].device = t->cuda_device_no;
}

static void pop_context(struct thread *t)
{
	t->cuda_context = CONTEXT_UNKNOWN;
	t->cuda_device_no = 0;
	if (!t->n_pushed)
		return;
	t->cuda_context = t->pushed[--t->n_pushed].context;
	t->cuda_device_no = t->pushed[t->n_pushed].device;
}

/* Ends all memory that cudaMalloc, cudaMallocHost and cudaMallocManaged took in a context. Pools,
 * and memory of cuMemCreate, outlive it. context 0: the primary context of device. */
static int end_context(struct decoder *d, uint64_t context, unsigned device, struct event e)
{
	struct cuda_calls *c = d->calls;
	uint32_t i;
	int err = 0;

	c->moved = true;
	for (i = 0; i < c->n_taken && !err; i++) {
		const struct taken *t = &c->taken[i];

		if (t->in_context && t->context == context &&
		    (context || t->context_device_no == device + 1))
			err = end_taken(d, SPACE_MEMORY, t->addr, e);
	}
	return err;
}

/* Takes a call that makes, ends or chooses a context. 0, -ENOMEM or the sink's error. */
static int on_context(struct decoder *d, const struct cuda_function *fn,
		      const struct mt_rec_call *r, struct thread *t, struct event e)
{
	struct cuda_calls *c = d->calls;
	unsigned i = c->n_contexts;

	/* The runtime's own call: the program's call that caused it is recorded, too. */
	if (in_ranges(c->runtime, c->n_runtime, r->caller))
		return 0;
	switch (fn->op) {
	case CUDA_RESET:
		if (fn->device == CUDA_DEVICE_ARG0)
			return end_context(d, 0, (uint32_t)r->arg[0], e);
		if (t->cuda_context) /* resets only the runtime's state of that context */
			return 0;
		if (t->cuda_device_no)
			return end_context(d, 0, t->cuda_device_no - 1u, e);
		return c->devices == 1 ? end_context(d, 0, 0, e) : 0;
	case CUDA_CTX_RETAIN:
		keep_context(c, r->out, (uint32_t)r->arg[1], true);
		break;
	case CUDA_CTX_CREATE:
		keep_context(c, r->out,
			     fn->device == CUDA_DEVICE_NONE
				     ? DEVICE_UNKNOWN
				     : (uint32_t)r->arg[fn->device - CUDA_DEVICE_ARG0],
			     false);
		push_context(t);
		use_context(c, t, r->out);
		break;
	case CUDA_CTX_DESTROY:
		if (t->cuda_context == r->arg[0])
			pop_context(t);
		while (i-- > 0)
			if (c->context[i].handle == r->arg[0])
				c->context[i] = c->context[--c->n_contexts];
		return end_context(d, r->arg[0], 0, e);
	case CUDA_CTX_PUSH:
		push_context(t);
		use_context(c, t, r->arg[0]);
		break;
	case CUDA_CTX_SET:
		use_context(c, t, r->arg[0]);
		break;
	case CUDA_CTX_POP:
		pop_context(t);
		break;
	}
	return 0;
}

/* ---- records ---- */

/* We warn after so many calls of the runtime that took memory, without a probed driver call. */
#define BYPASS_CALLS 10

/* Reads which backend PyTorch's allocator has, until it is used first: a program may choose until
 * then. own: the allocator made the call. */
static void update_backend(struct decoder *d, bool own)
{
	struct cuda_calls *c = d->calls;

	if (c->backend_fixed || !c->n_own)
		return;
	c->backend = target__backend(d->target, d->facts, decoder__now(d));
	c->backend_fixed = own || c->backend == ALLOC_PLUGGABLE;
}

static int open_calls(struct decoder *d)
{
	struct cuda_calls *c = calloc(1, sizeof(*c));
	int i;

	if (!c)
		return -ENOMEM;
	d->calls = c;
	c->first_free = NO_INDEX;
	c->status = proc__open_own(d->target->proc, "status");
	c->done = calloc(cuda__functions(), sizeof(*c->done));
	c->failed = calloc(cuda__functions(), sizeof(*c->failed));
	for (i = 0; i < SPACE_NR; i++)
		c->at[i] = map64__new();
	c->files = map64__new();
	for (i = 0; i < SPACE_NR; i++)
		if (!c->at[i])
			return -ENOMEM;
	return c->files && c->done && c->failed ? 0 : -ENOMEM;
}

int cuda_calls__attach(struct decoder *d)
{
	int err = open_calls(d);

	if (!err)
		cuda_files__scan(d);
	return err;
}

bool cuda_calls__any(const struct cuda_calls *c)
{
	return c->n_taken > 0;
}

bool cuda_calls__by_pid(const struct cuda_calls *c)
{
	return c->by_pid;
}

int cuda_calls__fork(struct decoder *d, const struct cuda_calls *parent)
{
	int err = open_calls(d);
	struct cuda_calls *c = d->calls;
	uint64_t key, value;
	size_t pos = 0;

	if (err || !parent)
		return err;
	c->backend = parent->backend;
	c->backend_fixed = parent->backend_fixed;
	c->devices = parent->devices;
	c->by_pid = parent->by_pid;
	if (probes__calls_each(d->probes, NULL) || c->by_pid)
		return 0; /* the parent's probes do not hit here: scan as in a new process */
	memcpy(c->own, parent->own, parent->n_own * sizeof(*c->own));
	memcpy(c->runtime, parent->runtime, parent->n_runtime * sizeof(*c->runtime));
	while (map64__next(parent->files, &pos, &key, &value))
		if (map64__set(c->files, key, value))
			return -ENOMEM;
	c->n_own = parent->n_own;
	c->n_runtime = parent->n_runtime;
	c->driver_since = parent->driver_since;
	c->lib_kib = parent->lib_kib;
	c->dry_run = parent->dry_run;
	c->sites = parent->sites;
	c->asked = parent->asked;
	return 0;
}

void cuda_calls__free(struct cuda_calls *c)
{
	int i;

	if (!c)
		return;
	for (i = 0; i < SPACE_NR; i++)
		map64__free(c->at[i]);
	map64__free(c->files);
	nvml__free(c->smi);
	if (c->status >= 0)
		close(c->status);
	free(c->taken);
	free(c->done);
	free(c->failed);
	free(c);
}

int cuda_calls__record(struct decoder *d, const struct mt_rec_call *r)
{
	const struct cuda_function *fn = cuda__function(r->fn);
	struct thread *t = decoder__thread(d, r->h.tid);
	struct cuda_calls *c = d->calls;
	struct event e = { 0 };

	if (!fn || !c)
		return -EBADMSG;
	if (!t)
		return -ENOMEM;
	if (r->result) {
		c->failed[r->fn]++;
		note_refused(c, fn, r, t);
		return 0;
	}
	c->done[r->fn]++;
	if (!c->smi) /* the first use of CUDA in a forked process */
		c->smi = nvml__open(d->target->proc, c->dry_run);
	c->moved = c->moved || (fn->how && on_device(fn->how));
	c->changes += !fn->how || on_device(fn->how);
	cuda_figures__count_devices(c);
	e.thread = t->number;
	e.time = decoder__since(d, r->h.time);
	e.flags = in_ranges(c->own, c->n_own, r->caller) ? MEM_BY_ALLOCATOR : 0;
	if (fn->op == CUDA_TAKE && r->flags & MT_CALL_RUNTIME && c->driver_since &&
	    r->entered > c->driver_since)
		c->runtime_took++;
	switch (fn->op) {
	case CUDA_TAKE:
		update_backend(d, e.flags & MEM_BY_ALLOCATOR);
		return on_take(d, fn, r, t, e);
	case CUDA_GIVE:
		return on_give(d, fn, r, e);
	case CUDA_RETAIN:
		on_retain(c, r->out);
		return 0;
	case CUDA_IMPORT:
		on_import(c, r);
		return 0;
	case CUDA_POOL:
		on_pool(c, r);
		return 0;
	}
	return on_context(d, fn, r, t, e);
}

int cuda_calls__set_device(struct decoder *d, const struct mt_rec_call *r)
{
	struct thread *t = decoder__thread(d, r->h.tid);
	uint32_t device = (uint32_t)r->arg[0]; /* an int: the register's upper half is undefined */

	if (!t)
		return -ENOMEM;
	/* The runtime refuses a device that the process does not have. */
	if (device >= DEVICE_UNKNOWN ||
	    (d->calls && d->calls->devices && device >= d->calls->devices))
		return 0;
	t->cuda_device_no = (uint8_t)device + 1;
	t->cuda_context = 0;
	return 0;
}

int cuda_calls__asked(struct decoder *d, const struct mt_rec_asked *r)
{
	struct thread *t = decoder__thread(d, r->h.tid);
	struct event e = { .kind = EVENT_REQUESTED, .device = { DEVICE_CUDA, DEVICE_UNKNOWN } };

	if (!t)
		return -ENOMEM;
	if (!r->addr)
		return 0;
	if (r->device < DEVICE_UNKNOWN)
		e.device.index = r->device;
	e.thread = t->number;
	e.time = decoder__since(d, r->h.time);
	e.addr = r->addr;
	e.requested = r->requested;
	e.cuda_stream = r->stream;
	return decoder__emit(d, &e);
}

/* Sets the fact counter.<prefix><name>, unless the value is 0. */
static void set_counter(struct decoder *d, const char *prefix, const char *name, uint64_t value)
{
	char key[96];

	if (!value)
		return;
	snprintf(key, sizeof(key), "counter.%s%s", prefix, name);
	facts__setf(d->facts, key, "%" PRIu64, value);
}

/* Warns if the runtime takes memory without a call of a probed driver function. Then the driver
 * gave it functions that it does not export. */
static void warn_of_bypass(struct cuda_calls *calls, const uint64_t c[MT_CNT_NR])
{
	if (calls->bypassed || calls->runtime_took < BYPASS_CALLS || c[MT_CNT_CALL_DRIVER])
		return;
	calls->bypassed = true;
	log_warn("calls into CUDA's driver bypass the probes: memory of libraries (cuBLAS, NCCL) "
		 "and expandable segments is not recorded. PyTorch's tensors are. Please report "
		 "the driver's version");
}

void cuda_calls__set_facts(struct decoder *d, const uint64_t c[MT_CNT_NR])
{
	struct cuda_calls *calls = d->calls;
	uint32_t i;

	if (!calls)
		return;
	warn_of_bypass(calls, c);
	for (i = 0; i < cuda__functions(); i++) {
		set_counter(d, "calls.", cuda__function(i)->name, calls->done[i]);
		set_counter(d, "calls_failed.", cuda__function(i)->name, calls->failed[i]);
	}
	if (calls->bypassed)
		facts__set(d->facts, "driver_bypassed", "1");
	set_counter(d, "calls_", "inner", c[MT_CNT_CALL_INNER]);
	set_counter(d, "calls_", "stale", c[MT_CNT_CALL_STALE]);
	set_counter(d, "calls_", "faults", c[MT_CNT_CALL_FAULT]);
	set_counter(d, "calls_", "unreadable", calls->unreadable);
	set_counter(d, "calls_", "forgotten", calls->forgotten);
	set_counter(d, "calls_", "replaced", calls->replaced);
	set_counter(d, "asked_", "faults", c[MT_CNT_ASKED_FAULT]);
}

void cuda_calls__tensors(struct decoder *d, unsigned device, uint64_t bytes)
{
	const struct cuda_calls *c = d->calls;
	uint64_t largest = 0;
	uint32_t i;

	if (!c || c->backend != ALLOC_PLUGGABLE || !bytes ||
	    facts__get(d->facts, "allocator_block"))
		return;
	for (i = 0; i < c->n_taken; i++)
		if (c->taken[i].block && c->taken[i].device.index == device &&
		    c->taken[i].size > largest)
			largest = c->taken[i].size;
	if (largest <= bytes)
		return;
	facts__setf(d->facts, "allocator_block", "%" PRIu64, largest);
	facts__setf(d->facts, "allocator_tensors", "%" PRIu64, bytes);
}
