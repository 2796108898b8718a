/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "inspect/process/insn.h"
#include "inspect/site.h"

#define INT3 0xcc
#define WAY_BACK 14 /* bytes of jmp *0(%rip) and its address */

/* Offset, in the instruction, of a displacement that is relative to the instruction's end; 0: it
 * has none. */
static size_t relative_operand(const uint8_t *code, const struct insn *in)
{
	static const uint8_t opcode_bytes[] = {
		[INSN_MAP_1] = 1, [INSN_MAP_0F] = 2, [INSN_MAP_0F38] = 3, [INSN_MAP_0F3A] = 3
	};
	size_t at = in->prefixes;

	if (!in->has_modrm || in->modrm >> 6 || (in->modrm & 7) != 5)
		return 0;
	if (in->map == INSN_MAP_EVEX)
		at += 5;
	else if (in->map == INSN_MAP_VEX)
		at += code[at] == 0xc5 ? 3 : 4;
	else
		at += (in->rex ? 1 : 0) + opcode_bytes[in->map];
	return at + 1; /* behind ModRM */
}

/* Plans to run a copy of the instruction in the slot: the copy, then a jump back. A displacement
 * that is relative to the instruction is adjusted. 0, -ENOTSUP, -ERANGE. */
static int plan_copy(const uint8_t *code, const struct insn *in, uint64_t addr, uint64_t slot,
		     struct mt_inside_site *site, uint8_t *copy)
{
	size_t disp_at = relative_operand(code, in);
	uint64_t next_insn = addr + in->length;
	int64_t moved;
	int32_t disp;

	if (in->length + WAY_BACK > MT_INSIDE_SLOT)
		return -ENOTSUP;
	memset(copy, INT3, MT_INSIDE_SLOT);
	memcpy(copy, code, in->length);
	if (disp_at) {
		if (disp_at + sizeof(disp) > in->length)
			return -ENOTSUP;
		memcpy(&disp, code + disp_at, sizeof(disp));
		moved = (int64_t)(addr - slot) + disp;
		if (moved != (int32_t)moved)
			return -ERANGE;
		disp = (int32_t)moved;
		memcpy(copy + disp_at, &disp, sizeof(disp));
	}
	memcpy(copy + in->length, "\xff\x25\0\0\0\0", 6);
	memcpy(copy + in->length + 6, &next_insn, sizeof(next_insn));
	site->way = MT_INSIDE_SLOT_RUN;
	site->target = slot;
	return 0;
}

/* True for endbr64, which marks the target of an indirect jump. */
static bool is_endbr(const struct insn *in)
{
	return in->map == INSN_MAP_0F && in->opcode == 0x1e && in->pf3 && in->modrm == 0xfa;
}

/* True for a push of a register without prefixes. */
static bool is_push(const struct insn *in)
{
	return in->map == INSN_MAP_1 && in->opcode >= 0x50 && in->opcode <= 0x57 && !in->prefixes;
}

/* True for a conditional jump by flags, unlike jrcxz and loop. */
static bool is_plain_jcc(const struct insn *in)
{
	return (in->map == INSN_MAP_1 && in->opcode >= 0x70 && in->opcode <= 0x7f) ||
	       (in->map == INSN_MAP_0F && in->opcode >= 0x80 && in->opcode <= 0x8f);
}

int inside_plan__x86(const uint8_t *code, size_t n, uint64_t addr, uint64_t slot,
		     struct mt_inside_site *site, uint8_t *copy)
{
	struct insn in;

	if (insn__decode(code, n, &in))
		return -ENOTSUP;
	site->length = in.length;
	site->original = code[0];
	site->operand = 0;
	site->target = addr + in.length + (int64_t)in.relative;
	if (insn__is_nop(&in) || is_endbr(&in)) {
		site->way = MT_INSIDE_SKIP;
		return 0;
	}
	if (is_push(&in)) {
		site->way = MT_INSIDE_PUSH;
		/* the register's number: three bits of the opcode, and the prefix's bit for r8 on */
		site->operand = (in.opcode & 7) | (in.rex & 1) << 3;
		return 0;
	}
	switch (in.flow) {
	case INSN_NEXT:
	case INSN_JMP_INDIRECT:
		return plan_copy(code, &in, addr, slot, site, copy);
	case INSN_JMP:
		site->way = MT_INSIDE_JUMP;
		return 0;
	case INSN_CALL:
		site->way = MT_INSIDE_CALL;
		return 0;
	case INSN_JCC:
		site->way = MT_INSIDE_BRANCH;
		site->operand = in.opcode & 15; /* the condition */
		return is_plain_jcc(&in) ? 0 : -ENOTSUP;
	case INSN_RET:
		site->way = MT_INSIDE_RET;
		return in.opcode == 0xc3 ? 0 : -ENOTSUP; /* others also pop arguments */
	default:
		return -ENOTSUP;
	}
}
