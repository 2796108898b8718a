/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Breakpoints in this process, see breakpoints.c. */
#include <stdbool.h>

#include "memtrace.h"
#include "inside_shared.h"

/* The handler of SIGTRAP: runs the programs of the breakpoint, then emulates its instruction. */
void breakpoints__trap(int number, void *info, void *context);
/*
 * Address of MT_INSIDE_SLOTS slots for copies of instructions, and of the trampoline for returns.
 */
__u64 breakpoints__slots(void);
/*
 * Address of such slots near the program, for instructions with addresses relative to it. 0: none.
 */
__u64 breakpoints__near_slots(void);
__u64 breakpoints__returns(void);
/* True if the dynamic linker has mapped libc10. */
bool breakpoints__torch_is_here(void);
/* Waits until the recorder lets the process continue, ends, or does not answer for 10 s. */
void breakpoints__wait(enum mt_inside_wait what);
