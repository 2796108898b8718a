/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/process/insn.h"

#include <errno.h>
#include <string.h>

#define INSN_MAX 15 /* bytes; processors reject more */

enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI };
#define BIT(n) (1u << (n)) /* register n in a mask of registers */

/*
 * Operands after an opcode: '.' none, m ModRM, b imm8, z imm16/32, w imm16, B ModRM+imm8, Z
 * ModRM+imm16/32, v imm16/32/64, o a full address, e imm16+imm8 of enter, j rel8, J rel32. '!': not
 * an instruction in 64-bit mode, a prefix, or an escape.
 */
static const char one_byte[16][17] = {
	"mmmmbz!!mmmmbz!!", "mmmmbz!!mmmmbz!!", "mmmmbz!!mmmmbz!!", "mmmmbz!!mmmmbz!!",
	"!!!!!!!!!!!!!!!!", "................", "!!!m!!!!zZbB....", "jjjjjjjjjjjjjjjj",
	"BZ!Bmmmmmmmmmmmm", "..........!.....", "oooo....bz......", "bbbbbbbbvvvvvvvv",
	"BBw.!!BZe.w..b!.", "mmmm!!!.mmmmmmmm", "jjjjbbbbJJ!j....", "!.!!..mm......mm",
};
static const char two_byte[16][17] = {
	"mmmm!.....!.!m.B", "mmmmmmmmmmmmmmmm", "mmmm!!!!mmmmmmmm", "......!.!!!!!!!!",
	"mmmmmmmmmmmmmmmm", "mmmmmmmmmmmmmmmm", "mmmmmmmmmmmmmmmm", "BBBBmmm.mm!!mmmm",
	"JJJJJJJJJJJJJJJJ", "mmmmmmmmmmmmmmmm", "...mBm!!...mBmmm", "mmmmmmmmmmBmmmmm",
	"mmBmBBBm........", "mmmmmmmmmmmmmmmm", "mmmmmmmmmmmmmmmm", "mmmmmmmmmmmmmmmm",
};

struct cursor {
	const uint8_t *code;
	size_t size, pos;
};

static int next_byte(struct cursor *cursor, uint8_t *ret)
{
	if (cursor->pos >= cursor->size)
		return -EINVAL;
	*ret = cursor->code[cursor->pos++];
	return 0;
}

static int skip_bytes(struct cursor *cursor, size_t n)
{
	if (cursor->size - cursor->pos < n)
		return -EINVAL;
	cursor->pos += n;
	return 0;
}

static unsigned mod_of(const struct insn *in)
{
	return in->modrm >> 6;
}

static unsigned op_of(const struct insn *in) /* ModRM.reg as opcode extension */
{
	return in->modrm >> 3 & 7;
}

/* ---- registers written ---- */

/* A byte register 4-7 is ah, ch, dh or bh without a REX prefix, so both registers count as
 * written. */
static uint16_t reg_mask(const struct insn *in, unsigned low, bool extended)
{
	unsigned n = low + (extended ? 8 : 0);

	if (n >= 4 && n <= 7 && !in->rex)
		return (uint16_t)(BIT(n) | BIT(n - 4));
	return (uint16_t)BIT(n);
}

/* The register in ModRM.reg, as a mask. */
static uint16_t modrm_reg(const struct insn *in)
{
	return reg_mask(in, op_of(in), in->rex & 4);
}

/* The register in ModRM.rm, as a mask; 0: that is memory. */
static uint16_t modrm_rm(const struct insn *in)
{
	return mod_of(in) == 3 ? reg_mask(in, in->modrm & 7, in->rex & 1) : 0;
}

/* The register in the opcode's low bits, as a mask. */
static uint16_t opcode_reg(const struct insn *in)
{
	return reg_mask(in, in->opcode & 7, in->rex & 1);
}

/* Registers that an opcode below 0x40 writes: add, or, adc, sbb, and, sub, xor, cmp. */
static uint16_t writes_alu(const struct insn *in)
{
	bool cmp = (in->opcode >> 3 & 7) == 7;

	switch (in->opcode & 7) {
	case 0:
	case 1:
		return cmp ? 0 : modrm_rm(in);
	case 2:
	case 3:
		return cmp ? 0 : modrm_reg(in);
	default:
		return cmp ? 0 : BIT(RAX);
	}
}

