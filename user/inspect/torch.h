/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* PyTorch in a process: its libraries, its version, the functions to probe, with a symbol or
 * without, and the names of its modules. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hook_table.h"
#include "inspect/elf.h"
#include "inspect/proc.h"
#include "inspect/site.h"

#define HOOK(id, program, twin, record, off, name) HOOK_##id,
enum hook_id { MT_HOOKS(HOOK) HOOK_NR };
#undef HOOK
/* The members of an array of enum hook_id, of MT_ALLOCATOR_HOOKS(). */
#define HOOK_ID(id) HOOK_##id,

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
void torch__info(const struct proc *proc, const struct maps *maps, struct torch_info *ret);
/* How likely a file belongs to the recorded PyTorch, since a C++ library may bring a second one. 0:
 * next to the libtorch_python in use, 1: named like PyTorch's libraries, 2: any other. */
int torch__rank(const struct maps *maps, const char *path);
/* Whether a file is named like PyTorch's libraries and not next to the libtorch_python in use. Its
 * allocations are not recorded. */
bool torch__is_other(const struct maps *maps, const char *path);
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
int torch__hooks(const struct proc *proc, const struct maps *maps, struct hook *hooks);
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
int hook__at_address(const struct proc *proc, const struct maps *maps, uint64_t addr,
		     const struct hook_file *in, unsigned args, struct hook *hook);

struct python;

#define TORCH_SCOPE_EXIT "torch._C.DisableTorchFunctionSubclass.__exit__"

/*
 * Address of the C function of torch._C.DisableTorchFunctionSubclass.__exit__, which
 * record_function.__exit__ calls last (torch/autograd/profiler.py, 2.1 to 2.15). An optimizer's
 * step runs in a record_function, so this call marks its end. It is called rarely, unlike
 * at::RecordFunction::end(). 0; -ENOENT: torch is not imported; -EBADMSG, -EFAULT.
 */
int torch__scope_exit(const struct python *py, uint64_t *addr);

#define TORCH_RANGE_PUSH "rangePushA"
#define TORCH_RANGE_POP "rangePop"

/* Address of the C function that torch._C._nvtx calls for one of these names, nvtxRangePushA() or
 * nvtxRangePop(). Up to PyTorch 2.4 it is in libnvToolsExt, then NVTX 3 compiles it into
 * libtorch_python. 0; -ENOENT: torch is not imported, or without CUDA; -EBADMSG, -EFAULT. */
int torch__nvtx(const struct python *py, const char *name, uint64_t *addr);

/*
 * ---- nn.Module ----
 *
 * Names of modules: those of named_modules() of the root module, without the components
 * that wrappers add (module, _fsdp_wrapped_module, _orig_mod, _checkpoint_wrapped_module). Names
 * are cached by address and type, and checked again by nnmodules__recheck().
 */

struct map64;
struct pymem;
struct nnmodules;

struct nnmodule {
	/* "encoder.layers.0.linear1"; "" for the root. Owned by the cache, valid until the next
	 * call. */
	const char *name;
	const char *cls;  /* "Linear" */
	const char *root; /* class of the root: "TransformerEncoder" */
};

struct nnmodules *nnmodules__new(const struct python *py); /* borrows py. NULL on ENOMEM */
void nnmodules__free(struct nnmodules *modules);
/*
 * Names module self. root: the outermost module on the stack, possibly self. parent: the module
 * below which self was called, 0: none. A module outside root's tree gets parent's name plus "?",
 * or its path below parent. 0; -EBADMSG not an nn.Module; -EFAULT.
 */
int nnmodules__name(struct nnmodules *modules, uint64_t self, uint64_t root, uint64_t parent,
		    struct nnmodule *ret);
/*
 * Root to name a module by. The outermost module of a call may be part of a model called earlier,
 * for example when a checkpoint recomputes it in backward. Returns the largest such model,
 * otherwise root.
 */
uint64_t nnmodules__model(struct nnmodules *modules, uint64_t root);
/* Whether a root has a parameter or buffer, itself or in a module below: 1 or 0 (a loss, for
 * example). -EAGAIN: not known now. */
int nnmodules__has_tensors(struct nnmodules *modules, uint64_t root);
/* Sets the root of each module's model: module -> root. A root is not seen if it is never called,
 * only modules that its methods call. Takes the map; NULL: none. */
void nnmodules__set_models(struct nnmodules *modules, struct map64 *roots);
/* Sets the text before the names of the modules below a root: "teacher". 0 or -ENOMEM. */
int nnmodules__set_prefix(struct nnmodules *modules, uint64_t root, uint64_t type,
			  const char *text);
/* Reads the trees of all known roots again and drops roots that cannot be read. True: some address
 * has another name, so derived data is outdated. cost_ns: time taken; may be NULL. */
bool nnmodules__recheck(struct nnmodules *modules, uint64_t *cost_ns);
/* True: a module named as a root turned out to be part of a model, so nnmodules__recheck() will
 * change names. */
bool nnmodules__is_urgent(const struct nnmodules *modules);

/* Code objects whose local 0 is the called module: Module._wrapped_call_impl (PyTorch >= 2.1) or
 * Module._call_impl, from sys.modules. Fills codes[0..*n). -ENOENT: torch is not imported yet. */
int nnmodules__call_codes(const struct python *py, uint64_t *codes, size_t max, size_t *n);
/* Whether a type object is torch.nn.Module or a subclass. 1, 0, or -errno. */
int nnmodules__is_type(struct pymem *mem, uint64_t type);
/* Address of CPython's slot_tp_call, the tp_call of every Python class with __call__; read from
 * torch.nn.Module. 0, -ENOENT, or the error of a read. */
int nnmodules__slot_call(const struct python *py, uint64_t *addr);
/* The function of torch._C that Module._call_impl calls first, however the module was called:
 * _get_tracing_state(), in new versions _is_tracing(). Sets the
 * address of its code, and its name (static text).
 * -ENOENT, -EBADMSG: not made by pybind11 as known. */
int nnmodules__first_called(const struct python *py, uint64_t *addr, const char **name);
