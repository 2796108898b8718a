/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "inspect/arch.h"
#include "inspect/python.h"
#include "last_python.h"

#define FIRST 8
#define FIRST_FREE_THREADED 13

static const struct entry {
	const char *name;
	size_t at, size;
} entries[] = {
#define E(f)                                                                                       \
	{                                                                                          \
#f, offsetof(struct pylayout, f), sizeof(((struct pylayout *)0)->f)                \
	}
	E(rt_interp_head), E(rt_interp_main),	E(rt_tss_key),	     E(is_next),
	E(is_threads),	   E(is_modules),	E(ts_next),	     E(ts_interp),
	E(ts_frame),	   E(ts_thread_id),	E(ts_native_id),     E(cframe_current),
	E(fr_code),	   E(fr_prev),		E(fr_instr),	     E(fr_owner),
	E(fr_local0),	   E(shim_owner),	E(co_argcount),	     E(co_flags),
	E(co_firstlineno), E(co_filename),	E(co_name),	     E(co_qualname),
	E(co_linetable),   E(co_code_adaptive), E(ob_type),	     E(ob_size),
	E(tp_name),	   E(tp_basicsize),	E(tp_dealloc),	     E(tp_call),
	E(tp_flags),	   E(tp_members),	E(tp_dict),	     E(tp_base),
	E(tp_dictoffset),  E(tp_mro),		E(ht_cached_keys),   E(str_length),
	E(str_state),	   E(str_ascii_size),	E(str_compact_size), E(bytes_val),
	E(tuple_item),	   E(cell_ref),		E(ma_used),	     E(ma_keys),
	E(ma_values),	   E(md_dict),		E(func_code),	     E(fr_tlbc),
	E(co_tlbc),
#undef E
};
#define NR_ENTRIES (sizeof(entries) / sizeof(entries[0]))

static unsigned value_of(const struct pylayout *l, const struct entry *e)
{
	uint16_t v;

	if (e->size == 1)
		return *((const uint8_t *)l + e->at);
	memcpy(&v, (const char *)l + e->at, sizeof(v));
	return v;
}

/* Compares a row with the offsets from the version's headers; missing ones must be NONE. */
static void check_row(int minor, bool free_threaded)
{
	const struct pylayout *l = pylayout__find(3, minor, free_threaded);
	bool seen[NR_ENTRIES] = { false };
	char path[64], name[64];
	unsigned value;
	size_t i;
	FILE *f;

	assert_non_null(l);
	assert_int_equal(l->major, 3);
	assert_int_equal(l->minor, minor);
	snprintf(path, sizeof(path), "tests/data/layout-3.%d%s%s.txt", minor,
		 free_threaded ? "t" : "", ARCH_MACHINE == ELF_AARCH64 ? "-aarch64" : "");
	f = fopen(path, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%63s %u", name, &value), 2);
	assert_string_equal(name, "minor");
	assert_int_equal(value, minor);
	while (fscanf(f, "%63s %u", name, &value) == 2) {
		for (i = 0; i < NR_ENTRIES && strcmp(name, entries[i].name); i++)
			;
		if (i == NR_ENTRIES)
			fail_msg("3.%d: no entry named %s", minor, name);
		if (value_of(l, &entries[i]) != value)
			fail_msg("3.%d %s: %u in the table, %u in the headers", minor, name,
				 value_of(l, &entries[i]), value);
		seen[i] = true;
	}
	fclose(f);
	for (i = 0; i < NR_ENTRIES; i++) {
		if (!seen[i] && value_of(l, &entries[i]) != PYLAYOUT_NONE)
			fail_msg("3.%d has no %s", minor, entries[i].name);
	}
}

static void rows_equal_the_headers(void **state)
{
	for (int minor = FIRST; minor <= LAST_MINOR; minor++)
		check_row(minor, false);
	for (int minor = FIRST_FREE_THREADED; minor <= LAST_MINOR; minor++)
		check_row(minor, true);
}

/* Checks that the fields compared above and these are all fields of struct pylayout. */
static void no_field_is_forgotten(void **state)
{
	static const char *const others[] = { "major", "minor", "free_threaded", "lasti_scale",
					      "str_kind" };
	size_t total = sizeof(others) / sizeof(others[0]) + sizeof(uint64_t); /* tag_mask */
	/* alignment, at most twice */
	size_t slack = 2 * sizeof(uint64_t);

	for (size_t i = 0; i < NR_ENTRIES; i++)
		total += entries[i].size;
	assert_true(total <= sizeof(struct pylayout));
	assert_true(sizeof(struct pylayout) - total < slack);
}

static void rules_of_the_versions(void **state)
{
	for (int row = FIRST; row <= 2 * LAST_MINOR - FIRST_FREE_THREADED + 1; row++) {
		bool free_threaded = row > LAST_MINOR;
		int minor = free_threaded ? row - LAST_MINOR - 1 + FIRST_FREE_THREADED : row;
		const struct pylayout *l = pylayout__find(3, minor, free_threaded);

		assert_int_equal(l->free_threaded, free_threaded);
		assert_int_equal(l->str_kind, free_threaded && minor >= 14 ? 8 : 2);
		assert_int_equal(l->fr_tlbc != PYLAYOUT_NONE, free_threaded && minor >= 14);
		assert_int_equal(l->co_tlbc != PYLAYOUT_NONE, free_threaded && minor >= 14);
		assert_int_equal(l->lasti_scale, minor <= 9 ? 1 : minor == 10 ? 2 : 0);
		assert_int_equal(l->shim_owner, minor >= 12 ? 3 : 0);
		assert_int_equal(l->cframe_current != PYLAYOUT_NONE, minor == 11 || minor == 12);
		assert_int_equal(l->fr_owner != PYLAYOUT_NONE, minor >= 11);
		assert_int_equal(l->ts_native_id != PYLAYOUT_NONE, minor >= 11);
		assert_int_equal(l->co_code_adaptive != PYLAYOUT_NONE, minor >= 11);
		assert_int_equal(l->co_qualname != PYLAYOUT_NONE, minor >= 11);
		assert_true(l->tag_mask == (minor >= 14 ? ~3ULL : UINT64_MAX));
		assert_true(l->fr_local0 > l->fr_instr && l->fr_local0 > l->fr_prev &&
			    l->fr_local0 > l->fr_code);
		assert_true(l->rt_interp_main == l->rt_interp_head + 8 &&
			    l->rt_tss_key > l->rt_interp_main);
		assert_true(l->str_compact_size > l->str_ascii_size &&
			    l->str_ascii_size > l->str_state);
	}
}

static void unknown_versions_have_no_row(void **state)
{
	assert_null(pylayout__find(3, 7, false));
	assert_null(pylayout__find(3, LAST_MINOR + 1, false));
	assert_null(pylayout__find(3, FIRST_FREE_THREADED - 1, true));
	assert_null(pylayout__find(3, LAST_MINOR + 1, true));
	assert_null(pylayout__find(2, 8, false));
	assert_null(pylayout__find(4, 10, false));
	assert_null(pylayout__find(3, -1, false));
	assert_null(pylayout__find(3 + 256, 8, false));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_equal_the_headers),
		cmocka_unit_test(no_field_is_forgotten),
		cmocka_unit_test(rules_of_the_versions),
		cmocka_unit_test(unknown_versions_have_no_row),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