/* Registers that a string instruction changes. */
static uint16_t writes_string(uint8_t opcode)
{
	switch (opcode & ~1) {
	case 0xa4: /* movs */
	case 0xa6: /* cmps */
		return BIT(RSI) | BIT(RDI) | BIT(RCX);
	case 0xaa: /* stos */
	case 0xae: /* scas */
		return BIT(RDI) | BIT(RCX);
	default: /* lods */
		return BIT(RAX) | BIT(RSI) | BIT(RCX);
	}
}

/* Returns the registers that are written by opcodes whose ModRM.reg selects the operation. */
static uint16_t writes_group(const struct insn *in)
{
	switch (in->opcode) {
	case 0x80: /* add, or, ..., xor; 7: cmp */
	case 0x81:
	case 0x83:
		return op_of(in) == 7 ? 0 : modrm_rm(in);
	case 0xf6: /* 0, 1: test; 2, 3: not, neg; others: mul, imul, div, idiv */
	case 0xf7:
		if (op_of(in) < 2)
			return 0;
		return op_of(in) < 4 ? modrm_rm(in) : BIT(RAX) | BIT(RDX);
	case 0xfe: /* inc, dec */
		return modrm_rm(in);
	default: /* 0xff; 0, 1: inc, dec; others: push, and branches, which end the prologue */
		return op_of(in) < 2 ? modrm_rm(in) : 0;
	}
}

/* Registers that an instruction of the one-byte map changes, as a mask of BIT(). */
static uint16_t writes_one_byte(const struct insn *in)
{
	uint8_t op = in->opcode;

	if (op < 0x40)
		return writes_alu(in);
	switch (op) {
	case 0x50 ... 0x57: /* push */
	case 0x68:
	case 0x6a:
	case 0x84 ... 0x85: /* test */
	case 0x8e:	    /* mov to a segment register */
	case 0x9b ... 0x9e: /* fwait, pushf, popf, sahf */
	case 0xa2 ... 0xa3: /* mov to an address */
	case 0xa8 ... 0xa9:
	case 0xf5:
	case 0xf8 ... 0xfd: /* flags */
		return 0;
	case 0x58 ... 0x5f: /* pop */
	case 0xb0 ... 0xbf: /* mov imm */
		return opcode_reg(in);
	case 0x63: /* movslq */
	case 0x69:
	case 0x6b: /* imul */
	case 0x8a ... 0x8b:
	case 0x8d: /* lea */
		return modrm_reg(in);
	case 0x80 ... 0x83:
	case 0xf6 ... 0xf7:
	case 0xfe ... 0xff:
		return writes_group(in);
	case 0x86 ... 0x87: /* xchg */
		return modrm_reg(in) | modrm_rm(in);
	case 0x88 ... 0x89:
	case 0x8c:
	case 0x8f:
	case 0xc0 ... 0xc1:
	case 0xc6 ... 0xc7:
	case 0xd0 ... 0xd3:
		return modrm_rm(in);
	case 0x90 ... 0x97:
		return op == 0x90 && !(in->rex & 1) ? 0 : opcode_reg(in) | BIT(RAX);
	case 0x98: /* cltq */
	case 0x9f:
	case 0xa0 ... 0xa1:
	case 0xd7:
	case 0xd8 ... 0xdf: /* fnstsw %ax */
		return BIT(RAX);
	case 0x99: /* cqto */
		return BIT(RDX);
	case 0xa4 ... 0xa7:
	case 0xaa ... 0xaf:
		return writes_string(op);
	case 0xc9: /* leave */
		return BIT(RBP);
	default:
		return INSN_WRITES_ANY;
	}
}

