/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The CPython interpreter in a process, found from outside by .dynsym symbols, its own descriptions
 * and calibration, without disassembly. The process is never stopped. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inspect/pylayout.h"

struct proc;
struct maps;
struct python;

/*
 * Finds the interpreter: the mapped file that defines _PyRuntime (the executable first), its
 * version and its layout. _Py_DebugOffsets (3.13+) replaces the table's row, and PyCode_Type
 * cross-checks it. NULL with errno and *why (static or in a static buffer). ENOENT: no Python.
 * ENOTSUP: no layout for this version or build. EBADMSG: the interpreter's own description
 * contradicts the table. Or a reading error.
 */
struct python *python__open(const struct proc *p, const struct maps *m, const char **why);
/* The interpreter of a forked child: a copy for process p. NULL on ENOMEM. */
struct python *python__forked(const struct python *parent, const struct proc *p);
void python__free(struct python *py);

/* Whether the process or its Python (Py_Finalize()) has ended, so that objects read before are
 * gone. */
bool python__ended(const struct python *py);

const struct proc *python__proc(const struct python *py);
const struct pylayout *python__layout(
	const struct python *py); /* with the interpreter's own offsets; owned by py */
void python__version(const struct python *py, int *major, int *minor, int *micro);
/* "3.12.1"; "3.10": the last part is not known; "3.14.7t": a free-threaded build. Returns buf. */
const char *python__version_text(const struct python *py, char *buf, size_t size);
const char *python__file(const struct python *py); /* path of the file that defines _PyRuntime */
uint64_t python__runtime(const struct python *py); /* address of _PyRuntime */
/* Address of an exported object such as "PyCode_Type"; 0: not exported. */
uint64_t python__symbol(const struct python *py, const char *name);
/* Address of the main interpreter's sys.modules dict; 0: unreadable. */
uint64_t python__modules(const struct python *py);
/* Folder of the standard library, from the "os" module ("/usr/lib/python3.11"). 0, -ENOENT. */
int python__stdlib(const struct python *py, char *buf, size_t size);

struct pythread {
	uint64_t tstate;
	uint64_t thread_id; /* pthread_self() */
	uint32_t tid;	    /* OS thread ID; 0: not kept by the version (before 3.11) */
};
/* Thread states of all interpreters. The caller frees *ret. 0 or -errno. */
int python__threads(const struct python *py, struct pythread **ret, size_t *n);

enum pyslot_kind {
	PYSLOT_DIRECT,	 /* *(tp + off1) */
	PYSLOT_INDIRECT, /* *(*(tp + off1) + off2) */
	PYSLOT_EITHER,	 /* *(tp + off1), or *(tp + off2) while that is 0 */
};
/* Location of a thread's own thread state, relative to its thread pointer tp (x86-64: fs base,
 * aarch64: tpidr_el0); for the kernel side. */
struct pyslot {
	enum pyslot_kind kind;
	int64_t off1, off2;
};
/* Finds that location by searching for known thread states in the threads' pthread blocks,
 * from 3.15 on in their thread-local variables. 0; -ENOENT with *why: not found. */
int python__slot(const struct python *py, struct pyslot *ret, const char **why);

struct pyframe {
	uint64_t addr;
	uint64_t code;	 /* address of the code object */
	int32_t at;	 /* byte offset of the instruction in the bytecode, -1: not started */
	uint64_t local0; /* first local variable, without tag bits */
};
/* Walks a thread's frames from outside, innermost first, without shims. A frame of a running thread
 * can return meanwhile: then the walk is repeated, up to 50 times, and may still end early. Returns
 * the number of frames or -errno. Not for events, whose stacks are walked in BPF. */
int python__stack(const struct python *py, const struct pythread *t, struct pyframe *frames,
		  size_t max);
