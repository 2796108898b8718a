/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Texts compared with files of tests/data. Include after cmocka.h. With UPDATE_GOLDEN=1 in the
 * environment the files are written: read them before they are committed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void expect_golden(const char *text, const char *name)
{
	static char expected[262144];
	char path[256];
	size_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "tests/data/%s", name);
	if (getenv("UPDATE_GOLDEN")) {
		f = fopen(path, "w");
		assert_non_null(f);
		fputs(text, f);
		assert_int_equal(fclose(f), 0);
		return;
	}
	f = fopen(path, "r");
	if (!f)
		fail_msg("no %s; UPDATE_GOLDEN=1 writes it", path);
	if (f) {
		n = fread(expected, 1, sizeof(expected) - 1, f);
		fclose(f);
	}
	expected[n] = '\0';
	if (strcmp(text, expected) != 0)
		fail_msg("%s differs from the output:\n%s", path, text);
}