/* Registers that an instruction of the map 0f changes, as a mask of BIT(). */
static uint16_t writes_two_byte(const struct insn *in)
{
	switch (in->opcode) {
	case 0x0d:
	case 0x18 ... 0x1f: /* prefetch, nops, endbr64 */
		/* rdssp is among these opcodes and writes */
		return in->opcode == 0x1e && in->pf3 && in->modrm != 0xfa ? modrm_rm(in) : 0;
	case 0x10 ... 0x17: /* vector registers and memory */
	case 0x28 ... 0x2b:
	case 0x2e ... 0x2f:
	case 0x51 ... 0x77:
	case 0x7c ... 0x7d:
	case 0x7f:
	case 0xa3: /* bt */
	case 0xc2 ... 0xc4:
	case 0xc6:
	case 0xd0 ... 0xd6:
	case 0xd8 ... 0xfe:
		return 0;
	case 0x2c ... 0x2d:
	case 0x40 ... 0x50: /* cmov, movmskps */
	case 0xaf:
	case 0xb6 ... 0xb8:
	case 0xbc ... 0xbf:
	case 0xc5:
	case 0xd7:
		return modrm_reg(in);
	case 0x7e:
	case 0x90 ... 0x9f: /* setcc */
	case 0xa4 ... 0xa5:
	case 0xab ... 0xae:
	case 0xb3:
	case 0xba ... 0xbb:
		return modrm_rm(in);
	case 0xb0 ... 0xb1: /* cmpxchg */
		return BIT(RAX) | modrm_rm(in);
	case 0xc0 ... 0xc1: /* xadd */
		return modrm_reg(in) | modrm_rm(in);
	case 0xc8 ... 0xcf: /* bswap */
		return opcode_reg(in);
	default:
		return INSN_WRITES_ANY;
	}
}

/* Returns the registers that an instruction writes. Other opcode maps are rare in prologues: their
 * instructions count as writing all registers. */
static uint16_t written_registers(const struct insn *in)
{
	if (in->map == INSN_MAP_1)
		return writes_one_byte(in);
	if (in->map == INSN_MAP_0F)
		return writes_two_byte(in);
	return INSN_WRITES_ANY;
}

/* ---- flow ---- */

/* How an instruction of the one-byte map goes on. */
static enum insn_flow flow_one_byte(const struct insn *in)
{
	switch (in->opcode) {
	case 0x6c ... 0x6f: /* ins, outs */
	case 0xcc ... 0xcd:
	case 0xe4 ... 0xe7: /* in, out */
	case 0xec ... 0xf1:
	case 0xf4:
	case 0xfa ... 0xfb: /* cli, sti */
		return INSN_TRAP;
	case 0x70 ... 0x7f:
	case 0xe0 ... 0xe3:
		return INSN_JCC;
	case 0xc2 ... 0xc3:
	case 0xca ... 0xcb:
	case 0xcf:
		return INSN_RET;
	case 0xc6: /* xabort */
		return op_of(in) ? INSN_TRAP : INSN_NEXT;
	case 0xc7: /* xbegin */
		return op_of(in) ? INSN_JCC : INSN_NEXT;
	case 0xe8:
		return INSN_CALL;
	case 0xe9:
	case 0xeb:
		return INSN_JMP;
	case 0xff:
		if (op_of(in) == 2 || op_of(in) == 3)
			return INSN_CALL_INDIRECT;
		return op_of(in) == 4 || op_of(in) == 5 ? INSN_JMP_INDIRECT : INSN_NEXT;
	default:
		return INSN_NEXT;
	}
}

/* How the program goes on after the instruction. */
static enum insn_flow flow_of(const struct insn *in)
{
	if (in->map == INSN_MAP_1)
		return flow_one_byte(in);
	if (in->map != INSN_MAP_0F)
		return INSN_NEXT;
	switch (in->opcode) {
	case 0x80 ... 0x8f:
		return INSN_JCC;
	case 0x00 ... 0x01: /* system tables */
	case 0x05 ... 0x0b:
	case 0x20 ... 0x23:
	case 0x30:
	case 0x34 ... 0x37:
	case 0xaa:
	case 0xb9:
	case 0xff:
		return INSN_TRAP;
	default:
		return INSN_NEXT;
	}
}

/* ---- bytes ---- */

/* Reads legacy prefixes, then REX, which must be right before the opcode. *op: the byte after
 * them. */
