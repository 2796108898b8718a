/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "inspect/process/insn_a64.h"
#include "inspect/site.h"

#define BRK 0xd4200000u
#define BTI(word) (((word)&0xffffff3f) == 0xd503241f)

/* True if tools/inprocess/emulate_a64.c emulates this instruction. It emulates those that functions
 * usually begin with. */
static bool is_emulated(uint32_t word)
{
	return (word & 0xff4003e0) == 0xa90003e0 || /* stp x, x, [sp, #] and [sp, #]! */
	       (word & 0xbf800000) == 0x91000000 || /* add, sub x, x, # */
	       (word & 0xffe0ffe0) == 0xaa0003e0;   /* mov x, x */
}

/* Plans to run a copy of the instruction in the slot. A breakpoint follows it, since a branch back
 * would need a free register. The breakpoint's handler continues at the address at byte 8. */
static int plan_copy(uint32_t word, uint64_t addr, uint64_t slot, struct mt_inside_site *site,
		     uint8_t *copy)
{
	const uint32_t brk = BRK;
	uint64_t back = addr + INSN_A64_SIZE;
	size_t i;

	for (i = 0; i < MT_INSIDE_SLOT; i += sizeof(brk))
		memcpy(copy + i, &brk, sizeof(brk));
	memcpy(copy, &word, sizeof(word));
	memcpy(copy + 8, &back, sizeof(back));
	site->way = MT_INSIDE_SLOT_RUN;
	site->target = slot;
	return 0;
}

int inside_plan__a64(const uint8_t *code, size_t n, uint64_t addr, uint64_t slot,
		     struct mt_inside_site *site, uint8_t *copy)
{
	struct insn_a64 in;

	if (addr % INSN_A64_SIZE || insn_a64__decode(code, n, &in))
		return -ENOTSUP;
	site->length = INSN_A64_SIZE;
	site->original = in.word;
	site->operand = 0;
	site->target = addr + (uint64_t)in.target;
	switch (in.kind) {
	case A64_NOP:
		site->way = MT_INSIDE_SKIP;
		return 0;
	case A64_LANDING:
		site->way = MT_INSIDE_SKIP;
		return BTI(in.word) ? 0 : plan_copy(in.word, addr, slot, site, copy);
	case A64_ADR:
		if (in.word >> 31) /* adrp counts pages of 4 KiB */
			site->target = (addr & ~0xfffULL) + ((uint64_t)in.target << 12);
		site->way = MT_INSIDE_WORD;
		return 0;
	case A64_BR:
	case A64_BLR:
	case A64_RET:
		site->way = MT_INSIDE_WORD;
		return 0;
	case A64_B:
		site->way = MT_INSIDE_JUMP;
		return 0;
	case A64_BL:
		site->way = MT_INSIDE_CALL;
		return 0;
	case A64_B_IF:
		site->way = MT_INSIDE_BRANCH;
		return 0;
	case A64_PLAIN:
		site->way = MT_INSIDE_WORD;
		return is_emulated(in.word) ? 0 : plan_copy(in.word, addr, slot, site, copy);
	default:
		return -ENOTSUP;
	}
}
