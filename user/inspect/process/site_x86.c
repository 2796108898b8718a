/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "inspect/process/insn.h"
#include "inspect/process/site_internal.h"

static const char *const reg_names[16] = { "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
					   "r8",  "r9",	 "r10", "r11", "r12", "r13", "r14", "r15" };
static const char *const cond_names[16] = { "o", "no", "b", "ae", "e", "ne", "be", "a",
					    "s", "ns", "p", "np", "l", "ge", "le", "g" };

/* Argument registers in the order of the calling convention: rdi, rsi, rdx, rcx, r8, r9. */
static uint16_t arg_registers(unsigned args)
{
	static const uint8_t number[6] = { 7, 6, 2, 1, 8, 9 };
	uint16_t mask = 0;
	unsigned i;

	for (i = 0; i < 6; i++)
		if (args & 1u << i)
			mask |= (uint16_t)(1u << number[i]);
	return mask;
}

/* True if the instruction has a memory operand with index * 4 or 8. */
static bool indexes_table(const struct insn *in)
{
	return in->has_sib && in->sib >> 6 >= 2 && ((in->sib >> 3 & 7) != 4 || in->rex & 2);
}

/* Decodes the whole function into *body; body->whole stays false if that fails. */
static void scan_body(const uint8_t *code, size_t size, uint64_t func_size, struct site_body *body)
{
	size_t pos = 0;
	struct insn in;
	int64_t target;

	*body = (struct site_body){ .first_target = UINT64_MAX };
	if (!func_size || func_size > size)
		return;
	while (pos < func_size) {
		if (insn__decode(code + pos, func_size - pos, &in))
			return;
		pos += in.length;
		if (in.flow == INSN_JMP_INDIRECT && !(in.modrm >> 6 == 0 && (in.modrm & 7) == 5))
			/* not through a fixed address, which is a call of another library */
			body->indirect = true;
		if (indexes_table(&in))
			body->indexed = true;
		if (!in.has_target)
			continue;
		target = (int64_t)pos + in.relative;
		if (target > 0 && (uint64_t)target < body->first_target)
			body->first_target = (uint64_t)target;
	}
	body->whole = true;
}

/* Class of an instruction that all kernels with uprobes emulate; SITE_NONE: another one, or an
 * unusual encoding. */
static enum site_class emulated_class(const struct insn *in)
{
	/* push of a register; 0x41 selects the upper eight */
	bool short_push = in->length == 1 || (in->length == 2 && in->rex == 0x41);

	if (in->map == INSN_MAP_1 && in->opcode >= 0x50 && in->opcode <= 0x57)
		return short_push ? SITE_PUSH : SITE_NONE;
	if (in->map == INSN_MAP_1 && in->opcode == 0x90)
		return in->length == 1 || (in->length == 2 && in->p66) ? SITE_NOP : SITE_NONE;
	if (in->prefixes || in->rex)
		return SITE_NONE;
	if (in->flow == INSN_JMP)
		return SITE_JMP;
	if (in->flow == INSN_CALL)
		return SITE_CALL;
	if (in->flow == INSN_JCC &&
	    ((in->map == INSN_MAP_1 && in->opcode >= 0x70 && in->opcode <= 0x7f) ||
	     in->map == INSN_MAP_0F))
		return SITE_JCC;
	return SITE_NONE;
}

/* True if the kernel accepts a probe on the instruction and single-steps it. Not on a nop, which
 * the kernel may turn into a call (see site.h). */
static bool is_steppable(const struct insn *in)
{
	return !in->segment && !in->lock && in->map != INSN_MAP_EVEX && in->flow != INSN_TRAP &&
	       !insn__is_nop(in);
}

/* True if the instruction changes the stack pointer, other than as a call or return. */
static bool moves_stack(const struct insn *in)
{
	if (in->writes & 1u << 4) /* rsp */
		return true;
	if (in->map != INSN_MAP_1)
		return in->map == INSN_MAP_0F && (in->opcode & 0xf6) == 0xa0; /* push, pop fs, gs */
	switch (in->opcode) {
	case 0x50 ... 0x5f: /* push, pop */
	case 0x68:	    /* push an immediate */
	case 0x6a:
	case 0x8f:	    /* pop */
	case 0x9c ... 0x9d: /* pushf, popf */
	case 0xc8 ... 0xc9: /* enter, leave */
		return true;
	case 0xff:
		return (in->modrm >> 3 & 7) == 6; /* push */
	default:
		return false;
	}
}

/* Name of a stepped instruction; NULL: not among those that functions begin with. */
static const char *mnemonic(const struct insn *in)
{
	static const char *const alu[8] = { "add", "or", "adc", "sbb", "and", "sub", "xor", "cmp" };

	if (in->map == INSN_MAP_0F && in->opcode == 0x1e && in->pf3)
		return "endbr64";
	if (in->flow == INSN_RET)
		return "ret";
	if (in->flow == INSN_JMP_INDIRECT)
		return "jmp *";
	if (in->flow == INSN_CALL_INDIRECT)
		return "call *";
	if (in->map != INSN_MAP_1)
		return NULL;
	if (in->opcode < 0x40)
		return alu[in->opcode >> 3];
	switch (in->opcode) {
	case 0x80 ... 0x83:
		return alu[in->modrm >> 3 & 7];
	case 0x84 ... 0x85:
		return "test";
	case 0x88 ... 0x8b:
	case 0xb0 ... 0xbf:
	case 0xc6 ... 0xc7:
		return "mov";
	case 0x8d:
		return "lea";
	default:
		return NULL;
	}
}

/* Writes the instruction at this offset of the function as text, for --explain. */
static void describe_insn(const uint8_t *code, const struct insn *in, size_t offset,
			  struct site *site)
{
	long target = (long)offset + in->length + in->relative;
	const char *name;
	size_t len, i;

