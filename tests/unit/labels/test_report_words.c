/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Locations shortened to a column, and command lines from facts. */
#include "unit/cmocka.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "model/words.h"
#include "record/dict.h"
#include "report/text.h"

static void test_cmdline(void **state)
{
	static const struct {
		const char *fact;
		int n; /* -1: rejected */
	} cases[] = {
		{ "[]", -1 },
		{ "[\"a\"]", 1 },
		{ " [ \"a\" , \"b\" ] ", 2 },
		{ "[\"a\"", -1 },
		{ "[\"a\",]", -1 },
		{ "[\"a\"] x", -1 },
		{ "[1]", -1 },
		{ "", -1 },
		{ "\"a\"", -1 },
		{ "[\"\\", -1 },
		{ "[\"\\u12", -1 },
		{ "[\"\\ud800\\u", -1 },
		{ "[\"\\ud83d\"]", -1 },
		{ "[\"\\u0000x\"]", -1 },
		{ "[\"\\q\"]", -1 },
		{ "[\"\\\"\\\\\\/\\n\"]", 1 },
		{ "[\"\\u00e9\\u20AC\"]", 1 },
		{ "[\"my::worker   \", \"\", \"  \", \"\"]", 1 },
		{ "[\"a\", \"\", \"b\"]", 3 },
		{ "[\"\"]", 1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct facts *f = facts__new();
		char **argv;
		int n = -1;

		facts__set(f, "cmdline", cases[i].fact);
		argv = words__cmdline(f);
		if (argv)
			for (n = 0; argv[n];)
				n++;
		assert_int_equal(n, cases[i].n);
		words__free_cmdline(argv);
		facts__free(f);
	}
}

/* A title that fills the room of a longer command line. */
static void test_title(void **state)
{
	static const char zeros[] = "/opt/bin/my::worker\0\0\0\0\0",
			  blanks[] = "my::worker           ", args[] = "/bin/a\0-x\0\0y";
	char buf[64];

	assert_string_equal(words__arguments(buf, sizeof(buf), zeros, sizeof(zeros)), "my::worker");
	assert_string_equal(words__arguments(buf, sizeof(buf), blanks, sizeof(blanks)),
			    "my::worker");
	assert_string_equal(words__arguments(buf, sizeof(buf), args, sizeof(args)), "a -x  y");
	assert_string_equal(words__arguments(buf, sizeof(buf), "\0\0", 2), "");
}

static void test_location(void **state)
{
	static const struct {
		const char *file, *func, *want;
		size_t columns;
	} cases[] = {
		{ "/home/u/p/net/model.py", "Net.forward", "net/model.py:7 (Net.forward)", 40 },
		{ "/home/u/p/net/model.py", "Net.forward", "net/model.py:7 (forward)", 27 },
		{ "/home/u/pp/net/model.py", "f", ".../pp/net/model.py:7 (f)", 40 },
		{ "/home/u/pp/net/model.py", "f", ".../pp/net/model.py:7 (f)", 25 },
		{ "/home/u/pp/net/model.py", "f", ".../net/model.py:7 (f)", 24 },
		{ "/home/u/pp/net/model.py", "f", ".../model.py:7 (f)", 20 },
		{ "/home/u/pp/net/model.py", "f", "model.py:7 (f)", 15 },
		{ "/home/u/pp/net/model.py", "f", "...l.py:7", 9 },
		{ "/v/lib/python3.12/site-packages/torch/nn/f.py", "g", "torch/nn/f.py:7 (g)", 40 },
		{ "/x/y/z.py", "g", "/x/y/z.py:7 (g)", 40 },
		{ "/x/y/z.py", "g", ".../z.py:7 (g)", 14 },
		{ "<stdin>", "<module>", "<stdin>:7 (<module>)", 40 },
		{ "<cell 12>", "train", "cell 12, line 7 (train)", 40 },
		{ "<ipython-input-12-5dc3ab>", "train", "cell 12, line 7 (train)", 40 },
		{ "/tmp/ipykernel_321/342522.py", "f", "cell 342522, line 7 (f)", 40 },
		{ "/tmp/ipykernel_321/342522.py", "f", "cell 342522, line...", 20 },
		{ "/tmp/ipykernel_x/3.py", "f", "/tmp/ipykernel_x/3.py:7 (f)", 40 },
		{ "<cell line: 1>", "f", "<cell line: 1>:7 (f)", 40 },
		{ "/x/\xe6\x97\xa5\xe6\x9c\xac.py", "f", "\xe6\x97\xa5\xe6\x9c\xac.py:7", 9 },
	};
	char buf[REPORT_TEXT];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct row r = { .file = cases[i].file, .func = cases[i].func, .line = 7 };

		assert_string_equal(words__location(buf, &r, "/home/u/p", cases[i].columns),
				    cases[i].want);
	}
	assert_string_equal(words__cut_front(strcpy(buf, "encoder.layers.7.self_attn"), 12),
			    "...self_attn");
	assert_string_equal(words__cut_front(strcpy(buf, "abc"), 12), "abc");
	assert_string_equal(words__cut(strcpy(buf, "abcdef"), 2), "..");
}

