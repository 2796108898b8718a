/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The recorder inside a process on AArch64: how it emulates instructions. On any machine, with
 * registers in memory; test_inside.c compares with the processor, on AArch64.
 */
#include "unit/cmocka.h"

#include <errno.h>
#include <string.h>

#include "../../../tools/inprocess/emulate_a64.c"
#include "inspect/site.h"

#define ADDR 0x400120u
#define SLOT 0x7f0000000000u
#define N (1ULL << 31)
#define Z (1ULL << 30)
#define C (1ULL << 29)
#define V (1ULL << 28)

static int plan(uint32_t word, struct mt_inside_site *s, uint8_t *copy)
{
	const uint8_t code[4] = { (uint8_t)word, (uint8_t)(word >> 8), (uint8_t)(word >> 16),
				  (uint8_t)(word >> 24) };

	*s = (struct mt_inside_site){ .addr = ADDR };
	return inside_plan__a64(code, sizeof(code), ADDR, SLOT, s, copy);
}

/* Registers before an instruction: x0 is 1000, x1 is 1001, and so on. */
static struct emulate_a64_regs before(void)
{
	struct emulate_a64_regs r = { .pc = ADDR, .sp = 0x10000, .pstate = 3u << 10 };

	for (unsigned int i = 0; i < 31; i++)
		r.x[i] = 1000 + i;
	return r;
}

static void test_registers(void **state)
{
	static const struct {
		uint32_t word;
		unsigned int reg; /* the one that changes; 31: sp, 32: none but pc */
		uint64_t value, pc;
	} c[] = {
		{ 0xd503201f, 32, 0, ADDR + 4 },	      /* nop */
		{ 0xd503245f, 32, 0, ADDR + 4 },	      /* bti c */
		{ 0x14000004, 32, 0, ADDR + 16 },	      /* b +16 */
		{ 0x17fffffe, 32, 0, ADDR - 8 },	      /* b -8 */
		{ 0x94000040, 30, ADDR + 4, ADDR + 256 },     /* bl +256 */
		{ 0xd65f03c0, 32, 0, 1030 },		      /* ret */
		{ 0xd61f0020, 32, 0, 1001 },		      /* br x1 */
		{ 0xd63f0040, 30, ADDR + 4, 1002 },	      /* blr x2 */
		{ 0xd63f03c0, 30, ADDR + 4, 1030 },	      /* blr x30 */
		{ 0x10000049, 9, ADDR + 8, ADDR + 4 },	      /* adr x9, +8 */
		{ 0x90000001, 1, 0x400000, ADDR + 4 },	      /* adrp x1, +0 */
		{ 0xf0ffffe1, 1, 0x3ff000, ADDR + 4 },	      /* adrp x1, -0x1000 */
		{ 0x1000005f, 32, 0, ADDR + 4 },	      /* adr xzr */
		{ 0xd10943ff, 31, 0x10000 - 592, ADDR + 4 },  /* sub sp, sp, #592 */
		{ 0xd14007ff, 31, 0x10000 - 4096, ADDR + 4 }, /* sub sp, sp, #1, lsl #12 */
		{ 0x910943ff, 31, 0x10000 + 592, ADDR + 4 },  /* add sp, sp, #592 */
		{ 0x910003fd, 29, 0x10000, ADDR + 4 },	      /* mov x29, sp */
		{ 0x910003bf, 31, 1029, ADDR + 4 },	      /* mov sp, x29 */
		{ 0x91000420, 0, 1002, ADDR + 4 },	      /* add x0, x1, #1 */
		{ 0xaa0003f3, 19, 1000, ADDR + 4 },	      /* mov x19, x0 */
		{ 0xaa1f03e2, 2, 0, ADDR + 4 },		      /* mov x2, xzr */
		{ 0xaa0203ff, 32, 0, ADDR + 4 },	      /* mov xzr, x2 */
	};
	struct emulate_a64_regs r, want;
	uint8_t copy[MT_INSIDE_SLOT];
	struct mt_inside_site s;
	size_t i;

	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		assert_int_equal(plan(c[i].word, &s, copy), 0);
		assert_int_equal(s.original, c[i].word);
		r = want = before();
		want.pc = c[i].pc;
		want.pstate = 0;
		if (c[i].reg < 31)
			want.x[c[i].reg] = c[i].value;
		else if (c[i].reg == 31)
			want.sp = c[i].value;
		emulate_a64__run(&s, &r);
		if (memcmp(&r, &want, sizeof(r)))
			fail_msg("%08x: pc %llx, sp %llx", c[i].word, (unsigned long long)r.pc,
				 (unsigned long long)r.sp);
	}
}

/* stp, relative to the stack pointer. */
static void test_stores(void **state)
{
	static const struct {
		uint32_t word;
		int sp; /* change of the stack pointer, in words */
		int at; /* where the pair is, in words from the stack pointer before */
		uint64_t pair[2];
	} c[] = {
		{ 0xa9bc7bfd, -8, -8, { 1029, 1030 } }, /* stp x29, x30, [sp, #-64]! */
		{ 0xa90153f3, 0, 2, { 1019, 1020 } },	/* stp x19, x20, [sp, #16] */
		{ 0xa9007fe0, 0, 0, { 1000, 0 } },	/* stp x0, xzr, [sp] */
	};
	struct emulate_a64_regs r;
	uint8_t copy[MT_INSIDE_SLOT];
	struct mt_inside_site s;
	uint64_t stack[64], want[64];
	size_t i;

	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		memset(stack, 0xee, sizeof(stack));
		memcpy(want, stack, sizeof(stack));
		memcpy(&want[32 + c[i].at], c[i].pair, sizeof(c[i].pair));
		r = before();
		r.sp = (uintptr_t)&stack[32];
		assert_int_equal(plan(c[i].word, &s, copy), 0);
		emulate_a64__run(&s, &r);
		assert_true(r.sp == (uintptr_t)&stack[32 + c[i].sp] && r.pc == ADDR + 4);
		assert_memory_equal(stack, want, sizeof(stack));
	}
}

