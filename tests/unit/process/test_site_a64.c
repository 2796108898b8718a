/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Probe sites in A64 code. The words are as objdump prints them. */
#include "unit/cmocka.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/elf.h"
#include "inspect/process/insn_a64.h"
#include "inspect/site.h"

#define ARGS_ALL 0xffu

static size_t from_words(const char *text, uint8_t *buf, size_t size)
{
	size_t n = 0, i;
	uint32_t word;
	char *end;

	while (*text) {
		if (*text == ' ') {
			text++;
			continue;
		}
		word = (uint32_t)strtoul(text, &end, 16);
		assert_true(end == text + 8 && n + 4 <= size);
		for (i = 0; i < 4; i++)
			buf[n++] = (uint8_t)(word >> 8 * i);
		text = end;
	}
	return n;
}

struct expect {
	const char *words;
	unsigned args;
	enum site_class cls; /* SITE_NONE: rejected */
	uint32_t offset;
	const char *text;
};

static void check(const struct expect *c, size_t n)
{
	struct site s;
	uint8_t buf[256];
	size_t i, len;
	int err;

	for (i = 0; i < n; i++) {
		memset(&s, 0xa5, sizeof(s));
		len = from_words(c[i].words, buf, sizeof(buf));
		err = site__pick(ELF_AARCH64, buf, len, len, c[i].args, &s);
		if (c[i].cls == SITE_NONE) {
			if (err != -EINVAL || s.length != 0xa5)
				fail_msg("%s: accepted at +%u", c[i].words, s.offset);
			continue;
		}
		if (err || s.cls != c[i].cls || s.offset != c[i].offset || s.length != 4 ||
		    strcmp(s.text, c[i].text))
			fail_msg("%s: %d, class %d +%u \"%s\"", c[i].words, err, (int)s.cls,
				 s.offset, s.text);
	}
}
#define CHECK(c) check(c, sizeof(c) / sizeof((c)[0]))

/* Beginnings of PyTorch 2.11's functions for AArch64. */
#define REPORT                                                                                     \
	"a9bc7bfd 910003fd a90153f3 aa0003f3 aa0203f4 52800040 a9025bf5 aa0303f5 2a0403f6 "        \
	"f9001bf7 aa0103f7 97fffd69 b40001c0 d65f03c0 d503201f d503201f a94153f3"
#define CPU_DELETE                                                                                 \
	"d10943ff a9007bfd 910003fd a9025bf5 b0000876 f947b6d6 a90153f3 aa0003f4 aa0103f3 "        \
	"97fff857 d65f03c0"
#define CPU_NEW "d108c3ff a9007bfd 910003fd f90037e1 b5000082 a9407bfd 9108c3ff d65f03c0 a90363f7"

static void test_pytorch(void **state)
{
	static const struct expect c[] = {
		/* x0 is overwritten before the call, so the entry is stepped */
		{ REPORT, 0x1f, SITE_STEPPED, 0, "stp" },
		/* an observer of the other arguments reaches the call */
		{ REPORT, 0x1e, SITE_CALL, 44, "bl -2608" },
		{ CPU_DELETE, 2, SITE_ADR, 16, "adrp x22" },
		{ CPU_NEW, 6, SITE_JCC, 16, "cbnz x2, +32" },
	};

	CHECK(c);
}

static void test_entry(void **state)
{
	static const struct expect c[] = {
		{ "90000001 d65f03c0", ARGS_ALL & ~2u, SITE_ADR, 0, "adrp x1" },
		{ "10000049 d65f03c0", ARGS_ALL, SITE_ADR, 0, "adr x9" },
		{ "14000004", ARGS_ALL, SITE_JMP, 0, "b +16" },
		{ "17fffffe", ARGS_ALL, SITE_JMP, 0, "b -8" },
		{ "54000060 d65f03c0", ARGS_ALL, SITE_JCC, 0, "b.eq +12" },
		{ "b4000040 d65f03c0", ARGS_ALL, SITE_JCC, 0, "cbz x0, +8" },
		{ "35000082 d65f03c0", ARGS_ALL, SITE_JCC, 0, "cbnz w2, +16" },
		{ "36000040 d65f03c0", ARGS_ALL, SITE_JCC, 0, "tbz w0, +8" },
		{ "b747ffe3 d65f03c0", ARGS_ALL, SITE_JCC, 0, "tbnz x3, -4" },
		{ "94000040 d65f03c0", ARGS_ALL, SITE_CALL, 0, "bl +256" },
		/* an indirect branch at the entry would keep the mark of the call */
		{ "d65f03c0", ARGS_ALL, SITE_NONE, 0, NULL },
		{ "d61f0020", ARGS_ALL, SITE_NONE, 0, NULL },
		{ "d63f0040 d65f03c0", ARGS_ALL, SITE_NONE, 0, NULL },
		{ "aa0003f3 d65f03c0", ARGS_ALL, SITE_RET, 4, "ret x30" },
		{ "aa0003f3 d61f0020", ARGS_ALL, SITE_JMP, 4, "br x1" },
		{ "aa0003f3 d63f0040", ARGS_ALL, SITE_CALL, 4, "blr x2" },
	};

	CHECK(c);
}

