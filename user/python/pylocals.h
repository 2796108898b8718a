/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PYTHON_PYLOCALS_H
#define MT_PYTHON_PYLOCALS_H
/*
 * The local variables of the functions that a process's threads are in. Threads run while they are
 * read: a variable is told as what it was, and whether it still is can be asked.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "python/pymem.h"
#include "python/python.h"

struct pylocal {
	uint64_t obj;  /* what it holds */
	uint64_t slot; /* where */
	uint64_t frame, code;
	struct pythread thread;
	uint32_t number; /* among the function's variables */
};

/*
 * Those that hold an object that wanted() says yes to; outer frames first. Variables that inner
 * functions share are not looked at. *ret is for free(). 0 or -ENOMEM, -ESRCH, -EPERM; what else
 * cannot be read is left out.
 */
int pylocals__read(struct pymem *m, bool (*wanted)(void *ctx, uint64_t obj), void *ctx,
		   struct pylocal **ret, size_t *n);
/* Whether each holds the same object still, in a call that is still under way. 0 or -ENOMEM,
 * -ESRCH, -EPERM. */
int pylocals__check(struct pymem *m, const struct pylocal *v, size_t n, bool *holds);
/* "x in GPT.forward (gpt.py:52)": the line is the function's first. 0, -EBADMSG, -EFAULT, -ESRCH. */
int pylocal__text(struct pymem *m, const struct pylocal *l, char *buf, size_t size);
/* The i-th of the variables that a function of this code closes over. 0, -ENOENT there are fewer,
 * -EBADMSG, -EFAULT, -ESRCH. */
int pylocals__free_name(struct pymem *m, uint64_t code, uint64_t i, char *buf, size_t size);

#endif
