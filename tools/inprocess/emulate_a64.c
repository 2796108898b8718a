/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "emulate_a64.h"

#include <stdbool.h>

#define LR 30
#define BTYPE (3ULL << 10) /* the mark of an indirect branch, which each instruction clears */

static __u32 bits(__u32 w, unsigned int to, unsigned int from)
{
	return w >> from & ((1u << (to - from + 1)) - 1);
}

/* Register 31 is zero here. */
static __u64 get(const struct emulate_a64_regs *r, __u32 n)
{
	return n < 31 ? r->x[n] : 0;
}

/* Register 31 is the stack pointer here. */
static __u64 get_sp(const struct emulate_a64_regs *r, __u32 n)
{
	return n < 31 ? r->x[n] : r->sp;
}

static void set_sp(struct emulate_a64_regs *r, __u32 n, __u64 value)
{
	if (n < 31)
		r->x[n] = value;
	else
		r->sp = value;
}

/* The low bit of a condition negates it, except of 15. */
static bool condition_holds(__u32 condition, __u64 pstate)
{
	bool n = pstate >> 31 & 1, z = pstate >> 30 & 1, c = pstate >> 29 & 1, v = pstate >> 28 & 1,
	     is;

	switch (condition >> 1) {
	case 0:
		is = z;
		break;
	case 1:
		is = c;
		break;
	case 2:
		is = n;
		break;
	case 3:
		is = v;
		break;
	case 4:
		is = c && !z;
		break;
	case 5:
		is = n == v;
		break;
	case 6:
		is = n == v && !z;
		break;
	default:
		return true;
	}
	return is != (condition & 1);
}

/* b.cond, cbz, cbnz, tbz, tbnz */
static bool branches(__u32 w, const struct emulate_a64_regs *r)
{
	__u64 value = get(r, bits(w, 4, 0));

	if (w >> 24 == 0x54)
		return condition_holds(w & 15, r->pstate);
	if (w >> 25 & 1)
		return (value >> (w >> 31 << 5 | bits(w, 23, 19)) & 1) == (w >> 24 & 1);
	if (!(w >> 31))
		value = (__u32)value;
	return (value != 0) == (w >> 24 & 1);
}

static void store_pair(__u32 w, struct emulate_a64_regs *r)
{
	__s64 offset = (__s64)((__u64)bits(w, 21, 15) << 57) >> 57;
	__u64 at = r->sp + (__u64)offset * 8, *to = (__u64 *)(uintptr_t)at;

	to[0] = get(r, bits(w, 4, 0));
	to[1] = get(r, bits(w, 14, 10));
	if (w >> 23 & 1)
		r->sp = at;
}

static void add(__u32 w, struct emulate_a64_regs *r)
{
	__u64 by = (__u64)bits(w, 21, 10) << (w >> 22 & 1 ? 12 : 0),
	      from = get_sp(r, bits(w, 9, 5));

	set_sp(r, bits(w, 4, 0), w >> 30 & 1 ? from - by : from + by);
}

/* The result is the next instruction's address. */
static __u64 run_word(const struct mt_inside_site *s, struct emulate_a64_regs *r, __u64 next)
{
	__u32 w = s->original, rd = bits(w, 4, 0);

	if ((w & 0x1f000000) == 0x10000000) { /* adr, adrp */
		if (rd < 31)
			r->x[rd] = s->target;
	} else if ((w & 0xff9ffc1f) == 0xd61f0000) { /* br, blr, ret */
		__u64 to = get(r, bits(w, 9, 5));

		if (bits(w, 22, 21) == 1)
			r->x[LR] = next;
		return to;
	} else if ((w & 0xff4003e0) == 0xa90003e0) {
		store_pair(w, r);
	} else if ((w & 0xbf800000) == 0x91000000) {
		add(w, r);
	} else if (rd < 31) { /* mov */
		r->x[rd] = get(r, bits(w, 20, 16));
	}
	return next;
}

void emulate_a64__run(const struct mt_inside_site *s, struct emulate_a64_regs *r)
{
	__u64 next = s->addr + s->length;

	r->pstate &= ~BTYPE;
	switch (s->way) {
	case MT_INSIDE_JUMP:
	case MT_INSIDE_SLOT_RUN:
		next = s->target;
		break;
	case MT_INSIDE_BRANCH:
		next = branches(s->original, r) ? s->target : next;
		break;
	case MT_INSIDE_CALL:
		r->x[LR] = next;
		next = s->target;
		break;
	case MT_INSIDE_WORD:
		next = run_word(s, r, next);
		break;
	default:
		break;
	}
	r->pc = next;
}
