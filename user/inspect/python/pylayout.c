/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The table of layouts. tests/data/pylayout_measure.c prints these numbers from a version's
 * headers. The unit test compares the table with its output, tests/data/layout-3.N.txt; on
 * aarch64 with layout-3.N-aarch64.txt. */
#include <stddef.h>

#include "inspect/arch.h"
#include "inspect/python.h"

#define NONE PYLAYOUT_NONE
/* To 3.11 the runtime's state has two mutexes before the key; x86-64's have 40 bytes. */
#define AFTER_MUTEXES(offset) ((offset) + 2 * (ARCH_MUTEX - 40))

/* Offsets that are equal in all known versions. h: additional bytes of an object's header, in
 * free-threaded builds. */
#define OBJECTS(h)                                                                                 \
	.major = 3, .ob_type = 8 + (h), .ob_size = 16 + (h), .tp_name = 24 + (h),                  \
	.tp_basicsize = 32 + (h), .tp_dealloc = 48 + (h), .tp_call = 128 + (h),                    \
	.tp_flags = 168 + (h), .tp_members = 240 + (h), .tp_base = 256 + (h),                      \
	.tp_dict = 264 + (h), .tp_dictoffset = 288 + (h), .tp_mro = 344 + (h),                     \
	.str_length = 16 + (h), .str_state = 32 + (h), .bytes_val = 32 + (h),                      \
	.cell_ref = 16 + (h), .ma_used = 16 + (h), .ma_keys = 32 + (h), .ma_values = 40 + (h),     \
	.md_dict = 16 + (h), .ts_next = 8, .ts_interp = 16

/* Heap-allocated frame objects; code objects point to their bytecode. */
#define TO_3_10                                                                                    \
	OBJECTS(0), .rt_interp_head = 32, .rt_interp_main = 40, .is_next = 0, .is_threads = 8,     \
		    .ts_frame = 24, .ts_thread_id = 176, .ts_native_id = NONE,                     \
		    .cframe_current = NONE, .fr_code = 32, .fr_prev = 24, .fr_owner = NONE,        \
		    .fr_tlbc = NONE, .shim_owner = 0, .tag_mask = UINT64_MAX, .co_argcount = 16,   \
		    .co_flags = 36, .co_firstlineno = 40, .co_filename = 104, .co_name = 112,      \
		    .co_qualname = NONE, .co_linetable = 120, .co_code_adaptive = NONE,            \
		    .co_tlbc = NONE, .str_kind = 2, .str_ascii_size = 48, .str_compact_size = 72,  \
		    .tuple_item = 24

/* Frames in the thread's data stack; bytecode at the end of the code object. */
#define FROM_3_11(h)                                                                               \
	OBJECTS(h), .fr_instr = 56, .lasti_scale = 0, .co_flags = 48 + (h),                        \
		    .co_filename = 112 + (h), .co_name = 120 + (h), .co_qualname = 128 + (h),      \
		    .co_linetable = 136 + (h), .func_code = 48 + (h)

/* Default builds: threads share the bytecode. */
#define ONE_BYTECODE .fr_tlbc = NONE, .co_tlbc = NONE, .str_kind = 2

/* Shim frames of the interpreter between C callers and Python frames. */
#define FROM_3_12(h)                                                                               \
	FROM_3_11(h), .fr_code = 0, .fr_prev = 8, .shim_owner = 3, .co_argcount = 52 + (h),        \
		      .co_firstlineno = 68 + (h), .str_ascii_size = 40 + (h),                      \
		      .str_compact_size = 56 + (h)

/* Versions with _Py_DebugOffsets. */
#define FROM_3_13(h) FROM_3_12(h), .ts_frame = 72, .cframe_current = NONE

/* COMMON_3_*: what the default and the free-threaded build of a version share. */
#define COMMON_3_13(h)                                                                             \
	FROM_3_13(h), .minor = 13, .ts_thread_id = 152, .ts_native_id = 160,                       \
		      .rt_interp_head = 632, .rt_interp_main = 640, .rt_tss_key = 2160,            \
		      .is_next = 7264, .is_threads = 7344, .fr_owner = 70, .fr_local0 = 72,        \
		      .tag_mask = UINT64_MAX, .tuple_item = 24 + (h), .ht_cached_keys = 880 + (h)

/* References in frames are tagged; NULL is 1. */
#define FROM_3_14(h) FROM_3_13(h), .fr_local0 = 80, .tag_mask = ~3ULL, .tuple_item = 32 + (h)

