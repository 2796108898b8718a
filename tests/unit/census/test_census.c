/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The census's readers on simulated memory in this process: tensors in the layouts of four PyTorch
 * versions, lists of objects, both also damaged. tests/e2e/test_dump.py covers real ones.
 */
#include "unit/cmocka.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "fake_tensors.h"
#include "inspect/census.h"
#include "inspect/census/internal.h"
#include "inspect/proc.h"
#include "inspect/process/memcache.h"
#include "inspect/pytensor.h"
#include "inspect/python/pygc.h"

static struct proc *self;

static int open_self(void **state)
{
	self = proc__open(getpid());
	return self ? 0 : -1;
}

static int close_self(void **state)
{
	proc__free(self);
	return 0;
}

/* ---- tensors ---- */

static struct pytensors *make_world(const struct layout *l)
{
	struct pytensors *t = pytensors__new(self);
	uint64_t objs[N_FAKES];
	const char *why;

	assert_non_null(t);
	for (size_t i = 0; i < N_FAKES; i++) {
		make_fake(l, &fakes[i], i, i % 2 ? &grads[i] : NULL);
		objs[i] = at(fakes[i].obj);
	}
	assert_false(pytensors__calibrated(t));
	if (pytensors__calibrate(t, objs, N_FAKES, &why))
		fail_msg("torch %s: %s", l->versions, why);
	assert_true(pytensors__calibrated(t));
	assert_true(pytensors__know_grad(t));
	return t;
}

static void test_layouts(void **state)
{
	for (size_t k = 0; k < sizeof(layouts) / sizeof(layouts[0]); k++) {
		struct pytensors *t = make_world(&layouts[k]);
		struct pytensor v[N_FAKES] = { { 0 } };

		for (size_t i = 0; i < N_FAKES; i++)
			v[i].obj = at(fakes[i].obj);
		assert_int_equal(pytensors__read(t, v, N_FAKES), 0);
		for (size_t i = 0; i < N_FAKES; i++) {
			assert_int_equal(v[i].state, PYTENSOR_OK);
			assert_int_equal(v[i].impl, at(fakes[i].impl));
			assert_int_equal(v[i].pyobj, at(fakes[i].obj));
			assert_int_equal(v[i].addr, 0x7f0000000000 + at(&fakes[i]) % 0x10000000);
			assert_int_equal(v[i].size, (i + 2) * (3 * i + 5) * 4);
			assert_int_equal(v[i].ndim, 2);
			assert_int_equal(pytensors__shape(t, v[i].shape)[0], i + 2);
			assert_int_equal(pytensors__shape(t, v[i].shape)[1], 3 * i + 5);
			assert_int_equal(pytensors__shape(t, v[i].shape)[2], 0);
			assert_int_equal(v[i].dtype, 6);
			assert_int_equal(v[i].device_type, 0);
			assert_int_equal(v[i].device_index, 0);
			assert_false(v[i].context);
			assert_int_equal(v[i].grad, i % 2 && i % 3 ? at(grads[i].impl) : 0);
			assert_int_equal(pytensor__is_leaf(&v[i]), i % 2);
		}
		/* With a node that made it, a tensor is no leaf. */
		put(fakes[1].meta, 16 + layouts[k].string, at(&grads[1]));
		assert_int_equal(pytensors__read(t, v, N_FAKES), 0);
		assert_int_equal(v[1].grad_fn, at(&grads[1]));
		assert_false(pytensor__is_leaf(&v[1]) || !pytensor__is_leaf(&v[3]));
		/* A TensorImpl without a Python object, such as a gradient. */
		v[0] = (struct pytensor){ .impl = at(grads[1].impl) };
		assert_int_equal(pytensors__read(t, v, 1), 0);
		assert_int_equal(v[0].state, PYTENSOR_OK);
		assert_int_equal(v[0].size, 3 * 8 * 4);
		/* Its shape has a number already, and shapes are forgotten on demand. */
		assert_int_equal(v[0].shape, v[1].shape);
		pytensors__forget_shapes(t);
		assert_int_equal(pytensors__read(t, &v[2], 1), 0);
		assert_int_equal(v[2].shape, 1);
		assert_int_equal(pytensors__shape(t, v[2].shape)[0], 4);
		pytensors__free(t);
	}
}

