/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Calls that are still active on aarch64, told by frame records: bpf/arch_arm64.bpf.h. */
#include "unit/cmocka.h"
#include "bpf_host.h"

#define AREA 0x4000
#define STACK 0x7f0000000000ULL
#define NODE 0x500000000000ULL
#define SIGNATURE 0x00a5000000000000ULL /* as a function with PAC puts it into x30 */

/*
 * A thread of the engine: frames from the outermost function to the one that ran the last node.
 * main_loop() calls run(), which calls evaluate(), whose stack pointer at its entry is NODE_SP.
 */
#define MAIN_RECORD (STACK + 0x3000)
#define RUN_RECORD (STACK + 0x2800)
#define NODE_SP (STACK + 0x2700)
#define NODE_RECORD (STACK + 0x2600)
#define INNER_SP (STACK + 0x1800)
#define IN_MAIN 0x4711000ULL /* return addresses */
#define IN_RUN 0x4711100ULL
#define IN_NODE 0x4711200ULL
#define IN_OTHER 0x4711300ULL
#define TRAMPOLINE 0x7ffff000ULL

static uint8_t stack[AREA], heap[AREA];

static void put(uint64_t addr, uint64_t v)
{
	memcpy(stack + (addr - STACK), &v, sizeof(v));
}

static void put_record(uint64_t at, uint64_t fp, uint64_t link)
{
	put(at, fp);
	put(at + 8, link);
}

static int setup(void **state)
{
	host_reset();
	host_trampoline = 0;
	memset(stack, 0, sizeof(stack));
	host_add(STACK, AREA, stack);
	host_add(NODE, AREA, heap);
	put_record(MAIN_RECORD, 0, 0);
	put_record(RUN_RECORD, MAIN_RECORD, IN_MAIN);
	return 0;
}

static struct pt_regs regs_at(uint64_t sp, uint64_t fp, uint64_t link)
{
	struct pt_regs regs = { .sp = sp };

	regs.regs[29] = fp;
	regs.regs[30] = link;
	return regs;
}

/* The engine's function begins to run a node, and saves its record. */
static void run_node(uint64_t sp, uint64_t caller, uint64_t link, uint64_t record)
{
	struct pt_regs regs = regs_at(sp, caller, link);

	regs.regs[2] = NODE;
	host_run(evaluate, &regs);
	put_record(record, caller, link);
}

/* enum mt_node of an allocation by a function that has this record above it. */
static uint8_t node_of_allocation(uint64_t sp, uint64_t record)
{
	struct pt_regs regs = regs_at(sp, record, IN_OTHER);

	regs.regs[1] = 0x1000;
	regs.regs[2] = 512;
	host_run(cpu_new, &regs);
	return ((const struct mt_hdr *)host.record[host.records - 1].data)->node;
}

static void node_that_runs(void **state)
{
	run_node(NODE_SP, RUN_RECORD, IN_RUN, NODE_RECORD);
	/* directly in the node's function, and in functions that it calls */
	assert_int_equal(node_of_allocation(NODE_RECORD, NODE_RECORD), MT_NODE_CURRENT);
	put_record(INNER_SP + 0x100, NODE_RECORD, IN_NODE);
	put_record(INNER_SP, INNER_SP + 0x100, IN_OTHER);
	assert_int_equal(node_of_allocation(INNER_SP, INNER_SP), MT_NODE_CURRENT);
	/* It has returned. */
	assert_int_equal(node_of_allocation(NODE_SP, RUN_RECORD), MT_NODE_NONE);
}

/* A frame that was left keeps its contents, and another function's frame may cover it. */
static void left_frame_that_nothing_overwrote(void **state)
{
	run_node(NODE_SP, RUN_RECORD, IN_RUN, NODE_RECORD);
	put_record(INNER_SP, RUN_RECORD, IN_RUN + 0x40); /* in the other function */
	assert_int_equal(node_of_allocation(INNER_SP, INNER_SP), MT_NODE_NONE);
	/* Its caller has returned, too. */
	run_node(NODE_SP, RUN_RECORD, IN_RUN, NODE_RECORD);
	put_record(INNER_SP, MAIN_RECORD, IN_MAIN + 0x40);
	assert_int_equal(node_of_allocation(INNER_SP, INNER_SP), MT_NODE_NONE);
	/* The event's function was called instead of it, and has no record yet. */
	run_node(NODE_SP, RUN_RECORD, IN_RUN, NODE_RECORD);
	assert_int_equal(node_of_allocation(NODE_SP - 16, RUN_RECORD), MT_NODE_NONE);
}

