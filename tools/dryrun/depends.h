/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * What of a program depends on values that only a device would have: reads of a kernel's results by
 * the host, by operation and line. docs/DRYRUN.md has the form of the log's lines.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLACE_FILE 1024
#define PLACE_FUNCTION 128

/* A line of Python. Texts are UTF-8 as the interpreter has them; an unknown one is "". */
struct place {
	char file[PLACE_FILE], function[PLACE_FUNCTION];
	int line; /* 0: not known */
};

enum python_purpose {
	READ_FOR_USE,
	READ_TO_KEEP, /* by torch.save() and the like, or to be printed: nothing is decided by it */
};

struct python_read {
	struct place inner; /* where the thread is */
	struct place user; /* the innermost that is not PyTorch's own; inner, where there is none */
	enum python_purpose purpose;
};

/*
 * Where the calling thread is. torch: the folder of PyTorch's package with its slash, "" when that
 * is unknown. Takes the GIL: no lock may be held. false: the thread runs no Python, or the
 * interpreter is ending.
 */
bool python__where(const char *torch, struct python_read *read);

#define OPERATION_NAME 128

struct operation {
	char name[OPERATION_NAME]; /* of the outermost operation of PyTorch's below Python */
	bool shape;		   /* the size of its result depends on values */
	bool copy;		   /* it copies a tensor, and does nothing besides */
	bool checks; /* it reads a truth value to see whether its arguments are right */
};

/* By the calling thread's native stack. Slow: some tens of microseconds. */
void operation__now(struct operation *op);
/* The folder of the package that the code at an address belongs to: ".../torch/", "" where it is
 * not PyTorch. */
const char *operation__torch(const void *code);

/* A copy of size bytes to the host, whose bytes are a kernel's result, is done; caller: where the
 * program asked for it. */
void depends__read(void *to, size_t size, const void *caller);

/* Around a fork. */
void depends__lock(void);
void depends__unlock(void);
void depends__forget(void);
