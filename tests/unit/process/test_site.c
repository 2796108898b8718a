/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/elf.h"
#include "inspect/process/insn.h"
#include "inspect/site.h"

#define ARGS_ALL 0x3fu

/* Prologues in hex digits, with any blanks between instructions. */
static size_t from_hex(const char *hex, uint8_t *buf, size_t size)
{
	size_t n = 0;
	char two[3] = "", *end;

	while (*hex) {
		if (*hex == ' ') {
			hex++;
			continue;
		}
		assert_true(hex[1] && n < size);
		memcpy(two, hex, 2);
		buf[n++] = (uint8_t)strtoul(two, &end, 16);
		assert_true(!*end);
		hex += 2;
	}
	return n;
}

struct expect {
	const char *hex;
	unsigned args;
	enum site_class cls; /* SITE_NONE: rejected */
	uint32_t offset;
	const char *text;
};

static void check(const struct expect *c, size_t n)
{
	struct site s;
	uint8_t buf[128];
	size_t i, len;
	int err;

	for (i = 0; i < n; i++) {
		memset(&s, 0xa5, sizeof(s));
		len = from_hex(c[i].hex, buf, sizeof(buf));
		err = site__pick(ELF_X86_64, buf, len, len, c[i].args, &s);
		if (c[i].cls == SITE_NONE) {
			if ((err != -EINVAL && err != -ENOTSUP) || (uint8_t)s.length != 0xa5)
				fail_msg("%s: accepted at +%u", c[i].hex, s.offset);
			continue;
		}
		if (err || s.cls != c[i].cls || s.offset != c[i].offset ||
		    strcmp(s.text, c[i].text))
			fail_msg("%s: %d, class %d +%u \"%s\"", c[i].hex, err, (int)s.cls, s.offset,
				 s.text);
	}
}
#define CHECK(c) check(c, sizeof(c) / sizeof((c)[0]))

static void test_entry(void **state)
{
	static const struct expect c[] = {
		{ "4156 4589c6 4155 c3", ARGS_ALL, SITE_PUSH, 0, "push %r14" },
		{ "55 4889e5 5d c3", ARGS_ALL, SITE_PUSH, 0, "push %rbp" },
		{ "54 5c c3", ARGS_ALL, SITE_PUSH, 0, "push %rsp" },
		{ "90 c3", ARGS_ALL, SITE_NOP, 0, "nop" },
		{ "6690 c3", ARGS_ALL, SITE_NOP, 0, "nop" },
		{ "e900010000", ARGS_ALL, SITE_JMP, 0, "jmp +261" },
		{ "ebf0", ARGS_ALL, SITE_JMP, 0, "jmp -14" },
		{ "e8fbffffff c3", ARGS_ALL, SITE_CALL, 0, "call +0" },
		{ "740c c3", ARGS_ALL, SITE_JCC, 0, "je +14" },
		{ "0f8f00000000 c3", ARGS_ALL, SITE_JCC, 0, "jg +6" },
	};

	CHECK(c);
}

static void test_passed_over(void **state)
{
	static const struct expect c[] = {
		/* endbr64, then the push */
		{ "f30f1efa 55 4889e5 c3", ARGS_ALL, SITE_PUSH, 4, "push %rbp" },
		{ "4883ec08 53 c3", ARGS_ALL, SITE_PUSH, 4, "push %rbx" },
		/* at::RecordFunction::end: cmpb $0,0x68(%rdi); je */
		{ "807f6800 745a 4154 31ed 53 c3", 1, SITE_JCC, 4, "je +96" },
		/* mov of a global, not of an argument */
		{ "488b0591510f00 4156 c3", ARGS_ALL, SITE_PUSH, 7, "push %r14" },
		/* patchable entry: never at the 5-byte nop or a longer one */
		{ "0f1f440000 55 c3", ARGS_ALL, SITE_PUSH, 5, "push %rbp" },
		{ "660f1f440000 55 c3", ARGS_ALL, SITE_PUSH, 6, "push %rbp" },
		{ "662e0f1f840000000000 55 c3", ARGS_ALL, SITE_PUSH, 10, "push %rbp" },
		{ "0f1f00 55 c3", ARGS_ALL, SITE_PUSH, 3, "push %rbp" },
		{ "f390 55 c3", ARGS_ALL, SITE_PUSH, 2, "push %rbp" },
		/* a push with a prefix, which the kernel does not emulate */
		{ "6655 53 c3", ARGS_ALL, SITE_PUSH, 2, "push %rbx" },
		{ "4055 53 c3", ARGS_ALL, SITE_PUSH, 2, "push %rbx" },
		{ "ff7708 53 c3", ARGS_ALL, SITE_PUSH, 3, "push %rbx" },
		/* xchg %r8,%rax is 90 with a prefix, not a nop */
		{ "4990 55 c3", 0x2f, SITE_PUSH, 2, "push %rbp" },
	};

	CHECK(c);
}

