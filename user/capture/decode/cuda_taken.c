/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What calls into CUDA have taken and not given back, and the events of both. */
#include "capture/decode/cuda_calls_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map64.h"
#include "capture/decode/autograd.h"
#include "capture/target.h"
#include "inspect/cudaalloc.h"
#include "inspect/native_stacks.h"
#include "inspect/proc.h"

#define TAKEN_MAX (1u << 20)
#define POOL_MANAGED 2 /* CU_MEM_ALLOCATION_TYPE_MANAGED */

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

/* NULL: unknown, or taken before attach. */
static struct taken *find(struct cuda_calls *c, enum space space, uint64_t addr)
{
	uint64_t i;

	return map64__get(c->at[space], addr, &i) ? &c->taken[i] : NULL;
}

static uint32_t new_index(struct cuda_calls *c)
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

static void free_index(struct cuda_calls *c, uint32_t i)
{
	c->taken[i] = (struct taken){ .physical = c->first_free };
	c->first_free = i;
}

/* Keeps an entry. Without room for it, the event of its end has no size and no device. */
static void remember(struct cuda_calls *c, enum space space, const struct taken *t)
{
	uint32_t i = new_index(c);

	if (i == NO_INDEX) {
		c->forgotten++;
		return;
	}
	c->taken[i] = *t;
	if (map64__set(c->at[space], t->addr, i)) {
		free_index(c, i);
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

/* True for calls of NVIDIA's libraries for themselves. A pluggable allocator's blocks are all other
 * calls. */
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

/* True if this memory is a block: PyTorch's allocator does not cache, and this is its call, or
 * there is no PyTorch. */
static bool is_block(struct decoder *d, uint8_t how, bool own, uint64_t caller)
{
	const struct cuda_calls *c = d->calls;

	if (d->cuda_only)
		return how == MEM_DEVICE || how == MEM_ASYNC || how == MEM_MANAGED ||
		       how == MEM_PHYSICAL;
	if (c->backend == ALLOC_CUDA_ASYNC)
		return own && how == MEM_ASYNC;
	return c->backend == ALLOC_PLUGGABLE && (how == MEM_DEVICE || how == MEM_ASYNC) &&
	       !by_library(d, caller);
}

static struct device device_of(struct cuda_calls *c, const struct cuda_function *fn,
			       const struct thread *t, const struct mt_rec_call *r,
			       const struct taken *physical, const struct pool *pool)
{
	struct device d = { DEVICE_CUDA, DEVICE_UNKNOWN };

	switch (fn->device) {
	case CUDA_DEVICE_CURRENT:
		if (t->cuda_device)
			d.index = t->cuda_device - 1;
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

static bool on_host(uint32_t location)
{
	return location >= LOCATION_HOST && location <= LOCATION_HOST_NUMA_CURRENT;
}

/* enum mem_how of a call: some functions depend on their arguments. */
static uint8_t how_of(const struct cuda_function *fn, const struct mt_rec_call *r,
		      const struct pool *pool)
{
	if (pool)
		return pool->how;
	return fn->device == CUDA_DEVICE_PROP && on_host((uint32_t)r->arg[2]) ? MEM_HOST : fn->how;
}

/* False: unreadable, or too large to be true. */
static bool size_of(const struct cuda_function *fn, const struct mt_rec_call *r, uint64_t *size)
{
	uint64_t n = r->arg[1];

	if (fn->size == CUDA_SIZE_PITCH && __builtin_mul_overflow(n, r->arg[3], &n))
		return false;
	if (fn->size == CUDA_SIZE_EXTENT &&
	    (__builtin_mul_overflow(n, r->arg[2], &n) || __builtin_mul_overflow(n, r->arg[3], &n)))
		return false;
	*size = n;
	return n <= INT64_MAX;
}

/* Emits the end of an entry. e: thread, time and flags. */
static int give(struct decoder *d, const struct taken *t, struct event e)
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

/* Ends physical memory once no handle and no mapping holds it. */
static int drop_physical(struct decoder *d, uint32_t i, struct event e)
{
	struct cuda_calls *c = d->calls;
	struct taken t = c->taken[i];

	if (t.holders || t.mappings)
		return 0;
	free_index(c, i);
	return give(d, &t, e);
}

int cuda_taken__end(struct decoder *d, enum space space, uint64_t addr, struct event e)
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
	free_index(c, i);
	err = give(d, &t, e);
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

int cuda_taken__take(struct decoder *d, const struct cuda_function *fn, const struct mt_rec_call *r,
		     struct thread *thread, struct event e)
{
	struct cuda_calls *c = d->calls;
	struct taken *physical = fn->device == CUDA_DEVICE_HANDLE
					 ? find(c, SPACE_PHYSICAL, r->arg[3])
					 : NULL;
	const struct pool *pool = fn->device == CUDA_DEVICE_POOL ? find_pool(c, r->arg[2]) : NULL;
	struct taken t = { .how = how_of(fn, r, pool),
			   .time = r->h.time,
			   .physical = NO_INDEX,
			   .context = thread->cuda_context };
	struct taken *there;
	struct event ended = e;
	int err;

	t.addr = fn->flags & MT_CALL_OUT ? r->out : r->arg[0];
	if (!size_of(fn, r, &t.size) || t.addr == UINT64_MAX) {
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
	t.under = thread->cuda_device ?: c->devices == 1;
	t.block = is_block(d, t.how, e.flags & MEM_BY_ALLOCATOR, r->caller);
	there = find(c, space_of(fn->how), t.addr);
	if (there) {
		/* Freed by another thread's call that has not returned: its record comes later. */
		c->replaced++;
		t.owed = true;
		ended.flags = 0;
		err = cuda_taken__end(d, space_of(fn->how), t.addr, ended);
		if (err)
			return err;
	}
	remember(c, space_of(fn->how), &t);
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

/* Ends all mappings in a range: one call may unmap several. */
static int on_unmap(struct decoder *d, uint64_t addr, uint64_t size, struct event e)
{
	struct map64 *m = d->calls->at[SPACE_MAPPED];
	uint64_t at, i, *v;
	size_t pos = 0, n = 0, k;
	int err = 0;

	if (map64__get(m, addr, &i) && d->calls->taken[i].size >= size)
		return cuda_taken__end(d, SPACE_MAPPED, addr, e);
	v = malloc((map64__count(m) + 1) * sizeof(*v));
	if (!v)
		return -ENOMEM;
	while (map64__next(m, &pos, &at, &i))
		if (at >= addr && at - addr < size)
			v[n++] = at;
	qsort(v, n, sizeof(*v), array__compare_u64);
	for (k = 0; k < n && !err; k++)
		err = cuda_taken__end(d, SPACE_MAPPED, v[k], e);
	free(v);
	return err;
}

int cuda_taken__give(struct decoder *d, const struct cuda_function *fn, const struct mt_rec_call *r,
		     struct event e)
{
	struct cuda_calls *c = d->calls;
	enum space space = space_of(fn->how);
	struct taken *t;

	if (!r->arg[0])
		return 0;
	t = find(c, space, r->arg[0]);
	if (t && t->owed && r->entered < t->time) {
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
	return cuda_taken__end(d, space, r->arg[0], e);
}

void cuda_taken__import(struct cuda_calls *c, const struct mt_rec_call *r)
{
	struct taken t = { .addr = r->out,
			   .how = MEM_PHYSICAL,
			   .physical = NO_INDEX,
			   .holders = 1,
			   .silent = true };
	struct taken *there = find(c, SPACE_PHYSICAL, r->out);

	if (there)
		there->holders++;
	else if (r->out != UINT64_MAX)
		remember(c, SPACE_PHYSICAL, &t);
}

void cuda_taken__pool(struct cuda_calls *c, const struct mt_rec_call *r)
{
	struct pool p = { .handle = r->out, .how = MEM_ASYNC, .device = DEVICE_UNKNOWN };
	struct pool *there = (struct pool *)find_pool(c, r->out);

	if (on_host((uint32_t)r->arg[1]))
		p.how = MEM_HOST;
	else if ((uint32_t)r->arg[2] == POOL_MANAGED)
		p.how = MEM_MANAGED;
	if ((uint32_t)r->arg[1] == LOCATION_DEVICE && r->arg[1] >> 32 < DEVICE_UNKNOWN)
		p.device = r->arg[1] >> 32;
	if (there)
		*there = p;
	else if (c->n_pools < POOLS_MAX)
		c->pool[c->n_pools++] = p;
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

void cuda_taken__retain(struct cuda_calls *c, uint64_t handle)
{
	struct taken *held = find(c, SPACE_PHYSICAL, handle);

	if (held)
		held->holders++;
}
