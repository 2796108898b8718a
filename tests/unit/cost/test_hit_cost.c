/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "capture/cost/hit_cost.h"

/* Bytes of this program's file at an offset. */
static void read_code(uint64_t offset, uint8_t *code, size_t n)
{
	FILE *f = fopen("/proc/self/exe", "re");

	assert_non_null(f);
	assert_int_equal(fseek(f, (long)offset, SEEK_SET), 0);
	assert_int_equal(fread(code, 1, n, f), n);
	fclose(f);
}

/* ---- at a pace ---- */

static struct hit_place places[2];
static unsigned probes;

static int note_place(const struct hit_place *at)
{
	places[probes++ % 2] = *at;
	return dup(0);
}

static int refuse(const struct hit_place *at)
{
	(void)at;
	return -1;
}

/* The offsets are those of two functions in this file. */
static void test_hit_cost(void **state)
{
	struct hit_cost cost;
	uint8_t code[2][4];

	assert_int_equal(hit_cost__measure(note_place, HIT_SELDOM, &cost), 0);
	assert_int_equal(probes, 2);
	for (int i = 0; i < 2; i++) {
		assert_false(places[i].returns);
		assert_int_equal(places[i].ref_ctr, 0);
		read_code(places[i].offset, code[i], 4);
	}
#ifdef __x86_64__
	assert_int_equal(code[0][0], 0x55); /* push %rbp */
	assert_memory_equal(code[1], "\x48\x89\xf8\xc3", 4);
#else
	assert_memory_equal(code[0], "\x01\x00\x00\x14", 4); /* b .+4 */
	assert_memory_equal(code[1], "\xe1\x03\x00\xaa", 4);
#endif
	assert_int_equal(hit_cost__measure(refuse, HIT_OFTEN, &cost), -1);
}

/* ---- by kind ---- */

#ifdef __x86_64__
#define HAS_NOPS 1
#else
#define HAS_NOPS 0
#endif

/* The places of all children, in shared memory. */
static struct {
	unsigned n;
	struct hit_place at[32];
} * seen;

static int note_all(const struct hit_place *at)
{
	seen->at[seen->n++ % 32] = *at;
	return dup(0);
}

/* Without a probe nothing is added, and no nop becomes a call. */
static void test_sites(void **state)
{
	static const struct {
		enum hit_site site;
		const char *code;
		size_t n;
	} expected[] = {
		{ HIT_PUSH, "\x55", 1 },
		{ HIT_NOP, "\x90", 1 },
		{ HIT_NOP5, "\x0f\x1f\x44\x00\x00", 5 },
		{ HIT_NOP10, "\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00", 10 },
		{ HIT_STEPPED, "\x48\x89\xf8", 3 },
		{ HIT_RETURN, "\x55", 1 },
		{ HIT_USDT, "\x90", 1 },
	};
	struct hit_site_cost cost[HIT_SITES];
	uint8_t code[10], semaphore[2];

	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(seen != MAP_FAILED);
	assert_int_equal(hit_cost__sites(note_all, cost), 0);
	for (int i = 0; i < HIT_SITES; i++) {
		assert_true(strlen(hit_site__name(i)) > 0);
		assert_false(cost[i].call);
		if (!HAS_NOPS && (i == HIT_NOP5 || i == HIT_NOP10 || i == HIT_USDT))
			assert_int_equal(cost[i].err, -ENOTSUP);
		else
			assert_true(hit_site__is_safe(&cost[i]));
	}
	assert_int_equal(seen->n, HAS_NOPS ? 7 : 4);
	for (int i = 0; HAS_NOPS && i < HIT_SITES; i++) {
		assert_int_equal(expected[i].site, i);
		read_code(seen->at[i].offset, code, expected[i].n);
		assert_memory_equal(code, expected[i].code, expected[i].n);
		assert_int_equal(seen->at[i].returns, i == HIT_RETURN);
		assert_int_equal(seen->at[i].ref_ctr != 0, i == HIT_USDT);
	}
	if (HAS_NOPS) {
		read_code(seen->at[HIT_USDT].ref_ctr, semaphore, 2);
		assert_memory_equal(semaphore, "\0", 2);
	}
	munmap(seen, sizeof(*seen));
}

static int no_probe(const struct hit_place *at)
{
	(void)at;
	return -HIT_ENOTSUPP;
}

/* A process that its probe ends. */
static int ends(const struct hit_place *at)
{
	if (at->returns)
		raise(SIGKILL);
	return dup(0);
}