/* Whether a branch is taken. */
static bool taken(uint32_t word, uint64_t x0, uint64_t flags)
{
	struct emulate_a64_regs r = before();
	uint8_t copy[MT_INSIDE_SLOT];
	struct mt_inside_site s;

	r.x[0] = x0;
	r.pstate = flags;
	assert_int_equal(plan(word, &s, copy), 0);
	assert_int_equal(s.way, MT_INSIDE_BRANCH);
	emulate_a64__run(&s, &r);
	assert_true(r.pc == ADDR + 4 || r.pc == s.target);
	return r.pc == s.target;
}

static void test_branches(void **state)
{
	/* for each condition: flags for which it is true, and for which it is false */
	static const uint64_t flags[16][2] = {
		{ Z, C },
		{ C, Z },
		{ C, Z },
		{ Z, C },
		{ N, V },
		{ V, N },
		{ V, N },
		{ N, V },
		{ C, C | Z },
		{ C | Z, C },
		{ N | V, N },
		{ N, N | V },
		{ N | V, N | V | Z },
		{ N | V | Z, N | V },
		{ 0, ~0ULL },
		{ 0, ~0ULL },
	};
	unsigned int i;

	for (i = 0; i < 14; i++) {
		assert_true(taken(0x54000060 | i, 0, flags[i][0]));
		assert_false(taken(0x54000060 | i, 0, flags[i][1]));
	}
	assert_true(taken(0x5400006e, 0, 0) && taken(0x5400006f, 0, N)); /* al, nv: always */
	assert_true(taken(0xb4000040, 0, 0));				 /* cbz x0 */
	assert_false(taken(0xb4000040, 1ULL << 32, 0));
	assert_true(taken(0x34000040, 1ULL << 32, 0));	/* cbz w0 */
	assert_true(taken(0xb5000040, 1ULL << 32, 0));	/* cbnz x0 */
	assert_false(taken(0x35000040, 1ULL << 32, 0)); /* cbnz w0 */
	assert_true(taken(0x36000040, 2, 0));		/* tbz w0, #0 */
	assert_false(taken(0x36000040, 1, 0));
	assert_true(taken(0xb7400040, 1ULL << 40, 0)); /* tbnz x0, #40 */
	assert_false(taken(0xb7400040, ~(1ULL << 40), 0));
	assert_true(taken(0xb4000040 | 31, 1, 0)); /* cbz xzr */
}

/* What is not emulated runs as a copy, with a breakpoint and the way back behind it. */
static void test_copies(void **state)
{
	static const uint32_t words[] = {
		0xf90037e1, /* str x1, [sp, #104] */
		0xd503233f, /* paciasp */
		0x52800040, /* mov w0, #2 */
		0xb9000001, /* str w1, [x0] */
		0xa9000400, /* stp x0, x1, [x0] */
		0x11000400, /* add w0, w0, #1 */
		0xeb01001f, /* cmp x0, x1 */
	};
	uint8_t copy[MT_INSIDE_SLOT];
	struct emulate_a64_regs r;
	struct mt_inside_site s;
	uint64_t back;
	size_t i;

	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		assert_int_equal(plan(words[i], &s, copy), 0);
		assert_int_equal(s.way, MT_INSIDE_SLOT_RUN);
		assert_memory_equal(copy, &words[i], 4);
		assert_memory_equal(copy + 4, "\0\0\x20\xd4", 4);
		memcpy(&back, copy + 8, sizeof(back));
		assert_true(back == ADDR + 4);
		r = before();
		emulate_a64__run(&s, &r);
		assert_true(r.pc == SLOT);
	}
}

static void test_refused(void **state)
{
	static const uint32_t words[] = {
		0x58000040, /* ldr x0, literal */
		0x5c000040, /* ldr d0, literal */
		0xc85f7c01, /* ldxr */
		0xd4000001, /* svc */
		0xd4200000, /* brk */
		0xd65f0bff, /* retaa */
		0xd61f083f, /* braaz */
		0xd503203f, /* yield */
		0xd50323bf, /* autiasp */
		0xd53bd049, /* mrs x9, tpidr_el0 */
		0x04200000, /* SVE */
		0x54000070, /* bc.eq */
	};
	const uint8_t nop[4] = { 0x1f, 0x20, 0x03, 0xd5 };
	uint8_t copy[MT_INSIDE_SLOT];
	struct mt_inside_site s;
	size_t i;

	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		assert_int_equal(plan(words[i], &s, copy), -ENOTSUP);
	assert_int_equal(inside_plan__a64(nop, 4, ADDR + 2, SLOT, &s, copy), -ENOTSUP);
	assert_int_equal(inside_plan__a64(nop, 3, ADDR, SLOT, &s, copy), -ENOTSUP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_registers), cmocka_unit_test(test_stores),
		cmocka_unit_test(test_branches),  cmocka_unit_test(test_copies),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
