/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_TOOLS_INSIDE_BREAKPOINTS_H
#define MT_TOOLS_INSIDE_BREAKPOINTS_H
/* See breakpoints.c. */
#include <stdbool.h>
#include <linux/types.h>

#include "memtrace.h"
#include "inside_shared.h"

/* The handler of SIGTRAP. */
void breakpoints__trap(int number, void *info, void *context);
/* Where instructions go that run out of their line, and where calls return to whose return is
 * waited for. */
__u64 breakpoints__slots(void);
/* The same near the program itself, whose instructions may refer to its data. 0: there is no room. */
__u64 breakpoints__near_slots(void);
__u64 breakpoints__returns(void);
/* Does for registers (of a ucontext) what the instruction of that site would have done. */
void breakpoints__go_on(const struct mt_inside_site *s, long long *registers);
/* Is libc10 among what the dynamic linker has mapped? */
bool breakpoints__torch_is_here(void);
/* Waits until the recorder lets us go on, is gone, or has said nothing for long. */
void breakpoints__wait(enum mt_inside_wait what);

#endif
