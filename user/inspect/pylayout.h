/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Layouts of CPython's structures: one row for each minor version and one for each free-threaded
 * build (from 3.13 on), for the machine that the program is built for. Values are
 * byte offsets in the named C structures; NONE if the version has no such field. They were measured
 * with the headers of each version; patch releases agree. From 3.13 on the interpreter's own
 * _Py_DebugOffsets replace the table's values.
 */
#include <stdbool.h>
#include <stdint.h>

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

/* Row of a version's default or free-threaded build; NULL: none. Read-only. */
const struct pylayout *pylayout__find(int major, int minor, bool free_threaded);