/* A program may have one tensor: enough if its shape and size fit at one place only. */
static void test_few_tensors(void **state)
{
	for (size_t k = 0; k < sizeof(layouts) / sizeof(layouts[0]); k++)
		for (size_t n = 1; n <= 3; n++) {
			struct pytensors *t = pytensors__new(self);
			struct pytensor v = { .obj = at(fakes[1].obj) };
			uint64_t objs[3];
			const char *why;

			for (size_t i = 0; i < n; i++) {
				make_fake(&layouts[k], &fakes[i], 10 + i, NULL);
				objs[i] = at(fakes[i].obj);
			}
			v.obj = objs[n - 1];
			if (pytensors__calibrate(t, objs, n, &why))
				fail_msg("torch %s, %zu tensors: %s", layouts[k].versions, n, why);
			assert_int_equal(pytensors__read(t, &v, 1), 0);
			assert_int_equal(v.state, PYTENSOR_OK);
			assert_int_equal(v.addr, 0x7f0000000000 + at(&fakes[n - 1]) % 0x10000000);
			assert_int_equal(v.size, (11 + n) * (3 * (9 + n) + 5) * 4);
			assert_int_equal(v.ndim, 2);
			assert_false(pytensors__know_grad(t));
			pytensors__free(t);
		}
}

/* All tensors have 256 bytes, and StorageImpl's flags, after its size, are 256 as a word. */
static void test_equal_tensors(void **state)
{
	for (size_t k = 0; k < sizeof(layouts) / sizeof(layouts[0]); k++) {
		struct pytensors *t = pytensors__new(self);
		struct pytensor v = { .obj = at(fakes[1].obj) };
		uint64_t objs[N_FAKES];
		const char *why;

		for (size_t i = 0; i < N_FAKES; i++) {
			make_fake(&layouts[k], &fakes[i], 0, NULL);
			put_impl(&layouts[k], &fakes[i], 8, 8);
			put(fakes[i].storage, layouts[k].data + 8, at(&tensor_type));
			put(fakes[i].storage, layouts[k].data + 40, 256);
			objs[i] = at(fakes[i].obj);
		}
		if (pytensors__calibrate(t, objs, N_FAKES, &why))
			fail_msg("torch %s: %s", layouts[k].versions, why);
		assert_int_equal(pytensors__read(t, &v, 1), 0);
		assert_int_equal(v.state, PYTENSOR_OK);
		assert_int_equal(v.addr, 0x7f0000000000 + at(&fakes[1]) % 0x10000000);
		assert_int_equal(v.size, 256);
		pytensors__free(t);
	}
}

/* Makes N_FAKES tensors. Those whose bit in gone is set have ended. */
static void make_some(const struct layout *l, uint64_t gone, uint64_t *objs)
{
	for (size_t i = 0; i < N_FAKES; i++) {
		make_fake(l, &fakes[i], i, i % 2 ? &grads[i] : NULL);
		if (gone >> i & 1)
			put(fakes[i].obj, l->cdata, 0);
		objs[i] = at(fakes[i].obj);
	}
}

static void can_read(struct pytensors *t, size_t i)
{
	struct pytensor v = { .obj = at(fakes[i].obj) };

	assert_int_equal(pytensors__read(t, &v, 1), 0);
	assert_int_equal(v.state, PYTENSOR_OK);
	assert_int_equal(v.size, (i + 2) * (3 * i + 5) * 4);
}

/* Temporary tensors end while the layout is searched: those that stay are enough. */
static void test_vanished_tensors(void **state)
{
	uint64_t objs[N_FAKES];
	const char *why;

	for (size_t k = 0; k < sizeof(layouts) / sizeof(layouts[0]); k++)
		for (size_t stay = 1; stay < N_FAKES; stay++) {
			struct pytensors *t = pytensors__new(self);

			make_some(&layouts[k], UINT64_MAX << stay, objs);
			if (pytensors__calibrate(t, objs, N_FAKES, &why))
				fail_msg("torch %s, %zu tensors: %s", layouts[k].versions, stay,
					 why);
			can_read(t, stay - 1);
			assert_true(stay < 3 || pytensors__know_grad(t));
			pytensors__free(t);
		}
}

