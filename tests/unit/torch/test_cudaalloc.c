/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The reader of PyTorch's allocator, on allocators built in this process. e2e/test_census.py covers
 * the real one. */
#include "unit/cmocka.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_cudaalloc.h"
#include "inspect/cudaalloc.h"
#include "inspect/proc.h"
#include "inspect/torch/cudaalloc_internal.h"

#define LAYOUTS (sizeof(fake_layouts) / sizeof(fake_layouts[0]))
#define BASE UINT64_C(0x7f4000000000)
#define MIB (UINT64_C(1) << 20)

static struct proc *self;

static int setup(void **state)
{
	self = proc__open(getpid());
	return self ? 0 : -1;
}

static int teardown(void **state)
{
	proc__free(self);
	return 0;
}

static void open_world(struct fake_world *w, struct cudaalloc *a)
{
	memset(a, 0, sizeof(*a));
	a->proc = self;
	a->slot = (uintptr_t)&w->slot;
	a->active_bytes = a->requested_bytes = -1;
}

static const struct fake_block mixed[] = {
	{ 512, 4, FAKE_LIVE },	   { 1024, 1000, FAKE_LIVE },	 { 512, 512, FAKE_CACHED },
	{ 4096, 3000, FAKE_LIVE }, { 2048, 1500, FAKE_PENDING }, { 2 * MIB - 8192, 0, FAKE_CACHED },
};
static const struct fake_block one[] = { { 20 * MIB, 20 * MIB - 77, FAKE_LIVE } };
static const struct fake_block cached[] = { { 32 * MIB, 0, FAKE_CACHED } };
static const struct fake_block holes[] = {
	{ 2 * MIB, 2 * MIB - 1, FAKE_LIVE }, { 4 * MIB, 0, FAKE_CACHED },
	{ 40 * MIB, 0, FAKE_UNMAPPED },	     { 6 * MIB, 6 * MIB, FAKE_LIVE },
	{ 90 * MIB, 0, FAKE_UNMAPPED },
};

#define SEGMENT(b, ...)                                                                            \
	{                                                                                          \
		.private = -1, .blocks = (b), .n = sizeof(b) / sizeof((b)[0]), __VA_ARGS__         \
	}
static const struct fake_segment all_kinds[] = {
	SEGMENT(mixed, .addr = BASE, .small = true),
	SEGMENT(one, .addr = BASE + 64 * MIB),
	SEGMENT(cached, .addr = BASE + 128 * MIB, .stream = 0x5555aaaa0),
	SEGMENT(holes, .addr = BASE + 1024 * MIB, .expandable = true),
	SEGMENT(mixed, .addr = BASE + 2 * MIB, .small = true, .stream = 0x5555aaaa0),
	SEGMENT(mixed, .addr = BASE + 4096 * MIB, .device = 1, .small = true),
	{ .addr = BASE + 256 * MIB, .private = 0, .blocks = mixed, .n = 6, .small = true },
	/* in a MemPool whose allocator aligns to 256 bytes, cudaMalloc's guarantee */
	{ .addr = BASE + 300 * MIB + 256, .private = 1, .blocks = one, .n = 1 },
};
#define KINDS (sizeof(all_kinds) / sizeof(all_kinds[0]))

static const struct cuda_block *find_block(const struct cudaalloc_state *s, uint64_t addr)
{
	for (size_t i = 0; i < s->nblocks; i++) {
		if (s->blocks[i].addr == addr)
			return &s->blocks[i];
	}
	return NULL;
}

/* Each mapped block of the list is in the state with its segment; returns the number of blocks. */
static size_t check_segment(const struct cudaalloc_state *s, const struct fake_segment *seg)
{
	static const uint8_t states[] = { CUDA_BLOCK_LIVE, CUDA_BLOCK_PENDING, CUDA_BLOCK_CACHED };
	uint64_t addr = seg->addr;
	size_t n = 0;

	for (size_t i = 0; i < seg->n; addr += seg->blocks[i++].size) {
		const struct fake_block *want = &seg->blocks[i];
		const struct cuda_block *b = find_block(s, addr);
		const struct cuda_segment *g;

		if (want->state == FAKE_UNMAPPED) {
			assert_null(b);
			continue;
		}
		assert_non_null(b);
		assert_int_equal(b->size, want->size);
		assert_int_equal(b->requested, want->state == FAKE_CACHED ? 0 : want->requested);
		assert_int_equal(b->state, states[want->state]);
		assert_int_equal(b->stream, seg->stream);
		assert_int_equal(b->device, seg->device);
		assert_true(b->segment < s->nsegments);
		g = &s->segments[b->segment];
		assert_true(g->addr <= addr && addr + want->size <= g->addr + g->size);
		assert_int_equal(g->small, seg->small);
		assert_int_equal(g->expandable, seg->expandable);
		assert_int_equal(g->pool[0], 0);
		assert_int_equal(g->pool[1], seg->private + 1);
		assert_true(g->whole);
		n++;
	}
	return n;
}

