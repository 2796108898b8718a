/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* PyTorch in a process: its libraries, its version, and the functions to probe, with a symbol or
 * without. */
#include <stdbool.h>
#include <stdint.h>

#include "hook_table.h"
#include "inspect/elf.h"
#include "inspect/proc.h"
#include "inspect/site.h"

#define HOOK(id, program, twin, record, off, name) HOOK_##id,
enum hook_id { MT_HOOKS(HOOK) HOOK_NR };
#undef HOOK

struct hook {
	enum hook_id id;
	bool found;
	bool required; /* nothing can be traced without it */
	/* True: the opened file itself confirms the function, so no process can direct the probe to
	 * another one. False: only the process's memory leads to it, or is read in place of the
	 * file (elf__is_memory()); then the probe is for one process only. */
	bool fixed;
	struct elf *elf; /* the file, owned; elf__name() is for the kernel. NULL if not found */
	uint64_t inode;	 /* identity of that file */
	uint32_t dev_major, dev_minor;
	/* The file's own path, for messages: hostile text; a long one lacks its beginning. */
	char file[256];
	char symbol[128]; /* mangled name, or "PyCode_Type.tp_dealloc" */
	uint64_t offset;  /* file offset of the probed instruction */
	/* Other mapped files that export the symbol; their calls are not seen. */
	unsigned others;
	struct site site;    /* the probed instruction, and why it was chosen */
	const char *why_not; /* static text if not found */
};

struct torch_info {
	bool found; /* libc10 is mapped */
	bool cuda;  /* libc10_cuda is mapped */
	/* "2.11.0+cu130" from torch/version.py; "": unknown, or replaced since it was loaded. */
	char version[64];
	/* "libcudart.so.13" as mapped, "": none. Hostile text. */
	char cuda_runtime[64];
};

/* Finds PyTorch in the maps. The version is in torch/version.py next to libtorch, the one with the
 * lowest torch__rank(). */
void torch__info(const struct proc *p, const struct maps *m, struct torch_info *ret);
/* How likely a file belongs to the recorded PyTorch, since a C++ library may bring a second one. 0:
 * next to the libtorch_python in use, 1: named like PyTorch's libraries, 2: any other. */
int torch__rank(const struct maps *m, const char *path);
/* Whether a file is named like PyTorch's libraries and not next to the libtorch_python in use. Its
 * allocations are not recorded. */
bool torch__is_other(const struct maps *m, const char *path);
/* Name for messages: HOOK_REPORT -> "report". */
const char *hook__name(enum hook_id id);
/* Closes the hooks' files (HOOK_NR) and zeroes the hooks. */
void hook__close_all(struct hook *hooks);
/*
 * Finds the hooks in torch's libraries by .dynsym in every mapped file, and picks each hook's site.
 * hooks: HOOK_NR entries, all zero or filled before; hook__close_all() must follow. The
 * interpreter's are not found here. 0. If a required hook is missing (see its why_not): -ENOENT, or
 * -EPERM or -ESTALE if a file could not be opened. Or -errno.
 */
int torch__hooks(const struct proc *p, const struct maps *m, struct hook *hooks);
/*
 * How a file confirms a function that was found by an address in a process's memory: where the
 * file's data have a pointer to the function.
 */
enum hook_source {
	HOOK_OF_TYPE, /* at an offset in an exported object */
	HOOK_OF_TABLE, /* in an entry of a table, at an offset behind a pointer to the entry's name */
	HOOK_OF_CODE, /* no data has the pointer, which only code writes: nothing confirms it */
};
/* The file that must contain a hook's function. */
struct hook_file {
	enum hook_source source;
	/* The file must export this object. */
	const char *symbol;
	const char *name; /* HOOK_OF_TABLE: name in the entry */
	uint64_t offset;
};

/* Fills a hook from a function's address in the target, except id, required and symbol. The
 * function must be in the file that `in` describes. Call it after torch__hooks(), which zeroes the
 * array. 0 or -errno with why_not set. */
int hook__at_address(const struct proc *p, const struct maps *m, uint64_t addr,
		     const struct hook_file *in, unsigned args, struct hook *h);

struct python;

#define TORCH_SCOPE_EXIT "torch._C.DisableTorchFunctionSubclass.__exit__"

/*
 * Address of the C function of torch._C.DisableTorchFunctionSubclass.__exit__, which
 * record_function.__exit__ calls last (torch/autograd/profiler.py, 2.1 to 2.15). An optimizer's
 * step runs in a record_function, so this call marks its end. It is called rarely, unlike
 * at::RecordFunction::end(). 0; -ENOENT: torch is not imported; -EBADMSG, -EFAULT.
 */
int torch__scope_exit(const struct python *py, uint64_t *addr);
