/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Local variables of the functions that a process's threads execute. The threads are not stopped,
 * so pylocals__check() tells whether a variable still has the value that was read. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inspect/pyobj.h"
#include "inspect/python.h"

struct pylocal {
	uint64_t obj;  /* the variable's value */
	uint64_t slot; /* address of the variable in the frame */
	uint64_t frame, code;
	struct pythread thread;
	uint32_t number; /* index among the function's variables */
};

/*
 * Reads the variables whose value wanted() accepts, outer frames first, without cell variables
 * shared with inner functions. The caller frees *ret. Unreadable variables are left out. 0,
 * -ENOMEM, -ESRCH, -EPERM.
 */
int pylocals__read(struct pymem *mem, bool (*wanted)(void *ctx, uint64_t obj), void *ctx,
		   struct pylocal **ret, size_t *n);
/* Variables of a frame that no thread runs, also those shared with inner functions (from CPython
 * 3.11 on, as cells). Otherwise as pylocals__read(). */
int pylocals__of_frame(struct pymem *mem, uint64_t frame, uint64_t code,
		       bool (*wanted)(void *ctx, uint64_t obj), void *ctx, struct pylocal **ret,
		       size_t *n);
/* Sets holds[i]: whether variable local[i] still has its value, in a call that still runs. 0,
 * -ENOMEM, -ESRCH, -EPERM. */
int pylocals__check(struct pymem *mem, const struct pylocal *local, size_t n, bool *holds);
#define PYLOCAL_TEXT 1600 /* room for a variable's text */
/* Writes "x in GPT.forward (gpt.py:52)", with the function's first line, to buf. 0; -EBADMSG: also
 * if the variable is not the program's own; -EFAULT, -ESRCH. */
int pylocal__text(struct pymem *mem, const struct pylocal *local, char *buf, size_t size);
/* Name of the i-th free variable of a code object. 0; -ENOENT: fewer; -EBADMSG, -EFAULT, -ESRCH. */
int pylocals__free_name(struct pymem *mem, uint64_t code, uint64_t i, char *buf, size_t size);
