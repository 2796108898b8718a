/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inspect/proc.h"
#include "inspect/elf.h"

#define NT_STAPSDT 3

/* ---- notes ---- */

struct notes {
	uint8_t bytes[1024];
	size_t len;
};

struct note {
	uint32_t type;
	const char *owner;
	uint64_t v[3];	  /* pc, base, semaphore */
	const char *text; /* provider, name, arguments: each with its NUL */
	size_t text_len;
};

#define TEXT(s) s, sizeof(s) /* size with the last NUL */

static void pad(struct notes *n)
{
	while (n->len & 3)
		n->bytes[n->len++] = 0;
}

static void add(struct notes *n, const struct note *note)
{
	Elf64_Nhdr h = { .n_namesz = (uint32_t)strlen(note->owner) + 1,
			 .n_descsz = (uint32_t)(24 + note->text_len),
			 .n_type = note->type };

	assert_true(n->len + sizeof(h) + h.n_namesz + h.n_descsz + 6 <= sizeof(n->bytes));
	memcpy(n->bytes + n->len, &h, sizeof(h));
	n->len += sizeof(h);
	memcpy(n->bytes + n->len, note->owner, h.n_namesz);
	n->len += h.n_namesz;
	pad(n);
	memcpy(n->bytes + n->len, note->v, 24);
	memcpy(n->bytes + n->len + 24, note->text, note->text_len);
	n->len += h.n_descsz;
	pad(n);
}

/* Parses notes in memory of their exact size, so that sanitizers find reads beyond it. */
static size_t parse(const struct notes *n, size_t len, struct usdt *v, size_t max)
{
	uint8_t *copy = malloc(len ? len : 1);
	size_t found;

	assert_non_null(copy);
	memcpy(copy, n->bytes, len);
	found = usdt__notes(copy, len, "pytorch", "malloc", v, max);
	free(copy);
	return found;
}

static const struct note good[] = {
	{ NT_STAPSDT, "stapsdt", { 0x1000, 0x2000, 0x3000 }, TEXT("pytorch\0free\0-8@%rdi") },
	{ NT_STAPSDT,
	  "stapsdt",
	  { 0x1100, 0x2000, 0x3002 },
	  TEXT("pytorch\0malloc\0-8@%rax -1@%dl") },
	{ NT_STAPSDT, "stapsdt", { 0x1200, 0x2000, 0 }, TEXT("libstdcxx\0malloc\0-8@%rcx") },
	{ NT_STAPSDT, "stapsdt", { 0x1300, 0, 0 }, TEXT("pytorch\0malloc\0") },
	{ NT_STAPSDT, "stapsdt", { 0x1400, 0, 0 }, TEXT("pytorch\0malloc\0008@(%rsp)") },
};

static struct notes all_good(void)
{
	struct notes n = { .len = 0 };
	size_t i;

	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		add(&n, &good[i]);
	return n;
}

static void test_notes(void **state)
{
	struct notes n = all_good();
	struct usdt v[4];

	assert_int_equal(parse(&n, n.len, v, 4), 3);
	assert_int_equal(v[0].pc, 0x1100);
	assert_int_equal(v[0].base, 0x2000);
	assert_int_equal(v[0].semaphore, 0x3002);
	assert_string_equal(v[0].args, "-8@%rax -1@%dl");
	assert_int_equal(v[1].pc, 0x1300);
	assert_int_equal(v[1].semaphore, 0);
	assert_string_equal(v[1].args, "");
	assert_int_equal(v[2].pc, 0x1400);
	assert_string_equal(v[2].args, "8@(%rsp)");
	/* returns at most `max` notes */
	memset(v, 0xa5, sizeof(v));
	assert_int_equal(parse(&n, n.len, v, 1), 1);
	assert_int_equal(v[1].pc, 0xa5a5a5a5a5a5a5a5);
	assert_int_equal(parse(&n, n.len, v, 0), 0);
	assert_int_equal(parse(&n, 0, v, 4), 0);
}

/* Cut at any place: complete notes are found, others not. */
static void test_truncated(void **state)
{
	struct notes n = all_good();
	size_t len, found, last = 0;
	struct usdt v[4];

	for (len = 0; len <= n.len; len++) {
		found = parse(&n, len, v, 4);
		assert_true(found == last || found == last + 1);
		last = found;
		if (found)
			assert_string_equal(v[0].args, "-8@%rax -1@%dl");
	}
	assert_int_equal(last, 3);
}

