/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/process/insn_a64.h"

#include <errno.h>

#define LR 30u
#define ZR 31u /* in most instructions register 31 reads as zero */

/* Bits `to` down to `from` of a word, as in the manual: bits(w, 31, 30). */
/* Bits to..from of word, both included. */
static uint32_t bits(uint32_t word, unsigned to, unsigned from)
{
	return word >> from & ((1u << (to - from + 1)) - 1);
}

static bool bit(uint32_t word, unsigned n)
{
	return word >> n & 1;
}

/* Bits to..from of word, sign-extended. */
static int64_t signed_bits(uint32_t word, unsigned to, unsigned from)
{
	unsigned n = to - from + 1;

	return (int64_t)((uint64_t)bits(word, to, from) << (64 - n)) >> (64 - n);
}

static bool matches(uint32_t word, uint32_t mask, uint32_t value)
{
	return (word & mask) == value;
}

/* Mask of the written register n, where 31 is the zero register. */
static uint32_t reg(uint32_t n)
{
	return n == ZR ? 0 : 1u << n;
}

/* Mask of the written register n, where 31 is the stack pointer. */
static uint32_t reg_or_sp(uint32_t n)
{
	return 1u << n;
}

/* Field Rd or Rt: the destination register, or the one loaded or stored. */
static uint32_t rd(uint32_t word)
{
	return bits(word, 4, 0);
}

/* Field Rn: the first source, or the base of an address. */
static uint32_t rn(uint32_t word)
{
	return bits(word, 9, 5);
}

/* ---- data processing ---- */

static int decode_add_sub_immediate(uint32_t word, struct insn_a64 *in)
{
	int32_t by = (int32_t)bits(word, 21, 10) << (bit(word, 22) ? 12 : 0);

	in->writes = bit(word, 29) ? reg(rd(word)) : reg_or_sp(rd(word));
	in->has_sp = !bit(word, 29) && rd(word) == INSN_A64_SP && rn(word) == INSN_A64_SP &&
		     bit(word, 31);
	in->sp = bit(word, 30) ? -by : by;
	return 0;
}

/* Data processing with an immediate. */
static int decode_immediate(uint32_t word, struct insn_a64 *in)
{
	switch (bits(word, 25, 23)) {
	case 0:
	case 1: /* adr, adrp */
		in->kind = A64_ADR;
		in->writes = reg(rd(word));
		in->target = signed_bits(word, 23, 5) * 4 + bits(word, 30, 29);
		return 0;
	case 2:
		return decode_add_sub_immediate(word, in);
	case 3: /* addg, subg; minimum and maximum */
		in->kind = bit(word, 22) ? A64_PLAIN : A64_OPAQUE;
		in->writes = reg_or_sp(rd(word));
		return 0;
	case 4: /* and, orr, eor; ands does not write the stack pointer */
		in->writes = bits(word, 30, 29) == 3 ? reg(rd(word)) : reg_or_sp(rd(word));
		return 0;
	case 7:
		if (bits(word, 30, 29) == 0) { /* extr */
			in->writes = reg(rd(word));
			return 0;
		}
		in->kind = A64_OPAQUE; /* autiasppc */
		in->writes = INSN_A64_WRITES_ANY;
		return 0;
	default: /* movn, movz, movk; bitfields */
		in->writes = reg(rd(word));
		return 0;
	}
}

/* Data processing with registers. */
static int decode_registers(uint32_t word, struct insn_a64 *in)
{
	uint32_t op = bits(word, 28, 21);

	if (matches(word, 0x1fe00000, 0x0b200000)) { /* add and sub with an extended register */
		in->writes = bit(word, 29) ? reg(rd(word)) : reg_or_sp(rd(word));
		return 0;
	}
	if (matches(word, 0x1fe00000, 0x1a400000)) /* ccmp, ccmn */
		return 0;
	in->writes = reg(rd(word));
	/* irg and addpt may write the stack pointer; the test may include others, to be safe */
	if (op == 0xd6 || (op == 0xd0 && bits(word, 15, 10)))
		in->writes = reg_or_sp(rd(word));
	/* signing that depends on the instruction's own address */
	if (matches(word, 0x7fff8000, 0x5ac18000)) {
		in->kind = A64_OPAQUE;
		in->writes = INSN_A64_WRITES_ANY;
	}
	return 0;
}

