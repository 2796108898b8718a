/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <string.h>

#include "inspect/machine.h"

#define LARGE (UINT64_C(2) << 20) /* bytes of a large block: a huge page of x86-64 and aarch64 */

/* Fields that no kernel lacks are 0 if they are not known. */
static uint64_t or_none(uint64_t bytes)
{
	return bytes == MACHINE_NONE ? 0 : bytes;
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void add_part(struct machine_line *l, const char *name, const char *key, uint64_t bytes)
{
	l->part[l->parts].name = name;
	l->part[l->parts].key = key;
	l->part[l->parts++].bytes = bytes;
}

static struct machine_line *add_line(struct machine_ledger *l, enum machine_line_id id,
				     const char *name, const char *key, uint64_t bytes, bool known)
{
	l->line[id] = (struct machine_line){
		.name = name, .key = key, .bytes = (int64_t)bytes, .known = known
	};
	return &l->line[id];
}

/* Shared memory is a part of "Cached"; pages of block devices ("Buffers") are page cache, too. */
static void add_files(const struct machine_readings *r, struct machine_ledger *l)
{
	uint64_t shmem = or_none(r->shmem);
	uint64_t cache = less(or_none(r->cached), shmem) + or_none(r->buffers);
	uint64_t writeback = least(or_none(r->writeback), cache);
	uint64_t dirty = least(or_none(r->dirty), cache - writeback);
	struct machine_line *line;
	uint64_t tmpfs, sysv;

	line = add_line(l, MACHINE_CACHE, "page cache", "page_cache", cache, true);
	add_part(line, "clean", "clean", cache - writeback - dirty);
	add_part(line, "dirty", "dirty", dirty);
	add_part(line, "being written", "writeback", writeback);
	line = add_line(l, MACHINE_SHMEM, "shared memory", "shared_memory", shmem, true);
	/* Some of their pages may be swapped out. */
	tmpfs = least(or_none(r->tmpfs), shmem);
	sysv = least(or_none(r->sysv), shmem - tmpfs);
	add_part(line, "in tmpfs", "tmpfs", tmpfs);
	add_part(line, "System V", "sysv", sysv);
	add_part(line, "others", "others", shmem - tmpfs - sysv);
}

/* Adds what the kernel takes for itself: slab, page tables, and the rest. "Reclaimable" of
 * /proc/meminfo has the reclaimable slab, and what drivers can give back. */
static void add_kernel(const struct machine_readings *r, struct machine_ledger *l)
{
	uint64_t slab = or_none(r->slab_reclaimable) + or_none(r->slab_unreclaimable);
	uint64_t misc = r->reclaimable == MACHINE_NONE
				? 0
				: less(r->reclaimable, or_none(r->slab_reclaimable));
	uint64_t tables = or_none(r->page_tables);
	uint64_t secondary = or_none(r->secondary_tables);
	uint64_t stacks = or_none(r->kernel_stack);
	uint64_t percpu = or_none(r->percpu);
	/* Kernel stacks lie in vmalloc's area, and its figure has them, too. */
	uint64_t vmalloc = less(or_none(r->vmalloc), stacks);
	uint64_t others = or_none(r->bounce) + or_none(r->writeback_tmp) + misc;
	struct machine_line *line;

	line = add_line(l, MACHINE_SLAB, "slab", "slab", slab, true);
	add_part(line, "reclaimable", "reclaimable", or_none(r->slab_reclaimable));
	add_part(line, "unreclaimable", "unreclaimable", or_none(r->slab_unreclaimable));
	line = add_line(l, MACHINE_TABLES, "page tables", "page_tables", tables + secondary, true);
	add_part(line, "of processes", "processes", tables);
	add_part(line, "of guests and devices", "secondary", secondary);
	line = add_line(l, MACHINE_KERNEL, "kernel", "kernel", stacks + percpu + vmalloc + others,
			true);
	add_part(line, "stacks", "stacks", stacks);
	add_part(line, "per CPU", "percpu", percpu);
	add_part(line, "vmalloc", "vmalloc", vmalloc);
	add_part(line, "buffers of drivers", "drivers", others);
}

/* Pools of all sizes; the kernel tells how many are in use only of the default size. */
static void add_huge(const struct machine_readings *r, struct machine_ledger *l)
{
	uint64_t pool = or_none(r->huge_total);
	uint64_t all = r->hugetlb == MACHINE_NONE ? pool : r->hugetlb;
	uint64_t free = least(or_none(r->huge_free), least(pool, all));
	uint64_t reserved = least(or_none(r->huge_reserved), free);
	uint64_t used = less(least(pool, all), free);
	struct machine_line *line = add_line(l, MACHINE_HUGE, "huge pages", "huge_pages", all,
					     r->hugetlb != MACHINE_NONE ||
						     r->huge_total != MACHINE_NONE);

	add_part(line, "in use", "used", used);
	add_part(line, "reserved", "reserved", reserved);
	add_part(line, "free", "free", free - reserved);
	add_part(line, "of other sizes", "other_sizes", all - used - free);
}

/* Pages of swapped memory that no process maps: those that one maps are in AnonPages, too. */
static uint64_t unmapped_swap_cache(const struct machine_readings *r)
{
	uint64_t listed = or_none(r->active_anon) + or_none(r->inactive_anon);

	return least(or_none(r->swap_cached), less(listed, or_none(r->anon) + or_none(r->shmem)));
}

static void count_blocks(const struct machine_readings *r, struct machine_ledger *l)
{
	l->blocks_known = r->blocks_known;
	for (unsigned i = 0; i < MACHINE_ORDERS; i++) {
		uint64_t size = r->page << i;

		if (!r->blocks[i])
			continue;
		l->largest = size;
		if (size < LARGE)
			continue;
		l->large_blocks += r->blocks[i];
		l->large += r->blocks[i] * size;
	}
}

static void add_free(const struct machine_readings *r, struct machine_ledger *l)
{
	uint64_t lists = or_none(r->cpu_lists), large;
	struct machine_line *line = add_line(l, MACHINE_FREE, "free", "free", r->free + lists,
					     true);

	count_blocks(r, l);
	large = least(l->large, r->free);
	if (r->blocks_known) {
		add_part(line, "in blocks of 2 MiB or more", "large_blocks", large);
		add_part(line, "in smaller blocks", "small_blocks", r->free - large);
		add_part(line, "in lists of CPUs", "cpu_lists", lists);
	}
}

void machine_ledger__make(const struct machine_readings *r, struct machine_ledger *ret)
{
	uint64_t compressed = r->compressed, gpu = or_none(r->gpu_active) + or_none(r->gpu_reclaim);
	struct machine_line *last;
	int64_t rest;

	*ret = (struct machine_ledger){ .total = r->total };
	if (compressed == MACHINE_NONE &&
	    (r->zswap != MACHINE_NONE || r->zram_used != MACHINE_NONE))
		compressed = or_none(r->zswap) + or_none(r->zram_used);
	add_line(ret, MACHINE_PROCESSES, "processes", "processes", or_none(r->anon), true);
	add_files(r, ret);
	add_kernel(r, ret);
	add_huge(r, ret);
	add_line(ret, MACHINE_COMPRESSED, "compressed swap", "compressed_swap", or_none(compressed),
		 compressed != MACHINE_NONE);
	add_line(ret, MACHINE_SWAP_CACHE, "swap cache", "swap_cache", unmapped_swap_cache(r), true);
	add_line(ret, MACHINE_GPU, "GPU driver", "gpu_driver", gpu, r->gpu_active != MACHINE_NONE);
	add_free(r, ret);
	rest = (int64_t)r->total;
	for (int i = 0; i < MACHINE_LINES; i++)
		rest -= ret->line[i].bytes;
	/* Some hypervisors' balloons lower MemTotal, so that their pages are no part of it. */
	last = add_line(ret, MACHINE_BALLOON, "balloon", "balloon",
			rest > 0 ? least(or_none(r->balloon), (uint64_t)rest) : 0,
			r->balloon != MACHINE_NONE);
	last = add_line(ret, MACHINE_UNEXPLAINED, "not explained", "not_explained",
			(uint64_t)(rest - last->bytes), true);
}
