/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Names of autograd nodes, and the offsets of their numbers. */
#include "unit/cmocka.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inspect/pytensor.h"
#include "inspect/proc.h"

static const char *plain(const char *mangled)
{
	static char buf[64];

	return autograd_node__plain_name(mangled, buf, sizeof(buf)) ? buf : "(none)";
}

static void test_names(void **state)
{
	assert_string_equal(plain("N5torch8autograd14AccumulateGradE"), "AccumulateGrad");
	assert_string_equal(plain("N5torch8autograd9generated14AddmmBackward0E"), "AddmmBackward0");
	assert_string_equal(plain("*N5torch8autograd6PyNodeE"), "PyNode");
	assert_string_equal(plain("8MyNodeXY"), "MyNodeXY");
	assert_string_equal(plain("N5torch8autograd7CppNodeI8MySquareEE"), "CppNode");
	/* No name; a name beyond the end; a name that is too long; an invalid C++ name. */
	assert_string_equal(plain(""), "(none)");
	assert_string_equal(plain("N"), "(none)");
	assert_string_equal(plain("N0E"), "(none)");
	assert_string_equal(plain("14Accumulate"), "(none)");
	assert_string_equal(plain("99999999999999999999999999Accumulate"), "(none)");
	assert_string_equal(plain("4a\x1b[m"), "(none)");
	assert_string_equal(
		plain("70aaaaaaaaaabbbbbbbbbbaaaaaaaaaabbbbbbbbbbaaaaaaaaaabbbbbbbbbbaaaaaaaaaa"),
		"(none)");
}

struct type { /* Itanium C++ ABI, 2.9.5: what precedes a vtable */
	const void *vtable;
	const char *name;
};

struct table {
	uint64_t offset_to_top;
	const struct type *type;
	void *functions[2];
};

static void test_class_of_an_object(void **state)
{
	static const struct type type = { NULL, "N5torch8autograd9generated12MulBackward0E" };
	static const struct type bad_name = { NULL, "\xff\xff" };
	static const struct type no_name = { NULL, (const char *)16 };
	static const struct table table = { 0, &type, { NULL } }, bad = { 0, &bad_name, { NULL } },
				  none = { 0, &no_name, { NULL } };
	static const struct table nothing = { 0, NULL, { NULL } };
	struct proc *p = proc__open(getpid());
	char buf[64];

	assert_non_null(p);
	assert_int_equal(
		autograd_node__class(p, (uint64_t)(uintptr_t)table.functions, buf, sizeof(buf)), 0);
	assert_string_equal(buf, "MulBackward0");
	assert_int_equal(autograd_node__class(p, (uint64_t)(uintptr_t)bad.functions, buf,
					      sizeof(buf)),
			 -EBADMSG);
	assert_int_equal(autograd_node__class(p, (uint64_t)(uintptr_t)none.functions, buf,
					      sizeof(buf)),
			 -EFAULT);
	assert_int_equal(autograd_node__class(p, (uint64_t)(uintptr_t)nothing.functions, buf,
					      sizeof(buf)),
			 -EFAULT);
	assert_int_equal(autograd_node__class(p, 0, buf, sizeof(buf)), -EBADMSG);
	assert_int_equal(autograd_node__class(p, 9, buf, sizeof(buf)), -EBADMSG);
	assert_int_equal(autograd_node__class(p, UINT64_MAX - 7, buf, sizeof(buf)), -EFAULT);
	proc__free(p);
}

/* A node in the layout of torch 2.11, and of 2.13, from the headers. */
static void old_node(__u64 head[MT_NODE_WORDS], uint64_t node, uint64_t sequence, uint64_t thread)
{
	const __u64 v[MT_NODE_WORDS] = { 0x7f0011223340, node, node - 16, sequence,
					 sequence % 5,	 0,    thread };

	memcpy(head, v, sizeof(v));
}

static void new_node(__u64 head[MT_NODE_WORDS], uint64_t node, uint64_t sequence, uint64_t thread)
{
	const __u64 v[MT_NODE_WORDS] = {
		0x7f0011223340, 0x100000001, sequence, sequence % 5, 0, thread, 0
	};

	memcpy(head, v, sizeof(v));
}

static const struct node_layout *guess(const char *version,
				       void (*make)(__u64 *head, uint64_t node, uint64_t sequence,
						    uint64_t thread))
{
	static struct node_guess g;
	__u64 head[MT_NODE_WORDS];

	node_guess__init(&g, version);
	for (uint64_t i = 0; i < 200; i++) {
		uint64_t node = 0x55d0c0001000 + i * 7919 % 31 * 512;

		make(head, node, 100 + i / 2, 1 + i % 2);
		node_guess__see(&g, 4000 + (uint32_t)(i % 2), node, head);
		/* another output of the node */
		node_guess__see(&g, 4000 + (uint32_t)(i % 2), node, head);
	}
	return node_guess__layout(&g);
}

static void garbage(__u64 head[MT_NODE_WORDS], uint64_t node, uint64_t sequence, uint64_t thread)
{
	for (unsigned int i = 0; i < MT_NODE_WORDS; i++)
		head[i] = (node ^ sequence) * 0x9e3779b97f4a7c15 + i;
}

static void test_layouts(void **state)
{
	static const char *const versions[] = { "2.1.2",      "2.11.0+cu130", "2.13.0",
						"2.15.0+cpu", "3.0",	      "",
						"no version" };
	static struct node_guess g;

	node_guess__init(&g, "2.1.2+cu121");
	assert_int_equal(node_guess__layout(&g)->sequence, 3);
	assert_int_equal(node_guess__layout(&g)->size, 472);
	node_guess__init(&g, "2.12.1");
	assert_int_equal(node_guess__layout(&g)->sequence, 3);
	node_guess__init(&g, "2.13.0a0+git1234");
	assert_int_equal(node_guess__layout(&g)->sequence, 2);
	assert_int_equal(node_guess__layout(&g)->size, 464);
	/* Observed layouts take precedence over the version. */
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		assert_non_null(guess(versions[i], old_node));
		assert_int_equal(guess(versions[i], old_node)->sequence, 3);
		assert_int_equal(guess(versions[i], old_node)->thread, 6);
		assert_non_null(guess(versions[i], new_node));
		assert_int_equal(guess(versions[i], new_node)->sequence, 2);
		assert_int_equal(guess(versions[i], new_node)->thread, 5);
		assert_null(guess(versions[i], garbage));
	}
}

/* AOTAutograd, functorch and views show nodes again, in any order. The layout stays known. */
static void test_nodes_out_of_order(void **state)
{
	static struct node_guess g;
	__u64 head[MT_NODE_WORDS];

	(void)state;
	for (unsigned int newer = 0; newer < 2; newer++) {
		node_guess__init(&g, newer ? "2.13.0" : "2.11.0");
		for (uint64_t i = 0; i < 400; i++) {
			uint64_t node = 0x55d0c0001000 + i * 512;
			uint64_t sequence = i % 8 == 7 ? NODE_NO_SEQUENCE : 1000 - i;

			(newer ? new_node : old_node)(head, node, sequence, 1 + i % 3);
			node_guess__see(&g, 4000, node, head);
			assert_non_null(node_guess__layout(&g));
			assert_int_equal(node_guess__layout(&g)->sequence, newer ? 2 : 3);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_class_of_an_object),
		cmocka_unit_test(test_layouts),
		cmocka_unit_test(test_nodes_out_of_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
