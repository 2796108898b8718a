/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: the readers of PyTorch's objects, on tensors, autograd nodes and lists built in
 * this process. The first byte chooses layout and reader. Each further 8 bytes overwrite a word.
 */
#include <stdlib.h>
#include <unistd.h>

#include "fake_process.h"
#include "fake_tensors.h"
#include "inspect/proc.h"
#include "inspect/process/memcache.h"
#include "inspect/pytensor.h"
#include "inspect/python/pygc.h"
#include "inspect/torch/pygraph.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NODES 8
#define NODE_BODY 480 /* layout of tests/unit/torch/test_graph.c */
#define NODE_EDGES 96
#define NODE_SAVED 112
#define OBJECTS 64

/* A chunk of glibc's malloc, between its size and the next chunk's size. */
struct chunk {
	uint64_t before, size;
	uint64_t node[(NODE_BODY + 2 * NODE_SAVED) / 8];
};

struct vector {
	uint64_t before, size;
	uint64_t at[6];
};

struct object {
	uint64_t next, prev, refs, type;
};

static struct {
	struct fake fakes[N_FAKES], grads[N_FAKES];
	struct chunk nodes[NODES];
	struct vector vectors[NODES], end;
	struct object objects[OBJECTS], heads[4];
	struct cxx_type types[8];
} world;

static struct proc *self;

/* The world and the types of the fake objects. */
static size_t fake_memory(void *dst, size_t size, uint64_t addr)
{
	const struct {
		const void *p;
		size_t size;
	} parts[] = { { &world, sizeof(world) },
		      { &tensor_type, sizeof(tensor_type) },
		      { &storage_type, sizeof(storage_type) },
		      { &meta_type, sizeof(meta_type) },
		      { &string_type, sizeof(string_type) } };

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		uint64_t off = addr - at(parts[i].p);

		if (off >= parts[i].size)
			continue;
		if (size > parts[i].size - off)
			size = parts[i].size - off;
		memcpy(dst, (const uint8_t *)parts[i].p + off, size);
		return size;
	}
	return 0;
}

static void name_type(size_t i, const char *name, uint64_t kind)
{
	struct cxx_type *t = &world.types[i];

	memset(t, 0, sizeof(*t));
	strncpy(t->name, name, sizeof(t->name) - 1);
	t->info[0] = kind;
	vptr(t);
}

static void make_nodes(void)
{
	uint64_t kind;

	name_type(0, "N10__cxxabiv117__class_type_infoE", 0);
	kind = vptr(&world.types[0]);
	name_type(1, "N5torch8autograd4NodeE", kind);
	name_type(2, "N5torch8autograd9generated12MulBackward0E", kind);
	name_type(3, "N5torch8autograd14AccumulateGradE", kind);
	for (size_t i = 0; i < NODES; i++) {
		struct chunk *c = &world.nodes[i];
		struct vector *v = &world.vectors[i];

		memset(c, 0, sizeof(*c));
		c->size = sizeof(*c) | 1;
		put(c->node, 0, vptr(&world.types[i == NODES - 1 ? 3 : 2]));
		put(c->node, NODE_BODY, at(world.fakes[i].impl));
		put(c->node, NODE_EDGES, at(v->at));
		put(c->node, NODE_EDGES + 8, at(v->at + 6));
		put(c->node, NODE_EDGES + 16, at(v->at + 6));
		memset(v, 0, sizeof(*v));
		v->size = sizeof(*v) | 1;
		v->at[0] = at(world.nodes[(i + 1) % NODES].node);
		v->at[3] = at(world.nodes[(i * 3) % NODES].node);
		put(world.fakes[i].impl, 8, 1 | 1ull << 32); /* reference counts */
	}
	world.end.size = sizeof(world.end) | 1;
}

static void make_lists(void)
{
	for (size_t i = 0; i < 4; i++)
		world.heads[i].next = world.heads[i].prev = at(&world.heads[i]);
	for (size_t i = 0; i < OBJECTS; i++) {
		world.objects[i].next = at(i + 1 < OBJECTS ? &world.objects[i + 1]
							   : &world.heads[2]);
		world.objects[i].prev = at(i ? &world.objects[i - 1] : &world.heads[2]);
		world.objects[i].type = 8;
	}
	world.heads[2].next = at(world.objects);
	world.heads[2].prev = at(&world.objects[OBJECTS - 1]);
}

