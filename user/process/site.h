/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PROCESS_SITE_H
#define MT_PROCESS_SITE_H
/*
 * Where in a function to put its probe. A breakpoint on an instruction that the kernel emulates
 * (push, nop, jmp, call, jcc) costs about 0.5 us; on one that it must single-step about 9 us on a
 * virtual machine. The picker decodes the straight-line prologue and takes the first emulable
 * instruction at which the arguments are still in their registers and which no branch of the
 * function can skip or enter from elsewhere.
 */
#include <stddef.h>
#include <stdint.h>

/* No probe on a call: the kernel emulates or steps it without its shadow stack, which ends a
 * process that has one (proc.h). */
#define SITE_NO_CALLS (1u << 31)

enum site_class {
	SITE_NONE = 0,
	SITE_PUSH,
	SITE_NOP,
	SITE_JMP,
	SITE_CALL,
	SITE_JCC,
	SITE_STEPPED, /* no emulable one in reach: the first that is not a nop, single-stepped */
};

struct site {
	uint32_t offset; /* bytes from the function's entry */
	uint8_t length;	 /* of the instruction */
	enum site_class cls;
	char text[32]; /* the instruction in words, for --explain: "push %r14" */
};

/*
 * code: the function's bytes from its entry, size of them; func_size: the function's own size, 0
 * where it is not known. Only where all of the function is there is anything passed over (a branch
 * that is not seen could lead in behind the probe); otherwise the entry itself is the site. args:
 * bit mask of argument registers that the probe reads, bit i = i-th integer argument; and
 * SITE_NO_CALLS. Never picks a 5-byte nop (the kernel may turn it into a call that breaks red zones
 * and forks) or a prefixed nop that the kernel refuses. 0; -ENOTSUP where the function begins with
 * such a nop and nothing else will do; -EINVAL when not even the entry can be probed (empty, or an
 * instruction that cannot be decoded: then the entry must not be guessed at).
 */
int site__pick(const uint8_t *code, size_t size, uint64_t func_size, unsigned args,
	       struct site *ret);
const char *site__class_name(enum site_class c); /* "push", "nop", ..., "single-step" */

#endif