static void check_all(const struct cudaalloc_state *s, const struct fake_segment *segments,
		      size_t n)
{
	size_t blocks = 0;

	for (size_t i = 0; i < n; i++)
		blocks += check_segment(s, &segments[i]);
	assert_int_equal(s->nblocks, blocks);
	for (size_t i = 1; i < s->nsegments; i++)
		assert_true(s->segments[i - 1].addr + s->segments[i - 1].size <=
			    s->segments[i].addr);
}

static void test_every_kind_in_every_layout(void **state)
{
	for (size_t l = 0; l < LAYOUTS; l++) {
		struct fake_world *w = fake_world__new(&fake_layouts[l], 2);
		struct cudaalloc_state s;
		struct cudaalloc a;

		for (size_t i = 0; i < KINDS; i++)
			fake_world__add(w, &all_kinds[i]);
		open_world(w, &a);
		if (cudaalloc__calibrate(&a))
			fail_msg("layout %zu: %s", l, cudaalloc__why(&a));
		assert_int_equal(cudaalloc__devices(&a), 2);
		assert_int_equal(cudaalloc__read(&a, &s), 0);
		assert_string_equal(s.why, "");
		assert_true(s.consistent);
		assert_int_equal(s.ndevices, 2);
		assert_int_equal(s.nsegments, KINDS + 1); /* the hole divides a segment */
		assert_true(s.devices[0].more_known);
		assert_int_equal(s.devices[1].after.allocated, 512 + 1024 + 4096);
		assert_int_equal(s.devices[1].after.active, 512 + 1024 + 4096 + 2048);
		assert_int_equal(s.devices[1].after.requested, 4 + 1000 + 3000 + 1500);
		assert_int_equal(s.devices[1].after.reserved, 2 * MIB);
		check_all(&s, all_kinds, KINDS);
		cudaalloc_state__free(&s);
		fake_world__free(w);
	}
}

/* An empty allocator, one block that fills its segment, everything. */
static void test_before_and_after_first_use(void **state)
{
	struct fake_world *unused = fake_world__new(&fake_layouts[1], 0),
			  *w = fake_world__new(&fake_layouts[1], 2);
	struct cudaalloc_state s;
	struct cudaalloc a;

	open_world(unused, &a);
	assert_int_equal(cudaalloc__calibrate(&a), -EAGAIN);
	assert_int_equal(a.backend, ALLOC_NATIVE);
	assert_int_equal(cudaalloc__devices(&a), 0);
	assert_int_equal(cudaalloc__read(&a, &s), -EINVAL);
	unused->slot = w->object; /* created again */
	assert_int_equal(cudaalloc__calibrate(&a), -EAGAIN);
	assert_non_null(strstr(cudaalloc__why(&a), "nothing is allocated"));
	assert_int_equal(cudaalloc__devices(&a), 2);
	fake_world__add(w, &all_kinds[1]);
	assert_int_equal(cudaalloc__calibrate(&a), 0);
	assert_int_equal(cudaalloc__read(&a, &s), 0);
	assert_true(s.consistent);
	check_all(&s, &all_kinds[1], 1);
	cudaalloc_state__free(&s);
	for (size_t i = 2; i < KINDS; i++)
		fake_world__add(w, &all_kinds[i]);
	assert_int_equal(cudaalloc__read(&a, &s), 0);
	assert_true(s.consistent);
	check_all(&s, &all_kinds[1], KINDS - 1);
	cudaalloc_state__free(&s);
	unused->slot = unused->object;
	assert_int_equal(cudaalloc__read(&a, &s), -ESTALE);
	fake_world__free(unused);
	fake_world__free(w);
}

