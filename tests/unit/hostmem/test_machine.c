/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The machine's ledger, made from the kernel's texts of several versions, and from bad ones. */
#include "unit/cmocka.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "gen_events.h"
#include "inspect/machine.h"
#include "unit/without_ptrace.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

/* Linux 5.10: without SecPageTables, Zswap, Balloon and the figures of GPUs. */
static const char old_meminfo[] = "MemTotal:       16000000 kB\n"
				  "MemFree:         1000000 kB\n"
				  "MemAvailable:    6000000 kB\n"
				  "Buffers:          100000 kB\n"
				  "Cached:          5100000 kB\n"
				  "SwapCached:            0 kB\n"
				  "Active:          6000000 kB\n"
				  "Active(anon):    3000000 kB\n"
				  "Inactive(anon):  4100000 kB\n"
				  "Mlocked:               0 kB\n"
				  "SwapTotal:       2000000 kB\n"
				  "SwapFree:        2000000 kB\n"
				  "Dirty:            300000 kB\n"
				  "Writeback:         20000 kB\n"
				  "AnonPages:       7000000 kB\n"
				  "Mapped:           800000 kB\n"
				  "Shmem:            100000 kB\n"
				  "KReclaimable:     450000 kB\n"
				  "Slab:             500000 kB\n"
				  "SReclaimable:     400000 kB\n"
				  "SUnreclaim:       100000 kB\n"
				  "KernelStack:       10000 kB\n"
				  "PageTables:        30000 kB\n"
				  "NFS_Unstable:          0 kB\n"
				  "Bounce:                0 kB\n"
				  "WritebackTmp:          0 kB\n"
				  "VmallocTotal:   34359738367 kB\n"
				  "VmallocUsed:       50000 kB\n"
				  "VmallocChunk:          0 kB\n"
				  "Percpu:             5000 kB\n"
				  "HardwareCorrupted:     0 kB\n"
				  "HugePages_Total:     512\n"
				  "HugePages_Free:      300\n"
				  "HugePages_Rsvd:      100\n"
				  "HugePages_Surp:        0\n"
				  "Hugepagesize:       2048 kB\n"
				  "Hugetlb:         1048576 kB\n";

static void make(const char *meminfo, struct machine_readings *r, struct machine_ledger *l)
{
	machine_readings__init(r);
	r->page = 4096;
	machine_readings__parse_meminfo(r, meminfo);
	machine_ledger__make(r, l);
}

/* The lines add up to MemTotal, and the parts of each to the line. */
static void check_sums(const struct machine_ledger *l)
{
	uint64_t sum = 0;

	for (int i = 0; i < MACHINE_LINES; i++) {
		uint64_t parts = 0;

		assert_non_null(l->line[i].name);
		assert_non_null(l->line[i].key);
		assert_true(i == MACHINE_UNEXPLAINED || l->line[i].bytes >= 0);
		sum += (uint64_t)l->line[i].bytes;
		for (size_t k = 0; k < l->line[i].parts; k++)
			parts += l->line[i].part[k].bytes;
		if (l->line[i].parts)
			assert_int_equal(parts, l->line[i].bytes);
	}
	assert_int_equal(sum, l->total);
}

static uint64_t part(const struct machine_ledger *l, enum machine_line_id line, const char *key)
{
	for (size_t i = 0; i < l->line[line].parts; i++)
		if (!strcmp(l->line[line].part[i].key, key))
			return l->line[line].part[i].bytes;
	fail_msg("%s has no part %s", l->line[line].name, key);
	return 0;
}