/* Storages of the meta device have no memory. A fake tensor itself is on another device. */
static void make_meta(const struct layout *l, struct fake *f, bool fake)
{
	uint8_t *device = (uint8_t *)f->impl + l->sizes + 88 + 18 + l->flag_first;

	device[0] = fake ? 1 : 14;
	device[1] = fake ? 0 : 0xff;
	put(f->storage, l->data, 0);
	put(f->storage, l->data + 16, 0);
	put(f->storage, l->data + 24, 0xff00 | 14);
}

static void test_meta_tensors(void **state)
{
	uint64_t objs[N_FAKES];
	const char *why;

	for (size_t k = 0; k < sizeof(layouts) / sizeof(layouts[0]); k++)
		for (size_t real = 1; real < N_FAKES; real++) {
			struct pytensors *t = pytensors__new(self);
			struct pytensor v[2] = { { .obj = at(fakes[real].obj) },
						 { .obj = at(fakes[N_FAKES - 1].obj) } };

			make_some(&layouts[k], 0, objs);
			for (size_t i = real; i < N_FAKES; i++)
				make_meta(&layouts[k], &fakes[i], i % 2);
			if (pytensors__calibrate(t, objs, N_FAKES, &why))
				fail_msg("torch %s, %zu tensors: %s", layouts[k].versions, real,
					 why);
			can_read(t, real - 1);
			assert_int_equal(pytensors__read(t, v, 2), 0);
			assert_int_equal(v[0].state, PYTENSOR_NO_STORAGE);
			assert_int_equal(v[1].state, PYTENSOR_NO_STORAGE);
			pytensors__free(t);
		}
}

/* Numbers have no shape. They suffice in the layout of a released version. */
static void test_numbers(void **state)
{
	for (size_t k = 0; k < sizeof(layouts) / sizeof(layouts[0]); k++) {
		struct pytensors *t = pytensors__new(self);
		uint64_t obj = at(fakes[0].obj);
		const char *why;

		make_fake(&layouts[k], &fakes[0], 10, NULL);
		put_impl(&layouts[k], &fakes[0], 1, 1);
		if (pytensors__calibrate(t, &obj, 1, &why))
			fail_msg("torch %s: %s", layouts[k].versions, why);
		pytensors__free(t);
	}
}

/* A single number has no shape, and many words are as large as its size. */
static void test_too_few_tensors(void **state)
{
	struct layout unknown = layouts[3];
	struct pytensors *t = pytensors__new(self);
	uint64_t obj = at(fakes[0].obj);
	const char *why = NULL;

	unknown.pyobj = 32;
	make_fake(&unknown, &fakes[0], 10, NULL);
	put_impl(&unknown, &fakes[0], 1, 1);
	assert_int_equal(pytensors__calibrate(t, &obj, 1, &why), -EAGAIN);
	assert_non_null(strstr(why, "too few"));
	assert_false(pytensors__calibrated(t));
	/* Two tensors that differ. */
	make_fake(&layouts[3], &fakes[0], 10, NULL);
	make_fake(&layouts[0], &fakes[1], 11, NULL);
	assert_int_not_equal(
		pytensors__calibrate(t, (uint64_t[]){ obj, at(fakes[1].obj) }, 2, &why), 0);
	pytensors__free(t);
}

static uint8_t state_of(struct pytensors *t, size_t i)
{
	struct pytensor v = { .obj = at(fakes[i].obj) };

	assert_int_equal(pytensors__read(t, &v, 1), 0);
	return v.state;
}