static void test_other_backends(void **state)
{
	static char async[] =
		"N3c104cuda20CUDACachingAllocator15CudaMallocAsync24CudaMallocAsyncAllocatorE";
	static char pluggable[] = "N5torch4cuda20CUDAPluggableAllocator20CUDAPluggableAllocatorE";
	static char other[] = "7MyOwnAt";
	struct fake_world *w = fake_world__new(&fake_layouts[1], 1);
	struct cudaalloc a;

	open_world(w, &a);
	w->typeinfo[1] = async;
	assert_int_equal(cudaalloc__calibrate(&a), -ENOTSUP);
	assert_int_equal(cudaalloc__backend(&a), ALLOC_CUDA_ASYNC);
	assert_string_equal(cudaalloc__type(&a), async);
	w->typeinfo[1] = pluggable;
	assert_int_equal(cudaalloc__calibrate(&a), -ENOTSUP);
	assert_int_equal(cudaalloc__backend(&a), ALLOC_PLUGGABLE);
	w->typeinfo[1] = other;
	assert_int_equal(cudaalloc__calibrate(&a), -ENOTSUP);
	assert_int_equal(cudaalloc__backend(&a), ALLOC_UNKNOWN);
	w->vtable[1] = (void *)16;
	assert_int_equal(cudaalloc__calibrate(&a), -ENOTSUP);
	assert_int_equal(cudaalloc__backend(&a), ALLOC_UNKNOWN);
	w->slot = NULL;
	assert_int_equal(cudaalloc__calibrate(&a), -EAGAIN);
	assert_int_equal(cudaalloc__backend(&a), ALLOC_NONE);
	w->slot = (void *)64;
	assert_int_equal(cudaalloc__calibrate(&a), -ENOTSUP);
	fake_world__free(w);
}

/* ---- damage ---- */

static uint8_t *block_at(const struct fake_world *w, uint64_t addr)
{
	for (size_t i = 0; i < w->nmem; i++) {
		uint8_t *p = w->mem[i];

		/* the chunk has the size of a Block, as its header says */
		if (fake_get(p + 8) == 0 && (uint8_t *)(uintptr_t)fake_get(p + 16) != NULL &&
		    p[16 + 17] == 3 && fake_get(p + w->l->ptr) == addr)
			return p;
	}
	fail_msg("no block at that address");
	return NULL;
}

struct damaged {
	struct fake_world *w;
	struct cudaalloc a;
	struct cudaalloc_state s;
};

static void begin_damage(struct damaged *d)
{
	d->w = fake_world__new(&fake_layouts[1], 1);
	fake_world__add(d->w, &all_kinds[0]);
	fake_world__add(d->w, &all_kinds[1]);
	open_world(d->w, &d->a);
	assert_int_equal(cudaalloc__calibrate(&d->a), 0);
}

/* Reads the allocator, which must be torn; true if the block is found. */
static bool still_there(struct damaged *d, uint64_t addr)
{
	bool found;

	assert_int_equal(cudaalloc__read(&d->a, &d->s), 0);
	assert_false(d->s.consistent);
	assert_true(d->s.why[0]);
	found = find_block(&d->s, addr) != NULL;
	for (size_t i = 0; i < d->s.nblocks; i++)
		assert_true(d->s.blocks[i].segment < d->s.nsegments);
	cudaalloc_state__free(&d->s);
	return found;
}

static void end_damage(struct damaged *d)
{
	fake_world__free(d->w);
}

static void test_a_block_that_is_not_certain_is_left_out(void **state)
{
	const struct fake_layout *l = &fake_layouts[1];
	struct damaged d;
	uint8_t *b;

	begin_damage(&d);
	b = block_at(d.w, BASE + 512);
	/* reused for other memory: the map's entry is old */
	fake_put(b + l->ptr, BASE + 9 * MIB);
	assert_false(still_there(&d, BASE + 512));
	assert_false(still_there(&d, BASE + 9 * MIB));
	fake_put(b + l->ptr, BASE + 512);
	/* its memory was reused: an unknown pool, invalid sizes */
	fake_put(b + l->pool, fake_get(b + l->pool) + 8);
	assert_false(still_there(&d, BASE + 512));
	fake_put(b + l->pool, fake_get(b + l->pool) - 8);
	fake_put(b + l->size, 1025);
	assert_false(still_there(&d, BASE + 512));
	fake_put(b + l->size, UINT64_MAX & ~UINT64_C(511));
	assert_false(still_there(&d, BASE + 512));
	fake_put(b + l->size, 1024);
	fake_put(b + l->requested, 1025);
	assert_false(still_there(&d, BASE + 512));
	fake_put(b + l->requested, 0);
	assert_false(still_there(&d, BASE + 512));
	fake_put(b + l->requested, 1000);
	b[0] = 1;
	assert_false(still_there(&d, BASE + 512));
	b[0] = 0;
	b[l->allocated] = 7;
	assert_false(still_there(&d, BASE + 512));
	b[l->allocated] = 1;
	assert_int_equal(cudaalloc__read(&d.a, &d.s), 0);
	assert_true(d.s.consistent);
	check_all(&d.s, all_kinds, 2);
	cudaalloc_state__free(&d.s);
	end_damage(&d);
}

