/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Autograd graphs of nodes built in this process, in chunks of its malloc: saved tensors are found,
 * and lookalikes are not. tests/e2e/test_dump.py covers real graphs.
 */
#include "unit/cmocka.h"

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inspect/proc.h"
#include "inspect/pytensor.h"
#include "inspect/torch/pygraph.h"

#define BODY 480     /* size of the common part of nodes */
#define EDGES 96     /* offset of the vector of next nodes */
#define METADATA 264 /* that of the vector of metadata, whose room for two ends at 472 */
#define SAVED 112    /* bytes of a SavedVariable */
#define FLAGS 40     /* offset after its pointer */

struct cxx_type {
	uint64_t info[3];   /* {vtable of the kind, name, base} */
	uint64_t vtable[4]; /* {offset to top, type information, functions} */
	char name[64];
};

static struct cxx_type plain_kind = { .name = "N10__cxxabiv117__class_type_infoE" },
		       single_kind = { .name = "N10__cxxabiv120__si_class_type_infoE" },
		       node_type = { .name = "N5torch8autograd4NodeE" },
		       mul_type = { .name = "N5torch8autograd9generated12MulBackward0E" },
		       leaf_type = { .name = "N5torch8autograd14AccumulateGradE" },
		       other_type = { .name = "N3foo5OtherE" },
		       tensor_type = { .name = "N3c1010TensorImplE" };

static struct proc *self;
static struct pytensors *tensors;

