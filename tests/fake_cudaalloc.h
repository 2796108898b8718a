/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Builds a caching allocator in this process from a list of segments, in the memory layout of any
 * build of PyTorch: maps, sets, pools, Blocks and statistics.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Offsets in bytes; they differ between builds. */
struct fake_layout {
	size_t nmaps, maps, devices;			    /* members of the allocator object */
	size_t large, pool_size, sets, active, graph_pools; /* members of a device allocator */
	size_t device_size;
	size_t active_bytes, requested_bytes;
	size_t size, requested, pool, ptr, allocated, prev, next,
		expandable; /* members of a Block */
	size_t block_size;
};

/* Layouts of 2.1, 2.11 and 2.13. */
static const struct fake_layout fake_layouts[] = {
	{ .nmaps = 1,
	  .maps = 0x30,
	  .devices = 0x50,
	  .large = 0x3e0,
	  .pool_size = 0x70,
	  .sets = 2,
	  .active = 0x4c0,
	  .graph_pools = 0x560,
	  .device_size = 0x608,
	  .active_bytes = 0x268,
	  .requested_bytes = 0x328,
	  .size = 0x30,
	  .requested = 0x38,
	  .pool = 0x40,
	  .ptr = 0x48,
	  .allocated = 0x50,
	  .prev = 0x58,
	  .next = 0x60,
	  .expandable = 0x90,
	  .block_size = 0x98 },
	{ .nmaps = 67,
	  .maps = 0x1100,
	  .devices = 0x5838,
	  .large = 0x400,
	  .pool_size = 0x78,
	  .sets = 2,
	  .active = 0x4f0,
	  .graph_pools = 0x900,
	  .device_size = 0xb58,
	  .active_bytes = 0x268,
	  .requested_bytes = 0x328,
	  .size = 0x38,
	  .requested = 0x40,
	  .pool = 0x48,
	  .ptr = 0x50,
	  .allocated = 0x58,
	  .prev = 0x60,
	  .next = 0x68,
	  .expandable = 0xa0,
	  .block_size = 0xb0 },
	{ .nmaps = 67,
	  .maps = 0x1100,
	  .devices = 0x5838,
	  .large = 0x428,
	  .pool_size = 0xa8,
	  .sets = 3,
	  .active = 0x578,
	  .graph_pools = 0xa00,
	  .device_size = 0xc08,
	  .active_bytes = 0x288,
	  .requested_bytes = 0x348,
	  .size = 0x38,
	  .requested = 0x40,
	  .pool = 0x48,
	  .ptr = 0x50,
	  .allocated = 0x58,
	  .prev = 0x60,
	  .next = 0x68,
	  .expandable = 0xa0,
	  .block_size = 0xb0 },
};

enum fake_state { FAKE_LIVE, FAKE_PENDING, FAKE_CACHED, FAKE_UNMAPPED };

struct fake_block {
	uint64_t size, requested;
	enum fake_state state;
};

struct fake_segment {
	uint64_t addr, stream;
	uint8_t device;
	bool small, expandable;
	int private; /* index of a private pool; -1: the device's own pools */
	const struct fake_block *blocks;
	size_t n;
};

/* Bytes that a reader may look at in an object; beyond is other memory. */
#define FAKE_OBJECT (64u << 10)
#define FAKE_DEVICE (8u << 10)
#define FAKE_MEMS 65536
#define FAKE_PRIVATE 4

struct fake_world {
	const struct fake_layout *l;
	uint8_t *object;
	void *slot; /* content of the exported symbol */
	void *vtable[4], *typeinfo[2];
	size_t ndevices;
	uint8_t *devices[8];
	void *vector[8];
	uint8_t *private[8][FAKE_PRIVATE]; /* allocated when first used */
	void *mem[FAKE_MEMS];		   /* all allocations */
	size_t nmem;
};

/* A program whose malloc is not glibc's defines FAKE_CALLOC. */
#ifndef FAKE_CALLOC
#define FAKE_CALLOC(size) calloc(1, size)
#define FAKE_FREE(p) free(p)
#endif

static inline void *fake_alloc(struct fake_world *w, size_t size)
{
	void *p = FAKE_CALLOC(size);

	if (!p || w->nmem == FAKE_MEMS)
		abort();
	return w->mem[w->nmem++] = p;
}

static inline void fake_put(void *at, uint64_t v)
{
	memcpy(at, &v, sizeof(v));
}

static inline uint64_t fake_get(const void *at)
{
	uint64_t v;

	memcpy(&v, at, sizeof(v));
	return v;
}

/* ---- std::set<Block *> ---- */

static inline void fake_set_init(uint8_t *set)
{
	fake_put(set, (uintptr_t)set ^ 0x55); /* comparator object: arbitrary bytes */
	memset(set + 12, 0xa5, 4);
	fake_put(set + 24, (uintptr_t)(set + 8));
	fake_put(set + 32, (uintptr_t)(set + 8));
}

