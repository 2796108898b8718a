/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <stdio.h>

#include "inspect/process/insn_a64.h"
#include "inspect/process/site_internal.h"

#define FP 29
#define LR 30
#define ARGS 8 /* x0 to x7 */

/* The stack and x30 in the straight-line beginning of a function. */
struct frame {
	int32_t sp;	      /* the stack pointer, minus the one at entry */
	int32_t x30_saved_at; /* place of the stored x30, from the stack pointer at entry; 0: none */
	bool is_signed;	      /* x30 is signed */
};

static const char *const cond_names[16] = { "eq", "ne", "cs", "cc", "mi", "pl", "vs", "vc",
					    "hi", "ls", "ge", "lt", "gt", "le", "al", "nv" };

/* Decodes the whole function into *body; body->whole stays false if that fails. */
static void scan_body(const uint8_t *code, size_t size, uint64_t func_size, struct site_body *body)
{
	struct insn_a64 in;
	int64_t target;
	size_t pos;

	*body = (struct site_body){ .first_target = UINT64_MAX };
	if (!func_size || func_size > size)
		return;
	for (pos = 0; pos < func_size; pos += INSN_A64_SIZE) {
		if (insn_a64__decode(code + pos, func_size - pos, &in))
			return;
		if (in.kind == A64_BR || in.kind == A64_BR_SIGNED)
			body->indirect = true;
		if (in.indexed)
			body->indexed = true;
		target = (int64_t)pos + in.target;
		if (in.has_target && target > 0 && (uint64_t)target < body->first_target)
			body->first_target = (uint64_t)target;
	}
	body->whole = true;
}

/* Class of an instruction that kernels with uprobes emulate; SITE_NONE: another one. */
static enum site_class emulated_class(const struct insn_a64 *in, size_t offset)
{
	switch (in->kind) {
	case A64_ADR:
		return SITE_ADR;
	case A64_B:
		return SITE_JMP;
	case A64_B_IF:
		return SITE_JCC;
	case A64_BL:
		return SITE_CALL;
	case A64_BR:
		return offset ? SITE_JMP : SITE_NONE;
	case A64_BLR:
		return offset ? SITE_CALL : SITE_NONE;
	case A64_RET:
		return offset ? SITE_RET : SITE_NONE;
	default:
		return SITE_NONE;
	}
}

/* Applies an instruction to *frame. False: the stack pointer or x30 is not known after it. */
static bool follow_stack(const struct insn_a64 *in, struct frame *frame)
{
	int32_t at;

	if (in->stores_x30 && !frame->x30_saved_at &&
	    !__builtin_add_overflow(frame->sp, in->x30_at, &at))
		frame->x30_saved_at = at;
	if (in->writes & 1u << INSN_A64_SP &&
	    (!in->has_sp || __builtin_add_overflow(frame->sp, in->sp, &frame->sp) || frame->sp > 0))
		return false;
	if (in->writes & 1u << LR) {
		if (in->kind != A64_LANDING || frame->is_signed)
			return false;
		frame->is_signed = true;
	}
	return true;
}

/* Name of an instruction that is not a branch; NULL: not among those that functions begin with. */
static const char *mnemonic(const struct insn_a64 *in)
{
	static const char *const alu[4] = { "add", "adds", "sub", "subs" };
	static const char *const mov[4] = { "movn", "?", "movz", "movk" };
	uint32_t word = in->word;

	if (in->kind == A64_LANDING)
		return (word & 0xf00) == 0x400 ? "bti" : "paciasp";
	if (in->kind != A64_PLAIN)
		return NULL;
	if ((word & 0x7fe0ffe0) == 0x2a0003e0 || (word & 0x7ffffc00) == 0x11000000)
		return "mov";
	if ((word & 0x1f000000) == 0x11000000 || (word & 0x1f000000) == 0x0b000000)
		return alu[word >> 29 & 3];
	if ((word & 0x1f800000) == 0x12800000)
		return mov[word >> 29 & 3];
	if ((word & 0x3a400000) == 0x28000000)
		return "stp";
	if ((word & 0x3a400000) == 0x28400000)
		return "ldp";
	if ((word & 0x3bc00000) == 0x39000000 || (word & 0x3be00000) == 0x38000000)
		return "str";
	if ((word & 0x3bc00000) == 0x39400000 || (word & 0x3be00000) == 0x38400000)
		return "ldr";
	return NULL;
}