#define COMMON_3_14(h)                                                                             \
	FROM_3_14(h), .minor = 14, .ts_thread_id = 152, .ts_native_id = 160,                       \
		      .rt_interp_head = 808, .rt_interp_main = 816, .rt_tss_key = 2336,            \
		      .is_next = 7272, .is_threads = 7344, .ht_cached_keys = 880 + (h)

#define COMMON_3_15(h)                                                                             \
	FROM_3_14(h), .minor = 15, .ts_thread_id = 176, .ts_native_id = 184,                       \
		      .rt_interp_head = 936, .rt_interp_main = 944, .rt_tss_key = NONE,            \
		      .is_next = 7264, .is_threads = 7336, .is_modules = 7592,                     \
		      .ht_cached_keys = 888 + (h)

/* Free-threaded builds: each thread has its own copy of the bytecode. */
#define COPIED_BYTECODE                                                                            \
	.fr_owner = 78, .fr_tlbc = 72, .co_tlbc = 224, .co_code_adaptive = 232, .str_kind = 8

static const struct pylayout rows[] = {
	{
		TO_3_10,
		.minor = 8,
		.rt_tss_key = AFTER_MUTEXES(1392),
		.is_modules = 56,
		.fr_instr = 104,
		.fr_local0 = 360,
		.lasti_scale = 1,
		.ht_cached_keys = 872,
		.func_code = 16,
	},
	{
		TO_3_10,
		.minor = 9,
		.rt_tss_key = AFTER_MUTEXES(584),
		.is_modules = 856,
		.fr_instr = 104,
		.fr_local0 = 360,
		.lasti_scale = 1,
		.ht_cached_keys = 864,
		.func_code = 16,
	},
	{
		TO_3_10,
		.minor = 10,
		.rt_tss_key = AFTER_MUTEXES(584),
		.is_modules = 856,
		.fr_instr = 96,
		.fr_local0 = 352,
		.lasti_scale = 2,
		.ht_cached_keys = 872,
		.func_code = 48,
	},
	{
		FROM_3_11(0),
		ONE_BYTECODE,
		.minor = 11,
		.rt_interp_head = 40,
		.rt_interp_main = 48,
		.rt_tss_key = AFTER_MUTEXES(592),
		.is_next = 0,
		.is_threads = 16,
		.is_modules = 888,
		.ts_frame = 56,
		.ts_thread_id = 152,
		.ts_native_id = 160,
		.cframe_current = 8,
		.fr_code = 32,
		.fr_prev = 48,
		.fr_owner = 69,
		.fr_local0 = 72,
		.shim_owner = 0,
		.tag_mask = UINT64_MAX,
		.co_argcount = 56,
		.co_firstlineno = 72,
		.co_code_adaptive = 184,
		.ht_cached_keys = 872,
		.str_ascii_size = 48,
		.str_compact_size = 72,
		.tuple_item = 24,
	},
	{
		FROM_3_12(0),	     ONE_BYTECODE,	     .ht_cached_keys = 880,
		.minor = 12,	     .rt_interp_head = 40,   .rt_interp_main = 48,
		.rt_tss_key = 1544,  .is_next = 0,	     .is_threads = 72,
		.is_modules = 944,   .ts_frame = 56,	     .ts_thread_id = 136,
		.ts_native_id = 144, .cframe_current = 0,    .fr_owner = 70,
		.fr_local0 = 72,     .tag_mask = UINT64_MAX, .co_code_adaptive = 192,
		.tuple_item = 24,
	},
	{
		COMMON_3_13(0),
		ONE_BYTECODE,
		.is_modules = 7656,
		.co_code_adaptive = 200,
	},
	{
		COMMON_3_13(16),
		ONE_BYTECODE,
		.free_threaded = true,
		.is_modules = 7664,
		.co_code_adaptive = 216,
	},
	{
		COMMON_3_14(0),
		ONE_BYTECODE,
		.is_modules = 7688,
		.fr_owner = 74,
		.co_code_adaptive = 208,
	},
	{
		COMMON_3_14(16),
		COPIED_BYTECODE,
		.free_threaded = true,
		.is_modules = 7712,
	},
	{
		COMMON_3_15(0),
		ONE_BYTECODE,
		.fr_owner = 74,
		.co_code_adaptive = 208,
	},
	{
		COMMON_3_15(16),
		COPIED_BYTECODE,
		.free_threaded = true,
	},
};

const struct pylayout *pylayout__find(int major, int minor, bool free_threaded)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (rows[i].major == major && rows[i].minor == minor &&
		    rows[i].free_threaded == free_threaded)
			return &rows[i];
	}
	return NULL;
}