static void test_damaged_tensors(void **state)
{
	const struct layout *l = &layouts[2];
	struct pytensors *t = make_world(l);
	uint8_t *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
	struct pytensor wild = { .obj = 0x1234567000 };

	assert_true(page != MAP_FAILED);
	assert_int_equal(mprotect(page + 4096, 4096, PROT_NONE), 0);
	assert_int_equal(pytensors__read(t, &wild, 1), 0);
	assert_int_equal(wild.state, PYTENSOR_BAD);
	put(fakes[0].obj, l->cdata, 0x10); /* unmapped */
	assert_int_equal(state_of(t, 0), PYTENSOR_BAD);
	put(fakes[1].obj, l->cdata, at(page) + 4096 - 16); /* a TensorImpl whose end is unmapped */
	assert_int_equal(state_of(t, 1), PYTENSOR_BAD);
	put(fakes[2].impl, 0, at(page)); /* an invalid vtable */
	assert_int_equal(state_of(t, 2), PYTENSOR_BAD);
	put(fakes[3].impl, l->sizes, 1ull << 60); /* too many dimensions */
	assert_int_equal(state_of(t, 3), PYTENSOR_BAD);
	put(fakes[4].impl, l->sizes + 8, UINT64_MAX / 2); /* sizes that overflow */
	assert_int_equal(state_of(t, 4), PYTENSOR_BAD);
	put(fakes[5].impl, l->sizes + 96, 7); /* not the product of the sizes */
	assert_int_equal(state_of(t, 5), PYTENSOR_BAD);
	put(fakes[6].storage, l->data + 32, 8); /* smaller than the tensor */
	assert_int_equal(state_of(t, 6), PYTENSOR_BAD);
	put(fakes[7].storage, l->data + 24, 1); /* a storage on another device */
	assert_int_equal(state_of(t, 7), PYTENSOR_BAD);
	put(fakes[8].storage, 0, vptr(&tensor_type)); /* a TensorImpl in place of the storage */
	assert_int_equal(state_of(t, 8), PYTENSOR_BAD);
	put(fakes[9].storage, l->data, 0); /* NULL, as in wrapper tensors */
	assert_int_equal(state_of(t, 9), PYTENSOR_NO_STORAGE);
	put(fakes[10].impl, l->storage, 0);
	assert_int_equal(state_of(t, 10), PYTENSOR_NO_STORAGE);
	put(fakes[11].impl, l->meta, 0x18); /* the tensor is valid without it */
	assert_int_equal(state_of(t, 11), PYTENSOR_OK);
	put(fakes[12].impl, l->sizes + 48, UINT64_MAX); /* strides that lead outside */
	assert_int_equal(state_of(t, 12), PYTENSOR_BAD);
	assert_int_equal(state_of(t, 13), PYTENSOR_OK);
	munmap(page, 8192);
	pytensors__free(t);
}

/* Gradients and activations come and go in each step; parameters and the like make a difference. */
static void test_lasting(void **state)
{
	struct census_tensor v[] = {
		{ .addr = 0x1000, .size = 512, .kind = CENSUS_PARAMETER },
		{ .addr = 0x2000, .size = 512, .kind = CENSUS_GRADIENT },
		{ .addr = 0x3000, .size = 512, .kind = CENSUS_OTHER },
		{ .addr = 0x4000, .size = 512, .kind = CENSUS_ACTIVATION },
		{ .addr = 0x5000, .size = 512, .kind = CENSUS_OPTIMIZER },
		{ .addr = 0x6000, .size = 512, .kind = CENSUS_KV_CACHE },
	};
	struct census_state s = { .tensors = v, .ntensors = sizeof(v) / sizeof(v[0]) };
	struct census_state brief = { .tensors = v + 1, .ntensors = 3 }, none = { 0 };
	uint64_t lasting = census_state__hash_lasting(&s);

	(void)state;
	assert_int_equal(census_state__hash_lasting(&none), 0);
	assert_int_equal(census_state__hash_lasting(&brief), 0);
	assert_int_not_equal(lasting, 0);
	for (size_t i = 1; i <= 3; i++)
		v[i].addr += 0x100;
	assert_int_equal(census_state__hash_lasting(&s), lasting);
	for (size_t i = 0; i < s.ntensors; i += i ? 1 : 4) {
		v[i].addr += 0x100;
		assert_int_not_equal(census_state__hash_lasting(&s), lasting);
		v[i].addr -= 0x100;
		v[i].size++;
		assert_int_not_equal(census_state__hash_lasting(&s), lasting);
		v[i].size--;
	}
	s.ntensors--;
	assert_int_not_equal(census_state__hash_lasting(&s), lasting);
}