/* Floating point and vectors: few of them write a general register. */
static int decode_vectors(uint32_t word, struct insn_a64 *in)
{
	uint32_t op = bits(word, 18, 16);

	if (matches(word, 0x5f200000, 0x1e000000)) /* fixed point */
		in->writes = (op & 6) == 2 ? 0 : reg(rd(word));
	else if (matches(word, 0x5f20fc00, 0x1e200000)) /* to and from a general register */
		in->writes = (op & 6) == 2 || op == 7 ? 0 : reg(rd(word));
	else if (matches(word, 0xbfe0ec00, 0x0e002c00)) /* smov, umov */
		in->writes = reg(rd(word));
	return 0;
}

/* ---- branches and system ---- */

/* Hints: nop, pointer authentication, bti and others, by number. */
static int decode_hint(uint32_t word, struct insn_a64 *in)
{
	uint32_t number = bits(word, 11, 5);

	in->kind = A64_HINT;
	switch (number) {
	case 0:
		in->kind = A64_NOP;
		return 0;
	case 7: /* xpaclri */
		in->writes = reg(LR);
		return 0;
	case 8 ... 15: /* pacia1716 and others */
		in->writes = reg(17);
		return 0;
	case 24 ... 27: /* paciaz, paciasp, pacibz, pacibsp */
		in->kind = A64_LANDING;
		in->writes = reg(LR);
		return 0;
	case 28 ... 31: /* autiaz and others */
		in->writes = reg(LR);
		return 0;
	case 32:
	case 34:
	case 36:
	case 38:
		in->kind = A64_LANDING;
		return 0;
	case 39: /* pacm */
		return 0;
	case 40: /* chkfeat */
		in->writes = reg(16);
		return 0;
	default:
		return 0;
	}
}

/* br, blr, ret and their variants. */
static int decode_branch_register(uint32_t word, struct insn_a64 *in)
{
	if (matches(word, 0xfffffc1f, 0xd61f0000))
		in->kind = A64_BR;
	else if (matches(word, 0xfffffc1f, 0xd63f0000))
		in->kind = A64_BLR;
	else if (matches(word, 0xfffffc1f, 0xd65f0000))
		in->kind = A64_RET;
	else if (matches(word, 0xff9ff800, 0xd61f0800) || matches(word, 0xff9ff800, 0xd71f0800))
		in->kind = A64_BR_SIGNED;
	else if (matches(word, 0xffdff000, 0xd69f0000)) /* eret, drps */
		in->kind = A64_TRAP;
	else
		return -EINVAL;
	if (in->kind == A64_BLR || (in->kind == A64_BR_SIGNED && bits(word, 22, 21) == 1))
		in->writes = reg(LR);
	return 0;
}

/* Branches, exceptions, hints and system registers. The patterns are those of the Arm manual
 * (C4.1). */
