/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * What differs between architectures: the thread pointer, the place of arguments in memory, and how
 * to tell whether a call of a probed function is still active. Both headers define
 *
 *   pointer_of_thread()             the current task's thread pointer
 *   struct kept_call               a call that later events of the thread ask about
 *                                  .sp: the stack pointer when it began
 *                                  .ret: the return address; 0: could not be read
 *   struct stack_read              what an event reads of the stack to answer
 *   begin_read(read, ctx)          prepares that, at the beginning of an event
 *   keep_call(call, read, sp)      keeps the call that begins at this event. False: its return
 *                                  address could not be read
 *   struct caller                  registers that a function keeps for its caller
 *   set_caller(caller, ctx, sp)     keeps them
 *   is_caller(caller, ctx, sp)      whether they are the same: the same frame calls. False where
 *                                  that is not needed
 *   state_of(call, sp, read)       whether it is active, as of an event with this stack pointer
 *   awaits_return(call, sp, read)  whether it is active and its return probe will be hit
 *   sp_returned(call)              the stack pointer right after the call has returned
 *   extent_of(arg, sp)             address of a cudaExtent passed as the second argument
 *   read_register(ctx, offset, ret)
 *                                  a register by its offset in struct pt_regs; false: none there
 */
enum call_state {
	CALL_LEFT = 0,
	CALL_ACTIVE,
	CALL_UNKNOWN, /* the stack cannot be read now */
};

#ifdef __TARGET_ARCH_arm64
#include "arch_arm64.bpf.h"
#else
#include "arch_x86.bpf.h"
#endif
