/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/pytensor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map64.h"
#include "inspect/proc.h"
#include "inspect/torch/pytensor_internal.h"

#define AT_ONCE 2048u /* tensors in one round of reads */
#define TRIES 4

struct pytensors *pytensors__new(const struct proc *p)
{
	struct pytensors *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->proc = p;
	t->vtables = map64__new();
	if (!t->vtables || shapes__init(&t->shapes)) {
		pytensors__free(t);
		return NULL;
	}
	return t;
}

void pytensors__free(struct pytensors *t)
{
	if (!t)
		return;
	map64__free(t->vtables);
	shapes__fini(&t->shapes);
	free(t);
}

bool pytensors__calibrated(const struct pytensors *t)
{
	return t->calibrated;
}

bool pytensors__know_grad(const struct pytensors *t)
{
	return t->l.grad != 0;
}

unsigned pytensors__storage_at(const struct pytensors *t)
{
	return t->l.storage;
}

/* In the order of c10::ScalarType (c10/core/ScalarType.h), whose numbers are never reused. */
static const struct dtype {
	const char *name;
	uint8_t bits;
} dtypes[] = {
	{ "uint8", 8 },
	{ "int8", 8 },
	{ "int16", 16 },
	{ "int32", 32 },
	{ "int64", 64 },
	{ "float16", 16 },
	{ "float32", 32 },
	{ "float64", 64 },
	{ "complex32", 32 },
	{ "complex64", 64 },
	{ "complex128", 128 },
	{ "bool", 8 },
	{ "qint8", 8 },
	{ "quint8", 8 },
	{ "qint32", 32 },
	{ "bfloat16", 16 },
	{ "quint4x2", 0 },
	{ "quint2x4", 0 },
	{ "bits1x8", 8 },
	{ "bits2x4", 8 },
	{ "bits4x2", 8 },
	{ "bits8", 8 },
	{ "bits16", 16 },
	{ "float8_e5m2", 8 },
	{ "float8_e4m3fn", 8 },
	{ "float8_e5m2fnuz", 8 },
	{ "float8_e4m3fnuz", 8 },
	{ "uint16", 16 },
	{ "uint32", 32 },
	{ "uint64", 64 },
	{ "uint1", 8 },
	{ "uint2", 8 },
	{ "uint3", 8 },
	{ "uint4", 8 },
	{ "uint5", 8 },
	{ "uint6", 8 },
	{ "uint7", 8 },
	{ "int1", 8 },
	{ "int2", 8 },
	{ "int3", 8 },
	{ "int4", 8 },
	{ "int5", 8 },
	{ "int6", 8 },
	{ "int7", 8 },
	{ "float8_e8m0fnu", 8 },
	{ "float4_e2m1fn_x2", 8 },
	{ "bcomplex32", 32 },
};

#define N_DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

const char *pytensor__dtype(uint8_t dtype, char *buf, size_t size)
{
	if (dtype < N_DTYPES)
		return dtypes[dtype].name;
	snprintf(buf, size, "dtype %u", dtype);
	return buf;
}

bool pytensor__is_leaf(const struct pytensor *t)
{
	return t->autograd && !t->grad_fn;
}

unsigned pytensor__dtype_bits(uint8_t dtype)
{
	return dtype < N_DTYPES ? dtypes[dtype].bits : 0;
}

/* One round of reads and its results. */
struct round {
	struct pytensors *t;
	struct proc_piece *pieces;
	uint32_t *whose; /* tensor index of each piece */
	int *err;	 /* result for each tensor */
	size_t n;	 /* number of pieces */
	uint8_t (*impl)[IMPL_BYTES];
	uint8_t (*storage)[STORAGE_BYTES];
	uint8_t (*meta)[META_BYTES];
	uint64_t *words;
	size_t impl_len;
};

static void round__free(struct round *r)
{
	free(r->pieces);
	free(r->whose);
	free(r->err);
	free(r->impl);
	free(r->storage);
	free(r->meta);
	free(r->words);
}

static int round__init(struct round *r, struct pytensors *t)
{
	memset(r, 0, sizeof(*r));
	r->t = t;
	r->pieces = calloc(AT_ONCE, sizeof(*r->pieces));
	r->whose = calloc(AT_ONCE, sizeof(*r->whose));
	r->err = calloc(AT_ONCE, sizeof(*r->err));
	r->impl = calloc(AT_ONCE, sizeof(*r->impl));
	r->storage = calloc(AT_ONCE, sizeof(*r->storage));
	r->meta = calloc(AT_ONCE, sizeof(*r->meta));
	r->words = calloc(AT_ONCE, sizeof(*r->words));
	r->impl_len = t->l.sizes + SIZES_BYTES + 24u;
	if (r->pieces && r->whose && r->err && r->impl && r->storage && r->meta && r->words)
		return 0;
	round__free(r);
	return -ENOMEM;
}