static void test_passed_over(void **state)
{
	static const struct expect c[] = {
		{ "d503245f a9bc7bfd 910003fd b0000876 d65f03c0", ARGS_ALL, SITE_ADR, 12,
		  "adrp x22" },
		{ "d503233f a9bc7bfd 910003fd b0000876 d65f03c0", ARGS_ALL, SITE_ADR, 12,
		  "adrp x22" },
		/* a patchable entry: older kernels step the nop, so adrp is better */
		{ "d503201f d503201f 910003fd b0000876 d65f03c0", ARGS_ALL, SITE_ADR, 12,
		  "adrp x22" },
		/* ... and a nop is better than any stepped instruction */
		{ "a9bc7bfd d503201f 52800040 d65f03c0", 1, SITE_NOP, 4, "nop" },
		{ "d503201f 52800040 d65f03c0", 1, SITE_NOP, 0, "nop" },
		/* among stepped ones, the landing place of indirect calls is the last choice */
		{ "d503245f aa0003f3 52800040 d65f03c0", 1, SITE_STEPPED, 4, "mov" },
		{ "d503233f a9bc7bfd 52800040 d65f03c0", 1, SITE_STEPPED, 4, "stp" },
		{ "d503245f 52800040 d65f03c0", 1, SITE_STEPPED, 4, "movz" },
		{ "d503245f", 1, SITE_STEPPED, 0, "bti" },
		{ "d503233f", 1, SITE_STEPPED, 0, "paciasp" },
		/* literals and system registers are passed over, never probed */
		{ "58000049 d65f03c0", ARGS_ALL, SITE_RET, 4, "ret x30" },
		{ "5c000040 d65f03c0", ARGS_ALL, SITE_RET, 4, "ret x30" },
		{ "98000049 52800040", 1, SITE_STEPPED, 4, "movz" },
		{ "d53bd049 b0000876", ARGS_ALL, SITE_ADR, 4, "adrp x22" },
		{ "d5033bbf b0000876", ARGS_ALL, SITE_ADR, 4, "adrp x22" },
		{ "d503203f b0000876", ARGS_ALL, SITE_ADR, 4, "adrp x22" },
	};

	CHECK(c);
}

static void test_refused(void **state)
{
	static const struct expect c[] = {
		{ "", 0, SITE_NONE, 0, NULL },
		{ "00000000", 0, SITE_NONE, 0, NULL },		/* udf */
		{ "d4200020", 0, SITE_NONE, 0, NULL },		/* brk */
		{ "d4000001 d65f03c0", 0, SITE_NONE, 0, NULL }, /* svc */
		{ "c85f7c01 d65f03c0", 0, SITE_NONE, 0, NULL }, /* ldxr, and nothing after it */
		{ "c8027c01 d65f03c0", 0, SITE_NONE, 0, NULL }, /* stxr */
		{ "d65f0bff", 0, SITE_NONE, 0, NULL },		/* retaa */
		{ "d61f083f", 0, SITE_NONE, 0, NULL },		/* braaz */
		{ "58000049", 0, SITE_NONE, 0, NULL },		/* ldr x9, literal */
		{ "d503203f", 0, SITE_NONE, 0, NULL },		/* yield */
		{ "d50323bf", 0, SITE_NONE, 0, NULL },		/* autiasp */
		{ "54000070", 0, SITE_NONE, 0, NULL },		/* bc.eq: kernels step it wrongly */
		{ "74000020", 0, SITE_NONE, 0, NULL },		/* compare and branch */
		{ "04200000 b0000876", 0, SITE_NONE, 0, NULL }, /* SVE: not decoded */
		{ "d9200400 b0000876", 0, SITE_NONE, 0, NULL }, /* stg */
		{ "19000400 b0000876", 0, SITE_NONE, 0, NULL }, /* cpyfp: three in a row */
	};

	CHECK(c);
}

