/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The page map as the source of the figures of smaps: the same figures, at a cost by pages and not
 * by addresses, in short calls. */
#include "unit/cmocka.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inspect/hostmem/host_smaps.h"
#include "inspect/proc.h"

#define PAGE 4096ul
#define TIB (1ul << 40)

static void *map(size_t size, int prot, int flags)
{
	void *m = mmap(NULL, size, prot, MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);

	assert_ptr_not_equal(m, MAP_FAILED);
	return m;
}

/* A child that shares some memory with this process, has some of its own, and waits. */
static pid_t start_child(void)
{
	const size_t size = 2ul << 20;
	volatile char *forked = map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE),
		      *shared = map(size, PROT_READ | PROT_WRITE, MAP_SHARED), *own, *zeros, byte;
	int ready[2];
	pid_t pid;

	madvise((void *)forked, size, MADV_NOHUGEPAGE);
	memset((void *)forked, 1, size);
	memset((void *)shared, 1, size);
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid) {
		close(ready[1]);
		assert_int_equal(read(ready[0], (void *)&byte, 1), 1);
		close(ready[0]);
		return pid;
	}
	for (size_t i = 0; i < size; i += 3 * PAGE)
		forked[i] = 2; /* a copy */
	own = map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	for (size_t i = 0; i < size; i += 5 * PAGE)
		own[i] = 1;
	zeros = map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	madvise((void *)zeros, size, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < size; i += PAGE)
		(void)zeros[i];
	zeros[7 * PAGE] = 1;
	map(8 * TIB, PROT_NONE, MAP_PRIVATE);
	mprotect((void *)zeros, 20 * PAGE, PROT_NONE);
	if (write(ready[1], "", 1) == 1)
		pause();
	_exit(0);
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Counts the calls that take the lock of the address space. */
static bool count(void *ctx)
{
	++*(unsigned *)ctx;
	return false;
}

static void read_smaps(const struct proc *p, struct host_smaps *ret)
{
	size_t len;
	char *text;

	assert_int_equal(proc__text(p, "smaps", 16 << 20, &text, &len), 0);
	assert_int_equal(host_smaps__parse(text, len, ret), 0);
	free(text);
}

static void compare(const struct host_smaps *a, const struct host_smaps *b)
{
	assert_int_equal(a->maps.n, b->maps.n);
	for (size_t i = 0; i < a->maps.n; i++) {
		const struct smaps_figures *x = &a->v[i], *y = &b->v[i];

		if (a->maps.v[i].start >> 63)
			continue;
		assert_int_equal(x->rss, y->rss);
		assert_int_equal(x->swap, y->swap);
		assert_int_equal(x->anonymous, y->anonymous);
		assert_int_equal(x->hugetlb, y->hugetlb);
		if (!a->pss_known)
			continue;
		assert_int_equal(x->own, y->own);
		/* smaps rounds it down to KiB. Others may map the same files meanwhile. */
		assert_true(x->pss < y->pss + 1024 + x->rss / 8 &&
			    y->pss < x->pss + 1024 + x->rss / 8);
	}
}

static void check_figures(void)
{
	pid_t pid = start_child();
	struct proc *p = proc__open(pid);
	struct host_resident *r = host_resident__open(p);
	struct host_smaps from_kernel, from_pages;
	unsigned calls = 0;

	assert_non_null(r);
	host_resident__cancel_by(r, count, &calls);
	/* The kernel may take pages of files from any process between two readings. */
	for (int i = 0; i < 20; i++) {
		struct host_smaps after;
		bool same = true;

		read_smaps(p, &from_kernel);
		calls = 0;
		assert_int_equal(host_smaps__read(p, r, false, &from_pages), 0);
		read_smaps(p, &after);
		for (size_t k = 0; k < after.maps.n; k++)
			same = same && after.v[k].rss == from_kernel.v[k].rss &&
			       after.v[k].own == from_kernel.v[k].own;
		host_smaps__free(&after);
		if (same)
			break;
		host_smaps__free(&from_kernel);
		host_smaps__free(&from_pages);
		assert_true(i < 19);
	}
	assert_int_equal(from_pages.pss_known, host_resident__knows_shares(r));
	compare(&from_pages, &from_kernel);
	/* 8 TiB are 2^31 pages. */
	assert_true(calls < 4 * from_pages.maps.n + 64);
	host_smaps__free(&from_kernel);
	host_smaps__free(&from_pages);
	host_resident__close(r);
	proc__free(p);
	end_child(pid);
}

/* Also: what is reserved costs nothing. */
static void test_figures_are_those_of_smaps(void **state)
{
	(void)state;
	check_figures();
}

static void test_the_same_on_older_kernels(void **state)
{
	(void)state;
	if (!host_resident__zero_frame())
		skip(); /* only root reads the frames by which pages of zeros are known */
	setenv("MEMTRACE_BENCH", "no-scan", 1);
	check_figures();
	unsetenv("MEMTRACE_BENCH");
}

static int add(void *ctx, uint64_t start, uint64_t end)
{
	*(uint64_t *)ctx += end - start;
	return 0;
}

