/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A64 instructions that a breakpoint replaced, as user/inspect/process/inside_plan_a64.c planned
 * them. Also compiled for other machines, for tests. */
#include <stdint.h>

#include <linux/types.h>

#include "memtrace.h"
#include "inside_shared.h"

/* Registers in the order of the kernel's struct user_pt_regs and struct sigcontext. */
struct emulate_a64_regs {
	__u64 x[31], sp, pc, pstate;
};

/* Emulates the instruction of the site on these registers. It may write to memory. */
void emulate_a64__run(const struct mt_inside_site *s, struct emulate_a64_regs *r);
