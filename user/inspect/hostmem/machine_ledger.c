/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <string.h>

#include "inspect/machine.h"

#define LARGE (UINT64_C(2) << 20) /* bytes of a large block: a huge page of x86-64 and aarch64 */

/* Fields that no kernel lacks are 0 if they are not known. */
static uint64_t or_none(uint64_t bytes)
{
	return bytes == MACHINE_NONE ? 0 : bytes;
}

/* a - b; 0 if that is below 0: the counters are read one after the other. */
static uint64_t surplus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t lower_of(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void add_part(struct machine_line *l, const char *name, const char *key, uint64_t bytes)
{
	l->part[l->parts].name = name;
	l->part[l->parts].key = key;
	l->part[l->parts++].bytes = bytes;
}

static struct machine_line *add_line(struct machine_ledger *ledger, enum machine_line_id id,
				     const char *name, const char *key, uint64_t bytes, bool known)
{
	ledger->line[id] = (struct machine_line){
		.name = name, .key = key, .bytes = (int64_t)bytes, .known = known
	};
	return &ledger->line[id];
}

/* Shared memory is a part of "Cached"; pages of block devices ("Buffers") are page cache, too. */
static void add_files(const struct machine_readings *readings, struct machine_ledger *ledger)
{
	uint64_t shmem = or_none(readings->shmem);
	uint64_t cache = surplus(or_none(readings->cached), shmem) + or_none(readings->buffers);
	uint64_t writeback = lower_of(or_none(readings->writeback), cache);
	uint64_t dirty = lower_of(or_none(readings->dirty), cache - writeback);
	struct machine_line *line;
	uint64_t tmpfs, sysv;

	line = add_line(ledger, MACHINE_CACHE, "page cache", "page_cache", cache, /*known=*/true);
	add_part(line, "clean", "clean", cache - writeback - dirty);
	add_part(line, "dirty", "dirty", dirty);
	add_part(line, "being written", "writeback", writeback);
	line = add_line(ledger, MACHINE_SHMEM, "shared memory", "shared_memory", shmem,
			/*known=*/true);
	/* Some of their pages may be swapped out. */
	tmpfs = lower_of(or_none(readings->tmpfs), shmem);
	sysv = lower_of(or_none(readings->sysv), shmem - tmpfs);
	add_part(line, "in tmpfs", "tmpfs", tmpfs);
	add_part(line, "System V", "sysv", sysv);
	add_part(line, "others", "others", shmem - tmpfs - sysv);
}

/* Adds what the kernel takes for itself: slab, page tables, and the rest. "Reclaimable" of
 * /proc/meminfo has the reclaimable slab, and what drivers can give back. */
static void add_kernel(const struct machine_readings *readings, struct machine_ledger *ledger)
{
	uint64_t slab = or_none(readings->slab_reclaimable) + or_none(readings->slab_unreclaimable);
	uint64_t misc = readings->reclaimable == MACHINE_NONE
				? 0
				: surplus(readings->reclaimable,
					  or_none(readings->slab_reclaimable));
	uint64_t tables = or_none(readings->page_tables);
	uint64_t secondary = or_none(readings->secondary_tables);
	uint64_t stacks = or_none(readings->kernel_stack);
	uint64_t percpu = or_none(readings->percpu);
	/* Kernel stacks lie in vmalloc's area, and its figure has them, too. */
	uint64_t vmalloc = surplus(or_none(readings->vmalloc), stacks);
	uint64_t others = or_none(readings->bounce) + or_none(readings->writeback_tmp) + misc;
	struct machine_line *line;

	line = add_line(ledger, MACHINE_SLAB, "slab", "slab", slab, /*known=*/true);
	add_part(line, "reclaimable", "reclaimable", or_none(readings->slab_reclaimable));
	add_part(line, "unreclaimable", "unreclaimable", or_none(readings->slab_unreclaimable));
	line = add_line(ledger, MACHINE_TABLES, "page tables", "page_tables", tables + secondary,
			/*known=*/true);
	add_part(line, "of processes", "processes", tables);
	add_part(line, "of guests and devices", "secondary", secondary);
	line = add_line(ledger, MACHINE_KERNEL, "kernel", "kernel",
			stacks + percpu + vmalloc + others, /*known=*/true);
	add_part(line, "stacks", "stacks", stacks);
	add_part(line, "per CPU", "percpu", percpu);
	add_part(line, "vmalloc", "vmalloc", vmalloc);
	add_part(line, "buffers of drivers", "drivers", others);
}

/* Pools of all sizes; the kernel tells how many are in use only of the default size. */
static void add_huge(const struct machine_readings *readings, struct machine_ledger *ledger)
{
	uint64_t pool = or_none(readings->huge_total);
	uint64_t all = readings->hugetlb == MACHINE_NONE ? pool : readings->hugetlb;
	uint64_t free = lower_of(or_none(readings->huge_free), lower_of(pool, all));
	uint64_t reserved = lower_of(or_none(readings->huge_reserved), free);
	uint64_t used = surplus(lower_of(pool, all), free);
	struct machine_line *line = add_line(ledger, MACHINE_HUGE, "huge pages", "huge_pages", all,
					     readings->hugetlb != MACHINE_NONE ||
						     readings->huge_total != MACHINE_NONE);

	add_part(line, "in use", "used", used);
	add_part(line, "reserved", "reserved", reserved);
	add_part(line, "free", "free", free - reserved);
	add_part(line, "of other sizes", "other_sizes", all - used - free);
}

/* Pages of swapped memory that no process maps: those that one maps are in AnonPages, too. */
static uint64_t unmapped_swap_cache(const struct machine_readings *readings)
{
	uint64_t listed = or_none(readings->active_anon) + or_none(readings->inactive_anon);

	return lower_of(or_none(readings->swap_cached),
			surplus(listed, or_none(readings->anon) + or_none(readings->shmem)));
}

/* Adds up the free blocks of at least LARGE bytes in the buddy allocator. */
static void count_blocks(const struct machine_readings *readings, struct machine_ledger *ledger)
{
	ledger->blocks_known = readings->blocks_known;
	for (unsigned i = 0; i < MACHINE_ORDERS; i++) {
		uint64_t size = readings->page << i;

		if (!readings->blocks[i])
			continue;
		ledger->largest = size;
		if (size < LARGE)
			continue;
		ledger->large_blocks += readings->blocks[i];
		ledger->large += readings->blocks[i] * size;
	}
}

/* Adds free memory, with the sizes of its blocks. */
static void add_free(const struct machine_readings *readings, struct machine_ledger *ledger)
{
	uint64_t lists = or_none(readings->cpu_lists), large;
	struct machine_line *line = add_line(ledger, MACHINE_FREE, "free", "free",
					     readings->free + lists, /*known=*/true);

	count_blocks(readings, ledger);
	large = lower_of(ledger->large, readings->free);
	if (readings->blocks_known) {
		add_part(line, "in blocks of 2 MiB or more", "large_blocks", large);
		add_part(line, "in smaller blocks", "small_blocks", readings->free - large);
		add_part(line, "in lists of CPUs", "cpu_lists", lists);
	}
}

void machine_ledger__make(const struct machine_readings *readings, struct machine_ledger *ret)
{
	uint64_t compressed = readings->compressed,
		 gpu = or_none(readings->gpu_active) + or_none(readings->gpu_reclaim);
	struct machine_line *last;
	int64_t rest;

	*ret = (struct machine_ledger){ .total = readings->total };
	if (compressed == MACHINE_NONE &&
	    (readings->zswap != MACHINE_NONE || readings->zram_used != MACHINE_NONE))
		compressed = or_none(readings->zswap) + or_none(readings->zram_used);
	add_line(ret, MACHINE_PROCESSES, "processes", "processes", or_none(readings->anon),
		 /*known=*/true);
	add_files(readings, ret);
	add_kernel(readings, ret);
	add_huge(readings, ret);
	add_line(ret, MACHINE_COMPRESSED, "compressed swap", "compressed_swap", or_none(compressed),
		 compressed != MACHINE_NONE);
	add_line(ret, MACHINE_SWAP_CACHE, "swap cache", "swap_cache", unmapped_swap_cache(readings),
		 /*known=*/true);
	add_line(ret, MACHINE_GPU, "GPU driver", "gpu_driver", gpu,
		 readings->gpu_active != MACHINE_NONE);
	add_free(readings, ret);
	rest = (int64_t)readings->total;
	for (int i = 0; i < MACHINE_LINES; i++)
		rest -= ret->line[i].bytes;
	/* Some hypervisors' balloons lower MemTotal, so that their pages are no part of it. */
	last = add_line(ret, MACHINE_BALLOON, "balloon", "balloon",
			rest > 0 ? lower_of(or_none(readings->balloon), (uint64_t)rest) : 0,
			readings->balloon != MACHINE_NONE);
	last = add_line(ret, MACHINE_UNEXPLAINED, "not explained", "not_explained",
			(uint64_t)(rest - last->bytes), /*known=*/true);
}