static bool is_pointer(uint64_t p)
{
	return p >= 4096 && p % 8 == 0 && p < 1ull << 56;
}

/* Adds a read for tensor i if addr is plausible. */
static void add_piece(struct round *r, size_t i, uint64_t addr, void *buf, size_t len)
{
	r->err[i] = -EFAULT;
	if (!is_pointer(addr))
		return;
	r->whose[r->n] = (uint32_t)i;
	r->pieces[r->n++] = (struct proc_piece){ .addr = addr, .buf = buf, .len = len };
}

static int read_wanted(struct round *r)
{
	int err = proc__readv(r->t->proc, r->pieces, r->n);

	for (size_t i = 0; i < r->n; i++)
		r->err[r->whose[i]] = r->pieces[i].err;
	r->n = 0;
	return err;
}

static int read_links(struct round *r, struct pytensor *v, size_t n)
{
	int err;

	for (size_t i = 0; i < n; i++)
		add_piece(r, i, v[i].obj ? v[i].obj + r->t->l.cdata : 0, &r->words[i], 8);
	err = read_wanted(r);
	for (size_t i = 0; !err && i < n; i++)
		if (v[i].obj)
			v[i].impl = r->err[i] ? 0 : r->words[i];
	return err;
}

/* Parses a TensorImpl; the state stays BAD if it is not one. */
static int take_impl(struct round *r, struct pytensor *v, size_t i)
{
	const uint8_t *impl = r->impl[i];
	enum cxx_kind kind;
	int err;

	v->state = PYTENSOR_BAD;
	v->storage = v->addr = v->size = v->grad = v->grad_fn = v->pyobj = 0;
	v->autograd = false;
	if (r->err[i])
		return 0;
	err = pytensor_find__cxx_kind(r->t, word(impl), &kind);
	if (err)
		return err;
	if (kind == CXX_UNDEFINED)
		v->state = PYTENSOR_NO_STORAGE;
	if (kind != CXX_TENSOR ||
	    !pytensor_find__parse_impl(impl, r->t->l.sizes, r->t->l.flag_first, v))
		return 0;
	v->state = PYTENSOR_NO_STORAGE;
	v->storage = word(impl + r->t->l.storage);
	if (r->t->l.pyobj)
		v->pyobj = word(impl + r->t->l.pyobj) & ~3ull;
	return 0;
}

static int read_impls(struct round *r, struct pytensor *v, size_t n)
{
	int err;

	for (size_t i = 0; i < n; i++)
		add_piece(r, i, v[i].impl, r->impl[i], r->impl_len);
	err = read_wanted(r);
	for (size_t i = 0; !err && i < n; i++)
		err = take_impl(r, &v[i], i);
	return err;
}

static int take_storage(struct round *r, struct pytensor *v, size_t i)
{
	const uint8_t *s = r->storage[i];
	unsigned data = r->t->l.data;
	enum cxx_kind kind;
	uint64_t need;
	int err;

	if (v->state != PYTENSOR_NO_STORAGE || !v->storage)
		return 0;
	v->state = PYTENSOR_BAD;
	if (r->err[i])
		return 0;
	err = pytensor_find__cxx_kind(r->t, word(s), &kind);
	if (err || kind != CXX_STORAGE)
		return err;
	if (pytensor_find__is_meta(s, data)) {
		v->state = PYTENSOR_NO_STORAGE;
		return 0;
	}
	/* StorageImpl has the device, too, and they must agree. A tensor fits into its storage,
	 * unless the storage was emptied. */
	if (s[data + 24] != v->device_type || (v->device_type && s[data + 25] != v->device_index))
		return 0;
	v->addr = word(s + data);
	v->size = word(s + data + 32);
	/* Allocators use the memory's address as context. Its position among the two words depends
	 * on std::tuple. */
	v->context = word(s + data + 8) != v->addr && word(s + data + 16) != v->addr;
	if (!v->addr || !v->size) {
		v->state = PYTENSOR_NO_STORAGE;
		return 0;
	}
	need = pytensor_find__impl_extent(r->impl[i], r->t->l.sizes, v);
	if (v->size <= 1ull << 50 && need <= v->size)
		v->state = PYTENSOR_OK;
	return 0;
}

static int read_storages(struct round *r, struct pytensor *v, size_t n)
{
	int err;

	for (size_t i = 0; i < n; i++)
		add_piece(r, i, v[i].state == PYTENSOR_NO_STORAGE ? v[i].storage : 0, r->storage[i],
			  r->t->l.data + 40u);
	err = read_wanted(r);
	for (size_t i = 0; !err && i < n; i++)
		err = take_storage(r, &v[i], i);
	return err;
}

void pytensors__forget_shapes(struct pytensors *t)
{
	shapes__clear(&t->shapes);
}