static int decode_system_or_branch(uint32_t word, struct insn_a64 *in)
{
	if (matches(word, 0x7c000000, 0x14000000)) {
		in->kind = bit(word, 31) ? A64_BL : A64_B;
		in->writes = bit(word, 31) ? reg(LR) : 0;
		in->has_target = true;
		in->target = signed_bits(word, 25, 0) * 4;
	} else if (matches(word, 0xff000010, 0x54000000) || matches(word, 0x7e000000, 0x34000000)) {
		in->kind = A64_B_IF;
		in->has_target = true;
		in->target = signed_bits(word, 23, 5) * 4;
	} else if (matches(word, 0x7e000000, 0x36000000)) {
		in->kind = A64_B_IF;
		in->has_target = true;
		in->target = signed_bits(word, 18, 5) * 4;
	} else if (matches(word, 0xff000000, 0xd4000000)) {
		in->kind = A64_TRAP;
	} else if (matches(word, 0xfffff01f, 0xd503201f)) {
		return decode_hint(word, in);
	} else if (matches(word, 0xffc00000, 0xd5000000)) {
		in->kind = A64_SYSTEM;
		/* mrs, sysl and the waits with a timeout have a register; msr only reads it */
		in->writes = bit(word, 21) || matches(word, 0xfffff000, 0xd5031000) ? reg(rd(word))
										    : 0;
	} else if (matches(word, 0xfe000000, 0xd6000000)) {
		return decode_branch_register(word, in);
	} else {
		/* Also newer branches that kernels do not know, such as bc.cond. */
		return -EINVAL;
	}
	return 0;
}

/* ---- loads and stores ---- */

/* Does not decode the instruction further: it may write any register. */
static int mark_opaque(struct insn_a64 *in)
{
	in->kind = A64_OPAQUE;
	in->writes = INSN_A64_WRITES_ANY;
	return 0;
}

/* Notes that a pre- or post-indexed access adds `by` bytes to its base register. in->sp counts only
 * with in->has_sp. */
static void note_write_back(uint32_t word, int64_t by, struct insn_a64 *in)
{
	in->writes |= reg_or_sp(rn(word));
	in->has_sp = rn(word) == INSN_A64_SP;
	in->sp = (int32_t)by;
}

/* ldp, stp and their variants. */
static int decode_pairs(uint32_t word, struct insn_a64 *in)
{
	bool vector = bit(word, 26);
	bool load = bit(word, 22);
	bool post = bits(word, 24, 23) == 1;
	unsigned scale = 2 + (vector ? bits(word, 31, 30) : bit(word, 31));
	int64_t offset = signed_bits(word, 21, 15) * (1 << scale), stored_at = post ? 0 : offset;

	if (bits(word, 31, 30) == 3) /* pairs of other sizes */
		return mark_opaque(in);
	if (load && !vector)
		in->writes = reg(rd(word)) | reg(bits(word, 14, 10));
	if (bits(word, 31, 30) == 1 && !vector && !load) /* stgp, whose offset has another scale */
		return mark_opaque(in);
	if (bit(word, 23))
		note_write_back(word, offset, in);
	if (vector || load || bits(word, 31, 30) != 2 || rn(word) != INSN_A64_SP)
		return 0;
	in->stores_x30 = rd(word) == LR || bits(word, 14, 10) == LR;
	in->x30_at = (int32_t)(rd(word) == LR ? stored_at : stored_at + 8);
	return 0;
}

/* Atomics, and other instructions in their part of the encoding. */
static int decode_atomics(uint32_t word, struct insn_a64 *in)
{
	uint32_t op = bits(word, 14, 12);

	if (bit(word, 26) ||
	    (bit(word, 15) && op != 0 && op != 4)) /* ld64b writes eight registers */
		return mark_opaque(in);
	in->writes = reg(rd(word));
	return 0;
}

/* Decodes ldr, str and their variants. Only a store of x30 relative to the stack pointer is of
 * interest in detail: it saves the return address. x30_at counts from the stack pointer before the
 * instruction. */