static void test_sites_refused(void **state)
{
	struct hit_site_cost cost[HIT_SITES];

	assert_int_equal(hit_cost__sites(no_probe, cost), 0);
	assert_int_equal(cost[HIT_PUSH].err, -HIT_ENOTSUPP);
	assert_false(hit_site__is_safe(&cost[HIT_PUSH]));
	assert_int_equal(hit_cost__sites(ends, cost), 0);
	assert_int_equal(cost[HIT_PUSH].err, 0);
	assert_int_equal(cost[HIT_RETURN].err, -ECHILD);
	assert_int_equal(cost[HIT_NOP].err, 0);
}

#if HAS_NOPS
/* ---- kernels that make calls of 10-byte nops: a probe writes the call instead ---- */

#define PAGE 4096

uintptr_t cost_push(uintptr_t);

static const struct kernel {
	const char *nop;	/* the code up to the distance of a call */
	size_t size;		/* of .nop */
	const char *after;	/* after the distance */
	const char *trampoline; /* what is called */
	bool inherited;		/* a forked child has the called page */
	bool fork_dies, overwrites;
} kernels[] = {
	/* lea -0x80(%rsp), %rsp; call; there: ret $0x80 */
	{ "\x48\x8d\x64\x24\x80\xe8", 6, "", "\xc2\x80", true, false, false },
	{ "\x48\x8d\x64\x24\x80\xe8", 6, "", "\xc2\x80", false, true, false },
	/* call; jmp over the rest; there: ret */
	{ "\xe8", 1, "\xeb\x03", "\xc3", true, false, true },
	{ "\xe8", 1, "\xeb\x03", "\xc3", false, true, true },
};

static const struct kernel *kernel;
static uintptr_t loaded_at; /* address of offset 0 of this program's file */

/* A page that calls can reach. */
static uint8_t *page_near(uintptr_t code)
{
	void *page = MAP_FAILED;

	for (uintptr_t away = 64 << 20; away < 1 << 30 && page == MAP_FAILED; away += 64 << 20)
		page = mmap((void *)((code & -(uintptr_t)PAGE) - away), PAGE,
			    PROT_READ | PROT_WRITE | PROT_EXEC,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	return page == MAP_FAILED ? NULL : page;
}

static int call_at(const struct hit_place *at)
{
	uint8_t *code = (uint8_t *)loaded_at + at->offset, *page;
	uint8_t bytes[10];
	int32_t distance;

	read_code(at->offset, bytes, sizeof(bytes));
	if (memcmp(bytes, "\x66\x2e\x0f\x1f\x84", 5) != 0)
		return dup(0);
	page = page_near((uintptr_t)code);
	if (!page || mprotect((void *)((uintptr_t)code & -(uintptr_t)PAGE), 2 * PAGE,
			      PROT_READ | PROT_WRITE | PROT_EXEC))
		return -ENOMEM;
	strcpy((char *)page, kernel->trampoline);
	if (!kernel->inherited && madvise(page, PAGE, MADV_DONTFORK))
		return -errno;
	distance = (int32_t)(page - (code + kernel->size + sizeof(distance)));
	memcpy(code, kernel->nop, kernel->size);
	memcpy(code + kernel->size, &distance, sizeof(distance));
	memcpy(code + kernel->size + sizeof(distance), kernel->after, strlen(kernel->after));
	return dup(0);
}

static void test_calls(void **state)
{
	struct hit_site_cost cost[HIT_SITES];
	struct hit_cost ignored;

	probes = 0;
	assert_int_equal(hit_cost__measure(note_place, HIT_OFTEN, &ignored), 0);
	loaded_at = (uintptr_t)cost_push - places[0].offset;
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
		kernel = &kernels[i];
		assert_int_equal(hit_cost__sites(call_at, cost), 0);
		assert_int_equal(cost[HIT_NOP10].err, 0);
		assert_true(cost[HIT_NOP10].call);
		assert_int_equal(cost[HIT_NOP10].fork_dies, kernel->fork_dies);
		assert_int_equal(cost[HIT_NOP10].overwrites, kernel->overwrites);
		assert_int_equal(hit_site__is_safe(&cost[HIT_NOP10]), i == 0);
		assert_false(cost[HIT_NOP5].call);
	}
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hit_cost),
		cmocka_unit_test(test_sites),
		cmocka_unit_test(test_sites_refused),
#if HAS_NOPS
		cmocka_unit_test(test_calls),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
