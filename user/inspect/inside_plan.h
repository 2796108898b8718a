/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* How the recorder inside a process emulates the instruction at a breakpoint, for each machine. */
#include <stddef.h>
#include <stdint.h>

#include "memtrace.h"
#include "inside_shared.h"

/*
 * Finds how to emulate the instruction at addr (n bytes from there on): sets all of *s but addr and
 * at. If s->way is MT_INSIDE_SLOT_RUN, copy (MT_INSIDE_SLOT bytes) is what is to run at slot.
 * 0; -ENOTSUP: it cannot be emulated; -ERANGE: it refers to memory too far from the slot.
 */
int inside_plan__x86(const uint8_t *code, size_t n, uint64_t addr, uint64_t slot,
		     struct mt_inside_site *s, uint8_t *copy);
int inside_plan__a64(const uint8_t *code, size_t n, uint64_t addr, uint64_t slot,
		     struct mt_inside_site *s, uint8_t *copy);

/* The breakpoint of the machine that the program is built for, and the first bytes of the code that
 * it replaces. Bits outside of the mask may differ in others' breakpoints. */
#ifdef __aarch64__
#define BREAKPOINT_SIZE 4
#define BREAKPOINT 0xd4200000u /* brk #0 */
#define BREAKPOINT_MASK 0xffe0001fu
#define INSIDE_PLAN inside_plan__a64
#else
#define BREAKPOINT_SIZE 1
#define BREAKPOINT 0xccu /* int3 */
#define BREAKPOINT_MASK 0xffu
#define INSIDE_PLAN inside_plan__x86
#endif
