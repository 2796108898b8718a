/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Records of system calls that change the address space: bpf/host.bpf.h. */
#include "unit/cmocka.h"
#include "bpf_host.h"

#define STACK 0x7f0000000000ULL
#define AREA (2 * MT_NATIVE_STACK)

static uint8_t stack[AREA];

static int setup(void **state)
{
	host_reset();
	host_pid = 1000;
	host.now = 5;
	for (size_t i = 0; i < sizeof(stack); i++)
		stack[i] = (uint8_t)(i * 7);
	host_add(STACK, AREA, stack);
	return 0;
}

static struct pt_regs call(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	return (struct pt_regs){
		.di = a, .si = b, .dx = c, .r10 = d, .sp = STACK, .ip = 0x4711, .bp = STACK + 64
	};
}

static int run(int (*program)(unsigned long long *), struct pt_regs *regs, uint64_t result)
{
	unsigned long long ctx[2] = { (uintptr_t)regs, result };

	return program(ctx);
}

static const struct mt_rec_host *last(void)
{
	const struct mt_rec_host *r;

	assert_true(host.records);
	r = host.record[host.records - 1].data;
	assert_int_equal(r->h.type, MT_REC_HOST);
	return r;
}

static void recorded(void **state)
{
	struct pt_regs map = call(0, 8192, 3, 0x22), remap = call(0x1000, 4096, 12288, 1),
		       heap = call(0x5000, 0, 0, 0), unmap = call(0x1000, 4096, 0, 0);

	run(host_mmap, &map, 0x7000);
	assert_int_equal(last()->call, MT_HOST_MMAP);
	assert_int_equal(last()->addr, 0x7000);
	assert_int_equal(last()->len, 8192);
	assert_int_equal(last()->to, 3);
	assert_int_equal(last()->flags, 0x22);
	run(host_mremap, &remap, 0x9000);
	assert_int_equal(last()->addr, 0x1000);
	assert_int_equal(last()->len, 4096);
	assert_int_equal(last()->to, 0x9000);
	assert_int_equal(last()->to_len, 12288);
	run(host_brk, &heap, 0x5000);
	assert_int_equal(last()->addr, 0x5000);
	host_drop_records();
	run(host_munmap, &unmap, 0);
	assert_int_equal(host.records, 1); /* without registers and stack */
	assert_int_equal(last()->addr, 0x1000);
	assert_int_equal(last()->stack, 0);
}

static void not_recorded(void **state)
{
	struct pt_regs regs = call(0x1000, 4096, 1, 0);

	run(host_mmap, &regs, -12ULL);
	run(host_munmap, &regs, -22ULL);
	run(host_mprotect, &regs, 0); /* read-only */
	host.task.tgid = 1001;
	run(host_mmap, &regs, 0x7000);
	host.task.tgid = 1000;
	stopped = 1;
	run(host_mmap, &regs, 0x7000);
	assert_int_equal(host.records, 0);
}

/* The tracepoint has the number of the call. */
static void by_number(void **state)
{
	static const struct {
		long number;
		uint32_t call;
	} all[] = { { SYS_MMAP, MT_HOST_MMAP },	    { SYS_MUNMAP, MT_HOST_MUNMAP },
		    { SYS_MREMAP, MT_HOST_MREMAP }, { SYS_BRK, MT_HOST_BRK },
		    { SYS_SHMAT, MT_HOST_SHMAT },   { SYS_MPROTECT, MT_HOST_MPROTECT } };
	struct pt_regs regs = call(0x1000, 4096, 3, 0);

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		regs.orig_ax = (unsigned long)all[i].number;
		run(host_any, &regs, 0x2000);
		assert_int_equal(last()->call, all[i].call);
	}
	host_drop_records();
	for (long n = 0; n < 500; n++) {
		regs.orig_ax = (unsigned long)n;
		run(host_any, &regs, 0x2000);
	}
	host_drop_records();
	regs.orig_ax = -1UL;
	run(host_any, &regs, 0x2000);
	assert_int_equal(host.records, 0);
}

#define MOST_STACKS 64 /* in a second */

