/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The instruction of a function to probe. A breakpoint on an instruction that the kernel emulates
 * (push, nop, jmp, call, jcc) costs about 0.5 us. One that it single-steps costs about 9 us on a
 * virtual machine. The picker takes the first emulated instruction of the straight-line prologue
 * where arguments are still in registers and no branch leads past or into it.
 */
#include <stddef.h>
#include <stdint.h>

/* No probe on a call instruction: the kernel would not update the shadow stack, which kills a
 * process that has one (proc.h). */
#define SITE_NO_CALLS (1u << 31)

enum site_class {
	SITE_NONE = 0,
	SITE_PUSH,
	SITE_NOP,
	SITE_JMP,
	SITE_CALL,
	SITE_JCC,
	/* No emulated instruction is in reach: the first that is not a nop, single-stepped. */
	SITE_STEPPED,
};

struct site {
	uint32_t offset; /* bytes from the function's entry */
	uint8_t length;	 /* length of the instruction */
	enum site_class cls;
	char text[32]; /* the instruction as text, for --explain: "push %r14" */
};

/*
 * Picks the site of a function. code: its first size bytes; func_size: its whole size, 0 if not
 * known. args: bit i for the i-th integer argument that the probe reads, and SITE_NO_CALLS. Without
 * all of the code the site is the entry, since an unseen branch could lead past a later one. Never
 * picks a prefixed nop, or a 5-byte nop, which the kernel may turn into a call that breaks red
 * zones and forks.
 * 0, or -errno. -ENOTSUP: the function begins with such a nop and has no other site. -EINVAL: the
 * entry cannot be probed, since it is empty or not decodable.
 */
int site__pick(const uint8_t *code, size_t size, uint64_t func_size, unsigned args,
	       struct site *ret);