/* No site after an instruction that changes an argument used by the probe. */
static void test_arguments(void **state)
{
	static const struct expect c[] = {
		{ "4889f7 55 c3", 0x01, SITE_STEPPED, 0, "mov" }, /* mov %rsi,%rdi */
		{ "4889f7 55 c3", 0x02, SITE_PUSH, 3, "push %rbp" },
		{ "4889fe 55 c3", 0x02, SITE_STEPPED, 0, "mov" }, /* mov %rdi,%rsi */
		{ "8b17 55 c3", 0x04, SITE_STEPPED, 0, "mov" },	  /* mov (%rdi),%edx */
		{ "8b17 55 c3", 0x3b, SITE_PUSH, 2, "push %rbp" },
		{ "b101 55 c3", 0x08, SITE_STEPPED, 0, "mov" },	  /* mov $1,%cl: a part of rcx */
		{ "b501 55 c3", 0x08, SITE_STEPPED, 0, "mov" },	  /* mov $1,%ch */
		{ "40b601 55 c3", 0x02, SITE_STEPPED, 0, "mov" }, /* mov $1,%sil */
		{ "41b801000000 55 c3", 0x10, SITE_STEPPED, 0, "mov" }, /* mov $1,%r8d */
		{ "41b801000000 55 c3", 0x2f, SITE_PUSH, 6, "push %rbp" },
		{ "4d31c9 55 c3", 0x20, SITE_STEPPED, 0, "xor" },	 /* xor %r9,%r9 */
		{ "4d39c9 55 c3", ARGS_ALL, SITE_PUSH, 3, "push %rbp" }, /* cmp does not write */
		{ "4885ff 55 c3", ARGS_ALL, SITE_PUSH, 3, "push %rbp" }, /* test */
		{ "488d7f08 55 c3", 0x01, SITE_STEPPED, 0, "lea" },
		{ "4887fe 55 c3", 0x01, SITE_STEPPED, 0,
		  "bytes 48 87 fe" }, /* xchg %rdi,%rsi writes both */
		{ "4887fe 55 c3", 0x02, SITE_STEPPED, 0, "bytes 48 87 fe" },
		{ "4892 55 c3", 0x04, SITE_STEPPED, 0, "bytes 48 92" },	     /* xchg %rax,%rdx */
		{ "5f 57 c3", 0x01, SITE_STEPPED, 0, "bytes 5f" },	     /* pop %rdi */
		{ "48f7e7 55 c3", 0x04, SITE_STEPPED, 0, "bytes 48 f7 e7" }, /* mul writes rdx */
		{ "4899 55 c3", 0x04, SITE_STEPPED, 0, "bytes 48 99" },	     /* cqto writes rdx */
		{ "4899 55 c3", 0x3b, SITE_PUSH, 2, "push %rbp" },
		{ "f348ab 55 c3", 0x01, SITE_STEPPED, 0, "bytes f3 48 ab" }, /* rep stos */
		{ "f348ab 55 c3", 0x08, SITE_STEPPED, 0, "bytes f3 48 ab" },
		{ "48ffcf 55 c3", 0x01, SITE_STEPPED, 0, "bytes 48 ff cf" }, /* dec %rdi */
		{ "480f44fe 55 c3", 0x01, SITE_STEPPED, 0,
		  "bytes 48 0f 44 fe" },				     /* cmove, may write */
		{ "0f94c1 55 c3", 0x08, SITE_STEPPED, 0, "bytes 0f 94 c1" }, /* sete %cl */
		{ "0fa2 53 c3", 0x04, SITE_STEPPED, 0, "bytes 0f a2" },	     /* cpuid */
		{ "48c1e703 55 c3", 0x01, SITE_STEPPED, 0, "bytes 48 c1 e7 03" }, /* shl */
		{ "c5f877 55 c3", 0x01, SITE_STEPPED, 0,
		  "bytes c5 f8 77" }, /* vzeroupper: not decoded */
		{ "c5f877 55 c3", 0, SITE_PUSH, 3, "push %rbp" },
	};

	CHECK(c);
}