	switch (site->cls) {
	case SITE_PUSH:
		snprintf(site->text, sizeof(site->text), "push %%%s",
			 reg_names[(in->opcode & 7) | (in->rex & 1) << 3]);
		return;
	case SITE_NOP:
		snprintf(site->text, sizeof(site->text), "nop");
		return;
	case SITE_JMP:
	case SITE_CALL:
		snprintf(site->text, sizeof(site->text), "%s %+ld",
			 site->cls == SITE_JMP ? "jmp" : "call", target);
		return;
	case SITE_JCC:
		snprintf(site->text, sizeof(site->text), "j%s %+ld", cond_names[in->opcode & 15],
			 target);
		return;
	default:
		break;
	}
	name = mnemonic(in);
	if (name) {
		snprintf(site->text, sizeof(site->text), "%s", name);
		return;
	}
	snprintf(site->text, sizeof(site->text), "bytes");
	for (i = 0; i < in->length; i++) {
		len = 5 + 3 * i;
		if (len + 4 > sizeof(site->text))
			break;
		snprintf(site->text + len, sizeof(site->text) - len, " %02x", code[offset + i]);
	}
}

static void choose_site(const uint8_t *code, const struct insn *in, size_t offset,
			enum site_class cls, struct site *ret)
{
	struct site s = { .offset = (uint32_t)offset, .length = in->length, .cls = cls };

	describe_insn(code, in, offset, &s);
	*ret = s;
}

/* Bytes by which the instruction lowers the stack pointer, if that is its only effect on registers.
 * -1: it has another effect. */
static int bytes_pushed(const struct insn *in, const uint8_t *code)
{
	if (insn__is_nop(in))
		return 0;
	if (in->map == INSN_MAP_1 && in->opcode >= 0x50 && in->opcode <= 0x57 && !in->prefixes)
		return 8;
	/* sub imm8, %rsp: it also sets the flags, which no program reads */
	if (in->length == 4 && in->rex == 0x48 && in->opcode == 0x83 && in->modrm == 0xec &&
	    code[3] < 0x80)
		return code[3];
	return -1;
}

/* Sets s->second, if the instruction after the site can have a probe with the same purpose, for
 * hits that the probe on the site misses. Returns false if it cannot. */
static bool take_next(const uint8_t *code, size_t size, uint64_t func_size, bool no_calls,
		      struct site *s)
{
	size_t next = s->offset + s->length;
	struct insn at_site, after;
	struct site_body body;
	int pushed;

	if (next >= size || insn__decode(code + s->offset, size - s->offset, &at_site))
		return false;
	pushed = bytes_pushed(&at_site, code + s->offset);
	scan_body(code, size, func_size, &body);
	/* Each call must come from the site, so no jump leads here. */
	if (pushed < 0 || !site_body__only_from_entry(&body, next) ||
	    insn__decode(code + next, size - next, &after) || after.flow == INSN_TRAP ||
	    (no_calls && after.flow != INSN_NEXT))
		return false;
	s->second = (struct site_second){ (int8_t)s->length, (uint8_t)pushed };
	return true;
}

/* Sets s->second. before: offset of an instruction that each call passes before the site. */
static void find_second(const uint8_t *code, size_t size, uint64_t func_size, bool no_calls,
			size_t before, struct site *s)
{
	if (take_next(code, size, func_size, no_calls, s))
		return;
	if (before < s->offset && s->offset - before <= INT8_MAX)
		s->second.after = (int8_t)((int)before - (int)s->offset);
}

/* True if a copy of the instruction elsewhere does the same: it has no address relative to %rip. */
static bool is_movable(const struct insn *in)
{
	return in->flow == INSN_NEXT && !(in->has_modrm && (in->modrm & 0xc7) == 0x05);
}

/* Walks straight-line code from the entry to the first emulated instruction. Without one, takes the
 * first that can be single-stepped. */
int site_x86__pick(const uint8_t *code, size_t size, uint64_t func_size, unsigned args,
		   struct site *ret)
{
	uint16_t arg_regs = arg_registers(args);
	bool no_calls = args & SITE_NO_CALLS;
	enum site_class cls;
	int no_site_err = -EINVAL;
	struct site stepped = { 0 };
	struct site_body body = { 0 };
	size_t offset = 0, before = SIZE_MAX;
	struct insn in;
	int i;

	if (func_size && func_size < size)
		size = func_size;
	for (i = 0; i <= SITE_PASS_MAX; i++, offset += in.length) {
		if (i == 1)
			scan_body(code, size, func_size, &body);
		if (insn__decode(code + offset, size - offset, &in) ||
		    !site_body__only_from_entry(&body, offset))
			break;
		if (no_calls && (in.flow == INSN_CALL || in.flow == INSN_CALL_INDIRECT))
			break;
		cls = emulated_class(&in);
		if (cls != SITE_NONE) {
			choose_site(code, &in, offset, cls, ret);
			find_second(code, size, func_size, no_calls, before, ret);
			return 0;
		}
		if (insn__is_nop(&in))
			no_site_err = -ENOTSUP;
		if (!stepped.length && is_steppable(&in))
			choose_site(code, &in, offset, SITE_STEPPED, &stepped);
		if (args & SITE_FIRST || in.flow != INSN_NEXT || in.writes & arg_regs ||
		    (args & SITE_AT_ENTRY && moves_stack(&in)))
			break;
		if (is_movable(&in))
			before = offset;
	}
	if (!stepped.length)
		return no_site_err;
	find_second(code, size, func_size, no_calls, before, &stepped);
	*ret = stepped;
	return 0;
}
