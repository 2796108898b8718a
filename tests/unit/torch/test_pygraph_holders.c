/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which tensor keeps a node of autograd's graph, in made-up graphs. */
#include "unit/cmocka.h"

#include <stdlib.h>
#include <string.h>

#include "inspect/torch/pygraph.h"

#define MANY 100000u

/* The last tensor of a chain keeps all of it, in any order of the tensors. */
static void test_chain(void **state)
{
	struct pygraph_edge edges[] = { { 16, 32 }, { 32, 48 }, { 48, 64 }, { 160, 176 } };
	struct pygraph_saved saved[] = { { .node = 64 },  { .node = 16 },  { .node = 48 },
					 { .node = 176 }, { .node = 999 }, { .node = 160 } };
	struct pygraph g = { .saved = saved, .nsaved = 6, .edges = edges, .nedges = 4 };
	uint64_t one[] = { 16, 48, 32, 160 }, other[] = { 48, 0, 32, 16, 160, 16 };
	uint32_t ret[6], want_one[] = { 1, 1, 1, 4, 0, 4 }, want_other[] = { 4, 4, 4, 5, 0, 5 };

	assert_int_equal(pygraph__holders(&g, one, 4, ret), 0);
	assert_memory_equal(ret, want_one, sizeof(ret));
	assert_int_equal(pygraph__holders(&g, other, 6, ret), 0);
	assert_memory_equal(ret, want_other, sizeof(ret));
	assert_int_equal(pygraph__holders(&g, NULL, 0, ret), 0);
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(ret[i], 0);
}

/* Damaged memory may have circles. */
static void test_circles(void **state)
{
	struct pygraph_edge edges[] = { { 16, 32 }, { 32, 16 }, { 48, 48 }, { 48, 16 }, { 32, 48 } };
	struct pygraph_saved saved[] = { { .node = 16 }, { .node = 32 }, { .node = 48 } };
	struct pygraph g = { .saved = saved, .nsaved = 3, .edges = edges, .nedges = 5 };
	uint64_t roots[] = { 16, 32, 48 };
	uint32_t ret[3];

	assert_int_equal(pygraph__holders(&g, roots, 3, ret), 0);
	for (size_t i = 0; i < 3; i++)
		assert_in_range(ret[i], 1, 3);
}

/* Each tensor of a long chain is a candidate: state after state. */
static void test_long(void **state)
{
	struct pygraph_edge *edges = calloc(MANY, sizeof(*edges));
	uint64_t *roots = calloc(MANY, sizeof(*roots));
	struct pygraph_saved *saved = calloc(MANY, sizeof(*saved));
	struct pygraph g = { .saved = saved, .nsaved = MANY, .edges = edges, .nedges = MANY };
	uint32_t *ret = calloc(MANY, sizeof(*ret));

	assert_true(edges && roots && saved && ret);
	for (size_t i = 0; i < MANY; i++) {
		edges[i] = (struct pygraph_edge){ 16 * (i + 2), 16 * (i + 1) };
		roots[i] = 16 * (i + 2);
		saved[i].node = 16 * (i + 1);
	}
	assert_int_equal(pygraph__holders(&g, roots, MANY, ret), 0);
	for (size_t i = 0; i < MANY; i++)
		assert_int_equal(ret[i], MANY);
	free(saved);
	free(ret);
	free(edges);
	free(roots);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chain),
		cmocka_unit_test(test_circles),
		cmocka_unit_test(test_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
