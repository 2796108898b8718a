/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Prints where a version of CPython keeps what, from its own headers, a "name value" a line:
 *
 *	I=$(python3.N -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
 *	cc -I"$I" -I"$I/internal" pylayout_measure.c -o measure && ./measure > layout-3.N.txt
 *	./measure debug > debugoffsets-3.N.txt
 *
 * A free-threaded build's headers say so themselves; its file is layout-3.Nt.txt.
 *
 * The second, from 3.13 on: where _Py_DebugOffsets says each of them, and the size of its structure.
 */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>

#if PY_VERSION_HEX >= 0x03090000
#include "internal/pycore_interp.h"
#include "internal/pycore_runtime.h"
#else
#include "internal/pycore_pystate.h"
#endif
#if PY_VERSION_HEX >= 0x030b0000
#include "internal/pycore_code.h"
#include "internal/pycore_frame.h"
#else
#include "code.h"
#include "frameobject.h"
#endif
#if PY_VERSION_HEX >= 0x030c0000
#include "internal/pycore_moduleobject.h"
#else
typedef struct {
	PyObject_HEAD PyObject *md_dict;
} PyModuleObject; /* the beginning of it, which moduleobject.c keeps to itself */
#endif
#if PY_VERSION_HEX >= 0x030e0000
#include "internal/pycore_debug_offsets.h"
#include "internal/pycore_interpframe.h"
#include "internal/pycore_interpframe_structs.h"
#endif

#define OFF(name, type, field) printf("%s %zu\n", name, offsetof(type, field))
#define SIZE(name, type) printf("%s %zu\n", name, sizeof(type))

static void runtime(void)
{
	OFF("rt_interp_head", _PyRuntimeState, interpreters.head);
	OFF("rt_interp_main", _PyRuntimeState, interpreters.main);
	OFF("is_next", PyInterpreterState, next);
	OFF("ts_next", PyThreadState, next);
	OFF("ts_interp", PyThreadState, interp);
	OFF("ts_thread_id", PyThreadState, thread_id);
#if PY_VERSION_HEX >= 0x030f0000
	/* thread-local variables instead */
#elif PY_VERSION_HEX >= 0x030c0000
	OFF("rt_tss_key", _PyRuntimeState, autoTSSkey);
#else
	OFF("rt_tss_key", _PyRuntimeState, gilstate.autoTSSkey);
#endif
#if PY_VERSION_HEX >= 0x030c0000
	OFF("is_modules", PyInterpreterState, imports.modules);
#else
	OFF("is_modules", PyInterpreterState, modules);
#endif
#if PY_VERSION_HEX >= 0x030b0000
	OFF("is_threads", PyInterpreterState, threads.head);
	OFF("ts_native_id", PyThreadState, native_thread_id);
#else
	OFF("is_threads", PyInterpreterState, tstate_head);
#endif
#if PY_VERSION_HEX >= 0x030d0000
	OFF("ts_frame", PyThreadState, current_frame);
#elif PY_VERSION_HEX >= 0x030b0000
	OFF("ts_frame", PyThreadState, cframe);
	OFF("cframe_current", _PyCFrame, current_frame);
#else
	OFF("ts_frame", PyThreadState, frame);
#endif
}

static void frames(void)
{
#if PY_VERSION_HEX >= 0x030d0000
	OFF("fr_code", _PyInterpreterFrame, f_executable);
	OFF("fr_instr", _PyInterpreterFrame, instr_ptr);
#elif PY_VERSION_HEX >= 0x030b0000
	OFF("fr_code", _PyInterpreterFrame, f_code);
	OFF("fr_instr", _PyInterpreterFrame, prev_instr);
#endif
#if PY_VERSION_HEX >= 0x030b0000
	OFF("fr_prev", _PyInterpreterFrame, previous);
	OFF("fr_owner", _PyInterpreterFrame, owner);
	OFF("fr_local0", _PyInterpreterFrame, localsplus);
#else
	OFF("fr_code", PyFrameObject, f_code);
	OFF("fr_instr", PyFrameObject, f_lasti);
	OFF("fr_prev", PyFrameObject, f_back);
	OFF("fr_local0", PyFrameObject, f_localsplus);
#endif
#if PY_VERSION_HEX >= 0x030e0000
	printf("shim_owner %d\n", FRAME_OWNED_BY_INTERPRETER);
#elif PY_VERSION_HEX >= 0x030c0000
	printf("shim_owner %d\n", FRAME_OWNED_BY_CSTACK);
#else
	printf("shim_owner 0\n");
#endif
	OFF("co_argcount", PyCodeObject, co_argcount);
	OFF("co_flags", PyCodeObject, co_flags);
	OFF("co_firstlineno", PyCodeObject, co_firstlineno);
	OFF("co_filename", PyCodeObject, co_filename);
	OFF("co_name", PyCodeObject, co_name);
#if PY_VERSION_HEX >= 0x030b0000
	OFF("co_qualname", PyCodeObject, co_qualname);
	OFF("co_code_adaptive", PyCodeObject, co_code_adaptive);
#endif
#if PY_VERSION_HEX >= 0x030e0000 && defined(Py_GIL_DISABLED)
	OFF("fr_tlbc", _PyInterpreterFrame, tlbc_index);
	OFF("co_tlbc", PyCodeObject, co_tlbc);
#endif
#if PY_VERSION_HEX >= 0x030a0000
	OFF("co_linetable", PyCodeObject, co_linetable);
#else
	OFF("co_linetable", PyCodeObject, co_lnotab);
#endif
}

static void objects(void)
{
	OFF("ob_type", PyObject, ob_type);
	OFF("ob_size", PyVarObject, ob_size);
	OFF("tp_name", PyTypeObject, tp_name);
	OFF("tp_basicsize", PyTypeObject, tp_basicsize);
	OFF("tp_dealloc", PyTypeObject, tp_dealloc);
	OFF("tp_call", PyTypeObject, tp_call);
	OFF("tp_flags", PyTypeObject, tp_flags);
	OFF("tp_members", PyTypeObject, tp_members);
	OFF("tp_dict", PyTypeObject, tp_dict);
	OFF("tp_base", PyTypeObject, tp_base);
	OFF("tp_dictoffset", PyTypeObject, tp_dictoffset);
	OFF("tp_mro", PyTypeObject, tp_mro);
	OFF("ht_cached_keys", PyHeapTypeObject, ht_cached_keys);
	OFF("str_length", PyASCIIObject, length);
	OFF("str_state", PyASCIIObject, state);
	SIZE("str_ascii_size", PyASCIIObject);
	SIZE("str_compact_size", PyCompactUnicodeObject);
	OFF("bytes_val", PyBytesObject, ob_sval);
	OFF("tuple_item", PyTupleObject, ob_item);
	OFF("cell_ref", PyCellObject, ob_ref);
	OFF("ma_used", PyDictObject, ma_used);
	OFF("ma_keys", PyDictObject, ma_keys);
	OFF("ma_values", PyDictObject, ma_values);
	OFF("md_dict", PyModuleObject, md_dict);
	OFF("func_code", PyFunctionObject, func_code);
}

#if PY_VERSION_HEX >= 0x030d0000
#define DBG(name, group, field)                                                                    \
	printf("%s %zu %zu\n", name, offsetof(_Py_DebugOffsets, group.field),                      \
	       offsetof(_Py_DebugOffsets, group.size))

static void debug_offsets(void)
{
	printf("minor %d %zu\n", PY_MINOR_VERSION, sizeof(_Py_DebugOffsets));
	DBG("rt_interp_head", runtime_state, interpreters_head);
	DBG("is_next", interpreter_state, next);
	DBG("is_threads", interpreter_state, threads_head);
	DBG("is_modules", interpreter_state, imports_modules);
	DBG("ts_next", thread_state, next);
	DBG("ts_interp", thread_state, interp);
	DBG("ts_frame", thread_state, current_frame);
	DBG("ts_thread_id", thread_state, thread_id);
	DBG("ts_native_id", thread_state, native_thread_id);
	DBG("fr_prev", interpreter_frame, previous);
	DBG("fr_code", interpreter_frame, executable);
	DBG("fr_instr", interpreter_frame, instr_ptr);
	DBG("fr_local0", interpreter_frame, localsplus);
	DBG("fr_owner", interpreter_frame, owner);
	DBG("co_filename", code_object, filename);
	DBG("co_name", code_object, name);
	DBG("co_qualname", code_object, qualname);
	DBG("co_linetable", code_object, linetable);
	DBG("co_firstlineno", code_object, firstlineno);
	DBG("co_argcount", code_object, argcount);
	DBG("co_code_adaptive", code_object, co_code_adaptive);
	DBG("ob_type", pyobject, ob_type);
	DBG("tp_name", type_object, tp_name);
	DBG("tp_flags", type_object, tp_flags);
	DBG("tuple_item", tuple_object, ob_item);
	DBG("ma_keys", dict_object, ma_keys);
	DBG("ma_values", dict_object, ma_values);
	DBG("bytes_val", bytes_object, ob_sval);
	DBG("str_state", unicode_object, state);
	DBG("str_length", unicode_object, length);
	DBG("str_ascii_size", unicode_object, asciiobject_size);
}
#else
static void debug_offsets(void)
{
	fprintf(stderr, "this version does not describe itself\n");
}
#endif

int main(int argc, char **argv)
{
	if (argc > 1) {
		debug_offsets();
		return 0;
	}
	printf("minor %d\n", PY_MINOR_VERSION);
	runtime();
	frames();
	objects();
	return 0;
}