static uint64_t at(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

static uint64_t vptr(struct cxx_type *t)
{
	return at(&t->vtable[2]);
}

static void make_type(struct cxx_type *t, struct cxx_type *kind, struct cxx_type *base)
{
	t->info[0] = kind ? vptr(kind) : 0;
	t->info[1] = at(t->name);
	t->info[2] = base ? at(base->info) : 0;
	t->vtable[1] = at(t->info);
}

static int open_self(void **state)
{
	make_type(&plain_kind, NULL, NULL);
	make_type(&single_kind, NULL, NULL);
	make_type(&node_type, &plain_kind, NULL);
	make_type(&mul_type, &single_kind, &node_type);
	make_type(&leaf_type, &single_kind, &node_type);
	make_type(&other_type, &plain_kind, NULL);
	make_type(&tensor_type, &plain_kind, NULL);
	self = proc__open(getpid());
	tensors = self ? pytensors__new(self) : NULL;
	return tensors ? 0 : -1;
}

static int close_self(void **state)
{
	pytensors__free(tensors);
	proc__free(self);
	return 0;
}

static void *chunk(size_t size)
{
	void *p = malloc(size);

	assert_non_null(p);
	memset(p, 0, malloc_usable_size(p));
	return p;
}

static void put(void *to, size_t offset, uint64_t v)
{
	memcpy((uint8_t *)to + offset, &v, sizeof(v));
}

static void *make_tensor(void)
{
	uint64_t *t = chunk(192);

	t[0] = vptr(&tensor_type);
	t[1] = 1 | 1ull << 32; /* reference counts: strong and weak */
	return t;
}

static void *make_node(struct cxx_type *type, size_t saved)
{
	void *n = chunk(BODY + saved * SAVED);

	put(n, 0, vptr(type));
	put(n, METADATA, at(n) + METADATA + 16);
	return n;
}

/* A std::vector of the pointers. */
static void *put_vector(void *to, size_t offset, void *const *v, size_t n)
{
	uint64_t *buf = chunk(24 * n);

	for (size_t i = 0; i < n; i++)
		buf[3 * i] = at(v[i]);
	put(to, offset, at(buf));
	put(to, offset + 8, at(buf + 3 * n));
	put(to, offset + 16, at(buf + 3 * n));
	return buf;
}

static void save(void *node, size_t i, const void *tensor, bool leaf, bool output)
{
	uint8_t *to = (uint8_t *)node + BODY + i * SAVED;

	put(to, 0, at(tensor));
	to[8 + FLAGS + 2] = !output || leaf;
	to[8 + FLAGS + 3] = leaf;
	to[8 + FLAGS + 4] = output;
}

static struct pygraph read_graph(const void *root)
{
	struct pygraph_opts o = { 0 };
	struct pygraph g;
	uint64_t roots[] = { at(root), at(root), 0, 12345, at(&o) };

	assert_int_equal(pygraph__read(tensors, roots, 5, &o, &g), 0);
	return g;
}

static bool has(const struct pygraph *g, const void *tensor)
{
	for (size_t i = 0; i < g->nsaved; i++)
		if (g->saved[i].impl == at(tensor))
			return true;
	return false;
}

static void test_finds(void **state)
{
	void *a = make_tensor(), *b = make_tensor(), *c = make_tensor(), *d = make_tensor();
	void *leaf = make_node(&leaf_type, 0), *second = make_node(&mul_type, 1),
	     *first = make_node(&mul_type, 1);
	void *next[] = { second, leaf }, *back[] = { first }, *held[] = { d };
	void *v[] = { put_vector(first, EDGES, next, 2), put_vector(second, EDGES, back, 1),
		      put_vector(second, EDGES + 24, held, 1) };
	bool holds[4];
	struct pygraph g;

	save(first, 0, a, false, false);
	save(second, 0, b, true, true);
	put(leaf, BODY - 8, at(c));
	g = read_graph(first);
	assert_int_equal(g.nodes, 3);
	assert_int_equal(g.nsaved, 4);
	assert_true(has(&g, a) && has(&g, b) && has(&g, c) && has(&g, d));
	for (size_t i = 0; i < g.nsaved; i++) {
		assert_int_equal(g.saved[i].leaf, g.saved[i].impl == at(c));
		assert_string_equal(g.classes[g.saved[i].cls],
				    g.saved[i].leaf ? "AccumulateGrad" : "MulBackward0");
	}
	assert_int_equal(pygraph__check(self, &g, holds), 0);
	assert_true(holds[0] && holds[1] && holds[2] && holds[3]);
	/* Backward releases it. */
	put(first, BODY, 0);
	assert_int_equal(pygraph__check(self, &g, holds), 0);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(holds[i], g.saved[i].impl != at(a));
	/* Its owners release it; its memory stays. */
	put(b, 8, 0);
	assert_int_equal(pygraph__check(self, &g, holds), 0);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(holds[i], g.saved[i].impl != at(a) && g.saved[i].impl != at(b));
	pygraph__free(&g);
	for (size_t i = 0; i < 3; i++)
		free(v[i]);
	free(a), free(b), free(c), free(d), free(leaf), free(first), free(second);
}

/* A chunk freed and merged into the previous one looks unchanged, but the next chunk's header
 * differs. */
static void test_freed(void **state)
{
	enum { SIZE = 4096 + BODY + SAVED }; /* larger than what malloc caches */
	uint8_t *place = chunk(3 * SIZE), *node = place + 32;
	void *tensor = make_tensor();
	struct pygraph g;
	bool holds;

	put(node - 8, 0, SIZE | 1);
	put(node, SIZE - 8, 64 | 1);
	put(node, 0, vptr(&mul_type));
	save(node, 0, tensor, false, false);
	g = read_graph(node);
	assert_int_equal(g.nsaved, 1);
	assert_int_equal(pygraph__check(self, &g, &holds), 0);
	assert_true(holds);
	put(node, SIZE - 8, 64);
	assert_int_equal(pygraph__check(self, &g, &holds), 0);
	assert_false(holds);
	pygraph__free(&g);
	g = read_graph(node);
	assert_int_equal(g.nsaved, 0);
	pygraph__free(&g);
	free(place), free(tensor);
}

/* None of these belongs to the node. */
static void test_lookalikes(void **state)
{
	void *node = make_node(&mul_type, 2), *neighbour = make_node(&mul_type, 1),
	     *other = make_node(&other_type, 1);
	void *beside = make_tensor(), *dead = make_tensor(), *slack = make_tensor(),
	     *far = make_tensor(), *earlier = make_tensor();
	void *ends[] = { NULL, earlier };
	uint64_t *array = chunk(256), *vector = put_vector(node, EDGES + 104, ends, 2);
	struct pygraph g;

	save(neighbour, 0, beside, false, false);
	save(other, 0, beside, false, false);
	save(node, 0, dead, false, false);
	put(dead, 8, 0); /* a node without owners */
	put(node, malloc_usable_size(node) - 8, at(slack));
	/* Left by a node that was there before: in unused room for the metadata of inputs, and
	 * after the end of a vector. */
	put(node, BODY - 32, at(earlier));
	put(node, EDGES + 112, at(vector + 3));
	/* Looks like a vector: in a chunk of another size; ending before its start; without end. */
	array[0] = at(far);
	put(node, EDGES, at(array));
	put(node, EDGES + 8, at(array + 4));
	put(node, EDGES + 16, at(array + 4));
	put(node, EDGES + 32, at(array));
	put(node, EDGES + 40, at(array) - 8);
	put(node, EDGES + 48, at(array) + 8);
	put(node, EDGES + 64, at(array));
	put(node, EDGES + 72, UINT64_MAX - 7);
	put(node, EDGES + 80, UINT64_MAX - 7);
	put(node, EDGES + 96, at(other)); /* an object that is not a node */
	g = read_graph(node);
	assert_int_equal(g.nodes, 1);
	assert_int_equal(g.nsaved, 0);
	pygraph__free(&g);
	free(node), free(neighbour), free(other), free(beside), free(dead), free(slack), free(far),
		free(earlier), free(array), free(vector);
}

/* Memory that is not from glibc's malloc has an unknown size. */
static void test_no_chunk(void **state)
{
	static uint64_t place[2 + (BODY + SAVED) / 8] __attribute__((aligned(16)));
	void *tensor = make_tensor();
	struct pygraph g;

	for (uint64_t size = 0; size < 2; size++) {
		place[1] = size ? 1ull << 40 | 1 : 0;
		place[2] = vptr(&mul_type);
		save(&place[2], 0, tensor, false, false);
		g = read_graph(&place[2]);
		assert_int_equal(g.nsaved, 0);
		pygraph__free(&g);
	}
	free(tensor);
}

static int refuse(void *ctx)
{
	return ++*(int *)ctx > 2 ? -ECANCELED : 0;
}

/* A very long chain, until the callback ends it. */
static void test_ended(void **state)
{
	enum { N = 10 };
	void *nodes[N], *edges[N] = { NULL };
	int asked = 0;
	struct pygraph_opts o = { .go_on = refuse, .ctx = &asked };
	uint64_t root;
	struct pygraph g;

	for (size_t i = 0; i < N; i++)
		nodes[i] = make_node(&mul_type, 0);
	for (size_t i = 0; i < N; i++)
		edges[i] = put_vector(nodes[i], EDGES, &nodes[(i + 1) % N], 1);
	root = at(nodes[0]);
	assert_int_equal(pygraph__read(tensors, &root, 1, &o, &g), -ECANCELED);
	assert_null(g.saved);
	g = read_graph(nodes[0]);
	assert_int_equal(g.nodes, N);
	pygraph__free(&g);
	for (size_t i = 0; i < N; i++)
		free(nodes[i]), free(edges[i]);
}

static void test_flags(void **state)
{
	enum { N = 8 };
	struct pygraph_saved saved[N] = { 0 };
	struct pygraph g = { .saved = saved, .nsaved = N };
	bool grad_fn[N] = { 0 }, known[N];

	for (size_t i = 0; i < N; i++) {
		bool output = i < 4, leaf = i % 2;

		memset(saved[i].after, 0, FLAGS);
		memset(saved[i].after + FLAGS + 5, 0xee, PYGRAPH_AFTER - FLAGS - 5);
		saved[i].has_after = true;
		saved[i].after[FLAGS + 2] = !output || leaf;
		saved[i].after[FLAGS + 3] = leaf;
		saved[i].after[FLAGS + 4] = output;
		grad_fn[i] = !output && !leaf;
		known[i] = true;
	}
	assert_int_equal(pygraph__find_flags(&g, grad_fn, known), FLAGS);
	assert_int_equal(pygraph__use(&saved[0], FLAGS, true, false), PYGRAPH_MADE);
	assert_int_equal(pygraph__use(&saved[4], FLAGS, true, true), PYGRAPH_MADE);
	assert_int_equal(pygraph__use(&saved[5], FLAGS, true, false), PYGRAPH_SAVED);
	/* a leaf with a node */
	assert_int_equal(pygraph__use(&saved[5], FLAGS, true, true), PYGRAPH_HELD);
	assert_int_equal(pygraph__use(&saved[4], 0, true, true), PYGRAPH_HELD);
	/* Without outputs any zeros would match. */
	g.saved += 4;
	g.nsaved -= 4;
	assert_int_equal(pygraph__find_flags(&g, grad_fn + 4, known), 0);
	/* Most of the objects are of other classes. */
	g.saved = saved;
	g.nsaved = N;
	for (size_t i = 2; i < 6; i++)
		saved[i].after[FLAGS] = 1;
	assert_int_equal(pygraph__find_flags(&g, grad_fn, known), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_finds), cmocka_unit_test(test_lookalikes),
		cmocka_unit_test(test_freed), cmocka_unit_test(test_no_chunk),
		cmocka_unit_test(test_ended), cmocka_unit_test(test_flags),
	};

#ifdef __SANITIZE_ADDRESS__
	puts("skipped: the sanitizer's malloc has no chunks as glibc's has them");
	return 77;
#endif
	return cmocka_run_group_tests(tests, open_self, close_self);
}