/* A freed block is not live, even if the map still has it. */
static void test_freed_meanwhile(void **state)
{
	struct damaged d;
	uint8_t *b;

	begin_damage(&d);
	b = block_at(d.w, BASE + 512);
	b[fake_layouts[1].allocated] = 0;
	assert_int_equal(cudaalloc__read(&d.a, &d.s), 0);
	assert_false(d.s.consistent);
	assert_non_null(find_block(&d.s, BASE + 512));
	assert_int_not_equal(find_block(&d.s, BASE + 512)->state, CUDA_BLOCK_LIVE);
	cudaalloc_state__free(&d.s);
	end_damage(&d);
}

/* Two live blocks overlap: both are uncertain; the others stay. */
static void test_two_in_one_place(void **state)
{
	const struct fake_layout *l = &fake_layouts[1];
	struct damaged d;

	begin_damage(&d);
	fake_put(block_at(d.w, BASE) + l->size, 1024);
	assert_false(still_there(&d, BASE));
	assert_false(still_there(&d, BASE + 512));
	assert_true(still_there(&d, BASE + 2048));
	assert_true(still_there(&d, BASE + 64 * MIB));
	end_damage(&d);
}

/* Cycles and invalid pointers end the walk, and valid parts are still found. */
static void test_broken_links(void **state)
{
	const struct fake_layout *l = &fake_layouts[1];
	struct damaged d;
	uint8_t *b;

	begin_damage(&d);
	b = block_at(d.w, BASE + 512);
	fake_put(b + l->next, (uintptr_t)b);
	assert_true(still_there(&d, BASE + 2048));
	fake_put(b + l->next, (uintptr_t)block_at(d.w, BASE));
	assert_true(still_there(&d, BASE + 2048));
	fake_put(b + l->next, 0x1000);
	assert_true(still_there(&d, BASE + 2048));
	fake_put(b + l->next, UINT64_MAX - 7);
	assert_true(still_there(&d, BASE + 2048));
	fake_put(b + l->next, 0);
	assert_true(still_there(&d, BASE + 2048));
	end_damage(&d);
}

static void test_broken_trees_and_tables(void **state)
{
	const struct fake_layout *l = &fake_layouts[1];
	struct damaged d;
	uint8_t *small, *map, *node;
	uint64_t keep;

	begin_damage(&d);
	small = d.w->devices[0] + l->large + l->pool_size;
	node = (uint8_t *)(uintptr_t)fake_get(small + 16);
	keep = fake_get(node + 16);
	fake_put(node + 16, (uintptr_t)node); /* a tree node that is its own child */
	assert_true(still_there(&d, BASE + 512));
	fake_put(node + 16, 0x1000);
	assert_true(still_there(&d, BASE + 512));
	fake_put(node + 16, keep);
	fake_put(small + 40, 1 << 23); /* more than exist */
	assert_true(still_there(&d, BASE + 512));
	fake_put(small + 40, 2);
	for (size_t i = 0; i < l->nmaps; i++) {
		map = d.w->object + l->maps + i * 32;
		keep = fake_get(map);
		fake_put(map, 0x1000);
		if (fake_get(map + 24))
			assert_true(still_there(&d, BASE + 64 * MIB) ||
				    i == (BASE + 64 * MIB) / 512 % l->nmaps);
		fake_put(map, keep);
	}
	assert_int_equal(cudaalloc__read(&d.a, &d.s), 0);
	assert_true(d.s.consistent);
	cudaalloc_state__free(&d.s);
	/* the allocator's list of devices is gone */
	fake_put(d.w->object + l->devices, 0);
	assert_int_equal(cudaalloc__read(&d.a, &d.s), -ESTALE);
	end_damage(&d);
}

static void test_totals_decide(void **state)
{
	struct damaged d;

	begin_damage(&d);
	fake_stat(d.w->devices[0], 0x28 + 4 * 96, true, 512);
	assert_true(still_there(&d, BASE + 512));
	assert_int_equal(cudaalloc__read(&d.a, &d.s), 0);
	assert_string_equal(d.s.why, "the blocks do not add up to the allocated total");
	cudaalloc_state__free(&d.s);
	fake_stat(d.w->devices[0], 0x28 + 4 * 96, true, (uint64_t)-512);
	fake_stat(d.w->devices[0], 0x28 + 5 * 96, true, 512);
	assert_int_equal(cudaalloc__read(&d.a, &d.s), 0);
	assert_string_equal(d.s.why, "the segments do not add up to the reserved total");
	cudaalloc_state__free(&d.s);
	end_damage(&d);
}