/* No site after a branch, nor at a branch target. */
static void test_branches(void **state)
{
	static const struct expect c[] = {
		/* sub; L: push; ... jmp L */
		{ "4883ec08 53 ebfd", ARGS_ALL, SITE_STEPPED, 0, "sub" },
		/* the same by a conditional jump with 32 bits, and by loop */
		{ "4883ec08 53 0f85f9ffffff c3", ARGS_ALL, SITE_STEPPED, 0, "sub" },
		{ "4883ec08 53 e2fd c3", ARGS_ALL, SITE_STEPPED, 0, "sub" },
		/* a branch into the skipped part: sub at +4 runs again */
		{ "488b06 4883ec08 53 ebf9", ARGS_ALL, SITE_STEPPED, 0, "mov" },
		/* back to the entry, which passes the push again */
		{ "4883ec08 53 ebf9", ARGS_ALL, SITE_PUSH, 4, "push %rbx" },
		/* to after the site: no effect */
		{ "4883ec08 53 90 ebfd", ARGS_ALL, SITE_PUSH, 4, "push %rbx" },
		/* ret before the push: not in the straight line */
		{ "4885ff c3 55 c3", ARGS_ALL, SITE_STEPPED, 0, "test" },
		{ "4885ff ffe0 55 c3", ARGS_ALL, SITE_STEPPED, 0, "test" },
		{ "4885ff 0f0b 55 c3", ARGS_ALL, SITE_STEPPED, 0, "test" },
		{ "4885ff ffd0 55 c3", ARGS_ALL, SITE_STEPPED, 0, "test" },
		/* a computed jump with a table: any target is possible */
		{ "4883ec08 53 486304be 4801f0 ffe0", ARGS_ALL, SITE_STEPPED, 0, "sub" },
		{ "4883ec08 53 ff24c500000000", ARGS_ALL, SITE_STEPPED, 0, "sub" },
		/* a computed jump without a table: a virtual tail call */
		{ "4883ec08 53 488b4010 5b ffe0", ARGS_ALL, SITE_PUSH, 4, "push %rbx" },
		/* a table, and only a jump to another library's function */
		{ "4883ec08 53 486304be ff2500000000", ARGS_ALL, SITE_PUSH, 4, "push %rbx" },
		/* the rest cannot be decoded: nothing may be skipped */
		{ "4883ec08 53 06 c3", ARGS_ALL, SITE_STEPPED, 0, "sub" },
		{ "4883ec08 53 c3 e900", ARGS_ALL, SITE_STEPPED, 0, "sub" },
		/* at the entry itself that does not matter */
		{ "53 06 c3", ARGS_ALL, SITE_PUSH, 0, "push %rbx" },
	};

	CHECK(c);
}

static void test_refused(void **state)
{
	static const struct expect c[] = {
		{ "", 0, SITE_NONE, 0, NULL },
		{ "06", 0, SITE_NONE, 0, NULL }, /* invalid in 64-bit mode */
		{ "48", 0, SITE_NONE, 0, NULL }, /* cut off */
		{ "e90000", 0, SITE_NONE, 0, NULL },
		{ "0f1f440000", 0, SITE_NONE, 0, NULL }, /* only a 5-byte nop */
		{ "662e0f1f840000000000", 0, SITE_NONE, 0, NULL },
		{ "2e90 c3", 0, SITE_STEPPED, 2, "ret" },   /* a prefix that the kernel refuses */
		{ "f0480fb10f 06", 0, SITE_NONE, 0, NULL }, /* lock, likewise */
		{ "cc c3", 0, SITE_NONE, 0, NULL },
		{ "0f0b", 0, SITE_NONE, 0, NULL },
		{ "0f05 c3", 0, SITE_NONE, 0, NULL },
		{ "62f17c4828c1 06", 0, SITE_NONE, 0, NULL },
	};

	CHECK(c);
}

/* A refusal because of a nop at the entry differs from other refusals. */
static void test_why_refused(void **state)
{
	static const struct {
		const char *hex;
		bool whole;
		int err;
	} c[] = {
		{ "0f1f440000", true, -ENOTSUP },
		{ "0f1f440000 55 c3", false, -ENOTSUP },  /* branches to the push are unknown */
		{ "0f1f440000 55 ebfd", true, -ENOTSUP }, /* a loop leads to it */
		{ "0f1f440000 cc", true, -ENOTSUP },
		{ "0f1f440000 55 c3", true, 0 },
		{ "cc c3", true, -EINVAL },
	};
	uint8_t buf[32];
	struct site s;
	size_t len;

	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		len = from_hex(c[i].hex, buf, sizeof(buf));
		assert_int_equal(site__pick(ELF_X86_64, buf, len, c[i].whole ? len : 0, 1, &s),
				 c[i].err);
	}
}

