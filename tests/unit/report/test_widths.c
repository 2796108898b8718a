/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Texts of the commands that read recordings, at 80, 120 and 200 columns and without a terminal. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lib/text.h"
#include "unit/golden.h"
#include "unit/report_tape.h"

#define RECORDING "tests/data/report.bin"

static struct output *run(const struct command *c, const char *first, ...)
{
	struct output *o;
	va_list ap;

	va_start(ap, first);
	o = run_command(c->run, c->name, first, ap);
	va_end(ap);
	return o;
}

static void check_width(char *text, unsigned columns)
{
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		if (strncmp(line, "    ", 4) != 0 && text__width(line) > columns)
			fail_msg("%u columns: '%s'", columns, line);
}

static void check(struct output *o, const char *name, const char *columns)
{
	char file[128];

	snprintf(file, sizeof(file), "widths/%s-%s.txt", name, columns ? columns : "piped");
	assert_string_equal(o->err, "");
	expect_golden(o->out, file);
	if (columns)
		check_width(o->out, (unsigned)strtoul(columns, NULL, 10));
}

static void test_widths(void **state)
{
	static const char *const widths[] = { "80", "120", "200", NULL };

	(void)state;
	setlocale(LC_ALL, "C.UTF-8");
	for (size_t i = 0; i < sizeof(widths) / sizeof(*widths); i++) {
		if (widths[i])
			setenv("COLUMNS", widths[i], 1);
		else
			unsetenv("COLUMNS");
		check(run(&command_report, "--by", "stack", "--top", "3", "--no-overview",
			  RECORDING, NULL),
		      "report-stack", widths[i]);
		check(run(&command_report, "--tree", "--top", "14", RECORDING, NULL), "report-tree",
		      widths[i]);
		check(run(&command_report, "--by", "module", "--top", "8", RECORDING, NULL),
		      "report-module", widths[i]);
		check(run(&command_diff, "--at", "0.1,end", "--top", "5", RECORDING, RECORDING,
			  NULL),
		      "diff", widths[i]);
		check(run(&command_compare, RECORDING, RECORDING, NULL), "compare", widths[i]);
		check(run(&command_leaks, "--steps", RECORDING, NULL), "leaks", widths[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_widths) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