static void test_other_notes(void **state)
{
	static char long_text[400] = "pytorch\0malloc\0";
	static const struct note others[] = {
		{ NT_STAPSDT + 1, "stapsdt", { 1, 2, 3 }, TEXT("pytorch\0malloc\0x") },
		{ NT_STAPSDT, "stapsdT", { 1, 2, 3 }, TEXT("pytorch\0malloc\0x") },
		{ NT_STAPSDT, "GNU", { 1, 2, 3 }, TEXT("pytorch\0malloc\0x") },
		{ NT_STAPSDT, "stapsdt-too", { 1, 2, 3 }, TEXT("pytorch\0malloc\0x") },
		{ NT_STAPSDT, "stapsdt", { 1, 2, 3 }, TEXT("pytorch\0mallo\0x") },
		{ NT_STAPSDT, "stapsdt", { 1, 2, 3 }, TEXT("pytorchmalloc\0\0x") },
		{ NT_STAPSDT,
		  "stapsdt",
		  { 1, 2, 3 },
		  "pytorch\0malloc\0x",
		  16 }, /* arguments without a NUL */
		{ NT_STAPSDT,
		  "stapsdt",
		  { 1, 2, 3 },
		  "pytorch\0malloc",
		  14 }, /* the name has no NUL */
		{ NT_STAPSDT, "stapsdt", { 1, 2, 3 }, "pytorch", 7 },
		{ NT_STAPSDT, "stapsdt", { 1, 2, 3 }, "", 0 },
		{ NT_STAPSDT,
		  "stapsdt",
		  { 1, 2, 3 },
		  long_text,
		  sizeof(long_text) }, /* larger than the limit */
	};
	struct usdt v[4];
	size_t i;

	memset(long_text + 15, 'x', sizeof(long_text) - 16);
	for (i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct notes n = { .len = 0 };

		add(&n, &others[i]);
		if (parse(&n, n.len, v, 4))
			fail_msg("note %zu was taken", i);
		add(&n, &good[1]);
		if (parse(&n, n.len, v, 4) != 1 || v[0].pc != 0x1100)
			fail_msg("note %zu hides the next", i);
	}
}

/* Invalid lengths end the parsing, within bounds. */
static void test_hostile_lengths(void **state)
{
	static const uint32_t values[] = { 0,	       1,	   7,	       8,
					   9,	       23,	   24,	       0x7fffffff,
					   0x80000000, 0xfffffffc, 0xfffffffd, 0xffffffff };
	size_t i, k, field, at = 0, found;
	struct notes n = all_good();
	struct usdt v[8];
	Elf64_Nhdr h;

	for (k = 0; k < sizeof(good) / sizeof(good[0]); k++) {
		memcpy(&h, n.bytes + at, sizeof(h));
		for (field = 0; field < 2; field++) {
			for (i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
				struct notes bad = n;

				memcpy(bad.bytes + at + 4 * field, &values[i], 4);
				found = parse(&bad, bad.len, v, 8);
				assert_true(found <= 3);
				if (values[i] > 0x7ffffffe)
					assert_int_equal(found, k <= 1 ? 0 : k <= 3 ? 1 : 2);
			}
		}
		at += sizeof(h) + 8 + (h.n_descsz + 3) / 4 * 4;
	}
	assert_int_equal(at, n.len);
}

static void test_damaged(void **state)
{
	struct notes n = all_good();
	struct usdt v[8];
	unsigned seed = 1;
	size_t i, k;

	for (i = 0; i < 200000; i++) {
		struct notes bad = n;

		for (k = 0; k < 1 + i % 4; k++) {
			seed = seed * 1103515245 + 12345;
			bad.bytes[(seed >> 8) % n.len] = (uint8_t)(seed >> 24);
		}
		for (k = parse(&bad, bad.len - i % 16, v, 8); k > 0; k--)
			assert_non_null(memchr(v[k - 1].args, '\0', sizeof(v[0].args)));
	}
}

/* ---- arguments ---- */