/* Hundreds of segments and thousands of blocks: several system calls, deep tables and trees. */
static void test_many(void **state)
{
	struct fake_world *w = fake_world__new(&fake_layouts[2], 1);
	struct fake_block blocks[40];
	struct cudaalloc_state s;
	struct cudaalloc a;
	size_t live = 0, all = 0;

	for (uint64_t i = 0; i < 150; i++) {
		struct fake_segment seg = { .addr = BASE + i * 2 * MIB,
					    .small = true,
					    .private = -1,
					    .stream = i % 3 * 0x100,
					    .blocks = blocks,
					    .n = 40 };
		uint64_t left = 2 * MIB;

		for (size_t k = 0; k < 40; k++) {
			blocks[k].size = k < 39 ? 512 * (1 + (i * 7 + k * 13) % 50) : left;
			blocks[k].requested = blocks[k].size - (i + k) % 500;
			blocks[k].state = (i + k * k) % 3 ? FAKE_LIVE : FAKE_CACHED;
			left -= blocks[k].size;
			live += blocks[k].state == FAKE_LIVE;
			all++;
		}
		fake_world__add(w, &seg);
	}
	open_world(w, &a);
	assert_int_equal(cudaalloc__calibrate(&a), 0);
	assert_int_equal(cudaalloc__read(&a, &s), 0);
	assert_string_equal(s.why, "");
	assert_int_equal(s.nblocks, all);
	assert_int_equal(s.nsegments, 150);
	assert_int_equal(s.devices[0].after.count, live);
	cudaalloc_state__free(&s);
	fake_world__free(w);
}

/* Frequent reads are of statistics only; counts have version-dependent offsets. */
static void test_figures(void **state)
{
	for (size_t i = 0; i < LAYOUTS; i++) {
		struct fake_world *w = fake_world__new(&fake_layouts[i], 2);
		struct cudaalloc_state s;
		struct cuda_figures v[4];
		struct cudaalloc a;
		uint8_t *counts;

		for (size_t k = 0; k < KINDS; k++)
			fake_world__add(w, &all_kinds[k]);
		open_world(w, &a);
		assert_int_equal(cudaalloc__figures(&a, v, 4), -EINVAL);
		assert_int_equal(cudaalloc__calibrate(&a), 0);
		assert_int_equal(cudaalloc__read(&a, &s), 0);
		counts = w->devices[0] + fake_layouts[i].requested_bytes + 96;
		fake_put(counts, 7);
		fake_put(counts + 8, 3);
		for (int round = 0; round < 3; round++) {
			assert_int_equal(cudaalloc__figures(&a, v, 4), 2);
			for (size_t d = 0; d < 2; d++) {
				assert_int_equal(v[d].allocated, s.devices[d].after.allocated);
				assert_int_equal(v[d].reserved, s.devices[d].after.reserved);
				assert_int_equal(v[d].blocks, s.devices[d].after.count);
				assert_int_equal(v[d].peak_allocated, v[d].allocated);
				assert_true(v[d].counts_known);
			}
			assert_true(v[0].retries == 7 && v[0].ooms == 3 && !v[1].ooms);
			/* Moved in the third round, then removed. */
			if (round == 1) {
				w->vector[2] = w->devices[0];
				w->vector[3] = w->devices[1];
				fake_put(w->object + fake_layouts[i].devices,
					 (uintptr_t)(w->vector + 2));
				fake_put(w->object + fake_layouts[i].devices + 8,
					 (uintptr_t)(w->vector + 4));
				fake_put(w->object + fake_layouts[i].devices + 16,
					 (uintptr_t)(w->vector + 4));
			}
		}
		assert_int_equal(cudaalloc__figures(&a, v, 1), 2);
		fake_put(counts + 8, UINT64_MAX);
		assert_int_equal(cudaalloc__figures(&a, v, 1), 2);
		assert_false(v[0].counts_known);
		fake_put(w->object + fake_layouts[i].devices + 8, 0);
		assert_int_equal(cudaalloc__figures(&a, v, 4), -ESTALE);
		cudaalloc_state__free(&s);
		fake_world__free(w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_kind_in_every_layout),
		cmocka_unit_test(test_before_and_after_first_use),
		cmocka_unit_test(test_other_backends),
		cmocka_unit_test(test_a_block_that_is_not_certain_is_left_out),
		cmocka_unit_test(test_freed_meanwhile),
		cmocka_unit_test(test_two_in_one_place),
		cmocka_unit_test(test_broken_links),
		cmocka_unit_test(test_broken_trees_and_tables),
		cmocka_unit_test(test_totals_decide),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_figures),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