static int read_prefixes(struct cursor *cursor, struct insn *in, uint8_t *op)
{
	for (;;) {
		if (next_byte(cursor, op))
			return -EINVAL;
		switch (*op) {
		case 0x66:
			in->p66 = true;
			break;
		case 0x67:
			in->p67 = true;
			break;
		case 0xf2:
			in->pf2 = true;
			break;
		case 0xf3:
			in->pf3 = true;
			break;
		case 0xf0:
			in->lock = true;
			break;
		case 0x26:
		case 0x2e:
		case 0x36:
		case 0x3e:
			in->segment = true;
			break;
		case 0x64:
		case 0x65:
			break;
		default:
			if ((*op & 0xf0) != 0x40)
				return 0;
			in->rex = *op;
			return next_byte(cursor, op);
		}
		in->prefixes++;
	}
}

/* Reads ModRM, SIB and the displacement. */
static int read_modrm(struct cursor *cursor, struct insn *in)
{
	unsigned rm;

	if (next_byte(cursor, &in->modrm))
		return -EINVAL;
	in->has_modrm = true;
	/* moves to and from control registers treat any mod as 3 */
	if (mod_of(in) == 3 || (in->map == INSN_MAP_0F && in->opcode >= 0x20 && in->opcode <= 0x23))
		return 0;
	rm = in->modrm & 7;
	if (rm == 4) {
		if (next_byte(cursor, &in->sib))
			return -EINVAL;
		in->has_sib = true;
		if ((in->sib & 7) == 5 && mod_of(in) == 0)
			return skip_bytes(cursor, 4);
	} else if (rm == 5 && mod_of(in) == 0) {
		return skip_bytes(cursor, 4);
	}
	if (mod_of(in) == 0)
		return 0;
	return skip_bytes(cursor, mod_of(in) == 1 ? 1 : 4);
}

/* Bytes of an imm16/32 operand; with REX.W, prefix 66 has no effect. */
static size_t imm_z(const struct insn *in)
{
	return in->p66 && !(in->rex & 8) ? 2 : 4;
}

/* Reads a branch displacement: 4 bytes if wide, otherwise 1. With prefix 66 and without REX.W,
 * processors disagree on its length. */
static int read_relative(struct cursor *cursor, struct insn *in, bool wide)
{
	int8_t rel8;

	if (in->p66 && !(in->rex & 8))
		return -EINVAL;
	if (skip_bytes(cursor, wide ? 4 : 1))
		return -EINVAL;
	if (wide) {
		memcpy(&in->relative, cursor->code + cursor->pos - 4, 4);
	} else {
		memcpy(&rel8, cursor->code + cursor->pos - 1, 1);
		in->relative = rel8;
	}
	in->has_target = true;
	return 0;
}

/* form: a letter of the tables one_byte and two_byte. */
static int read_operands(struct cursor *cursor, struct insn *in, char form)
{
	if (strchr("mBZ", form) && read_modrm(cursor, in))
		return -EINVAL;
	switch (form) {
	case '.':
		return 0;
	case 'm':
		/* test has an immediate, other instructions of the group have none */
		if (in->map == INSN_MAP_1 && (in->opcode & 0xfe) == 0xf6 && op_of(in) < 2)
			return skip_bytes(cursor, in->opcode == 0xf6 ? 1 : imm_z(in));
		return 0;
	case 'b':
	case 'B':
		return skip_bytes(cursor, 1);
	case 'Z':
		/* xbegin has a branch displacement here */
		if (in->map == INSN_MAP_1 && in->opcode == 0xc7 && op_of(in))
			return in->modrm == 0xf8 ? read_relative(cursor, in, /*wide=*/true)
						 : -EINVAL;
		return skip_bytes(cursor, imm_z(in));
	case 'z':
		return skip_bytes(cursor, imm_z(in));
	case 'w':
		return skip_bytes(cursor, 2);
	case 'e':
		return skip_bytes(cursor, 3);
	case 'v':
		return skip_bytes(cursor, in->rex & 8 ? 8 : imm_z(in));
	case 'o':
		return skip_bytes(cursor, in->p67 ? 4 : 8);
	case 'j':
	case 'J':
		return read_relative(cursor, in, form == 'J');
	default:
		return -EINVAL;
	}
}

