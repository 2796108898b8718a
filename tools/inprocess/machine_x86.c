/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* x86-64: see machine.h. */
#include <stdint.h>

#include "vmlinux.h"
#include "machine.h"

/* Register numbers as in instructions. */
static const __u8 by_number[16] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
				    REG_RSI, REG_RDI, REG_R8,  REG_R9,	REG_R10, REG_R11,
				    REG_R12, REG_R13, REG_R14, REG_R15 };

void machine__regs(const ucontext_t *uc, __u64 ip, __u64 sp, struct pt_regs *r)
{
	const greg_t *g = uc->uc_mcontext.gregs;

	*r = (struct pt_regs){
		.r15 = g[REG_R15],
		.r14 = g[REG_R14],
		.r13 = g[REG_R13],
		.r12 = g[REG_R12],
		.bp = g[REG_RBP],
		.bx = g[REG_RBX],
		.r11 = g[REG_R11],
		.r10 = g[REG_R10],
		.r9 = g[REG_R9],
		.r8 = g[REG_R8],
		.ax = g[REG_RAX],
		.cx = g[REG_RCX],
		.dx = g[REG_RDX],
		.si = g[REG_RSI],
		.di = g[REG_RDI],
		.orig_ax = -1UL,
		.ip = ip,
		.flags = g[REG_EFL],
		.sp = sp,
	};
}

static void push(greg_t *g, __u64 value)
{
	g[REG_RSP] -= 8;
	*(__u64 *)g[REG_RSP] = value;
}

/* True if jcc's condition holds. The low bit of a condition negates it. */
static bool condition_holds(unsigned int condition, __u64 flags)
{
	bool c = flags & 1, p = flags & 4, z = flags & 0x40, s = flags & 0x80, o = flags & 0x800,
	     is;

	switch (condition >> 1) {
	case 0:
		is = o;
		break;
	case 1:
		is = c;
		break;
	case 2:
		is = z;
		break;
	case 3:
		is = c || z;
		break;
	case 4:
		is = s;
		break;
	case 5:
		is = p;
		break;
	case 6:
		is = s != o;
		break;
	default:
		is = z || s != o;
		break;
	}
	return is != (condition & 1);
}

void machine__emulate(const struct mt_inside_site *s, ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;
	__u64 next = s->addr + s->length;

	switch (s->way) {
	case MT_INSIDE_PUSH:
		push(g, g[by_number[s->operand & 15]]);
		break;
	case MT_INSIDE_JUMP:
	case MT_INSIDE_SLOT_RUN:
		next = s->target;
		break;
	case MT_INSIDE_BRANCH:
		next = condition_holds(s->operand, g[REG_EFL]) ? s->target : next;
		break;
	case MT_INSIDE_CALL:
		push(g, next);
		next = s->target;
		break;
	case MT_INSIDE_RET:
		next = *(__u64 *)g[REG_RSP];
		g[REG_RSP] += 8;
		break;
	default:
		break;
	}
	g[REG_RIP] = (greg_t)next;
}

__u64 machine__trapped_at(const ucontext_t *uc)
{
	return (__u64)uc->uc_mcontext.gregs[REG_RIP] - 1;
}

/* Copies end with a jump back. */
bool machine__leave_slot(ucontext_t *uc, __u64 slots)
{
	(void)uc;
	(void)slots;
	return false;
}

void machine__go_to(ucontext_t *uc, __u64 ip)
{
	uc->uc_mcontext.gregs[REG_RIP] = (greg_t)ip;
}

__u64 machine__sp(const ucontext_t *uc)
{
	return (__u64)uc->uc_mcontext.gregs[REG_RSP];
}

__u64 machine__sp_returned(const ucontext_t *uc)
{
	return (__u64)uc->uc_mcontext.gregs[REG_RSP] - 8;
}

__u64 machine__return_address(const ucontext_t *uc, __u64 sp)
{
	(void)uc;
	return *(const __u64 *)(uintptr_t)sp;
}

void machine__set_return_address(ucontext_t *uc, __u64 sp, __u64 to)
{
	(void)uc;
	*(__u64 *)(uintptr_t)sp = to;
}

unsigned long machine__thread_pointer(void)
{
	unsigned long tp;

	__asm__("mov %%fs:0, %0" : "=r"(tp));
	return tp;
}

void machine__pause(void)
{
	__builtin_ia32_pause();
}
