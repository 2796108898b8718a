/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Names of nn.Module objects: those of named_modules() of the root module, without the components
 * that wrappers add (module, _fsdp_wrapped_module, _orig_mod, _checkpoint_wrapped_module). Names
 * are cached by address and type, and checked again by nnmodules__recheck().
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map64;
struct pymem;
struct python;
struct nnmodules;

struct nnmodule {
	/* "encoder.layers.0.linear1"; "" for the root. Owned by the cache, valid until the next
	 * call. */
	const char *name;
	const char *cls;  /* "Linear" */
	const char *root; /* class of the root: "TransformerEncoder" */
};

struct nnmodules *nnmodules__new(const struct python *py); /* borrows py. NULL on ENOMEM */
void nnmodules__free(struct nnmodules *n);
/*
 * Names module self. root: the outermost module on the stack, possibly self. parent: the module
 * below which self was called, 0: none. A module outside root's tree gets parent's name plus "?",
 * or its path below parent. 0; -EBADMSG not an nn.Module; -EFAULT.
 */
int nnmodules__name(struct nnmodules *n, uint64_t self, uint64_t root, uint64_t parent,
		    struct nnmodule *ret);
/*
 * Root to name a module by. The outermost module of a call may be part of a model called earlier,
 * for example when a checkpoint recomputes it in backward. Returns the largest such model,
 * otherwise root.
 */
uint64_t nnmodules__model(struct nnmodules *n, uint64_t root);
/* Whether a root has a parameter or buffer, itself or in a module below: 1 or 0 (a loss, for
 * example). -EAGAIN: not known now. */
int nnmodules__has_tensors(struct nnmodules *n, uint64_t root);
/* Sets the root of each module's model: module -> root. A root is not seen if it is never called,
 * only modules that its methods call. Takes the map; NULL: none. */
void nnmodules__set_models(struct nnmodules *n, struct map64 *roots);
/* Sets the text before the names of the modules below a root: "teacher". 0 or -ENOMEM. */
int nnmodules__set_prefix(struct nnmodules *n, uint64_t root, uint64_t type, const char *text);
/* Reads the trees of all known roots again and drops roots that cannot be read. True: some address
 * has another name, so derived data is outdated. cost_ns: time taken; may be NULL. */
bool nnmodules__recheck(struct nnmodules *n, uint64_t *cost_ns);
/* True: a module named as a root turned out to be part of a model, so nnmodules__recheck() will
 * change names. */
bool nnmodules__is_urgent(const struct nnmodules *n);

/* Code objects whose local 0 is the called module: Module._wrapped_call_impl (PyTorch >= 2.1) or
 * Module._call_impl, from sys.modules. Fills codes[0..*n). -ENOENT: torch is not imported yet. */
int nnmodules__call_codes(const struct python *py, uint64_t *codes, size_t max, size_t *n);
/* Whether a type object is torch.nn.Module or a subclass. 1, 0, or -errno. */
int nnmodules__is_type(struct pymem *m, uint64_t type);
/* Address of CPython's slot_tp_call, the tp_call of every Python class with __call__; read from
 * torch.nn.Module. 0, -ENOENT, or the error of a read. */
int nnmodules__slot_call(const struct python *py, uint64_t *addr);
/* The function of torch._C that Module._call_impl calls first, however the module was called:
 * _get_tracing_state(), in new versions _is_tracing(). Sets the
 * address of its code, and its name (static text).
 * -ENOENT, -EBADMSG: not made by pybind11 as known. */
int nnmodules__first_called(const struct python *py, uint64_t *addr, const char **name);
