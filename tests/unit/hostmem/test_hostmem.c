/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The ledger of host memory: ranges, the kernel's text, resident pages, and processes of our own
 * whose malloc says what it has, or whose tables are damaged. */
#include "unit/cmocka.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gen_events.h"
#include "inspect/hostmem/internal.h"
#include "inspect/proc.h"

/* ---- ranges ---- */

#define SPACE 200

static void test_spans(void **state)
{
	struct gen g = { .rng = 42 };

	for (int round = 0; round < 300; round++) {
		struct host_spans s = { 0 };
		uint8_t want[SPACE] = { 0 };
		uint64_t end = 0;

		for (unsigned i = 0; i < 12; i++) {
			uint64_t r = gen__random(&g);
			uint64_t from = r % SPACE, size = (r >> 8) % (SPACE - from);
			uint8_t part = 1 + (r >> 20) % 4;

			assert_int_equal(host_spans__add(&s, from, size, part), 0);
			for (uint64_t k = from; k < from + size; k++)
				want[k] = want[k] && want[k] < part ? want[k] : part;
		}
		assert_int_equal(host_spans__resolve(&s), 0);
		for (size_t i = 0; i < s.n; i++) {
			assert_true(s.v[i].start >= end && s.v[i].end > s.v[i].start);
			for (; end < s.v[i].start; end++)
				assert_int_equal(want[end], 0);
			for (; end < s.v[i].end; end++)
				assert_int_equal(want[end], s.v[i].part);
			assert_int_equal(host_spans__after(&s, s.v[i].start), i);
		}
		for (; end < SPACE; end++)
			assert_int_equal(want[end], 0);
		host_spans__free(&s);
	}
}

static void test_spans_at_the_end(void **state)
{
	struct host_spans s = { 0 };

	assert_int_equal(host_spans__add(&s, UINT64_MAX - 10, 100, 2), 0);
	assert_int_equal(host_spans__add(&s, 5, 0, 1), 0);
	assert_int_equal(host_spans__resolve(&s), 0);
	assert_int_equal(s.n, 1);
	assert_true(s.v[0].end == UINT64_MAX);
	assert_int_equal(host_spans__after(&s, UINT64_MAX), 1);
	host_spans__free(&s);
}

/* ---- smaps ---- */

static int parse(const char *text, struct host_smaps *ret)
{
	char *copy = strdup(text);
	int err = host_smaps__parse(copy, strlen(copy), ret);

	free(copy);
	return err;
}

static void test_smaps(void **state)
{
	static const char text[] = "55d0-55f0 r-xp 00000000 fe:00 24 /usr/bin/a b\n"
				   "Size:                 32 kB\n"
				   "Rss:                  16 kB\n"
				   "Pss:                   4 kB\n"
				   "Private_Clean:         8 kB\n"
				   "VmFlags: rd ex mr mw me\n"
				   "7f00-7f10 rw-s 00000000 00:01 9 /dev/shm/torch_1_2 (deleted)\n"
				   "Rss:                  12 kB\n"
				   "Private_Hugetlb:    2048 kB\n"
				   "Swap:                  4 kB";
	struct host_smaps s;

	assert_int_equal(parse(text, &s), 0);
	assert_int_equal(s.maps.n, 2);
	assert_string_equal(s.maps.v[0].path, "/usr/bin/a b");
	assert_true(s.v[0].rss == 16384 && s.v[0].pss == 4096 && s.v[0].own == 8192);
	assert_true(s.maps.v[1].shared && s.maps.v[1].deleted);
	assert_true(s.v[1].rss == 12288 && s.v[1].hugetlb == 2048 << 10 && s.v[1].swap == 4096);
	host_smaps__free(&s);
	assert_int_equal(parse("", &s), 0);
	assert_int_equal(s.maps.n, 0);
	host_smaps__free(&s);
}