/* Reads a VEX (first byte c4 or c5) or EVEX (62) prefix, opcode and operands. */
static int read_vex(struct cursor *cursor, struct insn *in, uint8_t first)
{
	bool evex = first == 0x62;
	uint8_t prefix[3] = { 0 }, map = 1;
	size_t prefix_bytes = evex ? 3 : 2, i; /* after the first byte */
	char form = 'm';

	if (in->rex || in->p66 || in->pf2 || in->pf3 || in->lock)
		return -EINVAL;
	if (first == 0xc5)
		prefix_bytes = 1;
	for (i = 0; i < prefix_bytes; i++)
		if (next_byte(cursor, &prefix[i]))
			return -EINVAL;
	in->map = evex ? INSN_MAP_EVEX : INSN_MAP_VEX;
	if (first != 0xc5)
		map = prefix[0] & (evex ? 0x0f : 0x1f);
	if (evex && !(prefix[1] & 4))
		return -EINVAL;
	if (next_byte(cursor, &in->opcode))
		return -EINVAL;
	if (map == 1) {
		form = two_byte[in->opcode >> 4][in->opcode & 15];
		if (form == '.' ? evex || in->opcode != 0x77
				: form != 'm' && form != 'B' && (!evex || form != '!'))
			return -EINVAL;
		if (form == '!') /* EVEX-only conversions at 7a and 7b */
			form = (in->opcode & 0xfe) == 0x7a ? 'm' : '!';
	} else if (map == 3) {
		form = 'B';
	} else if (map != 2 && (!evex || (map != 5 && map != 6))) {
		return -EINVAL;
	}
	return read_operands(cursor, in, form);
}

/* Reads the rest of an instruction after 0f. */
static int read_two_byte(struct cursor *cursor, struct insn *in)
{
	uint8_t op;

	if (next_byte(cursor, &op))
		return -EINVAL;
	if (op == 0x38 || op == 0x3a) {
		in->map = op == 0x38 ? INSN_MAP_0F38 : INSN_MAP_0F3A;
		if (next_byte(cursor, &in->opcode))
			return -EINVAL;
		return read_operands(cursor, in, op == 0x38 ? 'm' : 'B' /* as in two_byte[] */);
	}
	in->map = INSN_MAP_0F;
	in->opcode = op;
	if (op == 0x78 && (in->p66 || in->pf2))
		return -EINVAL; /* extrq, insertq: two immediates, removed from processors */
	return read_operands(cursor, in, two_byte[op >> 4][op & 15]);
}

/* True if ModRM.reg, which tells apart opcodes with the same first byte, selects an unused one. */
static bool is_unused_in_group(const struct insn *in)
{
	switch (in->opcode) {
	case 0x8f: /* pop */
		return op_of(in) != 0;
	case 0xc6: /* mov, and xabort */
		return op_of(in) != 0 && in->modrm != 0xf8;
	case 0xfe: /* inc, dec */
		return op_of(in) > 1;
	case 0xff: /* inc, dec, call, jmp, push */
		return op_of(in) == 7;
	}
	return false;
}

/* Reads a whole instruction. -EINVAL: invalid, unknown or cut off. */
static int read_insn(struct cursor *cursor, struct insn *in)
{
	uint8_t op;

	if (read_prefixes(cursor, in, &op))
		return -EINVAL;
	if (op == 0xc4 || op == 0xc5 || op == 0x62) /* VEX, and EVEX */
		return read_vex(cursor, in, op);
	if (op == 0x0f)
		return read_two_byte(cursor, in);
	in->opcode = op;
	if (read_operands(cursor, in, one_byte[op >> 4][op & 15]))
		return -EINVAL;
	return is_unused_in_group(in) ? -EINVAL : 0;
}

int insn__decode(const uint8_t *code, size_t size, struct insn *ret)
{
	struct cursor cursor = { .code = code, .size = size < INSN_MAX ? size : INSN_MAX };
	struct insn in = { 0 };

	if (read_insn(&cursor, &in))
		return -EINVAL;
	in.length = (uint8_t)cursor.pos;
	in.flow = (uint8_t)flow_of(&in);
	in.writes = written_registers(&in);
	*ret = in;
	return 0;
}

/* Nops are 90 (xchg %eax, %eax), 0f 1f and 0f 1e, but not f3 0f 1e, which is endbr64 or rdssp. */
bool insn__is_nop(const struct insn *in)
{
	if (in->map == INSN_MAP_1)
		return in->opcode == 0x90 && !(in->rex & 1);
	return in->map == INSN_MAP_0F && (in->opcode == 0x1f || (in->opcode == 0x1e && !in->pf3));
}