static void test_nothing_to_find(void **state)
{
	struct pytensors *t = pytensors__new(self);
	static uint64_t junk[64][32];
	uint64_t objs[64];
	const char *why = NULL;

	for (size_t i = 0; i < 64; i++) {
		objs[i] = at(junk[i]);
		for (size_t k = 0; k < 32; k++)
			junk[i][k] = at(junk[(i * 7 + k) % 64]);
	}
	assert_int_equal(pytensors__calibrate(t, objs, 0, &why), -EAGAIN);
	assert_int_equal(pytensors__calibrate(t, objs, 64, &why), -EAGAIN);
	assert_non_null(why);
	assert_false(pytensors__calibrated(t));
	pytensors__free(t);
}

/* ---- lists of objects ---- */

#define N_OBJECTS 40000

struct object {
	uint64_t next, prev, refs, type;
};

static struct object *objects;
static struct {
	uint64_t next, prev, counts;
} heads[3], permanent;
static uint64_t told, told_types;

static int on_object(uint64_t obj, uint64_t type, void *ctx)
{
	assert_true(obj >= at(objects) + 16);
	told++;
	told_types += type;
	return 0;
}

static struct pygc make_lists(void)
{
	struct pygc gc = {
		.head = { at(&heads[0]), at(&heads[1]), at(&heads[2]), at(&permanent) },
	};

	for (size_t i = 0; i < 3; i++)
		heads[i].next = heads[i].prev = at(&heads[i]);
	permanent.next = permanent.prev = at(&permanent);
	for (size_t i = 0; i < N_OBJECTS; i++) {
		objects[i].next = i + 1 < N_OBJECTS ? at(&objects[i + 1]) : at(&heads[2]);
		/* flags of the garbage collector */
		objects[i].prev = (i ? at(&objects[i - 1]) : at(&heads[2])) | 2;
		objects[i].type = 8;
	}
	heads[2].next = at(&objects[0]);
	heads[2].prev = at(&objects[N_OBJECTS - 1]);
	told = told_types = 0;
	return gc;
}

static int walk(const struct pygc *gc, uint64_t deadline, struct pygc_stats *s)
{
	struct memcache *c = memcache__new(self);
	int err;

	assert_non_null(c);
	err = pygc__walk(gc, c, deadline, on_object, NULL, s);
	memcache__free(c);
	return err;
}

static void test_lists(void **state)
{
	struct pygc gc = make_lists();
	struct pygc_stats s;

	assert_int_equal(walk(&gc, UINT64_MAX, &s), 0);
	assert_int_equal(told, N_OBJECTS);
	assert_int_equal(told_types, 8 * N_OBJECTS);
	assert_int_equal(s.objects, N_OBJECTS);
	assert_false(s.torn);
	assert_int_equal(walk(&gc, 1, &s), -ETIME);
}

/* The collector's list heads at an offset of 8 * n, and of 8 * n + 4 as in Debian 13's Python
 * 3.13. */
static void test_lists_are_found_at_both_alignments(void **state)
{
	struct pygc gc;

	for (size_t shift = 0; shift <= 4; shift += 4) {
		uint8_t *interp = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		uint64_t first = at(interp) + 7424 - shift, pointer = at(interp) + 7496;

		assert_true(interp != MAP_FAILED);
		for (size_t i = 0; i < 4; i++) {
			uint64_t head = i < 3 ? first + 24 * i : pointer + 8,
				 link[2] = { head, head };

			memcpy(interp + (head - at(interp)), link, sizeof(link));
		}
		memcpy(interp + 7496, &first, sizeof(first));
		assert_int_equal(pygc__search(self, at(interp), true, &gc), 0);
		assert_int_equal(gc.head[0], first);
		assert_int_equal(gc.head[2], first + 48);
		assert_int_equal(gc.head[3], pointer + 8);
		munmap(interp, 1 << 20);
	}
}