static void test_bad_smaps(void **state)
{
	static const char *const bad[] = {
		"Rss: 12 kB\n",					  /* before any mapping */
		"55d0-55f0 r-xp 00000000 fe:00 24 /a\nRss: x kB", /* no number */
		"55d0-55f0 r-xp\nRss: 1 kB",
		"55d0-55f0 r-xp 00000000 fe:00 24 /a\nRss: 99999999999999999999 kB",
		"55d0-55f0 r-xp 0 fe:00 24 /a\n55e0-5600 r-xp 0 fe:00 24 /b\n", /* overlap */
		"fffffffffffffffff-0 rw-p 0 0:0 0\n",
	};
	struct host_smaps s;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(parse(bad[i], &s), -EIO);
}

/* ---- resident pages ---- */

static void test_resident(void **state)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint8_t *m = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			  0);
	struct proc *p = proc__open(getpid());
	struct host_resident *r = host_resident__open(p);
	const struct resident_range *v;
	uint64_t start = (uintptr_t)m;
	size_t n;

	assert_true(m != MAP_FAILED && p && r);
	madvise(m, 8 * page, MADV_NOHUGEPAGE);
	m[page] = m[2 * page] = m[7 * page] = 1;
	assert_int_equal(host_resident__read(r, start, start + 8 * page, &v, &n), 0);
	assert_int_equal(n, 2);
	assert_true(v[0].start == start + page && v[0].end == start + 3 * page);
	assert_true(v[1].start == start + 7 * page && v[1].end == start + 8 * page);
	assert_int_equal(host_resident__read(r, start + page + 5, start + page + 6, &v, &n), 0);
	assert_true(n == 1 && v[0].start == start + page);
	assert_int_equal(host_resident__read(r, start, start + (UINT64_C(1) << 40), &v, &n),
			 -EINVAL);
	host_resident__close(r);
	proc__free(p);
	munmap(m, 8 * page);
}

/* ---- a process of our own ---- */

struct child {
	pid_t pid;
	int to, from;
	struct proc *proc;
	struct hostmem *h;
};

/* Forks a child that runs fn(from, to) and never returns. */
static struct child start(void (*fn)(int from, int to))
{
	struct child c;
	int in[2], out[2];

	assert_int_equal(pipe(in) | pipe(out), 0);
	c.pid = fork();
	assert_true(c.pid >= 0);
	if (!c.pid) {
		close(in[1]);
		close(out[0]);
		fn(in[0], out[1]);
		_exit(0);
	}
	close(in[0]);
	close(out[1]);
	c.to = in[1];
	c.from = out[0];
	c.proc = proc__open(c.pid);
	assert_non_null(c.proc);
	c.h = hostmem__new(c.proc, NULL);
	assert_non_null(c.h);
	return c;
}

static void stop(struct child *c)
{
	hostmem__free(c->h);
	proc__free(c->proc);
	kill(c->pid, SIGKILL);
	assert_int_equal(waitpid(c->pid, NULL, 0), c->pid);
	close(c->to);
	close(c->from);
}

static uint64_t sum(const struct host_ledger *l)
{
	uint64_t n = 0;

	for (unsigned i = 1; i < HOST_PARTS_END; i++)
		n += l->sheet.part[i].bytes;
	return n;
}

struct told {
	struct mallinfo2 info;
	uint64_t tensor, shared;
};

#define BIG (3u << 20)
#define SHARED (5u << 20)

