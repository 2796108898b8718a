/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_TORCH_NNMODULE_H
#define MT_TORCH_NNMODULE_H
/*
 * Names of nn.Module objects: as named_modules() of the outermost module gives them, with the parts
 * that wrappers add taken out (module, _fsdp_wrapped_module, _orig_mod, _checkpoint_wrapped_module
 * where the holder is such a wrapper). Cached by address and type; checked again when asked.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pymem;
struct python;
struct nnmodules;

struct nnmodule {
	const char *name; /* "encoder.layers.0.linear1"; "" for the root. Owned by the cache until
			     the next call */
	const char *cls;  /* "Linear" */
	const char *root; /* class name of the root: "TransformerEncoder" */
};

struct nnmodules *nnmodules__new(const struct python *py); /* borrows py. NULL on ENOMEM */
void nnmodules__free(struct nnmodules *n);
/*
 * Names module `self`, whose outermost enclosing module on the stack is `root` (may be self). A
 * module that the root's tree does not hold is searched below itself's nearest enclosing module
 * `parent` (0: none) and gets that one's name plus "?": never a wrong name. 0; -EBADMSG not an
 * nn.Module; -EFAULT.
 */
int nnmodules__name(struct nnmodules *n, uint64_t self, uint64_t root, uint64_t parent,
		    struct nnmodule *ret);
/*
 * The outermost module of a call may lie in a model that was called before: what a checkpoint
 * computes again in backward is not called from the model. The root to name by: that model, the
 * largest one known, else root itself.
 */
uint64_t nnmodules__model(struct nnmodules *n, uint64_t root);
/*
 * Reads the known roots' trees again; true if any address now has another name (the caller then
 * forgets what it derived). Roots whose tree cannot be read are dropped. cost_ns (if not NULL):
 * time it took.
 */
bool nnmodules__recheck(struct nnmodules *n, uint64_t *cost_ns);
/* True if that is known beforehand: a module that was said to be outermost has turned out to be
 * part of a model. */
bool nnmodules__is_urgent(const struct nnmodules *n);

/*
 * The code objects whose local 0 is the module of a call: Module._wrapped_call_impl (torch >= 2.1),
 * else Module._call_impl; read through sys.modules. Fills codes[0..*n). -ENOENT while torch is not
 * imported.
 */
int nnmodules__call_codes(const struct python *py, uint64_t *codes, size_t max, size_t *n);
/* Is this type object torch.nn.Module or a class derived from it? 1, 0, or -errno where it is none
 * or cannot be read. */
int nnmodules__is_type(struct pymem *m, uint64_t type);
/* tp_call of any Python class with __call__ (CPython's slot_tp_call), from torch.nn.Module.
 * -ENOENT. */
int nnmodules__slot_call(const struct python *py, uint64_t *addr);

#endif
