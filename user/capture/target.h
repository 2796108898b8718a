/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A process that is to be captured: its interpreter, PyTorch and the places for probes. `check -p`
 * prints it, a session uses it. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "inspect/cudaalloc.h"
#include "inspect/python.h"
#include "inspect/torch.h"
#include "memtrace.h"

struct facts;
struct failure; /* base/exit.h */
struct probes;
struct proc;

struct target {
	struct proc *proc;
	struct maps maps;
	struct python *python; /* NULL: no interpreter, or an unreadable one (see python_why) */
	char python_why[256];  /* "" if python is not NULL */
	bool has_python;       /* there is an interpreter, readable or not */
	struct pyslot slot;
	bool has_slot;
	bool uses_cuda; /* target__uses_cuda() at the last look */
	struct torch_info torch;
	struct hook hooks[HOOK_NR];
	int hooks_err;				    /* result of torch__hooks(): 0 or -errno */
	uint64_t module_codes[MT_MAX_MODULE_CODES]; /* see nnmodules__call_codes() */
	size_t n_module_codes;
	bool module_self_in_cell; /* `self` of modules may lie in a cell (torch 2.0 and older) */
	struct cudaalloc *alloc;  /* PyTorch's CUDA allocator; NULL: not found */
	uint64_t next_alloc_look; /* earliest next search for the allocator, ns since start */
};

/* Opens the process. 0, or negative with *failure. */
int target__open(pid_t pid, struct target *target, struct failure *failure);
/* Finds the interpreter, PyTorch and the hooks in the files mapped now. 0 or negative with *failure
 * (the process ended, ...). */
int target__look(struct target *target, struct failure *failure);
/* After target__look(): 0 if the process has Python, PyTorch or CUDA; otherwise -ENOEXEC with
 * *failure. Host memory can be recorded of any process. */
int target__check_tensors(const struct target *target, struct failure *failure);
/*
 * Whether the process uses CUDA: its driver or runtime is mapped. A dry run maps these in each
 * process, so there another file must import functions of CUDA, or a device must be in use.
 */
bool target__uses_cuda(const struct target *target, const struct maps *maps);
/* As target__look(), but keeps t->python, which others have borrowed. */
int target__look_for_torch(struct target *target, struct failure *failure);
/* Looks for the interpreter alone, before PyTorch is mapped. Owns maps. */
void target__look_for_python(struct target *target, struct maps *maps);
/* Reads the map and PyTorch's version again; the rest stays. 0 or -errno. */
int target__renew(struct target *target);
/* Finds what exists once torch.nn is imported: the code objects of module calls, and the hooks that
 * Python objects point to (HOOK_SCOPE_END, HOOK_MODULE_CALL, HOOK_MODULE_BOUND). 0, or -ENOENT: not
 * imported yet. */
int target__look_into_torch(struct target *target);
/* Attaches a hook that a capture can do without: if it is refused, logs why and goes on. */
void target__attach_optional(const struct target *target, struct probes *probes, enum hook_id id);

/* Sets t->alloc if a file in this map has PyTorch's CUDA allocator; it stays NULL otherwise. */
void target__open_allocator(struct target *target, const struct maps *maps);
/*
 * Returns the CUDA allocator's current backend, and sets the fact "allocator" to it. now: ns since
 * the capture's start. Looks for an allocator that was not mapped before, at most every 100 ms.
 * ALLOC_NONE: no allocator was found.
 */
enum alloc_backend target__backend(struct target *target, struct facts *facts, uint64_t now);
/* Sets the fact "allocator" to the backend seen last, unless that is unknown. */
void target__set_backend_fact(const struct target *target, struct facts *facts);
/* Devices that the native CUDA allocator counts in this process; <= 0: unknown. */
int target__cuda_devices(const struct target *target);
void target__close(struct target *target);
/* The layout that the BPF programs need for this interpreter; all zero if frames cannot be read. */
struct mt_py_layout target__layout(const struct target *target);