const int64_t *pytensors__shape(const struct pytensors *t, uint32_t shape)
{
	return t->shapes.v[shape];
}

/* Reads the sizes of a tensor. More than INLINE_DIMS are outside the TensorImpl; unreadable ones
 * stay 0, since they are only displayed. */
static int read_sizes(const struct pytensors *t, const uint8_t *impl, unsigned ndim, int64_t *ret)
{
	const uint8_t *sizes = impl + t->l.sizes + 8;
	unsigned n = ndim < PYTENSOR_DIMS ? ndim : PYTENSOR_DIMS;
	int err;

	memset(ret, 0, PYTENSOR_DIMS * sizeof(*ret));
	if (ndim <= INLINE_DIMS) {
		memcpy(ret, sizes, n * sizeof(*ret));
		return 0;
	}
	if (!is_pointer(word(sizes)))
		return 0;
	err = proc__read(t->proc, word(sizes), ret, n * sizeof(*ret));
	if (err)
		memset(ret, 0, PYTENSOR_DIMS * sizeof(*ret));
	return err == -EFAULT ? 0 : err;
}

static int read_shapes(struct round *r, struct pytensor *v, size_t n)
{
	int64_t sizes[PYTENSOR_DIMS];
	int err = 0;

	for (size_t i = 0; !err && i < n; i++) {
		v[i].shape = 0;
		if (v[i].state == PYTENSOR_BAD)
			continue;
		err = read_sizes(r->t, r->impl[i], v[i].ndim, sizes);
		if (!err)
			err = shapes__number(&r->t->shapes, sizes, &v[i].shape);
	}
	return err;
}

static int read_grads(struct round *r, struct pytensor *v, size_t n)
{
	enum cxx_kind kind;
	int err;

	if (!r->t->l.grad)
		return 0;
	for (size_t i = 0; i < n; i++)
		add_piece(r, i, v[i].state == PYTENSOR_BAD ? 0 : word(r->impl[i] + r->t->l.meta),
			  r->meta[i], r->t->l.grad + 16u);
	err = read_wanted(r);
	for (size_t i = 0; !err && i < n; i++) {
		if (r->err[i])
			continue;
		err = pytensor_find__cxx_kind(r->t, word(r->meta[i]), &kind);
		if (err || kind != CXX_AUTOGRAD)
			continue;
		v[i].autograd = true;
		/* AutogradMeta {.., Variable grad_, std::shared_ptr<Node> grad_fn_} */
		v[i].grad = word(r->meta[i] + r->t->l.grad);
		v[i].grad_fn = word(r->meta[i] + r->t->l.grad + 8);
		if (!is_pointer(v[i].grad))
			v[i].grad = 0;
		if (!is_pointer(v[i].grad_fn))
			v[i].grad_fn = 0;
	}
	return err;
}

static int read_once(struct round *r, struct pytensor *v, size_t n)
{
	int err;

	err = read_links(r, v, n);
	if (!err)
		err = read_impls(r, v, n);
	if (!err)
		err = read_storages(r, v, n);
	if (!err)
		err = read_shapes(r, v, n);
	return err ? err : read_grads(r, v, n);
}

/* Whether two readings agree. A gradient that came or went in between is temporary. */
static bool same(const struct pytensor *a, const struct pytensor *b)
{
	return a->obj == b->obj && a->impl == b->impl && a->storage == b->storage &&
	       a->addr == b->addr && a->size == b->size && a->state == b->state &&
	       a->grad == b->grad;
}

/* Reads all tensors twice, and those that differ again. again has room for n. */
static int read_round(struct round *r, struct pytensor *v, struct pytensor *again, size_t n)
{
	int err;

	err = read_once(r, v, n);
	for (size_t i = 0; i < n; i++)
		again[i] = v[i];
	if (!err)
		err = read_once(r, again, n);
	for (size_t i = 0; !err && i < n; i++) {
		int tries;

		for (tries = 0; !err && tries < TRIES && !same(&v[i], &again[i]); tries++) {
			v[i] = again[i];
			err = read_once(r, &again[i], 1);
		}
		if (tries == TRIES)
			v[i].state = PYTENSOR_TORN;
	}
	return err;
}

int pytensors__read(struct pytensors *t, struct pytensor *v, size_t n)
{
	struct pytensor *again;
	struct round r;
	int err;

	if (!t->calibrated)
		return -EINVAL;
	err = round__init(&r, t);
	if (err)
		return err;
	again = calloc(AT_ONCE, sizeof(*again));
	err = again ? 0 : -ENOMEM;
	for (size_t i = 0; !err && i < n; i += AT_ONCE)
		err = read_round(&r, v + i, again, n - i < AT_ONCE ? n - i : AT_ONCE);
	free(again);
	round__free(&r);
	return err;
}
