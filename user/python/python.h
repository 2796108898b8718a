/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PYTHON_PYTHON_H
#define MT_PYTHON_PYTHON_H
/*
 * The CPython interpreter inside a process, found and understood from outside: data symbols, its
 * own descriptions of itself, and calibration. No disassembly, no symbol table but .dynsym, nothing
 * stopped.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "python/pylayout.h"

struct proc;
struct maps;
struct python;

/*
 * Finds the interpreter: any mapped file that defines _PyRuntime (executable first), its version,
 * its layout row, overridden by _Py_DebugOffsets (3.13+) and cross-checked with PyCode_Type
 * (tp_basicsize, tp_members). On failure NULL and errno, and *why (static text, or one owned by a
 * static buffer) says what was found: ENOENT no Python in the process; ENOTSUP a version or build
 * we have no layout for; EBADMSG the interpreter's own description contradicts the table; else that
 * of reading.
 */
struct python *python__open(const struct proc *p, const struct maps *m, const char **why);
/* That of a process which this one has forked: the same in all but whose it is. NULL on ENOMEM. */
struct python *python__forked(const struct python *parent, const struct proc *p);
void python__free(struct python *py);

/* The process has ended, or its Python has: Py_Finalize() is over, and what was read of objects
 * before is gone. */
bool python__ended(const struct python *py);

const struct proc *python__proc(const struct python *py);
const struct pylayout *python__layout(const struct python *py); /* after overrides; owned by py */
void python__version(const struct python *py, int *major, int *minor, int *micro);
const char *python__file(const struct python *py); /* path of the file that holds the runtime */
uint64_t python__runtime(const struct python *py); /* address of _PyRuntime */
/* Address of an exported object such as "PyCode_Type", "PyCell_Type"; 0 when not exported. */
uint64_t python__symbol(const struct python *py, const char *name);
/* Address of the sys.modules dict of the main interpreter, 0 when it cannot be read. */
uint64_t python__modules(const struct python *py);
/* Directory of the standard library as sys.modules' "os" module has it ("/usr/lib/python3.11");
 * -ENOENT. */
int python__stdlib(const struct python *py, char *buf, size_t size);

struct pythread {
	uint64_t tstate;
	uint64_t thread_id; /* pthread_self() */
	uint32_t tid;	    /* OS thread id; 0 where the version does not keep it (before 3.11) */
};
/* All thread states of all interpreters. *ret is for free(). 0 or -errno. */
int python__threads(const struct python *py, struct pythread **ret, size_t *n);

/* How a thread finds its own thread state, relative to the thread pointer (fs base): for the kernel
 * side. */
struct pyslot {
	bool indirect;
	int64_t off1, off2; /* tstate = *(tp + off1), or *(*(tp + off1) + off2) */
};
/*
 * Calibrates the slot by searching for the known thread states in their threads' pthread blocks. 0,
 * or -ENOENT (*why says what was tried).
 */
int python__slot(const struct python *py, struct pyslot *ret, const char **why);

struct pyframe {
	uint64_t addr;
	uint64_t code;	 /* address of the code object */
	int32_t at;	 /* byte offset of the instruction within the bytecode, -1: not started */
	uint64_t local0; /* first local, untagged */
};
/*
 * Walks one thread's frames from outside, innermost first, shims left out. Torn stacks of a running
 * thread end early. Returns the number of frames or -errno. For `check` and for tests.
 */
int python__stack(const struct python *py, const struct pythread *t, struct pyframe *frames,
		  size_t max);

#endif
