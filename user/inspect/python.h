/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The CPython interpreter in a process, found from outside by .dynsym symbols, its own descriptions
 * and calibration, without disassembly; the layouts of its structures, and its tables of lines. The
 * process is never stopped. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
struct python *python__open(const struct proc *proc, const struct maps *maps, const char **why);
/* The interpreter of a forked child: a copy for process proc. NULL on ENOMEM. */
struct python *python__forked(const struct python *parent, const struct proc *proc);
void python__free(struct python *py);

/* Whether the process or its Python (Py_Finalize()) has ended, so that objects read before are
 * gone. */
bool python__ended(const struct python *py);

const struct proc *python__proc(const struct python *py);
/* With the interpreter's own offsets; owned by py. */
const struct pylayout *python__layout(const struct python *py);
void python__version(const struct python *py, int *major, int *minor, int *micro);
/* "3.12.1"; "3.10": the last part is not known; "3.14.7t": a free-threaded build. Returns buf. */
const char *python__version_text(const struct python *py, char *buf, size_t size);
const char *python__file(const struct python *py); /* path of the file that defines _PyRuntime */
/* Address of an exported object such as "PyCode_Type"; 0: not exported. */
uint64_t python__symbol(const struct python *py, const char *name);
/* Address of the main interpreter's sys.modules dict; 0: unreadable. */
uint64_t python__modules(const struct python *py);
/* Folder of the standard library, from the "os" module ("/usr/lib/python3.11"). 0, -ENOENT. */
int python__stdlib(const struct python *py, char *buf, size_t size);

struct pythread {
	uint64_t tstate;    /* address of its PyThreadState */
	uint64_t thread_id; /* pthread_self() */
	uint32_t tid;	    /* OS thread ID; 0: not known */
};
/* Thread states of all interpreters. The caller frees *ret. 0 or -errno. */
int python__threads(const struct python *py, struct pythread **ret, size_t *n);

enum pyslot_kind {
	PYSLOT_DIRECT,	 /* *(tp + first) */
	PYSLOT_INDIRECT, /* *(*(tp + first) + second) */
	PYSLOT_EITHER,	 /* *(tp + first), or *(tp + second) while that is 0 */
};
/* Location of a thread's own thread state, relative to its thread pointer tp (x86-64: fs base,
 * aarch64: tpidr_el0); for the kernel side. */
struct pyslot {
	enum pyslot_kind kind;
	int64_t first, second; /* bytes */
};
/* Finds that location by searching for known thread states in the threads' pthread blocks,
 * from 3.15 on in their thread-local variables. 0; -ENOENT with *why: not found. */
int python__slot(const struct python *py, struct pyslot *ret, const char **why);

struct pyframe {
	uint64_t addr;
	uint64_t code;	 /* address of the code object */
	int32_t at;	 /* byte offset of the instruction in the bytecode, -1: not started */
	uint64_t local0; /* value of the first local variable, without tag bits */
};
/* Walks a thread's frames from outside, innermost first, without the interpreter's own (shims). If
 * a frame of a running thread returns meanwhile, the walk is repeated, up to 50 times; it may still
 * end early. Returns the number of frames or -errno. The BPF programs walk the stacks of events. */
int python__stack(const struct python *py, const struct pythread *thread, struct pyframe *frames,
		  size_t max);

/*
 * Layouts of CPython's structures: one row for each minor version and one for each free-threaded
 * build (from 3.13 on), for the machine that the program is built for. Values are
 * byte offsets in the named C structures; NONE if the version has no such field. They were measured
 * with the headers of each version; patch releases agree. From 3.13 on the interpreter's own
 * _Py_DebugOffsets replace the table's values.
 */

#define PYLAYOUT_VERSIONS "3.8 to 3.15" /* the oldest and the newest row; documents say the same */
#define PYLAYOUT_NONE UINT16_MAX

struct pylayout {
	uint8_t major, minor;
	bool free_threaded;
	/* _PyRuntimeState; from 3.15 on thread states are in thread-local variables only */
	uint16_t rt_interp_head, rt_interp_main, rt_tss_key;
	/* PyInterpreterState */
	uint16_t is_next, is_threads, is_modules /* sys.modules dict */;
	/* PyThreadState */
	uint16_t ts_next, ts_interp, ts_frame /* frame, cframe or current_frame */, ts_thread_id,
		ts_native_id;
	uint16_t cframe_current; /* _PyCFrame.current_frame, 3.11 and 3.12 only */
	/* PyFrameObject (to 3.10) or _PyInterpreterFrame */
	uint16_t fr_code, fr_prev, fr_instr, fr_owner, fr_local0;
	uint16_t fr_tlbc;    /* number of the thread's copy of the bytecode: 3.14t, 3.15t */
	uint8_t lasti_scale; /* bytes per unit of f_lasti: 1 (3.8, 3.9), 2 (3.10); 0: fr_instr is a
				pointer */
	uint8_t shim_owner;  /* frames with owner >= this are shims; 0: no shims */
	uint64_t tag_mask;   /* mask for object references in frames: ~3 from 3.14 on */
	/* PyCodeObject */
	uint16_t co_argcount, co_flags, co_firstlineno, co_filename, co_name, co_qualname,
		co_linetable, co_code_adaptive, co_tlbc; /* array of the bytecode's copies */
	/* PyObject, PyTypeObject, PyHeapTypeObject */
	uint16_t ob_type, ob_size, tp_name, tp_basicsize, tp_dealloc, tp_call, tp_flags, tp_members,
		tp_dict, tp_base, tp_dictoffset, tp_mro, ht_cached_keys;
	/* PyUnicodeObject, PyBytesObject, PyTupleObject, PyCellObject, PyDictObject,
	 * PyModuleObject, PyFunctionObject */
	uint8_t str_kind; /* first of 3 bits in str_state; bits "compact", "ascii" follow */
	uint16_t str_length, str_state, str_ascii_size, str_compact_size, bytes_val, tuple_item,
		cell_ref;
	uint16_t ma_used, ma_keys, ma_values, md_dict, func_code;
};

/* Layout of a version's default or free-threaded build, static; NULL: not in the table. */
const struct pylayout *pylayout__find(int major, int minor, bool free_threaded);

/* CPython's three line table formats: co_lnotab (to 3.9), co_linetable (3.10), location table (3.11
 * on). */

/* Line of the instruction at byte offset at; for at < 0, firstlineno. table: hostile bytes, [0,
 * len) is read. 0: the table has no line, or ends before at. */
uint32_t pyline__find(int minor, const uint8_t *table, size_t len, uint32_t firstlineno,
		      int32_t at);
