/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Detail that the kernel side leaves out: struct mt_detail. */
#include "unit/cmocka.h"
#include "bpf_host.h"

#define AREA 0x2000
#define STACK 0x7f0000000000ULL
#define NODE 0x500000000000ULL
#define CALL (STACK + 0x1000)
#define RETURN 0x4711000ULL
#define ALLOCATIONS 20000

static uint8_t stack[AREA], heap[AREA];

static int setup(void **state)
{
	host_reset();
	memset(stack, 0, sizeof(stack));
	memcpy(stack + (CALL - STACK), &(uint64_t){ RETURN }, sizeof(uint64_t));
	host_add(STACK, AREA, stack);
	host_add(NODE, AREA, heap);
	return 0;
}

static const struct mt_rec_mem *allocate(uint64_t size)
{
	struct pt_regs regs = { .si = 0x1000, .dx = size, .sp = CALL - 0x100 };

	host_run(cpu_new, &regs);
	return (const void *)host.record[host.records - 1].data;
}

static void run_node(void)
{
	struct pt_regs regs = { .dx = NODE, .sp = CALL };

	host_run(evaluate, &regs);
}

static void forget_records(void)
{
	host_drop_records();
	host.room = HOST_RECORDS;
}

/* Share of allocations of this size that are walked. */
static double walked(uint64_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < ALLOCATIONS; i++) {
		const struct mt_rec_mem *r = allocate(size);

		assert_int_equal(r->size, size);
		n += r->h.walk != MT_WALK_NOT_SAMPLED;
		forget_records();
	}
	return (double)n / ALLOCATIONS;
}

static void small_allocations_are_drawn_by_size(void **state)
{
	assert_true(walked(1) == 1); /* no bound */
	detail.sample_below = 65536;
	assert_true(walked(65536) == 1);
	assert_true(walked(1 << 30) == 1);
	/* Five standard deviations are at most 0.018. */
	assert_true(walked(32768) > 0.48 && walked(32768) < 0.52);
	assert_true(walked(6554) > 0.08 && walked(6554) < 0.12);
	assert_true(walked(1) < 0.001);
	detail.sample_below = 1u << 30;
	assert_true(walked(1u << 29) > 0.48 && walked(1u << 29) < 0.52);
}

/* A node that began before the probe was removed may have ended, and another call of the engine has
 * the same place on the stack. */
static void nodes_of_an_earlier_generation_are_forgotten(void **state)
{
	run_node();
	assert_int_equal(allocate(512)->h.node, MT_NODE_CURRENT);
	detail.off = MT_OFF_NODES;
	detail.generation++;
	assert_int_equal(allocate(512)->h.node, MT_NODE_NONE);
	run_node(); /* its program may still run until the probe is removed */
	assert_int_equal(allocate(512)->h.node, MT_NODE_NONE);
	detail.off = 0;
	detail.generation++;
	assert_int_equal(allocate(512)->h.node, MT_NODE_NONE);
	run_node();
	assert_int_equal(allocate(512)->h.node, MT_NODE_CURRENT);
}

static void hits_are_timed(void **state)
{
	for (size_t i = 0; i < 64 * MT_TIMED_EVERY; i++) {
		allocate(512);
		forget_records();
	}
	assert_true(timed[MT_REC_CPU_NEW].hits >= 16);
	assert_true(timed[MT_REC_CPU_NEW].ns >= timed[MT_REC_CPU_NEW].hits);
	assert_int_equal(timed[MT_REC_CPU_DELETE].hits, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(small_allocations_are_drawn_by_size, setup),
		cmocka_unit_test_setup(nodes_of_an_earlier_generation_are_forgotten, setup),
		cmocka_unit_test_setup(hits_are_timed, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