#define POINTER_AT 200 /* of 3.14.5 and newer, from the first list on */
#define FLAG_AT 168    /* of 3.14.0 to 3.14.4 */

/* The four lists in a row of 3.14, with a pointer to the first or without. */
static void test_lists_in_a_row(void **state)
{
	uint8_t *interp = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			       -1, 0);
	/* The second place: across the end of a read. */
	const size_t places[] = { 7424, 8192 - 48 };
	struct pygc gc;

	assert_true(interp != MAP_FAILED);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		uint64_t first = at(interp) + places[i];

		memset(interp, 0, 1 << 20);
		assert_int_equal(pygc__search(self, at(interp), true, &gc), -ENOENT);
		for (uint64_t head = first; head < first + 96; head += 24) {
			uint64_t link[2] = { head, head };

			memcpy(interp + (head - at(interp)), link, sizeof(link));
		}
		assert_int_equal(pygc__search(self, at(interp), false, &gc), -ENOENT);
		assert_int_equal(pygc__search(self, at(interp), true, &gc), 0);
		assert_int_equal(gc.head[0], first);
		assert_int_equal(gc.head[3], first + 72);
		assert_int_equal(gc.collecting, first + FLAG_AT);

		memcpy(interp + places[i] + POINTER_AT, &first, sizeof(first));
		assert_int_equal(pygc__search(self, at(interp), true, &gc), 0);
		assert_int_equal(gc.head[0], first);
		assert_int_equal(gc.head[3], first + 72);
		assert_int_equal(gc.collecting, 0);

		memset(interp + places[i] + 48, 0, 16); /* the oldest is no list */
		assert_int_equal(pygc__search(self, at(interp), true, &gc), -ENOENT);
	}
	munmap(interp, 1 << 20);
}

/* At the first object, in the first old list, the program moves those of the second before it. */
static int move_objects(uint64_t obj, uint64_t type, void *ctx)
{
	if (++*(uint64_t *)ctx > 1)
		return 0;
	heads[1].next = heads[2].next;
	objects[1].prev = at(&heads[1]) | 2;
	objects[N_OBJECTS - 1].next = at(&objects[0]);
	objects[0].prev = at(&objects[N_OBJECTS - 1]) | 2;
	heads[2].next = heads[2].prev = at(&heads[2]);
	return 0;
}

static void test_increments(void **state)
{
	struct pygc gc = make_lists();
	struct memcache *c = memcache__new(self);
	struct pygc_stats s;
	uint32_t running = 1;
	uint64_t n = 0;

	gc.collecting = at(&running);
	assert_int_equal(walk(&gc, UINT64_MAX, &s), 0);
	assert_int_equal(told, N_OBJECTS);
	assert_true(s.torn); /* an increment has some */

	running = 0;
	assert_int_equal(walk(&gc, UINT64_MAX, &s), 0);
	assert_false(s.torn);

	heads[1].next = heads[1].prev = at(&objects[0]);
	objects[0].next = at(&heads[1]);
	objects[0].prev = at(&heads[1]) | 2;
	heads[2].next = at(&objects[1]);
	objects[1].prev = at(&heads[2]) | 2;
	assert_int_equal(pygc__walk(&gc, c, UINT64_MAX, move_objects, &n, &s), 0);
	assert_true(n >= N_OBJECTS);
	memcache__free(c);
}

