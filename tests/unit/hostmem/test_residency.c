/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit/cmocka.h"

#include "hostmem/host_reading.h"
#include "hostmem/residency.h"
#include "process/proc.h"

#define PAGE 4096ULL

static const char two[] = "5500-5600 r-xp 00000000 08:01 77                       /usr/lib/a b.so\n"
			  "Size:                  4 kB\n"
			  "Rss:                  12 kB\n"
			  "VmFlags: rd ex\n"
			  "7f00-7f10 rw-p 00000000 00:00 0 \n"
			  "Rss:                   0 kB\n"
			  "Swap:                 99 kB\n";

static int parse(const char *text, struct residency *r)
{
	return residency__parse(text, strlen(text), r);
}

static void test_parse(void **state)
{
	struct residency r;

	assert_int_equal(parse(two, &r), 0);
	assert_int_equal(r.maps.n, 2);
	assert_int_equal(r.bytes[0], 12288);
	assert_string_equal(r.maps.v[0].path, "/usr/lib/a b.so");
	assert_int_equal(r.bytes[1], 0);
	residency__free(&r);
	/* a last line without its end */
	assert_int_equal(parse("10-20 rw-p 0 0:0 0\nRss: 8 kB", &r), 0);
	assert_int_equal(r.bytes[0], 8192);
	residency__free(&r);
	assert_int_equal(parse("", &r), 0);
	assert_int_equal(r.maps.n, 0);
	residency__free(&r);
}

static void test_bad_text(void **state)
{
	static const char *const bad[] = {
		"Rss: 1 kB\n",			 /* of no map */
		"10-20 rw-p 0 0:0 0\nRss: kB\n", /* no number */
		"10-20 rw-p 0 0:0 0\nRss:\n",
		"10-20 rw-p 0 0:0 0\nRss: 99999999999999999999 kB\n",
		"10-20 rw-p 0 0:0 0\nRss: 18446744073709551615 kB\n", /* in bytes too large */
		"20-10 rw-p 0 0:0 0\nRss: 1 kB\n",
		"a\n",
	};
	struct residency r;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(parse(bad[i], &r), -EINVAL);
}

/* This process: an area of which some pages are resident, known in two parts. */
static void test_reading(void **state)
{
	struct host_reading r = { .proc = proc__open(getpid()) };
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
	assert_int_equal(host_reading__run(&r), 0);
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
	host_reading__free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),
		cmocka_unit_test(test_bad_text),
		cmocka_unit_test(test_reading),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
