/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Words about memory that autograd's graph keeps. */
#include "unit/cmocka.h"

#include <string.h>

#include "model/growth_summary.h"

static void test_words(void **state)
{
	static const struct {
		const char *name, *keeper, *words;
	} cases[] = {
		{ "saved for MulBackward0", "", "autograd's graph, saved for MulBackward0" },
		{ "saved for MulBackward0 and 3 more", "",
		  "autograd's graph, saved for MulBackward0 and 3 more" },
		{ "saved for MulBackward0, graph of global h[*]", "h[*]",
		  "the graph of h[*], saved for MulBackward0" },
		{ "saved for MulBackward0, graph of local s.h in f (a.py:3) and * more",
		  "s.h in f (a.py:3)", "the graph of s.h in f (a.py:3), saved for MulBackward0" },
		{ "saved for X, graph of grad of 0.weight and 12 more", "grad of 0.weight",
		  "the graph of grad of 0.weight, saved for X" },
		{ "saved for X, graph of \x1b and more", "\x1b and more",
		  "the graph of \\x1b and more, saved for X" },
		{ "saved for X, graph of ", "", "autograd's graph, saved for X, graph of " },
		{ "saved for X, graph of  more", " more", "the graph of  more, saved for X" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const char *at = "";
		size_t n = growth_summary__graph_keeper(cases[i].name, &at);
		char buf[512];

		assert_true(growth_summary__graph_has(cases[i].name));
		assert_int_equal(n, strlen(cases[i].keeper));
		assert_memory_equal(n ? at : "", cases[i].keeper, n + !n);
		assert_string_equal(growth_summary__graph_words(cases[i].name, false, buf,
								sizeof(buf)),
				    cases[i].words);
	}
	assert_false(growth_summary__graph_has("global saved for x"));
}

/* The remedy follows the cause. */
static void test_remedies(void **state)
{
	const char *loss = "saved for MulBackward0, graph of global total",
		   *grad = "saved for MulBackward0, graph of grad of 0.weight";

	assert_non_null(strstr(growth_summary__graph_remedy(loss, true), "loss.item()"));
	assert_non_null(strstr(growth_summary__graph_remedy(loss, false), "torch.no_grad()"));
	assert_non_null(strstr(growth_summary__graph_remedy(grad, true), "p.grad = None"));
	assert_non_null(
		strstr(growth_summary__graph_remedy("saved for X", false), "torch.no_grad()"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_remedies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