/* Sorted by address, not balanced: readers do not need that. */
static inline void fake_set_add(struct fake_world *w, uint8_t *set, uint8_t *block)
{
	uint8_t *node = fake_alloc(w, 40), *at = (uint8_t *)(uintptr_t)fake_get(set + 16),
		*parent = set + 8;
	size_t side = 8;
	uint64_t key = ((uintptr_t)block * UINT64_C(0x9e3779b97f4a7c15)) >> 8;

	while (at) {
		uint64_t other = (fake_get(at + 32) * UINT64_C(0x9e3779b97f4a7c15)) >> 8;

		parent = at;
		side = key < other ? 16 : 24;
		at = (uint8_t *)(uintptr_t)fake_get(at + side);
	}
	fake_put(node, 1);
	fake_put(node + 8, (uintptr_t)parent);
	fake_put(node + 32, (uintptr_t)block);
	fake_put(parent + side, (uintptr_t)node);
	for (at = (uint8_t *)(uintptr_t)fake_get(set + 16); fake_get(at + 16);)
		at = (uint8_t *)(uintptr_t)fake_get(at + 16);
	fake_put(set + 24, (uintptr_t)at);
	for (at = (uint8_t *)(uintptr_t)fake_get(set + 16); fake_get(at + 24);)
		at = (uint8_t *)(uintptr_t)fake_get(at + 24);
	fake_put(set + 32, (uintptr_t)at);
	fake_put(set + 40, fake_get(set + 40) + 1);
}

/* ---- ska::flat_hash_map ---- */

static inline void fake_table_size(struct fake_world *w, uint8_t *t, size_t width, unsigned log)
{
	size_t slots = (size_t)1 << log, lookups = log < 4 ? 4 : log;
	uint8_t *e = fake_alloc(w, (slots + lookups) * width);
	float load = 0.5f;

	for (size_t i = 0; i < slots + lookups; i++)
		e[i * width] = i + 1 == slots + lookups ? 0 : 0xff;
	fake_put(t, (uintptr_t)e);
	fake_put(t + 8, slots - 1);
	t[16] = (uint8_t)(64 - log);
	t[17] = (uint8_t)lookups;
	memcpy(t + 20, &load, sizeof(load));
	fake_put(t + 24, 0);
}

/* An empty table: no slots of its own. */
static inline void fake_table_init(struct fake_world *w, uint8_t *t, size_t width)
{
	fake_table_size(w, t, width, 0);
	t[16] = 63;
	t[17] = 3;
}

/* entry: width bytes with the key at offset 8. */
static inline void fake_table_add(struct fake_world *w, uint8_t *t, size_t width,
				  const uint8_t *entry)
{
	uint8_t *e = (uint8_t *)(uintptr_t)fake_get(t), mine[32], other[32];
	size_t mask = fake_get(t + 8), slots = mask + t[17], i;
	uint64_t hash = fake_get(entry + 8) * UINT64_C(0x9e3779b97f4a7c15);

	if (mask && (fake_get(t + 24) + 1) * 2 <= mask + 1) {
		memcpy(mine, entry, width);
		mine[0] = 0;
		for (i = hash >> t[16]; i < slots && (int8_t)mine[0] < (int8_t)t[17];
		     i++, mine[0]++) {
			if ((int8_t)e[i * width] < 0) {
				memcpy(e + i * width, mine, width);
				fake_put(t + 24, fake_get(t + 24) + 1);
				return;
			}
			if (e[i * width] < mine[0]) {
				memcpy(other, e + i * width, width);
				memcpy(e + i * width, mine, width);
				memcpy(mine, other, width);
			}
		}
		entry = mine; /* insert the displaced entry again, into a larger table */
	}
	fake_table_size(w, t, width, mask ? (unsigned)__builtin_popcountll(mask) + 1 : 2);
	for (i = 0; mask && i < slots; i++) {
		if ((int8_t)e[i * width] >= 0)
			fake_table_add(w, t, width, e + i * width);
	}
	memcpy(other, entry, width);
	fake_table_add(w, t, width, other);
}

/* ---- the allocator ---- */

static inline void fake_pool_init(const struct fake_layout *l, uint8_t *pool, bool small,
				  void *owner)
{
	for (size_t i = 0; i < l->sets; i++)
		fake_set_init(pool + i * 48);
	pool[l->sets * 48] = small;
	fake_put(pool + l->sets * 48 + 8, (uintptr_t)owner);
}

static inline struct fake_world *fake_world__new(const struct fake_layout *l, size_t ndevices)
{
	static char name[] = "N3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocatorE";
	struct fake_world *w = calloc(1, sizeof(*w));

	if (!w)
		abort();
	w->l = l;
	w->object = fake_alloc(w, FAKE_OBJECT);
	w->slot = w->object;
	w->typeinfo[1] = name;
	w->vtable[1] = w->typeinfo;
	fake_put(w->object, (uintptr_t)&w->vtable[2]);
	for (size_t i = 0; i < l->nmaps; i++)
		fake_table_init(w, w->object + l->maps + i * 32, 24);
	w->ndevices = ndevices;
	for (size_t i = 0; i < ndevices; i++) {
		uint8_t *d = fake_alloc(w, FAKE_DEVICE);

		w->devices[i] = w->vector[i] = d;
		fake_pool_init(l, d + l->large, false, NULL);
		fake_pool_init(l, d + l->large + l->pool_size, true, NULL);
		fake_table_init(w, d + l->active, 16);
		fake_table_init(w, d + l->graph_pools, 32);
	}
	if (ndevices) {
		fake_put(w->object + l->devices, (uintptr_t)w->vector);
		fake_put(w->object + l->devices + 8, (uintptr_t)(w->vector + ndevices));
		fake_put(w->object + l->devices + 16, (uintptr_t)(w->vector + ndevices));
	}
	return w;
}

