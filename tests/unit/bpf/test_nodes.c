/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The autograd node of an allocation as the kernel side reports it, also without task storage. */
#include "unit/cmocka.h"
#include "bpf_host.h"

#define AREA 0x2000
#define STACK 0x7f0000000000ULL
#define NODE 0x500000000000ULL
#define OUTER (STACK + 0x1800) /* address of an outer node's return address */
#define INNER (STACK + 0x1000)
#define RETURN 0x4711000ULL

static uint8_t stack[AREA], heap[AREA];

static int setup(void **state)
{
	host_reset();
	memset(stack, 0, sizeof(stack));
	host_add(STACK, AREA, stack);
	host_add(NODE, AREA, heap);
	return 0;
}

static void put(uint64_t addr, uint64_t v)
{
	memcpy(stack + (addr - STACK), &v, sizeof(v));
}

static void run_node(uint64_t sp, uint64_t node)
{
	struct pt_regs regs = { .dx = node, .sp = sp };

	put(sp, RETURN);
	host_run(evaluate, &regs);
}

/* enum mt_node of an allocation at this stack pointer. */
static uint8_t node_of_allocation(uint64_t sp)
{
	struct pt_regs regs = { .si = 0x1000, .dx = 512, .sp = sp };

	host_run(cpu_new, &regs);
	return ((const struct mt_hdr *)host.record[host.records - 1].data)->node;
}

static uint64_t counted(uint32_t which)
{
	uint32_t zero = 0;

	return bpf_map_lookup_elem(&counters, &zero)->c[which];
}

static void node_that_runs(void **state)
{
	run_node(INNER, NODE);
	assert_int_equal(node_of_allocation(INNER - 0x100), MT_NODE_CURRENT);
	assert_int_equal(node_of_allocation(INNER + 0x100), MT_NODE_NONE);
	assert_int_equal(counted(MT_CNT_NODE_FAULT), 0);
}

/* Without task storage, a running node is reported as unknown. */
static void node_without_storage(void **state)
{
	host.no_storage = true;
	run_node(INNER, NODE);
	assert_int_equal(node_of_allocation(INNER - 0x100), MT_NODE_UNKNOWN);
	assert_int_equal(counted(MT_CNT_NODE_FAULT), 1);
	/* The node returned: no node runs. */
	assert_int_equal(node_of_allocation(INNER + 0x100), MT_NODE_NONE);
	put(INNER, 0);
	assert_int_equal(node_of_allocation(INNER - 0x100), MT_NODE_NONE);
	/* Other threads' allocations are not affected. */
	put(INNER, RETURN);
	host.task.pid += MT_UNKEPT_NODES;
	assert_int_equal(node_of_allocation(INNER - 0x100), MT_NODE_NONE);
}

static void outer_node_outlasts_inner_one(void **state)
{
	host.no_storage = true;
	run_node(OUTER, NODE);
	run_node(INNER, NODE + 0x100);
	assert_int_equal(node_of_allocation(INNER + 0x100), MT_NODE_UNKNOWN);
	/* Storage is available now: the inner node is known, the outer one is not. */
	host.no_storage = false;
	run_node(INNER, NODE + 0x100);
	assert_int_equal(node_of_allocation(INNER - 0x100), MT_NODE_CURRENT);
	assert_int_equal(node_of_allocation(INNER + 0x100), MT_NODE_UNKNOWN);
	assert_int_equal(node_of_allocation(OUTER + 0x100), MT_NODE_NONE);
}

#ifdef __x86_64__

/* Reads of memory for a node that a frame with this value in rbx runs. */
static size_t reads_of_node(uint64_t bx, uint64_t ret)
{
	struct pt_regs regs = { .dx = NODE, .sp = INNER, .bx = bx };
	size_t before = host.reads;

	put(INNER, ret);
	host_run(evaluate, &regs);
	return host.reads - before;
}

/* The return address of the engine's loop is read now and then. Another frame's is read at once. */
static void node_of_the_same_caller(void **state)
{
	size_t reads = 0;

	assert_int_equal(reads_of_node(1, RETURN), 1);
	for (int i = 0; i < 3 * (CALLER_CALLS + 1); i++)
		reads += reads_of_node(1, RETURN);
	assert_int_equal(reads, 3);
	assert_int_equal(node_of_allocation(INNER - 0x100), MT_NODE_CURRENT);
	put(INNER, 0);
	assert_int_equal(node_of_allocation(INNER - 0x100), MT_NODE_NONE);
	assert_int_equal(reads_of_node(2, RETURN + 0x10), 1);
	assert_int_equal(node_of_allocation(INNER - 0x100), MT_NODE_CURRENT);
	/* A return probe's trampoline is not kept. */
	host_trampoline = 0x7fffffffe000;
	assert_int_equal(reads_of_node(3, host_trampoline), 1);
	assert_int_equal(reads_of_node(3, host_trampoline), 1);
	assert_int_equal(counted(MT_CNT_AGAIN_OTHER), 0);
	assert_int_equal(counted(MT_CNT_NODE_FAULT), 0);
}

/* Two places of one frame that call the engine's function would show in the counter. */
static void caller_with_two_places(void **state)
{
	bench_verify = 1;
	reads_of_node(1, RETURN);
	reads_of_node(1, RETURN + 0x10);
	assert_int_equal(node_of_allocation(INNER - 0x100), MT_NODE_CURRENT);
	bench_verify = 0;
	assert_int_equal(counted(MT_CNT_AGAIN_OTHER), 1);
}

#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(node_that_runs, setup),
		cmocka_unit_test_setup(node_without_storage, setup),
		cmocka_unit_test_setup(outer_node_outlasts_inner_one, setup),
#ifdef __x86_64__
		cmocka_unit_test_setup(node_of_the_same_caller, setup),
		cmocka_unit_test_setup(caller_with_two_places, setup),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
