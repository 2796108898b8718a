/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit/cmocka.h"

#include "inspect/hostmem/residency.h"
#include "inspect/proc.h"

#define PAGE 4096ULL

/* In this process: an area with some resident pages, known in two parts. */
static void test_reading(void **state)
{
	struct residency r = { .proc = proc__open(getpid()) };
	uint64_t found = 0, sum = 0, rss;
	char *area;

	assert_non_null(r.proc);
	area = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(area, MAP_FAILED);
	assert_int_equal(madvise(area, 64 * PAGE, MADV_NOHUGEPAGE), 0); /* a map of its own */
	for (int i = 0; i < 20; i++)
		area[i * 2 * PAGE] = 1; /* pages 0, 2, 4 ... 38 */
	r.asked = calloc(3, sizeof(*r.asked));
	r.n_asked = 3;
	r.asked[0] = (struct host_asked){ .start = 4096, .end = 8192 }; /* not mapped */
	r.asked[1] = (struct host_asked){ .start = (uintptr_t)area,
					  .end = (uintptr_t)area + 10 * PAGE };
	r.asked[2] = (struct host_asked){ .start = (uintptr_t)area + 20 * PAGE,
					  .end = (uintptr_t)area + 30 * PAGE };
	assert_int_equal(residency__read(&r), 0);
	assert_true(r.asked[0].gone && !r.asked[1].gone);
	assert_int_equal(r.asked[1].bytes, 5 * PAGE);
	assert_int_equal(r.asked[2].bytes, 5 * PAGE);
	for (size_t i = 0; i < r.n_found; i++) {
		uint64_t at = r.found[i].start - (uintptr_t)area;

		sum += r.found[i].bytes;
		if (at < 64 * PAGE)
			found += r.found[i].bytes;
	}
	assert_int_equal(found, 10 * PAGE);
	assert_int_equal(sum + 10 * PAGE, r.rss);
	assert_int_equal(proc__resident(r.proc, &rss), 0);
	/* The process changes while it is read. */
	assert_true(rss + (4 << 20) > r.rss && rss < r.rss + (4 << 20));
	munmap(area, 64 * PAGE);
	proc__free((struct proc *)r.proc);
	residency__free(&r);
}

/* From 1 GiB on, the page map says what is resident. Both readers agree. */
static void test_large(void **state)
{
	const size_t size = (1UL << 30) + (64UL << 20);
	struct residency r = { .proc = proc__open(getpid()) };
	uint64_t rss, room = 4 << 20;
	char *area;

	assert_non_null(r.proc);
	area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(area, MAP_FAILED);
	madvise(area, size, MADV_HUGEPAGE); /* quicker, where the kernel has them */
	memset(area, 1, size - (32UL << 20));
	r.asked = calloc(1, sizeof(*r.asked));
	r.n_asked = 1;
	r.asked[0] = (struct host_asked){ .start = (uintptr_t)area + (16UL << 20),
					  .end = (uintptr_t)area + (size - (48UL << 20)) };
	assert_int_equal(residency__read(&r), 0);
	assert_int_equal(r.asked[0].bytes, size - (64UL << 20));
	assert_int_equal(proc__resident(r.proc, &rss), 0);
	assert_true(rss < r.rss + room && r.rss < rss + room);
	munmap(area, size);
	proc__free((struct proc *)r.proc);
	residency__free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reading),
		cmocka_unit_test(test_large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