static void test_old_kernel(void **state)
{
	struct machine_readings r;
	struct machine_ledger l;

	make(old_meminfo, &r, &l);
	check_sums(&l);
	assert_int_equal(l.total, 16000000 * KIB);
	assert_int_equal(l.line[MACHINE_PROCESSES].bytes, 7000000 * KIB);
	/* Shared memory is a part of Cached. */
	assert_int_equal(l.line[MACHINE_CACHE].bytes, 5100000 * KIB);
	assert_int_equal(l.line[MACHINE_SHMEM].bytes, 100000 * KIB);
	assert_int_equal(part(&l, MACHINE_CACHE, "dirty"), 300000 * KIB);
	assert_int_equal(part(&l, MACHINE_CACHE, "writeback"), 20000 * KIB);
	assert_int_equal(l.line[MACHINE_SLAB].bytes, 500000 * KIB);
	/* Stacks are a part of VmallocUsed; KReclaimable has more than the slab. */
	assert_int_equal(part(&l, MACHINE_KERNEL, "vmalloc"), 40000 * KIB);
	assert_int_equal(part(&l, MACHINE_KERNEL, "drivers"), 50000 * KIB);
	assert_int_equal(l.line[MACHINE_KERNEL].bytes, 105000 * KIB);
	assert_int_equal(l.line[MACHINE_HUGE].bytes, GIB);
	assert_int_equal(part(&l, MACHINE_HUGE, "used"), 212 * 2 * MIB);
	assert_int_equal(part(&l, MACHINE_HUGE, "reserved"), 100 * 2 * MIB);
	assert_int_equal(part(&l, MACHINE_HUGE, "free"), 200 * 2 * MIB);
	assert_int_equal(l.line[MACHINE_FREE].bytes, 1000000 * KIB);
	assert_int_equal(
		l.line[MACHINE_UNEXPLAINED].bytes,
		(16000000 - 7000000 - 5200000 - 500000 - 30000 - 105000 - 1048576 - 1000000) * KIB);
	/* Figures that this kernel lacks are not 0. */
	assert_false(l.line[MACHINE_BALLOON].known || l.line[MACHINE_GPU].known ||
		     l.line[MACHINE_COMPRESSED].known);
	assert_int_equal(r.secondary_tables, MACHINE_NONE);
	assert_false(l.blocks_known);
}

static void test_new_kernel(void **state)
{
	struct machine_readings r;
	struct machine_ledger l;

	machine_readings__init(&r);
	r.page = 4096;
	machine_readings__parse_meminfo(&r, old_meminfo);
	machine_readings__parse_meminfo(&r, "SecPageTables:     7000 kB\nZswap: 90 kB\n"
					    "Balloon: 5000 kB\nGPUActive: 600000 kB\n"
					    "GPUReclaim: 100000 kB\nSwapCached: 3000 kB\n");
	assert_int_equal(r.secondary_tables, 7000 * KIB);
	machine_readings__parse_vmstat(&r, "nr_free_pages 1\nnr_zspages 25\nnr_zspages_more 7\n");
	machine_readings__parse_zoneinfo(&r, "Node 0, zone   Normal\n  pagesets\n    cpu: 0\n"
					     "              count:    100\n"
					     "              high:     9000\n"
					     "    cpu: 1\n              count:    28\n");
	machine_ledger__make(&r, &l);
	check_sums(&l);
	assert_int_equal(part(&l, MACHINE_TABLES, "secondary"), 7000 * KIB);
	assert_int_equal(l.line[MACHINE_COMPRESSED].bytes, 100 * KIB);
	assert_int_equal(l.line[MACHINE_GPU].bytes, 700000 * KIB);
	assert_int_equal(l.line[MACHINE_FREE].bytes, (1000000 + 128 * 4) * KIB);
	assert_int_equal(l.line[MACHINE_BALLOON].bytes, 5000 * KIB);
	/* 7,100,000 kB are on the lists of anonymous pages: private and shared memory, no more */
	assert_int_equal(l.line[MACHINE_SWAP_CACHE].bytes, 0);
}

static void test_shared_memory(void **state)
{
	struct machine_readings r;
	struct machine_ledger l;

	make(old_meminfo, &r, &l);
	r.tmpfs = 60000 * KIB;
	r.sysv = 30000 * KIB;
	machine_ledger__make(&r, &l);
	check_sums(&l);
	assert_int_equal(part(&l, MACHINE_SHMEM, "others"), 10000 * KIB);
	r.tmpfs = 900000 * KIB; /* most of it is swapped out */
	machine_ledger__make(&r, &l);
	check_sums(&l);
	assert_int_equal(part(&l, MACHINE_SHMEM, "tmpfs"), 100000 * KIB);
	assert_int_equal(part(&l, MACHINE_SHMEM, "sysv"), 0);
}