static int decode_one_register(uint32_t word, struct insn_a64 *in)
{
	bool vector = bit(word, 26);
	bool unsigned_offset = bit(word, 24);
	uint32_t opc = bits(word, 23, 22);
	uint32_t mode = bits(word, 11, 10);
	bool prefetch = !vector && bits(word, 31, 30) == 3 && opc == 2;

	if (!unsigned_offset && bit(word, 21)) {
		if (mode == 0)
			return decode_atomics(word, in);
		if (mode != 2) { /* ldraa, ldrab */
			in->writes = reg(rd(word)) | (bit(word, 11) ? reg_or_sp(rn(word)) : 0);
			return 0;
		}
		in->indexed = !vector;
	}
	if (!vector && opc && !prefetch)
		in->writes = reg(rd(word));
	if (!unsigned_offset && !bit(word, 21) && (mode & 1))
		note_write_back(word, signed_bits(word, 20, 12), in);
	/* not "str x30, [sp...]" */
	if (vector || opc || bits(word, 31, 30) != 3 || rd(word) != LR || rn(word) != INSN_A64_SP)
		return 0;
	if (unsigned_offset) {
		in->stores_x30 = true;
		in->x30_at = (int32_t)bits(word, 21, 10) * 8;
	} else if (!bit(word, 21)) {
		in->stores_x30 = true;
		in->x30_at = mode == 1 ? 0 : (int32_t)signed_bits(word, 20, 12);
	}
	return 0;
}

/* Loads and stores of all kinds, by bits 29 to 27 and 24. */
static int decode_loads_and_stores(uint32_t word, struct insn_a64 *in)
{
	switch (bits(word, 29, 27) << 1 | bit(word, 24)) {
	case 1 << 1: /* exclusive, ordered, compare and swap; vectors */
	case 1 << 1 | 1:
		if (bit(word, 26)) {
			if (bit(word, 31))
				return mark_opaque(in);
			in->writes = bit(word, 23) ? reg_or_sp(rn(word)) : 0;
			return 0;
		}
		if (bit(word, 24))
			return mark_opaque(in);
		if (!bit(word, 23))
			in->kind = A64_EXCLUSIVE;
		in->writes = reg(rd(word)) | reg(bits(word, 14, 10)) | reg(bits(word, 20, 16));
		if (!bit(word, 23) && bit(word, 21)) /* casp writes two registers */
			in->writes |= reg(bits(word, 20, 16) | 1);
		return 0;
	case 3 << 1: /* literals */
		in->kind = A64_LITERAL;
		in->writes = bit(word, 26) || bits(word, 31, 30) == 3 ? 0 : reg(rd(word));
		in->target = signed_bits(word, 23, 5) * 4;
		return 0;
	case 3 << 1 | 1: /* ordered with an offset; tags, copies of memory */
		if (bit(word, 21) || bits(word, 11, 10) || bit(word, 26))
			return mark_opaque(in);
		in->writes = bits(word, 23, 22) ? reg(rd(word)) : 0;
		return 0;
	case 5 << 1:
	case 5 << 1 | 1:
		return decode_pairs(word, in);
	case 7 << 1:
	case 7 << 1 | 1:
		return decode_one_register(word, in);
	default:
		return -EINVAL;
	}
}

/* ---- all ---- */

/* Selects the group of encodings by bits 28 to 25. */
static int decode(uint32_t word, struct insn_a64 *in)
{
	switch (bits(word, 28, 25)) {
	case 0:
		if (bits(word, 31, 16) == 0) {
			in->kind = A64_TRAP; /* udf */
			return 0;
		}
		return bit(word, 31) ? mark_opaque(in) : -EINVAL; /* SME */
	case 2:
		return mark_opaque(in); /* SVE */
	case 8:
	case 9:
		return decode_immediate(word, in);
	case 10:
	case 11:
		return decode_system_or_branch(word, in);
	case 4:
	case 6:
	case 12:
	case 14:
		return decode_loads_and_stores(word, in);
	case 5:
	case 13:
		return decode_registers(word, in);
	case 7:
	case 15:
		return decode_vectors(word, in);
	default:
		return -EINVAL;
	}
}

int insn_a64__decode(const uint8_t *code, size_t size, struct insn_a64 *ret)
{
	struct insn_a64 in = { 0 };
	int err;

	if (size < INSN_A64_SIZE)
		return -EINVAL;
	in.word = (uint32_t)code[0] | (uint32_t)code[1] << 8 | (uint32_t)code[2] << 16 |
		  (uint32_t)code[3] << 24;
	err = decode(in.word, &in);
	if (!err)
		*ret = in;
	return err;
}
