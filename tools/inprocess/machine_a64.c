/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* AArch64: see machine.h. The program counter is at the breakpoint, not behind it, and calls have
 * their return address in x30. */
#include <string.h>

#include "vmlinux.h"
#include "emulate_a64.h"
#include "machine.h"

#define LR 30

_Static_assert(sizeof(struct emulate_a64_regs) == sizeof(struct user_regs_struct),
	       "registers as in a signal's context");

/* Begins at the registers of a signal's context, where the same members follow each other. */
static struct emulate_a64_regs *regs_of(const ucontext_t *uc)
{
	return (struct emulate_a64_regs *)(uintptr_t)&uc->uc_mcontext.regs;
}

__u64 machine__trapped_at(const ucontext_t *uc)
{
	return uc->uc_mcontext.pc;
}

void machine__regs(const ucontext_t *uc, __u64 ip, __u64 sp, struct pt_regs *ret)
{
	memcpy(ret, regs_of(uc), sizeof(struct emulate_a64_regs));
	ret->sp = sp;
	ret->pc = ip;
}

void machine__emulate(const struct mt_inside_site *s, ucontext_t *uc)
{
	emulate_a64__run(s, regs_of(uc));
}

bool machine__leave_slot(ucontext_t *uc, __u64 slots)
{
	__u64 pc = uc->uc_mcontext.pc;

	if (pc < slots || pc - slots >= MT_INSIDE_SLOT * MT_INSIDE_SLOTS ||
	    (pc - slots) % MT_INSIDE_SLOT != 4)
		return false;
	memcpy(&uc->uc_mcontext.pc, (const void *)(uintptr_t)(pc + 4), sizeof(__u64));
	return true;
}

void machine__go_to(ucontext_t *uc, __u64 ip)
{
	uc->uc_mcontext.pc = ip;
}

__u64 machine__sp(const ucontext_t *uc)
{
	return uc->uc_mcontext.sp;
}

__u64 machine__sp_returned(const ucontext_t *uc)
{
	return uc->uc_mcontext.sp;
}

__u64 machine__return_address(const ucontext_t *uc, __u64 sp)
{
	(void)sp;
	return uc->uc_mcontext.regs[LR];
}

void machine__set_return_address(ucontext_t *uc, __u64 sp, __u64 to)
{
	(void)sp;
	uc->uc_mcontext.regs[LR] = to;
}

unsigned long machine__thread_pointer(void)
{
	return (uintptr_t)__builtin_thread_pointer();
}

void machine__pause(void)
{
	__asm__ volatile("yield");
}
