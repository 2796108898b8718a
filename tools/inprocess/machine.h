/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The library's access to the registers of an interrupted thread, for each machine. */
#include <stdbool.h>
#include <ucontext.h>

#include "memtrace.h"
#include "inside_shared.h"

struct pt_regs;

/* Address of the breakpoint at which a thread was interrupted. */
__u64 machine__trapped_at(const ucontext_t *uc);
/* The registers as a program at address ip sees them. sp: the stack pointer there. */
void machine__regs(const ucontext_t *uc, __u64 ip, __u64 sp, struct pt_regs *ret);
/* Emulates the instruction of the site. */
void machine__emulate(const struct mt_inside_site *s, ucontext_t *uc);
/* At a breakpoint behind the copy of an instruction: lets the thread go on behind the original.
 * False: it is at another place. slots: as from breakpoints__slots(). */
bool machine__leave_slot(ucontext_t *uc, __u64 slots);
void machine__go_to(ucontext_t *uc, __u64 ip);

__u64 machine__sp(const ucontext_t *uc);
/* The stack pointer right after a function returned to the trampoline: that of its entry. */
__u64 machine__sp_returned(const ucontext_t *uc);
/* The return address of a function. sp: the stack pointer at its entry. */
__u64 machine__return_address(const ucontext_t *uc, __u64 sp);
void machine__set_return_address(ucontext_t *uc, __u64 sp, __u64 to);

/* As the kernel keeps it for the thread (bpf/arch.bpf.h). */
unsigned long machine__thread_pointer(void);
/* Tells the processor that this thread waits in a loop. */
void machine__pause(void);