/* If a function's size is unknown, only its entry is a site. */
static void test_unknown_size(void **state)
{
	uint8_t buf[32];
	struct site s;
	size_t len;

	len = from_hex("f30f1efa 55 c3", buf, sizeof(buf));
	assert_int_equal(site__pick(ELF_X86_64, buf, len, 0, 1, &s), 0);
	assert_true(s.cls == SITE_STEPPED && s.offset == 0 && s.length == 4);
	assert_string_equal(s.text, "endbr64");
	assert_int_equal(site__pick(ELF_X86_64, buf, len, len + 1, 1, &s), 0);
	assert_true(s.cls == SITE_STEPPED && s.offset == 0);
	assert_int_equal(site__pick(ELF_X86_64, buf, len, len, 1, &s), 0);
	assert_true(s.cls == SITE_PUSH && s.offset == 4);
	/* more bytes than the function: the next function is ignored */
	assert_int_equal(site__pick(ELF_X86_64, buf, len, 4, 1, &s), 0);
	assert_true(s.cls == SITE_STEPPED && s.offset == 0);
	len = from_hex("55 c3", buf, sizeof(buf));
	assert_int_equal(site__pick(ELF_X86_64, buf, len, 0, 1, &s), 0);
	assert_true(s.cls == SITE_PUSH && s.offset == 0 && s.length == 1);
}

static void test_lengths(void **state)
{
	static const struct {
		const char *hex;
		int length;
	} c[] = {
		{ "488b8424 00010000", 8 },	 /* mov 0x100(%rsp),%rax */
		{ "8b04 8d 00000000", 7 },	 /* mov 0(,%rcx,4),%eax */
		{ "488b05 00000000", 7 },	 /* mov 0(%rip),%rax */
		{ "48b8 1122334455667788", 10 }, /* movabs */
		{ "66b8 1122", 4 },
		{ "66 48b8 1122334455667788", 11 },
		{ "66c707 1122", 5 },
		{ "f60701", 3 }, /* testb $1,(%rdi) */
		{ "f617", 2 },	 /* notb (%rdi) */
		{ "66f707 0100", 5 },
		{ "48f7c7 01000000", 7 },
		{ "a0 1122334455667788", 9 },
		{ "67a0 11223344", 6 },
		{ "c8 1000 00", 4 },
		{ "c2 0800", 3 },
		{ "666648e8 00000000", 8 }, /* padded as before __tls_get_addr */
		{ "66e8 0000", -1 },	    /* processors differ */
		{ "0f20c0", 3 },
		{ "0f38f007", 4 },
		{ "660f3a0f c8 08", 6 },
		{ "c5f96fc1", 4 },
		{ "c5f970c1 1b", 5 },
		{ "c4e3fd00c1 d8", 6 },
		{ "c4e27918 4510", 6 },
		{ "62f17c48 28 4010", 7 },
		{ "62f37d48 08 d0 08", 7 },
		{ "62f67d48 98 c1", 6 },
		{ "8fc0", 2 },
		{ "8fc8", -1 },
		{ "feff", -1 },
		{ "ffff", -1 },
		{ "0f0fc1 9e", 4 },
		{ "4866 90", -1 }, /* REX before another prefix is ignored */
		{ "66666666666666666666666666666666 90", -1 }, /* longer than any instruction */
		{ "2e2e2e2e2e2e2e2e2e2e2e2e2e2e 90", 15 },
		{ "9a", -1 },
		{ "d6", -1 },
		{ "62 00", -1 },
	};
	struct insn in;
	uint8_t buf[64];
	size_t i, len;
	int err;

	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		len = from_hex(c[i].hex, buf, sizeof(buf));
		err = insn__decode(buf, len, &in);
		if (c[i].length < 0 ? err != -EINVAL : err || in.length != c[i].length)
			fail_msg("%s: %d, length %d", c[i].hex, err, err ? 0 : in.length);
		/* one byte less is not enough */
		if (c[i].length > 0 && insn__decode(buf, len - 1, &in) != -EINVAL)
			fail_msg("%s: decoded without its last byte", c[i].hex);
	}
}