static void allocate(int from, int to)
{
	static void *keep[4000];
	struct told t;
	char c, *big, *divided, *shared;

	for (size_t i = 0; i < 4000; i++)
		keep[i] = malloc(100 + i * 7 % 3000);
	for (size_t i = 0; i < 4000; i += 3)
		free(keep[i]);
	big = malloc(BIG);
	memset(big, 1, BIG);
	/* As NumPy does with huge pages: the chunk is in two mappings then. */
	divided = malloc(BIG);
	memset(divided, 1, BIG);
	if (madvise((char *)((uintptr_t)divided & ~4095UL) + 4096, BIG - 4096, MADV_DONTFORK))
		_exit(1);
	shared = mmap(NULL, SHARED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memset(shared, 2, SHARED);
	t = (struct told){ mallinfo2(), (uintptr_t)big, (uintptr_t)shared };
	if (write(to, &t, sizeof(t)) != sizeof(t) || read(from, &c, 1) < 0)
		_exit(1);
}

static void test_of_malloc(void **state)
{
	struct child c = start(allocate);
	struct host_storage storages[2];
	struct host_opts o = { .storages = storages, .n = 2, .storages_known = true };
	struct host_ledger l, again;
	struct told t;

	assert_int_equal(read(c.from, &t, sizeof(t)), sizeof(t));
	storages[0] = (struct host_storage){ t.tensor, BIG };
	storages[1] = (struct host_storage){ t.shared + 4096, 8192 };
	assert_int_equal(hostmem__read(c.h, &o, &l), 0);
	assert_true(sum(&l) == l.sheet.part[HOST_TOTAL].bytes && l.processes == 1);
#if !defined(__GLIBC__) || defined(__SANITIZE_ADDRESS__)
	if (!l.malloc.known)
		skip(); /* another allocator */
#endif
	assert_true(l.malloc.known);
	assert_true(l.malloc.arena == t.info.arena);
	assert_true(l.malloc.free_known && l.malloc.free == t.info.fordblks);
	assert_true(!l.malloc.mapped_known || l.malloc.mapped == t.info.hblkhd);
	assert_true(l.malloc.mapped_found == t.info.hblkhd);
	assert_true(l.sheet.part[HOST_TENSORS].bytes == BIG);
	/* a tensor in shared memory is shared memory */
	assert_true(l.sheet.part[HOST_SHARED].bytes == SHARED);
	assert_true(l.sheet.part[HOST_SHARED].second == 8192);
	assert_true(l.sheet.part[HOST_PINNED].known && !l.sheet.part[HOST_PINNED].bytes);
	assert_true(!l.sheet.part[HOST_PYTHON].known);
	assert_int_equal(l.adjusted, 0);
	/* without lists: the same parts, and what is free is not known */
	o.brief = true;
	assert_int_equal(hostmem__read(c.h, &o, &again), 0);
	assert_true(again.sheet.part[HOST_MALLOC].bytes == l.sheet.part[HOST_MALLOC].bytes);
	assert_false(again.sheet.part[HOST_MALLOC].has_second);
	stop(&c);
}

/* Allocates a chunk with a mapping of its own: pages without a header of 16 bytes. Uses up free
 * memory of the heap first, which malloc prefers: earlier tests leave some. */
static void *malloc_mapped(size_t size)
{
	void *p;

	do
		p = malloc(size);
	while (p && (malloc_usable_size(p) + 16) % 4096);
	return p;
}

#define CHUNKS 9
#define CHUNK (200u << 10)

/* Every second chunk becomes other memory of the same mapping, with zeros. */
static void allocate_between(int from, int to)
{
	char *chunks[CHUNKS], c;
	struct told t = { 0 };

	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	for (int i = 0; i < CHUNKS; i++) {
		chunks[i] = malloc_mapped(CHUNK);
		memset(chunks[i], 1, CHUNK);
	}
	for (int i = 1; i < CHUNKS; i += 2) {
		size_t size = ((CHUNK + 16) | 4095) + 1;
		char *at = (char *)((uintptr_t)chunks[i] & ~4095UL);

		free(chunks[i]);
		if (mmap(at, size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != at)
			_exit(1);
		memset(at, 0, size);
	}
	t.info = mallinfo2();
	if (write(to, &t, sizeof(t)) != sizeof(t) || read(from, &c, 1) < 0)
		_exit(1);
}

/* A chunk with other memory before and after it in its mapping. */
static void test_chunks_between_others(void **state)
{
	struct child c = start(allocate_between);
	struct host_opts o = { 0 };
	struct host_ledger l;
	struct told t;

	(void)state;
	assert_int_equal(read(c.from, &t, sizeof(t)), sizeof(t));
	assert_int_equal(hostmem__read(c.h, &o, &l), 0);
	if (l.malloc.mapped_known) {
		assert_true(l.malloc.mapped == t.info.hblkhd);
		assert_true(l.malloc.mapped_found == t.info.hblkhd);
	}
	assert_true(l.malloc.mapped_found <= t.info.hblkhd);
	stop(&c);
}

/* A forked child shares its parent's pages: their sum counts them once. */
static void test_tree(void **state)
{
	uint8_t *m = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct host_opts o = { .proportional = true };
	struct host_ledger sum_of = { 0 }, one;
	struct child c;
	struct told t;
	uint64_t alone;

	memset(m, 1, BIG);
	c = start(allocate);
	assert_int_equal(read(c.from, &t, sizeof(t)), sizeof(t));
	assert_int_equal(hostmem__read(c.h, &o, &one), 0);
	alone = one.sheet.part[HOST_TOTAL].bytes;
	assert_true(alone == one.sheet.part[HOST_PSS].bytes && sum(&one) == alone);
	host_ledger__add(&sum_of, &one);
	host_ledger__add(&sum_of, &one);
	assert_true(sum_of.sheet.part[HOST_TOTAL].bytes == 2 * alone && sum_of.processes == 2);
	assert_true(sum(&sum_of) == 2 * alone);
	stop(&c);
	munmap(m, BIG);
}

/* What lies right above the heap may be the heap's by now, and nothing above other mappings. */
static void test_grown_heap(void **state)
{
	struct map v[] = {
		{ .start = 0x10000, .end = 0x20000, .r = true, .w = true, .path = "[heap]" },
		{ .start = 0x50000, .end = 0x60000, .r = true, .w = true, .path = "" },
	};
	struct host_smaps s = { .maps = { .v = v, .n = 2 } };

	assert_true(host_places__is_private_memory(&s, 0x10000, 0x10000));
	assert_true(host_places__is_private_memory(&s, 0x1fff0, 0x20));
	assert_true(host_places__is_private_memory(&s, 0x30000, 0x20000));
	assert_false(host_places__is_private_memory(&s, 0x30000, 0x20001));
	assert_false(host_places__is_private_memory(&s, 0xff00, 0x200));
	assert_true(host_places__is_private_memory(&s, 0x50000, 0x10000));
	assert_false(host_places__is_private_memory(&s, 0x50000, 0x10001));
	assert_false(host_places__is_private_memory(&s, 0x60000, 1));
	assert_false(host_places__is_private_memory(&s, 0x5fff0, UINT64_MAX));
	s.maps.n = 1;
	assert_true(host_places__is_private_memory(&s, 0x10000000, 16));
	assert_false(host_places__is_private_memory(&s, 0x20000000, 16));
}

/* ---- damage ---- */

static struct {
	uint8_t *at;
	size_t len;
} writable[8];
static size_t nwritable;

/* The heap and libc's data, which have malloc's tables. */
static void find_tables(void)
{
	struct proc *p = proc__open(getpid());
	struct maps m;

	nwritable = 0;
	/* The heap must not shrink: damage() writes to all of it. */
	assert_true(mallopt(M_TRIM_THRESHOLD, INT_MAX));
	assert_int_equal(proc__maps(p, &m), 0);
	for (size_t i = 0; i < m.n && nwritable < 8; i++) {
		const char *base = strrchr(m.v[i].path, '/');

		if (!m.v[i].w ||
		    (strcmp(m.v[i].path, "[heap]") && !(base && !strncmp(base, "/libc", 5))))
			continue;
		writable[nwritable].at = (uint8_t *)(uintptr_t)m.v[i].start;
		writable[nwritable++].len = m.v[i].end - m.v[i].start;
	}
	maps__free(&m);
	proc__free(p);
}

/* Overwrites words of the tables, then waits. Calls nothing of the C library that needs them. */
static void damage(int from, int to)
{
	uint64_t rng = 88172645463325252;
	char c;

	for (;;) {
		for (unsigned i = 0; i < 40; i++) {
			uint64_t *word, value;

			rng ^= rng << 13;
			rng ^= rng >> 7;
			rng ^= rng << 17;
			word = (uint64_t *)(writable[rng % nwritable].at +
					    (rng >> 8) % (writable[rng % nwritable].len / 8) * 8);
			value = rng >> 60 < 4 ? rng : rng >> 60 < 8 ? *word + 16 : (uintptr_t)word;
			*word = rng >> 55 & 1 ? value : 0;
		}
		if (syscall(SYS_write, to, &c, 1) != 1 || syscall(SYS_read, from, &c, 1) != 1)
			syscall(SYS_exit_group, 0);
	}
}

static void test_damage(void **state)
{
	struct host_opts o = { 0 };
	struct host_ledger l;
	struct child c;
	unsigned unknown = 0;
	char byte;

	find_tables();
	assert_true(nwritable > 0);
	for (int round = 0; round < 20; round++) {
		c = start(damage);
		for (int i = 0; i < 10; i++) {
			assert_int_equal(read(c.from, &byte, 1), 1);
			assert_int_equal(hostmem__read(c.h, &o, &l), 0);
			assert_true(sum(&l) == l.sheet.part[HOST_TOTAL].bytes);
			unknown += !l.malloc.known || !l.malloc.free_known;
			assert_int_equal(write(c.to, &byte, 1), 1);
		}
		stop(&c);
	}
	assert_true(unknown > 0); /* damage was found */
}

static void test_ended(void **state)
{
	struct child c = start(allocate);
	struct host_opts o = { 0 };
	struct host_ledger l;

	kill(c.pid, SIGKILL);
	waitpid(c.pid, NULL, 0);
	assert_true(hostmem__read(c.h, &o, &l) < 0);
	hostmem__free(c.h);
	proc__free(c.proc);
	close(c.to);
	close(c.from);
}

/* An arena of a thread may shrink between two looks at it: what its heap had is not unknown. */
static void test_shrunk_arena(void **state)
{
	enum { HEAP = 64 << 20 };
	struct host_ledger l = { .malloc.known = true };
	struct host_reading r = { .ledger = &l };
	struct map m = { .start = 3 * (uint64_t)HEAP, .r = true, .w = true, .path = "" };

	m.end = m.start + HEAP / 2;
	assert_int_equal(host_spans__add(&r.claims, m.start, 4096, HOST_MALLOC), 0);
	assert_int_equal(host_spans__add(&r.claims, 5 * (uint64_t)HEAP, 4096, HOST_PYTHON), 0);
	assert_int_equal(host_spans__resolve(&r.claims), 0);
	assert_true(host_glibc__is_heap(&r, &m));
	m.end = m.start + HEAP + 4096; /* other memory follows */
	assert_false(host_glibc__is_heap(&r, &m));
	m.end = m.start + HEAP;
	l.malloc.known = false;
	assert_false(host_glibc__is_heap(&r, &m));
	l.malloc.known = true;
	m.start += 4096;
	assert_false(host_glibc__is_heap(&r, &m));
	m.start = 5 * (uint64_t)HEAP; /* an arena of Python */
	m.end = m.start + HEAP;
	assert_false(host_glibc__is_heap(&r, &m));
	host_spans__free(&r.claims);
}

/* malloc's tables that no longer verify say nothing about those of CPython and PyTorch. */
static void test_stale_places(void **state)
{
	static const uint8_t zeros[8192];
	struct host_places places = { .arenas = 0x1000, .delta = 112, .mp = 8, .pinned = 0x2000 };
	struct host_opts o = { .brief = true };
	struct host_ledger l = { 0 };
	struct host_reading r = { .opts = &o, .places = &places, .ledger = &l };
	struct proc *proc = proc__open(getpid());

	assert_non_null(proc);
	r.proc = proc;
	places.bins = (uintptr_t)zeros + 16;
	assert_int_equal(host_glibc__read(&r), 0);
	assert_false(l.malloc.known);
	assert_true(!places.bins && !places.delta && !places.mp);
	assert_true(places.arenas == 0x1000 && places.pinned == 0x2000);
	proc__free(proc);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spans),
		cmocka_unit_test(test_spans_at_the_end),
		cmocka_unit_test(test_smaps),
		cmocka_unit_test(test_bad_smaps),
		cmocka_unit_test(test_resident),
		cmocka_unit_test(test_of_malloc),
		cmocka_unit_test(test_chunks_between_others),
		cmocka_unit_test(test_tree),
		cmocka_unit_test(test_grown_heap),
		cmocka_unit_test(test_shrunk_arena),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_ended),
		cmocka_unit_test(test_stale_places),
	};

	/* A free chunk of our heap could hold the blocks that allocate_between() expects in
	 * mappings. */
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
