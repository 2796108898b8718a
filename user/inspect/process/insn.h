/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* x86-64 instructions, as far as probe sites need them: length, branch target, and general
 * registers written. Not a disassembler. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum insn_flow {
	INSN_NEXT = 0, /* continues with the next instruction */
	INSN_JMP,      /* jmp rel */
	INSN_JCC,      /* conditional jmp rel, loop, jrcxz, xbegin */
	INSN_CALL,     /* call rel */
	INSN_JMP_INDIRECT,
	INSN_CALL_INDIRECT,
	INSN_RET,
	INSN_TRAP, /* int, syscall, hlt, ud2: leaves straight-line code */
};

enum insn_map {
	INSN_MAP_1 = 0,
	INSN_MAP_0F,
	INSN_MAP_0F38,
	INSN_MAP_0F3A,
	INSN_MAP_VEX,
	INSN_MAP_EVEX
};

struct insn {
	uint8_t length;
	uint8_t map;	/* enum insn_map */
	uint8_t opcode; /* the last opcode byte */
	uint8_t rex;	/* 0: none */
	uint8_t modrm;
	uint8_t sib;
	uint8_t prefixes; /* number of legacy prefixes */
	bool has_modrm, has_sib;
	bool p66, p67, pf2, pf3, lock;
	bool segment; /* has a prefix cs, ds, es or ss: the kernel refuses such a probe */
	uint8_t flow; /* enum insn_flow */
	bool has_target;
	int32_t relative; /* offset of the branch target from the instruction's end */
	uint16_t writes;  /* bit n: may write general register n, also in part */
};

#define INSN_WRITES_ANY 0xffffu

/* Decodes the instruction at code. 0; -EINVAL: unknown, or longer than size. */
int insn__decode(const uint8_t *code, size_t size, struct insn *ret);
/* Whether the instruction is a no-op of any length (not endbr64). */
bool insn__is_nop(const struct insn *in);