static void node_in_a_node(void **state)
{
	run_node(NODE_SP, RUN_RECORD, IN_RUN, NODE_RECORD);
	run_node(INNER_SP, NODE_RECORD, IN_NODE, INNER_SP - 0x100);
	assert_int_equal(node_of_allocation(INNER_SP - 0x200, INNER_SP - 0x100), MT_NODE_CURRENT);
	/* The inner one was left by an exception that the outer one caught. */
	put_record(INNER_SP - 0x180, NODE_RECORD, IN_NODE + 0x40);
	assert_int_equal(node_of_allocation(INNER_SP - 0x200, INNER_SP - 0x180), MT_NODE_CURRENT);
	assert_int_equal(node_of_allocation(NODE_SP, RUN_RECORD), MT_NODE_NONE);
}

static void signed_return_addresses(void **state)
{
	run_node(NODE_SP, RUN_RECORD, IN_RUN, NODE_RECORD);
	put_record(NODE_RECORD, RUN_RECORD, IN_RUN | SIGNATURE);
	assert_int_equal(node_of_allocation(NODE_RECORD, NODE_RECORD), MT_NODE_CURRENT);
	/* The probe is after the instruction that signs. */
	run_node(NODE_SP, RUN_RECORD, IN_RUN | SIGNATURE, NODE_RECORD);
	put_record(NODE_RECORD, RUN_RECORD, IN_RUN | SIGNATURE * 3);
	assert_int_equal(node_of_allocation(NODE_RECORD, NODE_RECORD), MT_NODE_CURRENT);
}

/* A return probe of another tool replaces the return address. */
static void return_probe_of_others(void **state)
{
	run_node(NODE_SP, RUN_RECORD, IN_RUN, NODE_RECORD);
	put_record(NODE_RECORD, RUN_RECORD, TRAMPOLINE);
	host_trampoline = TRAMPOLINE;
	assert_int_equal(node_of_allocation(NODE_RECORD, NODE_RECORD), MT_NODE_CURRENT);
}

/* What cannot be followed is unknown, and does not end the call. */
static void unreadable_records(void **state)
{
	static const uint64_t bad[] = {
		0, 4, STACK - 0x1000, STACK + AREA, INNER_SP + 4, UINT64_MAX
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		setup(state);
		run_node(NODE_SP, RUN_RECORD, IN_RUN, NODE_RECORD);
		if (bad[i] != STACK + AREA) /* above the caller: it has been left */
			assert_int_equal(node_of_allocation(INNER_SP, bad[i]), MT_NODE_UNKNOWN);
		put_record(INNER_SP, bad[i] == 0 ? 8 : bad[i], IN_OTHER);
		if (bad[i] != STACK + AREA)
			assert_int_equal(node_of_allocation(INNER_SP, INNER_SP), MT_NODE_UNKNOWN);
		put_record(INNER_SP, NODE_RECORD, IN_NODE);
		assert_int_equal(node_of_allocation(INNER_SP, INNER_SP), MT_NODE_CURRENT);
	}
	/* records that lead inward */
	put_record(INNER_SP, INNER_SP + 0x40, IN_OTHER);
	put_record(INNER_SP + 0x40, INNER_SP, IN_OTHER);
	assert_int_equal(node_of_allocation(INNER_SP, INNER_SP), MT_NODE_UNKNOWN);
	/* an absent page */
	put_record(INNER_SP, NODE_RECORD, IN_NODE);
	host.region[0].absent = true;
	assert_int_equal(node_of_allocation(INNER_SP, INNER_SP), MT_NODE_UNKNOWN);
	host.region[0].absent = false;
	assert_int_equal(node_of_allocation(INNER_SP, INNER_SP), MT_NODE_CURRENT);
	/* the end of the chain */
	put_record(INNER_SP, 0, 0);
	assert_int_equal(node_of_allocation(INNER_SP, INNER_SP), MT_NODE_NONE);
}

