/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Native stacks: from a thread's registers and a copy of its stack to functions, files and lines.
 *
 * Files of the target are hostile. So a helper process without rights parses them: it has no
 * capability, no files but those that it is passed, and few system calls (inspect/native/helper.c).
 * It is killed if it takes too long. No call here stops the target or reads its memory.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NATIVE_FRAMES_MAX 128	     /* with inlined functions */
#define NATIVE_STACK_MAX (64 * 1024) /* bytes of a copied stack */

struct native;
struct proc;

/* Registers at an event. */
struct native_regs {
	uint64_t ip, sp;
	uint64_t fp; /* frame pointer: rbp, x29 */
	uint64_t lr; /* link register x30; x86-64: 0 */
};

/* A function of the stack. Text is hostile; "" if not known. */
struct native_frame {
	const char *module;   /* path of the file in the target; "": no file is mapped there */
	const char *build_id; /* the file's, in hexadecimal */
	uint64_t at;	      /* virtual address of the instruction, as in the file; without a file,
				 the target's address */
	const char *function; /* without parameters; names of C++ and Rust are demangled */
	uint64_t offset;      /* bytes of `at` from the function's start; 0 for inlined functions */
	const char *file;     /* source file, as the debug information has it */
	uint32_t line;	      /* 0: not known */
	bool inlined;	      /* into the frame after it */
};

struct native_frames {
	struct native_frame v[NATIVE_FRAMES_MAX]; /* innermost first */
	size_t n;
	bool whole; /* the outermost frame is the thread's first */
};

/* Reads the map of the process. Borrows p. NULL with errno. */
struct native *native__new(const struct proc *p);
void native__free(struct native *n); /* ends the helper; NULL is fine */

/*
 * Unwinds a stack. stack: size bytes from r->sp on. ret's text belongs to n and is valid until the
 * next call. 0, or negative: -ETIMEDOUT, -EPROTO: the helper was ended, and the next call starts
 * another one; -EPERM: it cannot be confined on this machine; -EAGAIN: too many helpers were ended,
 * none is started for now; -ENOMEM, -errno.
 */
int native__unwind(struct native *n, const struct native_regs *r, const void *stack, size_t size,
		   struct native_frames *ret);

struct native_stats {
	uint64_t stacks, failed; /* calls of native__unwind() */
	uint64_t killed;	 /* helpers that were ended */
	uint64_t ns;		 /* time in native__unwind() */
};
struct native_stats native__stats(const struct native *n);
