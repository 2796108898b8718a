/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The sample of blocks inside malloc: bpf/malloc.bpf.h. */
#include "unit/cmocka.h"
#include "bpf_host.h"

#define STACK 0x7f0000000000ULL
#define EVERY (512ULL << 10)
#define LARGE (1ULL << 20) /* drawn for sure */
#define ENTRY 0x401000ULL
#define CALLER 0x402000ULL

#define ONE 1				      /* malloc(size) */
#define PRODUCT (2 | 1 << MT_MALLOC_COUNT_AT) /* calloc(n, size) */
#define AGAIN (2 | MT_MALLOC_OLD)	      /* realloc(old, size) */
#define ALIGNED (3 | MT_MALLOC_OUT)	      /* posix_memalign(&p, alignment, size) */

static uint64_t stack[64];

static int setup(void **state)
{
	host_reset();
	host.now = 5;
	host.func_ip = ENTRY;
	host.random = 1;
	memset(stack, 0, sizeof(stack));
	stack[0] = CALLER;
	host_add(STACK, sizeof(stack), stack);
	malloc_every = EVERY;
	return 0;
}

/* Calls a function of malloc with these arguments. True: the program asked to run at its return,
 * too, and has run there. */
static bool call(uint64_t how, uint64_t a, uint64_t b, uint64_t c, uint64_t result)
{
	struct pt_regs regs = { .di = a, .si = b, .dx = c, .sp = STACK, .ip = ENTRY };

	host.cookie = how;
	if (host_run(malloc_session, &regs))
		return false;
	regs.ip = CALLER;
	regs.sp += 8;
	regs.ax = result;
	assert_int_equal(host_run(malloc_session, &regs), 0);
	return true;
}

static void release(uint64_t addr)
{
	struct pt_regs regs = { .di = addr, .sp = STACK, .ip = ENTRY };

	host_run(malloc_free, &regs);
}

static uint64_t counted(uint32_t which)
{
	uint32_t key = 0;
	const struct counters *c = bpf_map_lookup_elem(&counters, &key);

	return c->c[which];
}

/* Each hit has one outcome. */
static void check_hits(void)
{
	static const uint8_t types[] = { MT_REC_MALLOC, MT_REC_MALLOC_FREE };

	for (size_t k = 0; k < sizeof(types); k++) {
		uint64_t records = 0;

		for (size_t i = 0; i < host.records; i++)
			records += ((const struct mt_hdr *)host.record[i].data)->type == types[k];
		assert_int_equal(counted(MT_CNT_HIT + types[k]),
				 records + counted(MT_CNT_FILTERED + types[k]) +
					 counted(MT_CNT_RING_LOST + types[k]));
	}
	assert_int_equal(host.open, 0);
}

static const struct mt_rec_malloc *block(size_t i)
{
	const struct mt_rec_malloc *r = host.record[i].data;

	assert_true(i < host.records);
	assert_int_equal(r->h.type, MT_REC_MALLOC);
	return r;
}

static uint64_t freed(size_t i)
{
	const struct mt_rec_free *r = host.record[i].data;

	assert_true(i < host.records);
	assert_int_equal(r->h.type, MT_REC_MALLOC_FREE);
	return r->addr;
}

static void large_blocks(void **state)
{
	assert_true(call(ONE, LARGE, 0, 0, 0x1000));
	assert_int_equal(block(0)->addr, 0x1000);
	assert_int_equal(block(0)->size, LARGE);
	assert_int_equal(block(0)->every, EVERY);
	assert_true(block(0)->entered < block(0)->h.time);
	assert_true(call(PRODUCT, 1024, 1024, 0, 0x2000));
	assert_int_equal(block(1)->size, LARGE);
	release(0x1000);
	release(0x1000); /* not in the sample any more */
	release(0);
	assert_int_equal(host.records, 3);
	assert_int_equal(freed(2), 0x1000);
	check_hits();
}

/* Bytes of drawn blocks, each counted as EVERY, are those of all blocks on average. */
static void draws(void **state)
{
	const uint64_t size = 1000, n = 200000;
	uint64_t drawn = 0;

	malloc_sets = 1;
	for (uint64_t i = 0; i < n; i++) {
		drawn += call(ONE, size, 0, 0, 0x1000);
		release(0x1000);
		host_drop_records();
		host.room = HOST_RECORDS;
	}
	/* 381 are expected; five standard deviations are 98. */
	assert_in_range(drawn, n * size / EVERY - 98, n * size / EVERY + 98);
}

static void results(void **state)
{
	assert_true(call(ONE, LARGE, 0, 0, 0)); /* no memory */
	assert_false(call(ONE, 0, 0, 0, 0x1000));
	assert_false(call(PRODUCT, 1ULL << 40, 1ULL << 40, 0, 0)); /* overflow */
	assert_false(call(ONE, MT_MALLOC_MAX + 1, 0, 0, 0));
	stack[8] = 0x3000;
	assert_true(call(ALIGNED, STACK + 64, 64, LARGE, 12)); /* ENOMEM */
	assert_int_equal(host.records, 0);
	assert_true(call(ALIGNED, STACK + 64, 64, LARGE, 0));
	assert_int_equal(block(0)->addr, 0x3000);
	assert_true(call(ALIGNED, 0x10, 64, LARGE, 0)); /* unreadable */
	assert_int_equal(host.records, 1);
	check_hits();
}