static void test_reserved_addresses_cost_nothing(void **state)
{
	struct proc *p = proc__open(getpid());
	struct host_resident *r = host_resident__open(p);
	volatile char *m = map(16 * TIB, PROT_NONE, MAP_PRIVATE);
	uint64_t bytes = 0;
	unsigned calls = 0;

	(void)state;
	if (host_resident__lacks_scan(r))
		skip(); /* not without PAGEMAP_SCAN */
	assert_int_equal(mprotect((void *)(m + 9 * TIB), PAGE, PROT_READ | PROT_WRITE), 0);
	m[9 * TIB] = 1;
	host_resident__cancel_by(r, count, &calls);
	assert_int_equal(host_resident__walk(r, (uintptr_t)m, (uintptr_t)m + 16 * TIB, add, &bytes),
			 0);
	assert_int_equal(bytes, PAGE);
	assert_true(calls < 16);
	munmap((void *)m, 16 * TIB);
	host_resident__close(r);
	proc__free(p);
}

/* Page tables without pages take time, and do not count in the pages of a call. */
static void test_empty_page_tables_end_a_call(void **state)
{
	const size_t size = 5ul << 30, part = 1ul << 20;
	volatile char *m = map(size, PROT_READ, MAP_PRIVATE);
	struct proc *p = proc__open(getpid());
	struct host_resident *r;
	uint64_t bytes = 0;
	unsigned calls = 0;

	(void)state;
	madvise((void *)m, size, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < size; i += PAGE)
		(void)m[i]; /* the page of zeros: takes no memory but the table */
	/* In halves of a table, which the kernel keeps. */
	for (size_t i = 0; i < size; i += part)
		madvise((void *)(m + i), part, MADV_DONTNEED);
	r = host_resident__open(p);
	if (host_resident__lacks_scan(r) ||
	    host_resident__status(r)->page_tables < size / PAGE * sizeof(uint64_t))
		skip(); /* such tables are gone, or cost as any addresses do */
	host_resident__cancel_by(r, count, &calls);
	assert_int_equal(host_resident__walk(r, (uintptr_t)m, (uintptr_t)m + size, add, &bytes), 0);
	assert_int_equal(bytes, 0);
	assert_int_equal(calls, 3); /* 2 GiB each */
	munmap((void *)m, size);
	host_resident__close(r);
	proc__free(p);
}

static bool always(void *ctx)
{
	return ctx != NULL;
}

static void test_cancelled(void **state)
{
	struct proc *p = proc__open(getpid());
	struct host_resident *r = host_resident__open(p);
	struct host_smaps s;

	(void)state;
	host_resident__cancel_by(r, always, p);
	assert_int_equal(host_smaps__read(p, r, false, &s), -ECANCELED);
	host_resident__close(r);
	proc__free(p);
}

/* ---- huge pages ---- */

static void test_mounts_of_hugetlbfs(void **state)
{
	static const char text[] =
		"22 1 254:0 / / rw,relatime - ext4 /dev/root rw\n"
		"30 22 0:26 / /dev/hugepages rw,nosuid shared:9 - hugetlbfs hugetlbfs "
		"rw,pagesize=2M\n"
		"31 22 0:27 / /mnt/a\\040-\\040hugetlbfs\\040b rw - tmpfs tmpfs rw\n"
		"x y z - hugetlbfs none rw\n"
		"33 22 0:41 / /mnt/huge rw - hugetlbfs none rw,pagesize=1024M";
	struct host_huge h = { .n = 0 };
	struct map m = { .dev_minor = 26, .inode = 7 };

	(void)state;
	host_huge__parse(text, &h);
	assert_int_equal(h.n, 2);
	assert_true(host_huge__has(&h, &m));
	m.dev_minor = 41;
	assert_true(host_huge__has(&h, &m));
	m.dev_minor = 27;
	assert_false(host_huge__has(&h, &m));
	m.dev_minor = 26;
	m.dev_major = 254;
	assert_false(host_huge__has(&h, &m));
	host_huge__parse("", &h);
	assert_int_equal(h.n, 2);
}

/* The kernel's own mounts are in no list of mounts. Needs no huge page: none is touched. */
static void test_map_hugetlb_is_found(void **state)
{
	struct proc *p = proc__open(getpid());
	void *m = mmap(NULL, 2ul << 20, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
	struct host_huge h;
	struct maps maps;

	(void)state;
	if (m == MAP_FAILED)
		skip(); /* a kernel without them */
	host_huge__find(p, &h);
	assert_int_equal(proc__maps(p, &maps), 0);
	for (size_t i = 0; i < maps.n; i++)
		assert_int_equal(host_huge__has(&h, &maps.v[i]), maps.v[i].start == (uintptr_t)m);
	maps__free(&maps);
	munmap(m, 2ul << 20);
	proc__free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_figures_are_those_of_smaps),
		cmocka_unit_test(test_the_same_on_older_kernels),
		cmocka_unit_test(test_reserved_addresses_cost_nothing),
		cmocka_unit_test(test_empty_page_tables_end_a_call),
		cmocka_unit_test(test_cancelled),
		cmocka_unit_test(test_mounts_of_hugetlbfs),
		cmocka_unit_test(test_map_hugetlb_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
