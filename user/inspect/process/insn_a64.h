/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A64 instructions, as far as probe sites need them: kind, branch target, and general registers
 * written. Not a disassembler. Source of all encodings: Arm Architecture Reference Manual, "A64
 * instruction set encoding".
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INSN_A64_SIZE 4
#define INSN_A64_SP 31 /* number of the stack pointer in masks of registers */

enum insn_a64_kind {
	A64_PLAIN = 0, /* computes or accesses memory; does not depend on its own address */
	A64_NOP,       /* hint without effect */
	A64_LANDING,   /* bti, and the signing of x30 as in paciasp; kernels can step these hints */
	A64_HINT,      /* any other hint */
	A64_ADR,       /* adr, adrp */
	A64_LITERAL,   /* load or prefetch from an address relative to its own */
	A64_EXCLUSIVE, /* part of a sequence that a breakpoint would break, such as ldxr */
	A64_SYSTEM,    /* system registers, barriers, cache maintenance */
	A64_OPAQUE,    /* not decoded further: SVE, SME, tags, copies of memory */
	A64_B,	       /* b */
	A64_B_IF,      /* b.cond, cbz, cbnz, tbz, tbnz */
	A64_BL,	       /* bl */
	A64_BR,	       /* br */
	A64_BLR,       /* blr */
	A64_RET,       /* ret */
	A64_BR_SIGNED, /* braa, blraa, retaa and their variants */
	A64_TRAP,      /* svc, brk, hlt, udf, eret: leaves straight-line code */
};

struct insn_a64 {
	uint32_t word;
	uint8_t kind; /* enum insn_a64_kind */
	bool has_target;
	bool indexed;	 /* load with a register as offset, as from a jump table */
	int64_t target;	 /* branch target, from the instruction's address */
	uint32_t writes; /* bit n: may write xn, also in part; INSN_A64_SP: the stack pointer */
	/* has_sp: the instruction adds the constant sp (bytes) to the stack pointer. */
	bool has_sp;
	int32_t sp;
	/* stores_x30: it stores x30, x30_at bytes above the stack pointer before the instruction. */
	bool stores_x30;
	int32_t x30_at;
};

#define INSN_A64_WRITES_ANY 0xffffffffu

/* Decodes the instruction at code. 0; -EINVAL: unallocated or unknown, or size is below 4. */
int insn_a64__decode(const uint8_t *code, size_t size, struct insn_a64 *ret);

/* True if the next instruction in memory always runs after this one. */
static inline bool insn_a64__continues(const struct insn_a64 *in)
{
	return in->kind < A64_B;
}
