/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Native stacks: from a thread's registers and a copy of its stack to functions, files and lines.
 *
 * Files of the target are hostile. So a helper process without rights parses them: it has no
 * capability, no files but those that it is passed, and few system calls (inspect/native/helper.c).
 * The helper is killed if it takes too long. No function here stops the target or reads its memory.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NATIVE_FRAMES_MAX 128	     /* with inlined functions */
#define NATIVE_STACK_MAX (64 * 1024) /* bytes of a copied stack */
#define NATIVE_FAR_MAX 32	     /* frames outside of the copied stack */

struct native;
struct proc;

/* Registers of a thread at an event. */
struct native_regs {
	uint64_t ip, sp;
	uint64_t fp; /* frame pointer: rbp, x29 */
	uint64_t lr; /* link register x30; x86-64: 0 */
	/* Return addresses that the frame pointers lead to outside of the copied stack, innermost
	 * first. They are used where Go's runtime has left the goroutine's stack. */
	uint64_t far[NATIVE_FAR_MAX];
	uint32_t n_far;
};

/* A frame of a native stack. Text is hostile; "" if not known. */
struct native_frame {
	const char *module;   /* path of the file in the target; "": no file is mapped there */
	const char *build_id; /* build ID of that file, in hexadecimal */
	uint64_t at;	      /* virtual address of the instruction, as in the file; without a file,
				 the target's address */
	const char *function; /* as helper__demangle() writes it (wire.h) */
	uint64_t offset;      /* bytes from the function's start to `at`; 0 for inlined functions */
	const char *file;     /* source file, as the debug information has it */
	uint32_t line;	      /* 0: not known */
	bool inlined;	      /* the function was inlined into the one of the next frame */
};

struct native_frames {
	struct native_frame v[NATIVE_FRAMES_MAX]; /* innermost first */
	size_t n;
	bool whole; /* the outermost frame is the thread's first */
};

/* Creates an unwinder for process proc, which it borrows, and reads the process's map. NULL with
 * errno. */
struct native *native__new(const struct proc *proc);
void native__free(struct native *native); /* ends the helper; NULL is fine */

/*
 * Unwinds a stack. stack: copy of the `size` bytes from r->sp on. ret's texts belong to native and
 * are valid until the next call. 0, or a negative error: -ETIMEDOUT, -EPROTO: the helper was
 * killed, and the next call starts another one; -EPERM: the helper cannot be confined on this
 * machine; -EAGAIN: too many helpers were killed, so none is started for a minute; -ENOMEM, -errno.
 */
int native__unwind(struct native *native, const struct native_regs *regs, const void *stack,
		   size_t size, struct native_frames *ret);

struct native_stats {
	uint64_t stacks, failed; /* calls of native__unwind() */
	uint64_t killed;	 /* helpers that were killed */
	uint64_t ns;		 /* time spent in native__unwind() */
};
struct native_stats native__stats(const struct native *native);