static void test_damaged_lists(void **state)
{
	struct pygc gc = make_lists();
	struct pygc_stats s;

	/* One broken link: the rest is found from the other end. */
	objects[1000].next = 0xdead0000;
	assert_int_equal(walk(&gc, UINT64_MAX, &s), 0);
	assert_true(told >= N_OBJECTS - 1);
	/* Two broken links: the part between is reported as missing. */
	gc = make_lists();
	objects[1000].next = 0xdead0000;
	objects[3000].prev = 0x1;
	assert_int_equal(walk(&gc, UINT64_MAX, &s), 0);
	assert_true(s.torn);
	assert_true(told >= N_OBJECTS - 2100 && told < N_OBJECTS - 1900);
	/* A cycle of objects without the list head. */
	gc = make_lists();
	objects[500].next = at(&objects[100]);
	assert_int_equal(walk(&gc, UINT64_MAX, &s), 0);
	assert_true(told <= N_OBJECTS);
	/* No list of objects at all. */
	gc = make_lists();
	heads[2].next = heads[2].prev = 0x3;
	assert_int_equal(walk(&gc, UINT64_MAX, &s), 0);
	assert_true(s.torn);
	assert_int_equal(told, 0);
	gc.head[1] = 0x10;
	assert_int_equal(walk(&gc, UINT64_MAX, &s), 0);
	assert_true(s.torn);
}

static void test_memcache(void **state)
{
	uint8_t *whole = mmap(NULL, 4 * 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			      -1, 0),
		buf[40000];
	uint8_t *p = whole + (16384 - at(whole) % 16384); /* start of a block */
	struct memcache *c = memcache__new(self);

	assert_true(whole != MAP_FAILED);
	for (size_t i = 0; i < 3 * 16384; i++)
		p[i] = (uint8_t)(i / 7);
	assert_int_equal(memcache__read(c, at(p) + 5, buf, 40000), 0);
	assert_memory_equal(buf, p + 5, 40000);
	p[6000] ^= 1; /* the cached content stays until a refresh */
	assert_int_equal(memcache__read(c, at(p) + 6000, buf, 1), 0);
	assert_int_equal(buf[0], p[6000] ^ 1);
	assert_int_equal(memcache__read_now(c, at(p) + 6000, buf, 1), 0);
	assert_int_equal(buf[0], p[6000]);
	assert_int_equal(memcache__read(c, at(p) + 6000, buf, 1), 0);
	assert_int_equal(buf[0], p[6000]);
	/* A block with an unmapped page. */
	assert_int_equal(mprotect(p + 12288, 4096 + 16384, PROT_NONE), 0);
	memcache__forget(c);
	assert_int_equal(memcache__read(c, at(p) + 12288 - 8, buf, 8), 0);
	assert_int_equal(memcache__read(c, at(p) + 12288 - 8, buf, 9), -EFAULT);
	assert_int_equal(memcache__read(c, UINT64_MAX - 4, buf, 9), -EFAULT);
	munmap(whole, 4 * 16384);
	memcache__free(c);
}

/* While others have the CPUs, a reading waits and does not end. */
static void test_time_without_a_cpu_does_not_count(void **state)
{
	const struct census_opts o = { .limit_ns = 1000000000000 };
	uint64_t now = clock__monotonic(), cpu = clock__read(CLOCK_THREAD_CPUTIME_ID);
	struct reading r = { .opts = &o, .began = now - 2 * o.limit_ns, .cpu_began = cpu };

	assert_int_equal(reading__check_time(&r), 0);
	r.began = now - READING_WAITS * o.limit_ns - 1;
	assert_int_equal(reading__check_time(&r), -ETIME);
	r.began = now;
	r.cpu_began = cpu - o.limit_ns - 1;
	assert_int_equal(reading__check_time(&r), -ETIME);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_time_without_a_cpu_does_not_count),
		cmocka_unit_test(test_layouts),
		cmocka_unit_test(test_few_tensors),
		cmocka_unit_test(test_equal_tensors),
		cmocka_unit_test(test_vanished_tensors),
		cmocka_unit_test(test_meta_tensors),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_too_few_tensors),
		cmocka_unit_test(test_damaged_tensors),
		cmocka_unit_test(test_lasting),
		cmocka_unit_test(test_nothing_to_find),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_lists_in_a_row),
		cmocka_unit_test(test_increments),
		cmocka_unit_test(test_damaged_lists),
		cmocka_unit_test(test_memcache),
		cmocka_unit_test(test_lists_are_found_at_both_alignments),
	};

	objects = calloc(N_OBJECTS, sizeof(*objects));
	return cmocka_run_group_tests(tests, open_self, close_self);
}