static void damage(const uint8_t *d)
{
	size_t word = (d[0] | (size_t)d[1] << 8 | (size_t)(d[2] & 3) << 16) % (sizeof(world) / 8);
	uint64_t v = ((uint64_t)d[4] | (uint64_t)d[5] << 8 | (uint64_t)d[6] << 16) << (d[7] & 0x3f);

	if (d[3] & 1)
		v = at(&world) + v % sizeof(world);
	else if (d[3] & 2)
		memcpy(&v, (uint8_t *)&world + v % (sizeof(world) / 8) * 8, 8);
	memcpy((uint8_t *)&world + word * 8, &v, 8);
}

static void read_tensors(struct pytensors *t)
{
	struct pytensor v[N_FAKES] = { { 0 } };

	for (size_t i = 0; i < N_FAKES; i++)
		v[i].obj = at(world.fakes[i].obj);
	if (pytensors__read(t, v, N_FAKES))
		abort();
	for (size_t i = 0; i < N_FAKES; i++) {
		if (v[i].state > PYTENSOR_BAD)
			abort();
		/* Checks a good tensor: its elements are within its storage. */
		if (v[i].state == PYTENSOR_OK && (!v[i].addr || v[i].addr + v[i].size < v[i].addr))
			abort();
	}
}

/* Reads copies of the tensors, as at an out of memory. */
static void read_copies(struct pytensors *t)
{
	uint64_t shape[PYTENSOR_DIMS], product;
	struct mt_rec_tensor copy;
	struct pytensor v;
	bool known;

	for (size_t i = 0; i < N_FAKES; i++) {
		copy = copy_fake(&world.fakes[i]);
		if (pytensors__of_copy(t, &copy, &v, shape, &known))
			continue;
		if ((v.state != PYTENSOR_OK && v.state != PYTENSOR_NO_STORAGE) || v.ndim > 64)
			abort();
		product = 1;
		for (size_t k = 0; known && v.ndim <= PYTENSOR_DIMS && k < v.ndim; k++)
			product *= shape[k];
		if (known && v.ndim <= PYTENSOR_DIMS && product != v.numel)
			abort();
	}
}

static void read_graph(struct pytensors *t)
{
	uint64_t roots[] = { at(world.nodes[0].node), at(world.nodes[3].node), at(world.objects) };
	struct pygraph_opts o = { 0 };
	struct pygraph g;
	bool *holds;
	char name[64];

	if (pygraph__read(t, roots, 3, &o, &g))
		return;
	holds = calloc(g.nsaved + 1, sizeof(*holds));
	if (holds)
		(void)pygraph__check(self, &g, holds);
	if (holds)
		(void)pygraph__find_flags(&g, holds, holds);
	for (size_t i = 0; i < g.nsaved; i++) {
		if (g.saved[i].cls >= g.nclasses ||
		    !memchr(g.classes[g.saved[i].cls], '\0', PYGRAPH_CLASS))
			abort();
	}
	free(holds);
	pygraph__free(&g);
	for (size_t i = 0; i < NODES; i++) {
		if (!autograd_node__class(self, world.nodes[i].node[0], name, sizeof(name)) &&
		    !memchr(name, '\0', sizeof(name)))
			abort();
	}
}

static int on_object(uint64_t obj, uint64_t type, void *ctx)
{
	return ++*(size_t *)ctx > 10000 ? -E2BIG : 0;
}

static void read_lists(void)
{
	struct pygc gc = { { at(&world.heads[0]), at(&world.heads[1]), at(&world.heads[2]),
			     at(&world.heads[3]) } };
	struct memcache *c = memcache__new(self);
	struct pygc_stats stats;
	size_t n = 0;

	if (c && !pygc__walk(&gc, c, UINT64_MAX, on_object, &n, &stats) && stats.objects != n)
		abort();
	memcache__free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct layout *l = &layouts[size ? data[0] % 5 : 0];
	uint64_t objs[N_FAKES];
	struct pytensors *t;
	const char *why;
	bool early;

	if (size < 2)
		return 0;
	if (!self)
		self = proc__open(getpid());
	early = data[0] & 0x80;
	t = pytensors__new(self);
	for (size_t i = 0; i < N_FAKES; i++) {
		make_fake(l, &world.fakes[i], i, i % 2 ? &world.grads[i] : NULL);
		objs[i] = at(world.fakes[i].obj);
	}
	make_nodes();
	make_lists();
	for (size_t i = 2; early && i + 8 <= size; i += 8)
		damage(data + i);
	if (pytensors__calibrate(t, objs, N_FAKES, &why) && !early)
		abort();
	for (size_t i = 2; !early && i + 8 <= size; i += 8)
		damage(data + i);
	if (pytensors__calibrated(t) && data[1] % 3 == 0)
		read_tensors(t);
	read_copies(t);
	if (data[1] % 3 == 1)
		read_graph(t);
	if (data[1] % 3 == 2)
		read_lists();
	pytensors__free(t);
	return 0;
}