/* Registers in the order of asm/ptrace.h. */
enum {
	R15 = 0,
	R14 = 8,
	RBP = 32,
	RBX = 40,
	R11 = 48,
	R8 = 72,
	RAX = 80,
	RCX = 88,
	RDX = 96,
	RSI = 104,
	RDI = 112,
	RSP = 152
};

static void check_arg(const struct mt_usdt_arg *a, unsigned reg, unsigned size, bool memory,
		      int disp)
{
	assert_int_equal(a->reg, reg);
	assert_int_equal(a->size, size);
	assert_int_equal(a->memory, memory);
	assert_int_equal(a->disp, disp);
}

static void test_args(void **state)
{
	struct mt_usdt_arg a[8];

	assert_int_equal(usdt__args("-8@%rax -1@%dl -8@%rbx -8@-56(%rbp)", a, 4), 0);
	check_arg(&a[0], RAX, 8, false, 0);
	check_arg(&a[1], RDX, 1, false, 0);
	check_arg(&a[2], RBX, 8, false, 0);
	check_arg(&a[3], RBP, 8, true, -56);
	assert_int_equal(
		usdt__args("8@(%rsp) 4@%r15d 2@%r11w 1@%r8b 4@%ecx 2@%si 1@%dil 8@0x10(%r14)", a,
			   7),
		0);
	check_arg(&a[0], RSP, 8, true, 0);
	check_arg(&a[1], R15, 4, false, 0);
	check_arg(&a[2], R11, 2, false, 0);
	check_arg(&a[3], R8, 1, false, 0);
	check_arg(&a[4], RCX, 4, false, 0);
	check_arg(&a[5], RSI, 2, false, 0);
	check_arg(&a[6], RDI, 1, false, 0);
	assert_int_equal(usdt__args("  8@2147483647(%r14)   8@-2147483648(%rdi)", a, 2), 0);
	check_arg(&a[0], R14, 8, true, INT32_MAX);
	check_arg(&a[1], RDI, 8, true, INT32_MIN);
	/* text after the requested arguments is ignored */
	assert_int_equal(usdt__args("8@%rax nonsense", a, 1), 0);
	assert_int_equal(usdt__args("nonsense", a, 0), 0);
}

/* All registers in all sizes map to the kernel's offsets. */
static void test_registers(void **state)
{
	static const struct {
		const char *name;
		unsigned offset;
	} whole[] = { { "r15", 0 },  { "r14", 8 },   { "r13", 16 },  { "r12", 24 },
		      { "rbp", 32 }, { "rbx", 40 },  { "r11", 48 },  { "r10", 56 },
		      { "r9", 64 },  { "r8", 72 },   { "rax", 80 },  { "rcx", 88 },
		      { "rdx", 96 }, { "rsi", 104 }, { "rdi", 112 }, { "rsp", 152 } };
	struct mt_usdt_arg a;
	char text[32];
	size_t i;

	for (i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
		snprintf(text, sizeof(text), "-8@%%%s", whole[i].name);
		assert_int_equal(usdt__args(text, &a, 1), 0);
		check_arg(&a, whole[i].offset, 8, false, 0);
		snprintf(text, sizeof(text), "-4@-4(%%%s)", whole[i].name);
		assert_int_equal(usdt__args(text, &a, 1), 0);
		check_arg(&a, whole[i].offset, 4, true, -4);
	}
}

static void test_args_not_understood(void **state)
{
	static const char *const bad[] = {
		"",
		" ",
		"8",
		"8@",
		"@%rax",
		"%rax",
		"8%rax",
		"-@%rax",
		"x8@%rax",
		"3@%rax",
		"0@%rax",
		"16@%rax",
		"-16@%rax",
		"99999999999999999999@%rax",
		"8@%",
		"8@%xmm0",
		"8@%rip",
		"8@%raxx",
		"8@%ra",
		"8@%ah",
		"8@%RAX",
		"8@$5",
		"8@5",
		"8@rax",
		"8@(%rax",
		"8@()",
		"8@(%eax)",
		"8@(rax)",
		"8@8(%rax,%rbx,8)",
		"8@(%rax,%rbx)",
		"8@sym(%rip)",
		"8@sym+4(%rip)",
		"8@2147483648(%rax)",
		"8@-2147483649(%rax)",
		"8@99999999999999999999(%rax)",
		"8@%rax,8@%rbx",
		"8@%rax8@%rbx",
		"8@%rax\t",
		"8@4(%rax)x",
		"8@%fs:0(%rax)",
		"8f@%xmm0",
		"8@-(%rax)",
		"8@--8(%rax)",
	};
	struct mt_usdt_arg a[4];
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (usdt__args(bad[i], a, 1) != -EINVAL)
			fail_msg("\"%s\" was taken", bad[i]);
	assert_int_equal(usdt__args("8@%rax", a, 2), -EINVAL); /* fewer than wanted */
	assert_int_equal(usdt__args("8@%rax -8@", a, 2), -EINVAL);
}