static inline void fake_world__free(struct fake_world *w)
{
	for (size_t i = 0; w && i < w->nmem; i++)
		FAKE_FREE(w->mem[i]);
	free(w);
}

/* Id of a private pool: {0, index + 1}. */
static inline uint8_t *fake_pool(struct fake_world *w, const struct fake_segment *s)
{
	const struct fake_layout *l = w->l;
	uint8_t **p = &w->private[s->device][s->private < 0 ? 0 : s->private], entry[32] = { 0 };

	if (s->private < 0)
		return w->devices[s->device] + l->large + (s->small ? l->pool_size : 0);
	if (!*p) {
		*p = fake_alloc(w, 32 + 2 * l->pool_size);
		fake_put(*p, 1);
		fake_pool_init(l, *p + 16, false, *p);
		fake_pool_init(l, *p + 16 + l->pool_size, true, *p);
		fake_put(entry + 16, (uint64_t)s->private + 1);
		fake_put(entry + 24, (uintptr_t)*p);
		fake_table_add(w, w->devices[s->device] + l->graph_pools, 32, entry);
	}
	return *p + 16 + (s->small ? l->pool_size : 0);
}

static inline void fake_stat(uint8_t *device, size_t at, bool small, uint64_t amount)
{
	for (int i = 0; i < 2; i++) {
		uint8_t *stat = device + at + (i ? (small ? 32 : 64) : 0);

		for (int k = 0; k < 3; k++) /* current, peak, allocated */
			fake_put(stat + k * 8, fake_get(stat + k * 8) + amount);
	}
}

static inline void fake_count(struct fake_world *w, const struct fake_segment *s,
			      const struct fake_block *b)
{
	uint8_t *d = w->devices[s->device];
	bool live = b->state == FAKE_LIVE, active = live || b->state == FAKE_PENDING;

	fake_stat(d, 0x28, s->small, live);
	fake_stat(d, 0x28 + 2 * 96, s->small, active);
	fake_stat(d, 0x28 + 4 * 96, s->small, live ? b->size : 0);
	fake_stat(d, 0x28 + 5 * 96, s->small, b->state != FAKE_UNMAPPED ? b->size : 0);
	fake_stat(d, w->l->active_bytes, s->small, active ? b->size : 0);
	fake_stat(d, w->l->requested_bytes, s->small, active ? b->requested : 0);
}

static inline void fake_world__add(struct fake_world *w, const struct fake_segment *s)
{
	const struct fake_layout *l = w->l;
	uint8_t *pool = fake_pool(w, s), *prev = NULL, *d = w->devices[s->device],
		entry[32] = { 0 };
	uint64_t addr = s->addr;

	fake_stat(d, 0x28 + 96, s->small, 1);
	for (size_t i = 0; i < s->n; i++) {
		const struct fake_block *b = &s->blocks[i];
		uint8_t *block = fake_alloc(w, l->block_size);

		block[0] = s->device;
		fake_put(block + 8, s->stream);
		fake_table_init(w, block + 16, 24);
		fake_put(block + l->size, b->size);
		fake_put(block + l->requested, b->requested);
		fake_put(block + l->pool, (uintptr_t)pool);
		fake_put(block + l->ptr, addr);
		block[l->allocated] = b->state == FAKE_LIVE;
		block[l->allocated + 1] = b->state != FAKE_UNMAPPED;
		fake_put(block + l->prev, (uintptr_t)prev);
		if (prev)
			fake_put(prev + l->next, (uintptr_t)block);
		if (s->expandable)
			fake_put(block + l->expandable, (uintptr_t)w->object);
		fake_count(w, s, b);
		if (b->state == FAKE_CACHED)
			fake_set_add(w, pool, block);
		if (b->state == FAKE_UNMAPPED)
			fake_set_add(w, pool + (l->sets - 1) * 48, block);
		fake_put(entry + 8, (uintptr_t)block);
		if (b->state == FAKE_LIVE || b->state == FAKE_PENDING)
			fake_table_add(w, d + l->active, 16, entry);
		fake_put(entry + 8, addr);
		fake_put(entry + 16, (uintptr_t)block);
		if (b->state == FAKE_LIVE)
			fake_table_add(w, w->object + l->maps + (addr / 512 % l->nmaps) * 32, 24,
				       entry);
		addr += b->size;
		prev = block;
	}
}