/* A call's caller whose record is too far away to be kept. */
static void far_record(void **state)
{
	run_node(NODE_SP, NODE_SP + 8 * (MT_FP_WORDS + 1), IN_RUN, NODE_RECORD);
	assert_int_equal(node_of_allocation(INNER_SP, NODE_RECORD), MT_NODE_UNKNOWN);
}

/* ---- calls into CUDA ---- */

#define TAKE 3

static uint64_t counted(uint32_t which)
{
	uint32_t zero = 0;

	return bpf_map_lookup_elem(&counters, &zero)->c[which];
}

static void enter(uint64_t sp, uint64_t fp, uint64_t link, uint32_t flags)
{
	struct pt_regs regs = regs_at(sp, fp, link);

	regs.regs[0] = NODE;
	regs.regs[1] = NODE + 0x100;
	host.cookie = MT_CALL_COOKIE(TAKE, flags);
	host_run(call_enter, &regs);
}

/* The record of a call that returns to this stack pointer; NULL: none. */
static const struct mt_rec_call *leave_call(uint64_t sp)
{
	struct pt_regs regs = regs_at(sp, RUN_RECORD, 0);
	size_t before = host.records;

	host_run(call_return, &regs);
	return host.records == before ? NULL : host.record[before].data;
}

static void call_within_a_call(void **state)
{
	const struct mt_rec_call *r;

	host_trampoline = TRAMPOLINE;
	enter(NODE_SP, RUN_RECORD, IN_RUN, 0);
	put_record(NODE_RECORD, RUN_RECORD, TRAMPOLINE);
	put_record(INNER_SP, NODE_RECORD, IN_NODE);
	enter(INNER_SP, INNER_SP, IN_OTHER, 0);
	assert_int_equal(counted(MT_CNT_CALL_INNER), 1);
	/* a tail call: at the outer call's stack pointer, with its return address */
	enter(NODE_SP, RUN_RECORD, TRAMPOLINE, 0);
	assert_int_equal(counted(MT_CNT_CALL_INNER), 2);
	assert_null(leave_call(INNER_SP));
	r = leave_call(NODE_SP);
	assert_non_null(r);
	assert_int_equal(r->caller, IN_RUN);
	assert_int_equal(counted(MT_CNT_CALL_STALE), 0);
}

/* The call was left without a return, and another one begins. */
static void call_that_never_returned(void **state)
{
	host_trampoline = TRAMPOLINE;
	enter(INNER_SP, NODE_RECORD, IN_NODE, 0);
	put_record(INNER_SP - 0x100, NODE_RECORD, TRAMPOLINE);
	enter(NODE_SP, RUN_RECORD, IN_RUN, 0);
	assert_int_equal(counted(MT_CNT_CALL_STALE), 1);
	/* at the same stack pointer */
	enter(NODE_SP, RUN_RECORD, IN_RUN + 0x40, 0);
	assert_int_equal(counted(MT_CNT_CALL_STALE), 2);
	assert_int_equal(counted(MT_CNT_CALL_INNER), 0);
	assert_int_equal(leave_call(NODE_SP)->caller, IN_RUN + 0x40);
}

/* cudaMalloc3D(struct cudaPitchedPtr *, struct cudaExtent): the second is passed by its address. */
static void extent_in_memory(void **state)
{
	const uint64_t extent[3] = { 100, 7, 3 };
	const struct mt_rec_call *r;

	memcpy(heap + 0x100, extent, sizeof(extent));
	enter(NODE_SP, RUN_RECORD, IN_RUN, MT_CALL_EXTENT);
	r = leave_call(NODE_SP);
	assert_non_null(r);
	assert_int_equal(r->arg[2], 7);
	assert_int_equal(r->arg[3], 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(node_that_runs, setup),
		cmocka_unit_test_setup(left_frame_that_nothing_overwrote, setup),
		cmocka_unit_test_setup(node_in_a_node, setup),
		cmocka_unit_test_setup(signed_return_addresses, setup),
		cmocka_unit_test_setup(return_probe_of_others, setup),
		cmocka_unit_test_setup(unreadable_records, setup),
		cmocka_unit_test_setup(far_record, setup),
		cmocka_unit_test_setup(call_within_a_call, setup),
		cmocka_unit_test_setup(call_that_never_returned, setup),
		cmocka_unit_test_setup(extent_in_memory, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