/* Pages that the kernel counts twice show as a negative rest, and the sum stays. */
static void test_counted_twice(void **state)
{
	struct machine_readings r;
	struct machine_ledger l;

	make(old_meminfo, &r, &l);
	r.anon += 9 * GIB;
	r.balloon = GIB;
	machine_ledger__make(&r, &l);
	check_sums(&l);
	assert_true(l.line[MACHINE_UNEXPLAINED].bytes < 0);
	assert_int_equal(l.line[MACHINE_BALLOON].bytes, 0);
}

static void test_free_blocks(void **state)
{
	struct machine_readings r;
	struct machine_ledger l;

	make(old_meminfo, &r, &l);
	machine_readings__parse_buddyinfo(
		&r, "Node 0, zone      DMA      0      0      0      0      0      0      0      0 "
		    "     1      1      3 \n"
		    "Node 0, zone   Normal   1365     80      2    129     72     27    272    133 "
		    "    44      2      5 \n");
	machine_ledger__make(&r, &l);
	check_sums(&l);
	assert_true(l.blocks_known);
	assert_int_equal(r.blocks[0], 1365);
	assert_int_equal(r.blocks[9], 3);
	assert_int_equal(l.large, (3 * 2 + 8 * 4) * MIB);
	assert_int_equal(l.large_blocks, 11);
	assert_int_equal(l.largest, 4 * MIB);
	assert_int_equal(part(&l, MACHINE_FREE, "large_blocks"), 38 * MIB);
	/* aarch64 with pages of 64 KiB */
	make(old_meminfo, &r, &l);
	r.page = 64 * KIB;
	machine_readings__parse_buddyinfo(&r, "Node 0, zone   DMA   1 2 3 4 5 6 7\nNode 1, zone\n");
	machine_ledger__make(&r, &l);
	check_sums(&l);
	assert_int_equal(l.large, (6 * 2 + 7 * 4) * MIB);
}

/* Random bytes in the kernel's texts: nothing is read behind the end, and sums stay. */
static void test_damage(void **state)
{
	struct gen g = { .rng = 46 };

	for (int i = 0; i < 2000; i++) {
		char text[sizeof(old_meminfo)];
		struct machine_readings r;
		struct machine_ledger l;

		memcpy(text, old_meminfo, sizeof(text));
		for (int k = 0; k < 12; k++)
			text[gen__random(&g) % (sizeof(text) - 1)] = (char)(gen__random(&g) % 96 +
									    32);
		text[gen__random(&g) % (sizeof(text) - 1)] = '\0';
		machine_readings__init(&r);
		machine_readings__parse_meminfo(&r, text);
		machine_readings__parse_vmstat(&r, text);
		machine_readings__parse_zoneinfo(&r, text);
		machine_readings__parse_buddyinfo(&r, text);
		if (r.total == MACHINE_NONE || r.free == MACHINE_NONE)
			continue;
		machine_ledger__make(&r, &l);
		check_sums(&l);
	}
	struct machine_readings r;

	machine_readings__init(&r);
	machine_readings__parse_meminfo(&r, "MemTotal: 99999999999999999999 kB\nMemFree: x\n");
	assert_int_equal(r.free, MACHINE_NONE);
}

/* This machine: less than 1 % is not explained beyond what a moment later is, and never counted
 * twice by much. */
static void test_this_machine(void **state)
{
	struct machine_readings r;
	struct machine_ledger l;

	assert_int_equal(machine_readings__read(&r), 0);
	machine_ledger__make(&r, &l);
	check_sums(&l);
	assert_true(l.line[MACHINE_UNEXPLAINED].bytes > -(int64_t)(l.total / 100));
	assert_true(l.line[MACHINE_PROCESSES].bytes > 0 && l.line[MACHINE_FREE].bytes > 0);
}

static int count_denied(void)
{
	struct machine_processes p = { 0 };
	struct machine_scan s = { 0 };

	return machine_scan__run(&s, &p) || !s.denied;
}

/* root of a container lists the descriptors of other processes, and cannot read their links. */
static void test_unreadable_links(void **state)
{
	int status = without_ptrace__run(count_denied);

	if (status == WITHOUT_PTRACE_ALREADY)
		skip();
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_old_kernel),    cmocka_unit_test(test_new_kernel),
		cmocka_unit_test(test_shared_memory), cmocka_unit_test(test_counted_twice),
		cmocka_unit_test(test_free_blocks),   cmocka_unit_test(test_damage),
		cmocka_unit_test(test_this_machine),  cmocka_unit_test(test_unreadable_links),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
