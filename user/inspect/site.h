/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The instruction of a function to probe, and how a process that records itself emulates it.
 *
 * Kernels emulate some instructions at a breakpoint, and single-step a copy of any other one, which
 * costs 2 to 20 times as much. They emulate
 * - on x86-64: push, nop, jmp, call, jcc;
 * - on AArch64 (arch/arm64/kernel/probes/decode-insn.c): adr(p), b, bl, b.cond, cbz, tbz, br, blr,
 *   ret; nop from Linux 6.13 on.
 *
 * The picker takes the first emulated instruction in the straight line of code from the entry,
 * if the arguments that the program reads are still in their registers, and no branch of the
 * function leads past the site or into that code.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memtrace.h"
#include "inside_shared.h"

/* The site is no call instruction, on x86-64. A probe on one kills a process that has a shadow
 * stack (proc.h), which the kernel does not update then. AArch64 kernels update it: from 6.18 on
 * they have both uprobes and shadow stacks. */
#define SITE_NO_CALLS (1u << 31)
/* The frame at the site is as at the entry: the stack pointer, on AArch64 also x29 and x30, which
 * may have been signed. For programs that keep a call and look for it on the stack later. */
#define SITE_AT_ENTRY (1u << 30)

/* The site can only be the entry; the rest of the code is read for the member `second`. */
#define SITE_FIRST (1u << 29)

enum site_class {
	SITE_NONE = 0,
	SITE_PUSH,
	SITE_NOP,
	SITE_JMP,
	SITE_CALL,
	SITE_JCC, /* all conditional jumps, also cbz and tbz */
	SITE_ADR, /* adr, adrp */
	SITE_RET,
	/* The first instruction that is not a nop, single-stepped: none that the kernel emulates is
	 * in reach. */
	SITE_STEPPED,
};

/* SITE_X30 means that x30 has the return address, SITE_X30_SIGNED that it is signed (paciasp). */
enum site_return { SITE_ON_STACK = 0, SITE_X30, SITE_X30_SIGNED };

/*
 * x86-64 only: a second place for a probe with the same purpose. It is the instruction after the
 * site: a call that passes the site passes this place next, also if there is a probe on the site.
 * All registers are as at the site, except the stack pointer, which is lower. If no instruction is
 * always the next one, as after a jump, it is an instruction before the site that each call passes:
 * the arguments are as at the site.
 */
struct site_second {
	int8_t after;  /* bytes from the site, below 0 if it is before it; 0: there is none */
	uint8_t lower; /* bytes by which the stack pointer is lower */
};

struct site {
	uint32_t offset; /* bytes from the function's entry */
	uint8_t length;	 /* length of the instruction */
	enum site_class cls;
	char text[32]; /* the instruction as text, for --explain: "push %r14" */
	struct site_second second;
	/*
	 * AArch64 only. The site is in the function's straight-line beginning, so these hold at
	 * each hit. sp: the stack pointer there minus the one at entry, 0 or less. x30_saved_at:
	 * the function stores x30 there before it calls another one, in bytes from the stack
	 * pointer at entry; 0: not found.
	 */
	enum site_return ret;
	int32_t sp, x30_saved_at;
};

/* Whether machine, a value of elf__machine(), is the one that the program is built for: the kernel
 * probes no other code. */
bool site__is_native(uint16_t machine);

/*
 * Picks the site of a function. machine: of its file. code: its first size bytes; func_size: its
 * whole size, 0 if not known. args: bit i for the i-th integer argument that the probe reads,
 * SITE_NO_CALLS, SITE_AT_ENTRY and SITE_FIRST. Without all of the code the site is the entry, since
 * an unseen branch could lead past a later one. Never picks, on x86-64, a prefixed nop, or a 5-byte
 * nop, which the kernel may turn into a call that breaks red zones and forks. Never picks, on
 * AArch64: a load of a literal (kernels before 6.12 emulate it wrongly, later ones refuse it); an
 * instruction between ldxr and stxr, which a breakpoint would make fail forever; ret, br and blr at
 * the entry, where the emulation keeps the mark of an indirect branch (PSTATE.BTYPE), which ends
 * processes with guarded pages. 0, or -errno. -ENOTSUP: the function begins with such a nop and has
 * no other site. -EINVAL: the entry cannot be probed, since it is empty or not decodable. -ENOEXEC:
 * an unknown machine.
 */
int site__pick(uint16_t machine, const uint8_t *code, size_t size, uint64_t func_size,
	       unsigned args, struct site *ret);

struct elf;
struct elf_sym;
/*
 * Picks the site of a function of a file. entry_only: for a return probe. It replaces the return
 * address: on x86-64 on top of the stack, on AArch64 in x30, before the function signs and saves
 * it. So it must be at the first instruction. That must be decodable and not a 5-byte nop. args and
 * the result are those of site__pick(), or the error of elf__read().
 */
int site__of_symbol(const struct elf *elf, const struct elf_sym *sym, bool entry_only,
		    unsigned args, struct site *ret);

/*
 * Finds how a process that records itself emulates the instruction at addr. code: n bytes from addr
 * on. Sets all members of *site except addr and at. If site->way becomes MT_INSIDE_SLOT_RUN, the
 * caller writes copy (MT_INSIDE_SLOT bytes) to the address slot, where it runs. 0; -ENOTSUP: the
 * instruction cannot be emulated; -ERANGE: it refers to memory too far from the slot.
 */
int inside_plan__x86(const uint8_t *code, size_t n, uint64_t addr, uint64_t slot,
		     struct mt_inside_site *site, uint8_t *copy);
int inside_plan__a64(const uint8_t *code, size_t n, uint64_t addr, uint64_t slot,
		     struct mt_inside_site *site, uint8_t *copy);

/* The breakpoint of the machine that the program is built for, and the first bytes of the code that
 * it replaces. Bits outside of the mask may differ in breakpoints that other programs set. */
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
