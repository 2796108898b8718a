/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A dump as text, by holder and by tensor, in several widths. */
#include "unit/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/dump.h"

#define FLOAT 6

#define HISTORY "local trainer.state['outputs'][*] in main_training_loop (train.py:31)"

static struct census_about abouts[] = {
	{ .name = "blocks.0.up.weight",
	  .module = "blocks.0.up",
	  .cls = "Linear",
	  .root = "Net",
	  .shape = { 512, 128 },
	  .ndim = 2,
	  .dtype = FLOAT },
	{ .name = "blocks.1.up.weight",
	  .module = "blocks.1.up",
	  .cls = "Linear",
	  .root = "Net",
	  .shape = { 512, 128 },
	  .ndim = 2,
	  .dtype = FLOAT },
	{ .name = "scale", .module = "", .cls = "Net", .root = "Net", .ndim = 0, .dtype = FLOAT },
	{ .name = HISTORY,
	  .module = "",
	  .cls = "",
	  .root = "",
	  .shape = { 256, 16 },
	  .ndim = 2,
	  .dtype = FLOAT },
	{ .name = HISTORY,
	  .module = "",
	  .cls = "",
	  .root = "",
	  .shape = { 256, 16 },
	  .ndim = 2,
	  .dtype = FLOAT },
	{ .name = "",
	  .module = "",
	  .cls = "",
	  .root = "",
	  .shape = { 7 },
	  .ndim = 1,
	  .dtype = FLOAT },
};

static struct census_tensor tensors[] = {
	{ .addr = 1, .about = &abouts[0] }, { .addr = 2, .about = &abouts[1] },
	{ .addr = 3, .about = &abouts[2] }, { .addr = 4, .about = &abouts[3] },
	{ .addr = 5, .about = &abouts[4] }, { .addr = 6, .about = &abouts[5] },
};

static struct dump_row rows[] = {
	{ &tensors[0], NULL, 262144, 1, 0, CENSUS_PARAMETER },
	{ &tensors[1], NULL, 262144, 1, 0, CENSUS_PARAMETER },
	{ &tensors[3], NULL, 16384, 1, 0, CENSUS_OTHER },
	{ &tensors[4], NULL, 16384, 1, 0, CENSUS_OTHER },
	{ &tensors[2], NULL, 512, 1, 0, CENSUS_PARAMETER },
	{ &tensors[5], NULL, 512, 1, 0, CENSUS_OTHER },
};

static struct dump_device devices[] = {
	{ .name = "cuda:0",
	  .type = 1,
	  .known = true,
	  .consistent = true,
	  .allocated = 559104,
	  .reserved = 2097152,
	  .blocks = 7,
	  .unheld = 1024,
	  .unheld_blocks = 1 },
};

static const struct torch_info torch = { .version = "2.11.0" };

static const char *print(const char *columns, enum dump_by by, size_t top)
{
	static char text[16384];
	struct dump d = { .devices = devices,
			  .ndevices = 1,
			  .rows = rows,
			  .nrows = sizeof(rows) / sizeof(*rows) };
	struct dump_opts o = { .pid = 42,
			       .comm = "python",
			       .command = "python a.py",
			       .python = "3.12.1",
			       .torch = &torch,
			       .by = by,
			       .top = top };
	struct dump_row *v;
	FILE *out = tmpfile();
	size_t n;

	d.census.modules = 5;
	d.census.about = abouts;
	d.census.nabout = sizeof(abouts) / sizeof(*abouts);
	d.census.end = 120000000;
	for (size_t i = 0; i < d.nrows; i++) {
		if (i == 0)
			memset(devices[0].bytes, 0, sizeof(devices[0].bytes));
		devices[0].bytes[rows[i].kind] += rows[i].bytes;
	}
	if (columns)
		setenv("COLUMNS", columns, 1);
	else
		unsetenv("COLUMNS");
	assert_int_equal(dump__group(&d, by, &v, &n), 0);
	assert_int_equal(dump__text(out, &d, v, n, &o), 0);
	rewind(out);
	text[fread(text, 1, sizeof(text) - 1, out)] = '\0';
	fclose(out);
	free(v);
	d.devices = NULL; /* static */
	d.rows = NULL;
	d.census.about = NULL; /* not for free() */
	dump__free(&d);
	return text;
}

static void test_by_holder(void **state)
{
	assert_string_equal(
		print(NULL, DUMP_BY_HOLDER, 0),
		"python a.py - PID 42 - torch 2.11.0 - Python 3.12.1\n"
		"5 modules, 0 optimizers, 0 Python objects, read in 0.12 s\n"
		"\n"
		"cuda:0  546.0 KiB allocated in 7 blocks, 2.00 MiB reserved\n"
		"  parameter 512.5 KiB - no role found 32.5 KiB - held by no Python object 1.0 "
		"KiB\n"
		"\n"
		"      Size    %  Tensors  Role           Held by\n"
		" 512.0 KiB   94        2  parameter      blocks.*.up.weight  [512, 128] float32\n"
		"  32.0 KiB    6        2  no role found  " HISTORY "  [256, 16] float32\n"
		"   1.0 KiB   <1        -                 held by no Python object (1 block)\n"
		"     512 B   <1        1  parameter      scale  [] float32\n"
		"     512 B   <1        1  no role found  (no name found)  [7] float32\n");
	/* Names are cut in the middle. */
	assert_non_null(strstr(print("80", DUMP_BY_HOLDER, 0),
			       "\n  32.0 KiB    6        2  no role found  "
			       "local trainer...ning_loop (train.py:31)\n"));
	assert_non_null(strstr(print("80", DUMP_BY_HOLDER, 2),
			       "\n   2.0 KiB   <1        2                 + 3 more rows"));
}

static void test_by_tensor(void **state)
{
	assert_non_null(strstr(print(NULL, DUMP_BY_TENSOR, 0),
			       " 256.0 KiB   47  parameter      blocks.1.up.weight  "
			       "[512, 128] float32\n"));
	assert_non_null(strstr(print(NULL, DUMP_BY_MODULE, 0),
			       "\n     512 B   <1        1  Net (model)\n"));
}

/* Views that keep larger blocks, and memory of C++ tensors. */
static void test_remarks(void **state)
{
	const char *text;

	devices[0].view_bytes = 512 << 10;
	devices[0].view_used = 2 << 10;
	devices[0].unheld = 256 << 10;
	text = print(NULL, DUMP_BY_HOLDER, 0);
	assert_non_null(strstr(text, "views of larger blocks: 2.0 KiB of 512.0 KiB are used; keep "
				     "a .clone()"));
	assert_non_null(strstr(text, "Tensors of C++ code hold memory without a Python object"));
	/* The program allocates while its tensors are read. */
	devices[0].unheld_blocks = 13;
	devices[0].unheld_new = 254 << 10;
	devices[0].unheld_new_blocks = 12;
	text = print(NULL, DUMP_BY_HOLDER, 0);
	assert_null(strstr(text, "Tensors of C++ code"));
	assert_non_null(strstr(text, "held by no Python object (13 blocks, 12 allocated during the "
				     "reading)"));
	devices[0].view_bytes = devices[0].view_used = 0;
	devices[0].unheld = 1024;
	devices[0].unheld_blocks = 1;
	devices[0].unheld_new = devices[0].unheld_new_blocks = 0;
	assert_null(strstr(print(NULL, DUMP_BY_HOLDER, 0), "larger blocks"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_holder),
		cmocka_unit_test(test_by_tensor),
		cmocka_unit_test(test_remarks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
