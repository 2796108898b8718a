/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Places where the program depends on values that only a device computes: reads of a kernel's
 * results by the host, counted by operation and line. docs/internals/DRYRUN.md describes the log's
 * lines.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLACE_FILE 1024
#define PLACE_FUNCTION 128

/* A line of Python. Texts are UTF-8 from the interpreter; "" if unknown. */
struct place {
	char file[PLACE_FILE], function[PLACE_FUNCTION];
	int line; /* line number; 0: unknown */
};

enum python_purpose {
	READ_FOR_USE,
	READ_TO_KEEP, /* a read for torch.save(), printing and the like */
};

struct python_read {
	struct place inner; /* line of the thread's innermost frame */
	struct place user;  /* innermost line outside of PyTorch; if there is none, `inner` */
	enum python_purpose purpose;
};

/*
 * Finds the calling thread's place. torch: folder of PyTorch's package with a slash at the end, or
 * "". Takes the GIL, so the caller must hold no lock. False: the thread runs no Python, or the
 * interpreter is ending.
 */
bool python__where(const char *torch, struct python_read *read);

/*
 * Reads a local variable of the calling thread's innermost frame of a function, at most four
 * callers up; with an attribute its attribute, with an item from 0 on that one's item. Takes the
 * GIL, so the caller must hold no lock. False: there is none, or it is no whole number.
 */
bool python__local(const char *function, const char *variable, const char *attribute, int item,
		   int64_t *number);

#define OPERATION_NAME 128

struct operation {
	char name[OPERATION_NAME]; /* outermost PyTorch operation that the Python line called */
	bool shape;		   /* the result's size depends on values */
	bool copy;		   /* the operation only copies a tensor */
	bool checks;		   /* the operation reads a truth value to check arguments */
};

/* Finds the operation from the calling thread's native stack. Takes tens of microseconds. */
void operation__now(struct operation *op);
/* Folder of the package with the code at an address: ".../torch/", or "" if it is not PyTorch's. */
const char *operation__torch(const void *code);

/* Call after a copy of `size` bytes of a kernel's result to the host. caller: return address in the
 * program. */
void depends__read(void *to, size_t size, const void *caller);

/* The lock of the counted reads; held across fork(). */
void depends__lock(void);
void depends__unlock(void);
void depends__forget(void);
