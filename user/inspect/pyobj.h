/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Python objects, read from outside: one at a time (pyobj), or many in a walk (pymem, pytype).
 * Pointers and lengths are hostile, loops are bounded, and inconsistent data is an error. Functions
 * return 0 or -errno: -EFAULT unmapped, -EBADMSG not such an object, -E2BIG above a limit, -ENOENT
 * no such key.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inspect/python.h"

struct python;

#define PYOBJ_MAX_STRING 4096 /* bytes of UTF-8; longer strings are cut */
#define PYOBJ_MAX_LINETABLE (1 << 20)
#define PYOBJ_MAX_DICT (1 << 20) /* entries */

/* A str object as UTF-8 (all kinds), NUL-terminated, cut at a whole character. */
int pyobj__str(const struct python *py, uint64_t obj, char *buf, size_t size);
int pyobj__type(const struct python *py, uint64_t obj, uint64_t *type);
/* tp_name of a type object: "Linear"; static types have the module in front. */
int pyobj__type_name(const struct python *py, uint64_t type, char *buf, size_t size);
/* Whether a type in type's __mro__ has this tp_name and __module__ (NULL: any). The tp_base chain
 * would miss the second base of class A(Mixin, Module), and of classes made by fully_shard. */
bool pyobj__is_a(const struct python *py, uint64_t type, const char *name, const char *module);

struct pycode {
	char name[256];	 /* co_qualname, before 3.11 co_name */
	char file[1024]; /* co_filename */
	uint32_t firstlineno;
	uint8_t *linetable; /* the caller frees it */
	size_t linetable_len;
};
/* Reads a code object; checks that its type is PyCode_Type. */
int pyobj__code(const struct python *py, uint64_t code, struct pycode *ret);
void pycode__free(struct pycode *c); /* frees the table, not the struct */

/* Calls fn(key, value) for the entries of a dict (or a subclass) in order, until it returns
 * non-zero; returns that value. */
int pyobj__dict_each(const struct python *py, uint64_t dict,
		     int (*fn)(uint64_t key, uint64_t value, void *ctx), void *ctx);
/* Sets *value to a dict's value under a str key. */
int pyobj__dict_get(const struct python *py, uint64_t dict, const char *key, uint64_t *value);
/* An attribute in an instance's own dictionary, materialized or inline (all versions). */
int pyobj__attr(const struct python *py, uint64_t obj, const char *name, uint64_t *value);
/* A module in sys.modules by name, and an attribute of a module. */
int pyobj__module(const struct python *py, const char *name, uint64_t *module);
int pyobj__module_attr(const struct python *py, uint64_t module, const char *name, uint64_t *value);
/* An attribute in a type's own tp_dict, and the code object of a function. */
int pyobj__type_attr(const struct python *py, uint64_t type, const char *name, uint64_t *value);
int pyobj__func_code(const struct python *py, uint64_t func, uint64_t *code);

/*
 * Memory of a Python process, read in a "walk". Data that may change (dicts, instances) is read
 * each time. Constant data (strings, type names) may come from pages cached in the same walk.
 * A system call costs the same for 8 bytes as for a page, so paged walks over many objects are ten
 * times faster. In a snapshot, all data comes from pages, and changeable data is noted.
 * pymem__holds() reads the noted data again: if it is equal, it was constant during the snapshot.
 */

struct proc;
struct pypages;
struct pynote;

struct pymem {
	const struct python *py;
	const struct proc *proc;
	const struct pylayout *layout;
	struct pypages *pages; /* NULL until needed, and without paging */
	bool paging;
	bool snapshot;
	bool unchecked; /* a snapshot without notes */
	bool overflow;	/* too many notes: the snapshot cannot be checked */
	struct pynote *notes;
	size_t nnotes, notes_cap;
};

/* Borrows py. paging: cache pages, for walks over many objects. */
void pymem__init(struct pymem *mem, const struct python *py, bool paging);
void pymem__fini(struct pymem *mem);
/* Starts another walk: drops everything cached. */
void pymem__forget(struct pymem *mem);
/* Starts a walk as a snapshot; without paging, as an ordinary walk. */
void pymem__begin_snapshot(struct pymem *mem);

/* Between these two calls, changeable data may come from pages of the walk and is not noted. The
 * reader checks by other means what it found. Without paging they have no effect. */
static inline void pymem__begin_unchecked(struct pymem *mem)
{
	mem->snapshot = mem->unchecked = mem->paging;
}

static inline void pymem__end_unchecked(struct pymem *mem)
{
	mem->snapshot = mem->unchecked = false;
}

/* Ends a snapshot. True: all data is still as it was read. */
bool pymem__holds(struct pymem *mem);

/* These functions read all or nothing: 0, -EFAULT, -ESRCH, -EPERM. -EFAULT also if the address
 * range wraps around. Those with "constant" are for data that does not change: it may come from
 * cached pages. */
int pymem__read(struct pymem *mem, uint64_t addr, void *buf, size_t len);
int pymem__read_constant(struct pymem *mem, uint64_t addr, void *buf, size_t len);
int pymem__u64(struct pymem *mem, uint64_t addr, uint64_t *ret);
int pymem__constant_u64(struct pymem *mem, uint64_t addr, uint64_t *ret);

/* A C string of a type, such as the name of a member: at most size - 1 bytes, cut at a whole
 * character. 0, -EBADMSG: NULL, -EFAULT. */
int pytype__text(struct pymem *mem, uint64_t addr, char *buf, size_t size);
/* tp_name, cut at a whole character. 0, -EBADMSG not a type, -EFAULT. */
int pytype__name(struct pymem *mem, uint64_t type, char *buf, size_t size);
/* An attribute in the type's own tp_dict. -ENOENT also for built-in types, which keep it elsewhere
 * from 3.12 on. */
int pytype__attr(struct pymem *mem, uint64_t type, const char *name, uint64_t *value);
/* The type's __mro__: itself and its bases in order of look-up. Number of types in ret, or
 * -errno. */
int pytype__mro(struct pymem *mem, uint64_t type, uint64_t *ret, size_t max);
/* Whether a type in the __mro__ has this name and __module__ (NULL: any): 1, 0, or -errno. */
int pytype__is_a(struct pymem *mem, uint64_t type, const char *name, const char *module);

#define PYTYPE_MRO_MAX 128

/* Name of a function's local variable, by its index in the frame. 0; -EBADMSG: fewer variables, or
 * not a code object; -EFAULT, -ESRCH. */
int pylocals__name(const struct python *py, uint64_t code, uint32_t number, char *buf, size_t size);

/*
 * Reads the name of the target in its module multiprocessing.process: "EngineCore", or
 * "SpawnProcess-1" without a name of its own. The text is hostile and cut to size. Returns 0;
 * -ENOENT: the process was not started by multiprocessing; -EFAULT, -EBADMSG: it cannot be read.
 */
int pynames__process(const struct python *py, char *buf, size_t size);

/*
 * Number of the notebook cell whose code is in this file: "7" of "In [7]". IPython 8 and newer keep
 * it in InteractiveShell._instance.compile._filename_map (IPython/core/compilerop.py). A cell that
 * ran again has its last number. 0, or as the functions of pyobj.h.
 */
int pynames__cell(const struct python *py, const char *file, uint64_t *ret);