/* No site after an instruction that changes an argument used by the probe. */
static void test_arguments(void **state)
{
	static const struct expect c[] = {
		{ "52800040 b0000876", 1, SITE_STEPPED, 0, "movz" },
		{ "52800040 b0000876", 0xfe, SITE_ADR, 4, "adrp x22" },
		{ "aa0003e7 b0000876", 0x80, SITE_STEPPED, 0, "mov" },	      /* mov x7, x0 */
		{ "f8627801 b0000876", 2, SITE_STEPPED, 0, "word f8627801" }, /* ldr x1 */
		{ "f8408420 b0000876", 2, SITE_STEPPED, 0, "ldr" },	      /* ldr x0, [x1], #8 */
		{ "f8408420 b0000876", 1, SITE_STEPPED, 0, "ldr" },
		{ "f8408420 b0000876", 4, SITE_ADR, 4, "adrp x22" },
		{ "f8008401 b0000876", 1, SITE_STEPPED, 0, "str" }, /* str x1, [x0], #8 */
		{ "f9000401 b0000876", 3, SITE_ADR, 4, "adrp x22" },
		{ "f8218062 b0000876", 4, SITE_STEPPED, 0, "word f8218062" }, /* swp */
		{ "f8218062 b0000876", 2, SITE_ADR, 4, "adrp x22" },
		{ "f821007f b0000876", ARGS_ALL, SITE_ADR, 4, "adrp x22" },   /* stadd */
		{ "c8a17c62 b0000876", 2, SITE_STEPPED, 0, "word c8a17c62" }, /* cas */
		{ "9e660020 b0000876", 1, SITE_STEPPED, 0, "word 9e660020" }, /* fmov x0, d1 */
		{ "0e0c3c02 b0000876", 4, SITE_STEPPED, 0, "word 0e0c3c02" }, /* umov */
		{ "4cdf7000 b0000876", 1, SITE_STEPPED, 0, "word 4cdf7000" }, /* ld1, x0 += 16 */
		{ "eb01001f b0000876", 3, SITE_ADR, 4, "adrp x22" },	      /* cmp */
		{ "f240001f b0000876", 1, SITE_ADR, 4, "adrp x22" },	      /* tst */
		{ "9a830041 b0000876", 2, SITE_STEPPED, 0, "word 9a830041" }, /* csel */
	};

	CHECK(c);
}

/* No site after a branch, nor at a branch target. */
static void test_branches(void **state)
{
	static const struct expect c[] = {
		/* mov; L: adrp; b L */
		{ "aa0003f3 b0000876 17ffffff", ARGS_ALL, SITE_STEPPED, 0, "mov" },
		/* into the passed part; back to the entry; to after the site */
		{ "aa0003f3 aa0003f3 b0000876 17fffffe", ARGS_ALL, SITE_STEPPED, 0, "mov" },
		{ "aa0003f3 aa0003f3 b0000876 17fffffd", ARGS_ALL, SITE_ADR, 8, "adrp x22" },
		{ "aa0003f3 b0000876 d503201f 17ffffff", ARGS_ALL, SITE_ADR, 4, "adrp x22" },
		/* by tbz and b.cond */
		{ "aa0003f3 b0000876 3607ffe0", ARGS_ALL, SITE_STEPPED, 0, "mov" },
		{ "aa0003f3 b0000876 54ffffe0", ARGS_ALL, SITE_STEPPED, 0, "mov" },
		/* a computed jump with a table; a virtual tail call */
		{ "aa0003f3 b0000876 38604821 d61f0020", ARGS_ALL, SITE_STEPPED, 0, "mov" },
		{ "aa0003f3 b0000876 f9400021 d61f0020", ARGS_ALL, SITE_ADR, 4, "adrp x22" },
		/* a word that is not known */
		{ "aa0003f3 b0000876 d65f03c0 54000070", ARGS_ALL, SITE_STEPPED, 0, "mov" },
	};

	CHECK(c);
}