/* ---- in a file: this program's own probes, as made by <sys/sdt.h> ---- */

#define SDT(name, args, at, semaphore, base)                                                       \
	".pushsection .note.stapsdt, \"?\", \"note\"\n.balign 4\n.4byte 992f - 991f, 994f - "      \
	"993f, 3\n991: .asciz \"stapsdt\"\n"                                                       \
	"992: .balign 4\n993: .8byte " at ", " base ", " semaphore                                 \
	"\n.asciz \"memtrace\"\n.asciz \"" name "\"\n.asciz \"" args                               \
	"\"\n994: .balign 4\n.popsection\n"

extern const uint8_t usdt_site[], usdt_nop5[], usdt_nop10[], usdt_both[];
extern const uint16_t usdt_semaphore;

__asm__(".pushsection .probes, \"aw\", \"progbits\"\n.globl usdt_semaphore\nusdt_semaphore: .2byte "
	"0\n.popsection\n"
	".pushsection .text\n.globl usdt_site, usdt_nop5, usdt_nop10, usdt_both\nusdt_site: nop\n"
	"ret\nusdt_nop5: .byte 0x0f, 0x1f, 0x44, 0, 0\npush %rax\npop %rax\nret\n"
	"usdt_both: nop\nusdt_nop10: .byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\nret\n"
	".popsection\n"
	".pushsection .stapsdt.base, \"a\", \"progbits\"\n_.stapsdt.base: .space "
	"1\n.popsection\n" SDT("good", "-8@%rax -1@%dl", "usdt_site", "usdt_semaphore",
			       "_.stapsdt.base") SDT("twice", "8@%rax", "usdt_site", "0",
						     "_.stapsdt.base") SDT("twice", "8@%rbx",
									   "usdt_site + 1", "0",
									   "0")
		SDT("moved", "8@%rax", "usdt_site + 0x40", "usdt_semaphore + 0x40",
		    "_.stapsdt.base + 0x40") SDT("nop5", "8@%rax", "usdt_nop5", "0",
						 "0") SDT("nop10", "8@%rax", "usdt_nop10", "0", "0")
			SDT("both", "8@%rax", "usdt_both", "0",
			    "0") SDT("nowhere", "8@%rax", "0x7fffffff0000", "0",
				     "0") SDT("counted", "8@%rax", "usdt_site", "0x7fffffff0000",
					      "0") SDT("overwrites", "8@%rax", "usdt_site",
						       "usdt_site", "0")
				SDT("vector", "8@%xmm0", "usdt_site", "0", "0") ".rept 64\n" SDT(
					"many", "", "usdt_site", "0",
					"0") ".endr\n.rept 65\n" SDT("more", "8@%rax", "usdt_site",
								     "0", "0") ".endr\n");

/* Offset in this program's file of a mapped address. */
static uint64_t offset_of(const struct maps *m, const void *addr)
{
	const struct map *map = maps__find(m, (uintptr_t)addr);

	assert_non_null(map);
	return (uintptr_t)addr - map->start + map->offset;
}