static void reallocations(void **state)
{
	assert_true(call(AGAIN, 0, LARGE, 0, 0x1000));
	/* in place */
	assert_true(call(AGAIN, 0x1000, 2 * LARGE, 0, 0x1000));
	assert_int_equal(freed(1), 0x1000);
	assert_int_equal(block(2)->size, 2 * LARGE);
	/* moves */
	assert_true(call(AGAIN, 0x1000, 3 * LARGE, 0, 0x2000));
	assert_int_equal(freed(3), 0x1000);
	assert_int_equal(block(4)->addr, 0x2000);
	/* fails: the block stays, with its size */
	assert_true(call(AGAIN, 0x2000, 1ULL << 46, 0, 0));
	assert_int_equal(freed(5), 0x2000);
	assert_int_equal(block(6)->addr, 0x2000);
	assert_int_equal(block(6)->size, 3 * LARGE);
	/* frees: not drawn, but its return tells */
	assert_true(call(AGAIN, 0x2000, 0, 0, 0));
	assert_int_equal(freed(7), 0x2000);
	assert_int_equal(host.records, 8);
	/* becomes small, and is most likely not drawn */
	host.random = 0xffffff00;
	assert_false(call(AGAIN, 0x5000, 1, 0, 0x5000));
	/* goes on as malloc() */
	assert_false(call(AGAIN | MT_MALLOC_FORWARDS, 0, LARGE, 0, 0x6000));
	assert_true(call(AGAIN | MT_MALLOC_FORWARDS, 0x6000, LARGE, 0, 0x6000));
	check_hits();
}

/* calloc() of some libraries calls malloc(): one block. realloc() may call malloc() and free(). */
static void inner_calls(void **state)
{
	struct pt_regs regs = { .di = LARGE, .sp = STACK + 64, .ip = ENTRY };

	malloc_own[3][0] = 0x500000;
	malloc_own[3][1] = 0x500100;
	stack[8] = CALLER;
	host.cookie = ONE;
	assert_int_equal(host_run(malloc_session, &regs), 0);
	stack[0] = 0x500010; /* the inner call's return address */
	assert_false(call(ONE, LARGE, 0, 0, 0x1000));
	regs.ip = CALLER;
	regs.sp += 8;
	regs.ax = 0x1000;
	host_run(malloc_session, &regs);
	assert_int_equal(host.records, 1);
	assert_int_equal(block(0)->addr, 0x1000);
	check_hits();
}

static void only_counts(void **state)
{
	malloc_every = 0;
	assert_false(call(ONE, LARGE, 0, 0, 0x1000));
	assert_false(call(AGAIN, 0x1000, LARGE, 0, 0x1000));
	release(0x1000);
	assert_int_equal(counted(MT_CNT_HIT + MT_REC_MALLOC), 2);
	assert_int_equal(counted(MT_CNT_HIT + MT_REC_MALLOC_FREE), 1);
	assert_int_equal(host.records, 0);
	check_hits();
}

/* Blocks beyond the table's room are left out, and counted. */
static void full(void **state)
{
	for (uint64_t i = 1; i <= MALLOC_WAYS + 3; i++)
		call(ONE, LARGE, 0, 0, i << 12);
	assert_int_equal(host.records, MALLOC_WAYS);
	assert_int_equal(counted(MT_CNT_MALLOC_FULL), 3);
	release(1 << 12);
	assert_true(call(ONE, LARGE, 0, 0, 0x100000));
	assert_int_equal(block(host.records - 1)->addr, 0x100000);
	check_hits();
}

static void without_memory(void **state)
{
	host.room = 0;
	assert_true(call(ONE, LARGE, 0, 0, 0x1000));
	assert_int_equal(counted(MT_CNT_RING_LOST + MT_REC_MALLOC), 1);
	release(0x1000);
	assert_int_equal(counted(MT_CNT_RING_LOST + MT_REC_MALLOC_FREE), 0); /* it is in no table */
	check_hits();
}

static void without_state(void **state)
{
	host.no_storage = true;
	assert_false(call(ONE, LARGE, 0, 0, 0x1000));
	assert_int_equal(counted(MT_CNT_RING_LOST + MT_REC_MALLOC), 1);
	check_hits();
}

/* Kernels without links that choose their returns: the return's program runs after each call. */
static void return_probes(void **state)
{
	struct pt_regs regs = { .di = LARGE, .sp = STACK, .ip = ENTRY };

	host.cookie = ONE;
	host_run(malloc_enter, &regs);
	regs.sp = STACK + 24; /* the return of another call */
	host_run(malloc_return, &regs);
	assert_int_equal(host.records, 0);
	regs.sp = STACK + 8;
	regs.ax = 0x1000;
	host_run(malloc_return, &regs);
	host_run(malloc_return, &regs);
	assert_int_equal(host.records, 1);
	check_hits();
}

static void stacks_are_copied(void **state)
{
	native_most = 10;
	assert_true(call(ONE, LARGE, 0, 0, 0x1000));
	assert_int_equal(host.records, 2);
	assert_int_equal(((const struct mt_hdr *)host.record[0].data)->type, MT_REC_NATIVE);
	assert_int_equal(((const struct mt_hdr *)host.record[0].data)->time, block(1)->entered);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(large_blocks, setup),
		cmocka_unit_test_setup(draws, setup),
		cmocka_unit_test_setup(results, setup),
		cmocka_unit_test_setup(reallocations, setup),
		cmocka_unit_test_setup(inner_calls, setup),
		cmocka_unit_test_setup(only_counts, setup),
		cmocka_unit_test_setup(full, setup),
		cmocka_unit_test_setup(without_memory, setup),
		cmocka_unit_test_setup(without_state, setup),
		cmocka_unit_test_setup(return_probes, setup),
		cmocka_unit_test_setup(stacks_are_copied, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