/* Memory from before attach has the name of its holder in rows by line only. */
static void test_before_attach(void **state)
{
	struct row r = { .before_attach = true,
			 .name = "global history[*]",
			 .module = "",
			 .module_class = "",
			 .source = "census" };
	char buf[REPORT_TEXT];

	(void)state;
	assert_string_equal(words__where(buf, &r, BY_LINE, NULL, 40), "global history[*]");
	assert_string_equal(words__where(buf, &r, BY_STACK, NULL, 14), "glob...tory[*]");
	assert_string_equal(words__where(buf, &r, BY_CATEGORY, NULL, 40), "before attach");
	r.name = NULL;
	assert_string_equal(words__where(buf, &r, BY_LINE, NULL, 40), "before attach");
	assert_string_equal(words__role("optimizer_state"), "optimizer state");
	assert_string_equal(words__role("unknown"), "no role found");
	assert_string_equal(words__role(NULL), "(several)");
	assert_string_equal(words__phase(PHASE_OTHER), "between phases");
	assert_string_equal(words__phase(PHASE_DATA), "data loading");
	assert_string_equal(words__phase(PHASE_BACKWARD), "backward");
}

/* The recording's gaps are reported: by a limit, by losses with exact bytes, by full tables. */
static void test_missing_data(void **state)
{
	static const struct {
		const char *key, *value, *words;
	} cases[] = {
		{ "counter.frames", "12", "" },
		{ "counter.names_no_room", "12", "no room for 12 more stacks and names" },
		{ "counter.lost.scope_end", "2",
		  "2 ends of steps lost: figures per step are not exact" },
		{ "counter.lost.scope", "7",
		  "7 begins and ends of scopes lost: their runs are not exact" },
		{ "counter.lost.module_call", "3", "3 calls of modules lost" },
		{ "counter.modules.faults", "4", "4 calls of modules lost" },
		{ "counter.lost.autograd_node", "5",
		  "5 autograd nodes lost: their memory has no line of forward" },
		{ "counter.autograd.faults", "6",
		  "6 autograd nodes lost: their memory has no line of forward" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct facts *f = facts__new();
		struct dict *d = dict__new();
		struct model *m = model__new(d, f, NULL);
		char *text = NULL, want[256];
		size_t size;
		FILE *out = open_memstream(&text, &size);

		assert_non_null(m);
		assert_non_null(out);
		facts__set(f, cases[i].key, cases[i].value);
		report_text__trust(out, m, f, &(struct report_text_opts){ .width = 200 });
		fclose(out);
		snprintf(want, sizeof(want), *cases[i].words ? "\n%s\n" : "", cases[i].words);
		assert_string_equal(text, want);
		free(text);
		model__free(m);
		dict__free(d);
		facts__free(f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cmdline),	     cmocka_unit_test(test_title),
		cmocka_unit_test(test_location),     cmocka_unit_test(test_before_attach),
		cmocka_unit_test(test_missing_data),
	};

	setlocale(LC_ALL, "C.UTF-8");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