/* Without a Python frame, the registers and the stack come first. */
static void native(void **state)
{
	struct pt_regs regs = call(0, 4096, 3, 0);
	const struct mt_rec_native *n;

	native_most = MOST_STACKS;
	run(host_mmap, &regs, 0x7000);
	assert_int_equal(host.records, 2);
	n = host.record[0].data;
	assert_int_equal(n->h.type, MT_REC_NATIVE);
	assert_int_equal(n->h.time, last()->h.time);
	assert_int_equal(n->h.tid, last()->h.tid);
	assert_int_equal(n->ip, 0x4711);
	assert_int_equal(n->sp, STACK);
	assert_int_equal(n->fp, STACK + 64);
	assert_int_equal(n->size, MT_NATIVE_STACK);
	assert_memory_equal(n + 1, stack, MT_NATIVE_STACK);
	/* near the end of the stack */
	host_drop_records();
	regs.sp = STACK + AREA - MT_NATIVE_STACK / 8;
	run(host_mmap, &regs, 0x7000);
	n = host.record[0].data;
	assert_int_equal(n->size, MT_NATIVE_STACK / 8);
	host_drop_records();
	regs.sp = STACK + AREA - 8;
	run(host_mmap, &regs, 0x7000);
	n = host.record[0].data;
	assert_int_equal(n->size, 0);
	assert_int_equal(last()->call, MT_HOST_MMAP);
}

static void put_c_frame(uint64_t at, uint64_t next, uint64_t ret)
{
	memcpy(stack + at, &next, sizeof(next));
	memcpy(stack + at + 8, &ret, sizeof(ret));
}

/* Frames that the frame pointers lead to outside of the copied stack, as in a program of Go. */
static void other_stack(void **state)
{
	const uint64_t far = STACK + AREA - 4096;
	struct pt_regs regs = call(0, 4096, 3, 0);
	const struct mt_rec_native *n;

	native_most = MOST_STACKS;
	memset(stack, 0, sizeof(stack));
	put_c_frame(64, STACK + 128, 0x100);
	put_c_frame(128, far, 0x200);
	put_c_frame(AREA - 4096, far + 64, 0x300);
	put_c_frame(AREA - 4096 + 64, 0, 0x400);
	run(host_mmap, &regs, 0x7000);
	n = host.record[0].data;
	assert_int_equal(n->n_far, 2);
	assert_int_equal(n->far[0], 0x300);
	assert_int_equal(n->far[1], 0x400);
	/* a circle there, and one in the copied stack */
	host_drop_records();
	put_c_frame(AREA - 4096 + 64, far, 0x400);
	run(host_mmap, &regs, 0x7000);
	n = host.record[0].data;
	assert_int_equal(n->n_far, MT_NATIVE_FAR);
	host_drop_records();
	put_c_frame(128, STACK + 64, 0x200);
	run(host_mmap, &regs, 0x7000);
	n = host.record[0].data;
	assert_int_equal(n->n_far, 0);
	/* anything in the register */
	host_drop_records();
	regs.bp = 0x1234;
	run(host_mmap, &regs, 0x7000);
	n = host.record[0].data;
	assert_int_equal(n->n_far, 0);
	assert_int_equal(n->size, MT_NATIVE_STACK);
}

static void native_is_bounded(void **state)
{
	struct pt_regs regs = call(0, 4096, 3, 0);

	run(host_mmap, &regs, 0x7000);
	assert_int_equal(host.records, 1); /* user space does not unwind stacks */
	host_drop_records();
	native_most = MOST_STACKS;
	for (int i = 0; i < MOST_STACKS + 5; i++)
		run(host_mmap, &regs, 0x7000);
	assert_int_equal(host.records, 2 * MOST_STACKS + 5);
	host_drop_records();
	host.now = 3ULL * 1000000000;
	run(host_mmap, &regs, 0x7000);
	assert_int_equal(host.records, 2);
	/* without room in the ring */
	host_drop_records();
	host.room = 0;
	run(host_mmap, &regs, 0x7000);
	assert_int_equal(host.records, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(recorded, setup),
		cmocka_unit_test_setup(not_recorded, setup),
		cmocka_unit_test_setup(by_number, setup),
		cmocka_unit_test_setup(native, setup),
		cmocka_unit_test_setup(other_stack, setup),
		cmocka_unit_test_setup(native_is_bounded, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