/* With a shadow stack, no site at a call; instructions before it are allowed. */
static void test_no_calls(void **state)
{
	static const struct expect c[] = {
		{ "e8fbffffff c3", SITE_NO_CALLS, SITE_NONE, 0, NULL },
		{ "ffd0 c3", SITE_NO_CALLS, SITE_NONE, 0, NULL },
		{ "4883ec08 e8fbffffff c3", SITE_NO_CALLS, SITE_STEPPED, 0, "sub" },
		{ "4883ec08 e800010000 c3", 0, SITE_CALL, 4, "call +265" },
		{ "55 e8fbffffff c3", SITE_NO_CALLS, SITE_PUSH, 0, "push %rbp" },
	};

	CHECK(c);
}

/* With SITE_AT_ENTRY, no site after a change of the stack pointer. */
static void test_at_entry(void **state)
{
	static const struct expect c[] = {
		{ "4883ec08 55 c3", 0, SITE_PUSH, 4, "push %rbp" },
		{ "4883ec08 55 c3", SITE_AT_ENTRY, SITE_STEPPED, 0, "sub" },
		{ "f30f1efa 55 c3", SITE_AT_ENTRY, SITE_PUSH, 4, "push %rbp" },
		{ "4885ff 53 c3", SITE_AT_ENTRY, SITE_PUSH, 3, "push %rbx" },
		{ "6655 53 c3", SITE_AT_ENTRY, SITE_STEPPED, 0, "bytes 66 55" },
		{ "ff7708 53 c3", SITE_AT_ENTRY, SITE_STEPPED, 0, "bytes ff 77 08" },
		{ "ff4708 53 c3", SITE_AT_ENTRY, SITE_PUSH, 3, "push %rbx" },
		{ "6a01 53 c3", SITE_AT_ENTRY, SITE_STEPPED, 0, "bytes 6a 01" },
		{ "9c 53 c3", SITE_AT_ENTRY, SITE_STEPPED, 0, "bytes 9c" },
		{ "4889e5 53 c3", SITE_AT_ENTRY, SITE_PUSH, 3, "push %rbx" },
		{ "4889ec 53 c3", SITE_AT_ENTRY, SITE_STEPPED, 0, "mov" }, /* mov %rbp,%rsp */
	};

	CHECK(c);
}

/* The second place: behind a site that lowers the stack pointer and does nothing else, otherwise at
 * before it. */
static void test_second(void **state)
{
	static const struct {
		const char *hex;
		struct site_second second;
	} c[] = {
		{ "4156 4589c6 4155 c3", { 2, 8 } },
		{ "55 4889e5 5d c3", { 1, 8 } },
		{ "90 55 c3", { 1, 0 } },
		{ "4883ec28 c3", { 4, 0x28 } },
		{ "f30f1efa 55 c3", { 1, 8 } },
		/* branches to it, or the code is not known */
		{ "55 4889e5 ebfb c3", { 0 } },
		{ "55 48", { 0 } },
		/* other effects */
		{ "eb00 c3", { 0 } },
		{ "e800000000 c3", { 0 } },
		{ "4881ec00010000 c3", { 0 } },
		/* before a jump and a call; not if it refers to memory by its own address */
		{ "4885ff 7401 90 c3", { -3, 0 } },
		{ "4883ec08 8b7f10 e800000000 c3", { -3, 0 } },
		{ "488b05d9a36c00 4885c0 7401 90 c3", { -3, 0 } },
		{ "4885c0 488b05d9a36c00 7401 90 c3", { -10, 0 } },
		{ "488b05d9a36c00 7401 90 c3", { 0 } },
		/* nothing behind it that can be probed */
		{ "55 cc", { 0 } },
		{ "55", { 0 } },
	};
	uint8_t buf[64];
	struct site s;
	size_t len;

	(void)state;
	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		len = from_hex(c[i].hex, buf, sizeof(buf));
		assert_int_equal(site__pick(ELF_X86_64, buf, len, len,
					    SITE_FIRST * (i != 4 && c[i].second.after >= 0), &s),
				 0);
		if (memcmp(&s.second, &c[i].second, sizeof(s.second)))
			fail_msg("%s: %d bytes after, %u lower", c[i].hex, s.second.after,
				 s.second.lower);
		/* an unknown size */
		assert_int_equal(site__pick(ELF_X86_64, buf, len, 0, 0, &s), 0);
		assert_int_equal(s.second.after, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_entry),	    cmocka_unit_test(test_passed_over),
		cmocka_unit_test(test_arguments),   cmocka_unit_test(test_branches),
		cmocka_unit_test(test_refused),	    cmocka_unit_test(test_unknown_size),
		cmocka_unit_test(test_why_refused), cmocka_unit_test(test_no_calls),
		cmocka_unit_test(test_lengths),	    cmocka_unit_test(test_at_entry),
		cmocka_unit_test(test_second),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