/* Writes the instruction at this offset of the function as text, for --explain. */
static void describe_insn(const struct insn_a64 *in, size_t offset, char *buf, size_t size)
{
	long target = (long)offset + (long)in->target;
	uint32_t word = in->word, rd = word & 31, rn = word >> 5 & 31;
	const char *test = word >> 25 & 1 ? "tb" : "cb";
	const char *zero = word >> 24 & 1 ? "nz" : "z";
	const char *name = mnemonic(in);

	switch (in->kind) {
	case A64_ADR:
		snprintf(buf, size, "adr%s x%u", word >> 31 ? "p" : "", rd);
		return;
	case A64_NOP:
		snprintf(buf, size, "nop");
		return;
	case A64_B:
	case A64_BL:
		snprintf(buf, size, "%s %+ld", in->kind == A64_B ? "b" : "bl", target);
		return;
	case A64_BR:
		snprintf(buf, size, "br x%u", rn);
		return;
	case A64_BLR:
		snprintf(buf, size, "blr x%u", rn);
		return;
	case A64_RET:
		snprintf(buf, size, "ret x%u", rn);
		return;
	case A64_B_IF:
		if (word >> 24 == 0x54)
			snprintf(buf, size, "b.%s %+ld", cond_names[word & 15], target);
		else
			snprintf(buf, size, "%s%s %c%u, %+ld", test, zero, word >> 31 ? 'x' : 'w',
				 rd, target);
		return;
	default:
		if (name)
			snprintf(buf, size, "%s", name);
		else
			snprintf(buf, size, "word %08x", word);
	}
}

/* Rates an instruction that kernels do not emulate as a site: 3 is best, 0: it cannot be a site. */
static unsigned rank_stepped(const struct insn_a64 *in)
{
	if (in->kind == A64_NOP)
		return 3;
	if (in->kind == A64_PLAIN)
		return 2;
	return in->kind == A64_LANDING ? 1 : 0;
}

/* Describes the instruction as a site. */
static void choose_site(const struct insn_a64 *in, size_t offset, enum site_class cls,
			const struct frame *frame, struct site *ret)
{
	struct site s = { .offset = (uint32_t)offset,
			  .length = INSN_A64_SIZE,
			  .cls = cls,
			  .ret = frame->is_signed ? SITE_X30_SIGNED : SITE_X30,
			  .sp = frame->sp };

	describe_insn(in, offset, s.text, sizeof(s.text));
	*ret = s;
}

/* Sets all members of *ret except x30_saved_at. Takes the first emulated instruction, otherwise the
 * one of the highest rank. */
static int pick_site(const uint8_t *code, size_t size, uint64_t func_size, unsigned args,
		     struct site *ret)
{
	uint32_t arg_regs = args & ((1u << ARGS) - 1);
	struct site_body body = { 0 };
	struct frame frame = { 0 };
	unsigned best_rank = 0;
	struct insn_a64 in;
	size_t offset = 0;
	int i;

	for (i = 0; i <= SITE_PASS_MAX; i++, offset += INSN_A64_SIZE) {
		if (i == 1)
			scan_body(code, size, func_size, &body);
		if (insn_a64__decode(code + offset, size - offset, &in) ||
		    !site_body__only_from_entry(&body, offset))
			break;
		if (emulated_class(&in, offset) != SITE_NONE) {
			choose_site(&in, offset, emulated_class(&in, offset), &frame, ret);
			return 0;
		}
		if (rank_stepped(&in) > best_rank) {
			best_rank = rank_stepped(&in);
			choose_site(&in, offset, in.kind == A64_NOP ? SITE_NOP : SITE_STEPPED,
				    &frame, ret);
		}
		if (!insn_a64__continues(&in) || in.kind == A64_EXCLUSIVE ||
		    in.kind == A64_OPAQUE || in.writes & arg_regs || !follow_stack(&in, &frame))
			break;
		if (args & SITE_AT_ENTRY && in.writes & (1u << INSN_A64_SP | 1u << FP))
			break;
	}
	return best_rank ? 0 : -EINVAL;
}

/* Finds where the straight-line code from the entry on stores x30, the return address. Returns that
 * place in bytes from the stack pointer at entry, below 0; 0: not found. */
static int32_t find_stored_x30(const uint8_t *code, size_t size)
{
	struct frame frame = { 0 };
	struct insn_a64 in;
	size_t offset = 0;

	while (!frame.x30_saved_at && offset < SITE_PASS_MAX * INSN_A64_SIZE &&
	       !insn_a64__decode(code + offset, size - offset, &in) && insn_a64__continues(&in) &&
	       follow_stack(&in, &frame))
		offset += INSN_A64_SIZE;
	return frame.x30_saved_at < 0 ? frame.x30_saved_at : 0;
}

int site_a64__pick(const uint8_t *code, size_t size, uint64_t func_size, unsigned args,
		   struct site *ret)
{
	struct site site = { 0 };
	int err;

	/* `code` may have code of the next function after this one. */
	if (func_size && func_size < size)
		size = func_size;
	err = pick_site(code, size, func_size, args, &site);
	if (err)
		return err;
	site.x30_saved_at = find_stored_x30(code, size);
	*ret = site;
	return 0;
}