/* With SITE_AT_ENTRY, no site after a change of the stack pointer or x29. */
static void test_at_entry(void **state)
{
	static const struct expect c[] = {
		{ CPU_DELETE, 2, SITE_ADR, 16, "adrp x22" },
		{ CPU_DELETE, 2 | SITE_AT_ENTRY, SITE_STEPPED, 0, "sub" },
		{ "a9bc7bfd b0000876 d65f03c0", SITE_AT_ENTRY, SITE_STEPPED, 0, "stp" },
		{ "910003fd b0000876 d65f03c0", SITE_AT_ENTRY, SITE_STEPPED, 0, "mov" },
		{ "b0000876 a9bc7bfd d65f03c0", SITE_AT_ENTRY, SITE_ADR, 0, "adrp x22" },
		{ "d503233f b0000876 d65f03c0", SITE_AT_ENTRY, SITE_ADR, 4, "adrp x22" },
	};

	CHECK(c);
}

static void test_unknown_size(void **state)
{
	uint8_t buf[32];
	struct site s;
	size_t len;

	len = from_words("d503245f b0000876 d65f03c0", buf, sizeof(buf));
	assert_int_equal(site__pick(ELF_AARCH64, buf, len, 0, 1, &s), 0);
	assert_true(s.cls == SITE_STEPPED && s.offset == 0);
	assert_string_equal(s.text, "bti");
	assert_int_equal(site__pick(ELF_AARCH64, buf, len, len + 4, 1, &s), 0);
	assert_true(s.offset == 0);
	assert_int_equal(site__pick(ELF_AARCH64, buf, len, len, 1, &s), 0);
	assert_true(s.cls == SITE_ADR && s.offset == 4);
	/* cut off within an instruction */
	assert_int_equal(site__pick(ELF_AARCH64, buf, 3, 3, 1, &s), -EINVAL);
	assert_int_equal(site__pick(ELF_AARCH64 + 1, buf, len, len, 1, &s), -ENOEXEC);
}

/* The stack and the return address at the site. */
static void test_frame(void **state)
{
	static const struct {
		const char *words;
		unsigned args;
		uint32_t offset;
		enum site_return ret;
		int32_t sp, x30_saved_at;
	} c[] = {
		{ REPORT, 0x1f, 0, SITE_X30, 0, -56 },
		{ REPORT, 0, 44, SITE_X30, -64, -56 },
		{ CPU_DELETE, 2, 16, SITE_X30, -0x250, -0x248 },
		{ "d503233f a9bc7bfd 910003fd b0000876", 1, 12, SITE_X30_SIGNED, -64, -56 },
		{ "f81f0ffe b0000876", 1, 4, SITE_X30, -16, -16 },	   /* str x30 */
		{ "d10043ff f90007fe b0000876", 1, 8, SITE_X30, -16, -8 }, /* str x30, [sp, #8] */
		/* before paciasp x30 is plain */
		{ "b0000876 d503233f a9bc7bfd", 1, 0, SITE_X30, 0, -56 },
		/* never saved, or only behind a branch */
		{ "b0000876 d65f03c0", 1, 0, SITE_X30, 0, 0 },
		{ "b4000040 a9bc7bfd", 1, 0, SITE_X30, 0, 0 },
		/* the stack pointer is unknown from here on */
		{ "cb2163ff b0000876", 1, 0, SITE_X30, 0, 0 },
		{ "910003bf b0000876", 1, 0, SITE_X30, 0, 0 },
		/* x30 is not the return address after ldp */
		{ "a8c47bfd b0000876", 1, 0, SITE_X30, 0, 0 },
	};
	uint8_t buf[128];
	struct site s;
	size_t i, len;

	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		len = from_words(c[i].words, buf, sizeof(buf));
		assert_int_equal(site__pick(ELF_AARCH64, buf, len, len, c[i].args, &s), 0);
		if (s.offset != c[i].offset || s.ret != c[i].ret || s.sp != c[i].sp ||
		    s.x30_saved_at != c[i].x30_saved_at)
			fail_msg("%s: +%u, return %d, sp %d, saved at %d", c[i].words, s.offset,
				 (int)s.ret, s.sp, s.x30_saved_at);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pytorch),	    cmocka_unit_test(test_entry),
		cmocka_unit_test(test_passed_over), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_arguments),   cmocka_unit_test(test_branches),
		cmocka_unit_test(test_at_entry),    cmocka_unit_test(test_unknown_size),
		cmocka_unit_test(test_frame),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