static void test_in_a_file(void **state)
{
	struct proc *p = proc__open(getpid());
	struct usdt_sites u;
	const struct map *map;
	struct stat st, ours;
	char name[ELF_NAME];
	struct elf *e;
	struct maps m;

	assert_non_null(p);
	assert_int_equal(proc__maps(p, &m), 0);
	map = maps__find(&m, (uintptr_t)usdt_site);
	assert_non_null(map);
	e = elf__open_map(p, map);
	assert_non_null(e);
	assert_int_equal(usdt__find(e, "memtrace", "good", 2, &u), 0);
	assert_int_equal(u.n, 1);
	assert_int_equal(u.site[0].offset, offset_of(&m, usdt_site));
	assert_int_equal(u.site[0].semaphore, offset_of(&m, &usdt_semaphore));
	check_arg(&u.args[0].arg[0], RAX, 8, false, 0);
	check_arg(&u.args[0].arg[1], RDX, 1, false, 0);
	/* the kernel gets this very file */
	assert_int_equal(stat(elf__name(e, name), &st), 0);
	assert_int_equal(stat("/proc/self/exe", &ours), 0);
	assert_int_equal(st.st_ino, ours.st_ino);
	assert_int_equal(usdt__find(e, "memtrace", "twice", 1, &u), 0);
	assert_int_equal(u.n, 2);
	assert_int_equal(u.site[1].offset, offset_of(&m, usdt_site + 1));
	assert_true(u.site[0].nop && !u.site[1].nop); /* the second one is on a ret */
	assert_int_equal(u.site[1].semaphore, 0);
	check_arg(&u.args[1].arg[0], RBX, 8, false, 0);
	assert_int_equal(usdt__find(e, "memtrace", "many", 0, &u), 0);
	assert_int_equal(u.n, USDT_SITES_MAX);
	/* a file relocated after linking */
	assert_int_equal(usdt__find(e, "memtrace", "moved", 1, &u), 0);
	assert_int_equal(u.site[0].offset, offset_of(&m, usdt_site));
	assert_int_equal(u.site[0].semaphore, offset_of(&m, &usdt_semaphore));
	assert_int_equal(u.site[0].long_nop, 0);
	/* 10-byte nops, which some kernels make calls of, with and without another instruction */
	assert_int_equal(usdt__find(e, "memtrace", "both", 1, &u), 0);
	assert_int_equal(u.site[0].offset, offset_of(&m, usdt_both));
	assert_int_equal(u.site[0].long_nop, offset_of(&m, usdt_nop10));
	assert_int_equal(usdt__find(e, "memtrace", "nop10", 1, &u), 0);
	assert_int_equal(u.site[0].offset, 0);
	assert_int_equal(u.site[0].long_nop, offset_of(&m, usdt_nop10));
	elf__free(e);
	maps__free(&m);
	proc__free(p);
}

static void test_in_a_file_refused(void **state)
{
	static const char *const bad[] = { "nowhere", "counted", "overwrites", "vector", "more" };
	struct proc *p = proc__open(getpid());
	struct usdt_sites u = { .n = 77 };
	struct elf *e;
	const struct map *map;
	struct maps m;
	size_t i;

	assert_non_null(p);
	assert_int_equal(proc__maps(p, &m), 0);
	map = maps__find(&m, (uintptr_t)usdt_site);
	e = elf__open_map(p, map);
	assert_non_null(e);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (usdt__find(e, "memtrace", bad[i], 1, &u) != -EINVAL)
			fail_msg("\"%s\" was taken", bad[i]);
	assert_int_equal(usdt__find(e, "memtrace", "good", 3, &u),
			 -EINVAL); /* it has two arguments */
	assert_int_equal(usdt__find(e, "memtrace", "good", MT_ASKED_ARGS + 1, &u), -EINVAL);
	/* a 5-byte nop: the instruction behind it would not do, since a branch may lead there */
	assert_int_equal(usdt__find(e, "memtrace", "nop5", 1, &u), -ENOTSUP);
	assert_int_equal(usdt__find(e, "memtrace", "none", 1, &u), -ENOENT);
	assert_int_equal(usdt__find(e, "pytorch", "good", 2, &u), -ENOENT);
	assert_int_equal(u.n, 77); /* unchanged */
	elf__free(e);
	maps__free(&m);
	proc__free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_notes),	    cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_other_notes), cmocka_unit_test(test_hostile_lengths),
		cmocka_unit_test(test_damaged),	    cmocka_unit_test(test_args),
		cmocka_unit_test(test_registers),   cmocka_unit_test(test_args_not_understood),
		cmocka_unit_test(test_in_a_file),   cmocka_unit_test(test_in_a_file_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
