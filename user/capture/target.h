/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CAPTURE_TARGET_H
#define MT_CAPTURE_TARGET_H
/* What is in a process, gathered once before attaching; `check -p` prints it, a session uses it. */
#include <linux/types.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "memtrace.h"
#include "python/python.h"
#include "torch/torch.h"

struct failure; /* lib/failure.h */
struct proc;

struct target {
	struct proc *proc;
	struct maps maps;
	struct python *python; /* NULL: none, or not understood (python_why) */
	char python_why[256];  /* "" when all is well */
	bool has_python;       /* there is an interpreter, understood or not */
	struct pyslot slot;
	bool has_slot;
	struct torch_info torch;
	struct hook hooks[HOOK_NR];
	int hooks_err;				    /* of torch__hooks */
	uint64_t module_codes[MT_MAX_MODULE_CODES]; /* see nnmodules__call_codes() */
	size_t n_module_codes;
	bool module_self_in_cell; /* their `self` may lie in a cell (torch 2.0 and older) */
};

/* Opens the process. 0, or negative with *f. */
int target__open(pid_t pid, struct target *t, struct failure *f);
/* Looks (again) at what is mapped: interpreter, PyTorch, hooks. 0 or negative with *f (the process
 * ended, ...). */
int target__look(struct target *t, struct failure *f);
/* Looks for the interpreter alone, while there is no PyTorch yet. Takes the maps. */
void target__look_for_python(struct target *t, struct maps *maps);
/* Reads the map anew, and what it says of PyTorch; all else stays. 0 or -errno. */
int target__renew(struct target *t);
/*
 * What can be found once torch.nn is imported: the code objects of module calls, and the hooks that
 * Python objects point to (HOOK_SCOPE_END, HOOK_MODULE_CALL). 0, or -ENOENT: not imported yet.
 */
int target__look_into_torch(struct target *t);
void target__close(struct target *t);
/* The kernel side's layout for this interpreter; all zero when frames cannot be read. */
struct mt_py_layout target__layout(const struct target *t);

#endif
