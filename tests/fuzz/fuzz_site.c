/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* libFuzzer target: bytes as a function's code, for both machines; the first two bytes choose the
 * other arguments. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/elf.h"
#include "inspect/process/insn.h"
#include "inspect/process/insn_a64.h"
#include "inspect/site.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A second place before the site is an instruction of the straight line from the entry. */
static void check_before(const uint8_t *code, size_t size, const struct site *s)
{
	size_t place = s->offset - (size_t)-s->second.after, pos = 0;
	struct insn in;

	if (s->second.lower || (size_t)-s->second.after > s->offset)
		abort();
	while (pos < place) {
		insn__decode(code + pos, size - pos, &in);
		pos += in.length;
	}
	if (pos != place)
		abort();
}

/* The site must be at the start of an instruction, with no branch before it. */
static void check_site(const uint8_t *code, size_t size, const struct site *s)
{
	struct insn in;
	size_t pos = 0;

	while (pos < s->offset) {
		if (insn__decode(code + pos, size - pos, &in) || in.flow != INSN_NEXT)
			abort();
		pos += in.length;
	}
	if (pos != s->offset || insn__decode(code + pos, size - pos, &in) || in.length != s->length)
		abort();
	if (s->length == 5 && code[pos] == 0x0f && code[pos + 1] == 0x1f)
		abort();
	if (s->second.after < 0) {
		check_before(code, size, s);
		return;
	}
	pos += (size_t)s->second.after;
	if (s->second.after && (s->second.after != s->length || pos >= size ||
				insn__decode(code + pos, size - pos, &in)))
		abort();
}

/* The same, and nothing before the site writes an argument, x30 or the stack pointer unnoticed. */
static void check_site_a64(const uint8_t *code, size_t size, unsigned args, const struct site *s)
{
	struct insn_a64 in;
	bool is_signed = false;
	int64_t sp = 0;
	size_t pos;

	for (pos = 0; pos < s->offset; pos += INSN_A64_SIZE) {
		if (insn_a64__decode(code + pos, size - pos, &in) || !insn_a64__continues(&in) ||
		    in.kind == A64_EXCLUSIVE || in.kind == A64_OPAQUE || in.writes & args)
			abort();
		is_signed = is_signed || in.writes & 1u << 30;
		sp += in.has_sp ? in.sp : 0;
	}
	if (pos != s->offset || s->length != INSN_A64_SIZE ||
	    insn_a64__decode(code + pos, size - pos, &in) || sp != s->sp || sp > 0 ||
	    s->x30_saved_at > 0 || is_signed != (s->ret == SITE_X30_SIGNED))
		abort();
	switch (in.kind) {
	case A64_LITERAL:
	case A64_EXCLUSIVE:
	case A64_OPAQUE:
	case A64_TRAP:
	case A64_BR_SIGNED:
	case A64_HINT:
	case A64_SYSTEM:
		abort();
	}
}

static void check_text(const struct site *s)
{
	if (!memchr(s->text, '\0', sizeof(s->text)) || !s->text[0] || s->cls == SITE_NONE)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned args;
	uint64_t whole;
	struct site s;
	uint8_t *code;

	if (size < 2)
		return 0;
	/* a copy of the exact size, so that sanitizers find reads beyond it */
	code = malloc(size - 2 ? size - 2 : 1);
	if (!code)
		return 0;
	memcpy(code, data + 2, size - 2);
	args = data[0] & 0x3f;
	whole = data[0] & 0x40 ? size - 2 : data[1];
	if (!site__pick(ELF_X86_64, code, size - 2, whole, args, &s)) {
		check_site(code, size - 2, &s);
		check_text(&s);
	}
	if (!site__pick(ELF_AARCH64, code, size - 2, whole, args, &s)) {
		check_site_a64(code, size - 2, args, &s);
		check_text(&s);
	}
	free(code);
	return 0;
}
