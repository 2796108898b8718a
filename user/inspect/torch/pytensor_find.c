/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finds the layout of tensors from a few tens of samples, field by field. An offset is used only if
 * no sample contradicts it, several confirm it, and no other offset fits as well. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/map64.h"
#include "inspect/proc.h"
#include "inspect/torch/pytensor_internal.h"

#define MAX_SAMPLES 256
#define MIN_SAMPLES 3
/* With fewer samples, all must agree, and these elements are enough: hardly another word is equal
 * to the size of such a tensor, or to the product of other words. */
#define FEW_ELEMENTS 64
#define MAX_VTABLES 4096
#define MAX_BASES 16 /* base classes between a node's class and Node */

static bool is_pointer(uint64_t p)
{
	return p >= 4096 && p % 8 == 0 && p < 1ull << 56;
}

/* Mangled type name from type information (C++ ABI): "N3c1010TensorImplE". */
static int info_name(const struct proc *p, uint64_t info, char *buf, size_t size)
{
	uint64_t name;
	int err;

	err = is_pointer(info) ? proc__read_u64(p, info + 8, &name) : -EFAULT;
	for (size_t at = 0; !err && at < size - 1; at += 16) {
		size_t n = size - 1 - at < 16 ? size - 1 - at : 16;

		if (name > UINT64_MAX - size)
			return -EFAULT;
		err = proc__read(p, name + at, buf + at, n);
		if (!err && memchr(buf + at, '\0', n))
			return 0;
	}
	buf[size - 1] = '\0';
	return err;
}

/* Reads the type information pointer in front of a vtable. */
static int vtable_info(const struct proc *p, uint64_t vptr, uint64_t *info)
{
	return is_pointer(vptr) ? proc__read_u64(p, vptr - 8, info) : -EFAULT;
}

/* Whether a class derives from autograd's Node, by single inheritance: {vptr, name, base}. 1, 0 or
 * -errno. */
static int is_node(const struct proc *p, uint64_t info)
{
	static const char single[] = "N10__cxxabiv120__si_class_type_infoE",
			  node[] = "N5torch8autograd4NodeE";
	uint64_t of[3], own;
	char name[64];
	int err;

	for (int depth = 0; depth < MAX_BASES; depth++) {
		err = info_name(p, info, name, sizeof(name));
		if (err || !strcmp(name, node))
			return err ? err : 1;
		/* A class without a base has no third word. */
		err = proc__read(p, info, of, sizeof(of));
		if (!err)
			err = vtable_info(p, of[0], &own) ?: info_name(p, own, name, sizeof(name));
		if (err || strcmp(name, single))
			return err;
		info = of[2];
	}
	return 0;
}

static enum cxx_kind kind_of(const char *name)
{
	/* Only these namespaces: a program's own derived classes are not supported. */
	if (strncmp(name, "N3c10", 5) && strncmp(name, "N2at", 4) && strncmp(name, "N5torch", 7))
		return CXX_OTHER;
	if (strstr(name, "UndefinedTensorImpl"))
		return CXX_UNDEFINED;
	if (strstr(name, "StorageImpl"))
		return CXX_STORAGE;
	if (strstr(name, "AutogradMeta") || strstr(name, "DifferentiableViewMeta"))
		return CXX_AUTOGRAD;
	return strstr(name, "TensorImpl") || strstr(name, "TensorWrapper") ? CXX_TENSOR : CXX_OTHER;
}

int pytensor_find__cxx_kind(struct pytensors *t, uint64_t vptr, enum cxx_kind *ret)
{
	uint64_t known, info;
	char name[128];
	int err;

	if (map64__get(t->vtables, vptr, &known)) {
		*ret = known;
		return 0;
	}
	*ret = CXX_OTHER;
	err = vtable_info(t->proc, vptr, &info);
	if (!err)
		err = info_name(t->proc, info, name, sizeof(name));
	if (!err)
		*ret = kind_of(name);
	if (err && err != -EFAULT)
		return err;
	/* A library may be unloaded and its addresses reused, so only positive results are
	 * cached. */
	if (*ret != CXX_OTHER && map64__count(t->vtables) < MAX_VTABLES)
		return map64__set(t->vtables, vptr, *ret);
	return 0;
}

int pytensor_find__cxx_node_kind(struct pytensors *t, uint64_t vptr, enum cxx_kind *ret)
{
	uint64_t info;
	char name[64];
	int err = pytensor_find__cxx_kind(t, vptr, ret);

	if (err || *ret != CXX_OTHER)
		return err;
	err = vtable_info(t->proc, vptr, &info);
	if (!err)
		err = is_node(t->proc, info);
	if (err > 0) {
		*ret = CXX_NODE;
		err = info_name(t->proc, info, name, sizeof(name));
		if (!err && !strcmp(name, "N5torch8autograd14AccumulateGradE"))
			*ret = CXX_ACCUMULATE;
	}
	return err == -EFAULT ? 0 : err;
}

static unsigned width_of(uint8_t dtype)
{
	return pytensor__dtype_bits(dtype);
}

bool pytensor_find__parse_impl(const uint8_t *impl, unsigned sizes, bool flag_first,
			       struct pytensor *ret)
{
	/* storage_offset_, numel_, data_type_, device_opt_ */
	const uint8_t *after = impl + sizes + SIZES_BYTES;
	uint64_t ndim = word(impl + sizes), offset = word(after), numel = word(after + 8),
		 product = 1;
	const uint8_t *device = after + 18 + flag_first;
	int8_t index = (int8_t)device[1];
	uint16_t dtype;

	memcpy(&dtype, after + 16, sizeof(dtype));
	if (ndim > MAX_DIMS || offset > 1ull << 56 || numel > 1ull << 56 || dtype > 63 ||
	    after[flag_first ? 18 : 20] != 1 || device[0] > 31 || index < -1 ||
	    index > (device[0] ? 63 : 0))
		return false;
	for (size_t i = 0; ndim <= INLINE_DIMS && i < ndim; i++) {
		uint64_t n = word(impl + sizes + 8 + 8 * i);

		if (n > 1ull << 56 || __builtin_mul_overflow(product, n, &product))
			return false;
	}
	if (ndim <= INLINE_DIMS && product != numel)
		return false;
	ret->ndim = ndim;
	ret->numel = numel;
	ret->dtype = dtype;
	ret->device_type = device[0];
	ret->device_index = index < 0 ? 0 : index;
	return true;
}

bool pytensor_find__is_meta(const uint8_t *storage, unsigned at)
{
	return storage[at + 24] == DEVICE_META && !word(storage + at);
}

uint64_t pytensor_find__impl_extent(const uint8_t *impl, unsigned sizes, const struct pytensor *t)
{
	uint64_t last = word(impl + sizes + SIZES_BYTES);

	if (!t->numel || t->ndim > INLINE_DIMS || !width_of(t->dtype))
		return 0;
	for (size_t i = 0; i < t->ndim; i++) {
		uint64_t stride = word(impl + sizes + 48 + 8 * i), step;
		uint64_t n = word(impl + sizes + 8 + 8 * i);

		if (stride > 1ull << 56 || __builtin_mul_overflow(n - 1, stride, &step) ||
		    __builtin_add_overflow(last, step, &last))
			return UINT64_MAX;
	}
	return last > UINT64_MAX / 256 ? UINT64_MAX : ((last + 1) * width_of(t->dtype) + 7) / 8;
}

/* ---- samples ---- */

struct sample {
	uint64_t obj;
	uint8_t head[48]; /* the start of the Python object */
	uint8_t impl[IMPL_BYTES], storage[STORAGE_BYTES], meta[META_BYTES];
	uint64_t impl_at, meta_at;
	size_t impl_len; /* number of readable bytes */
	struct pytensor t;
	bool has_storage, has_meta;
};

struct search {
	struct pytensors *owner;
	struct sample *v;
	size_t n;
	bool few; /* fewer than MIN_SAMPLES */
	struct pytensor_layout l;
	const char *why;
};

/* Kind of the object at addr. */
static int kind_at(struct search *s, uint64_t addr, enum cxx_kind *ret)
{
	uint64_t vptr;
	int err;

	*ret = CXX_OTHER;
	if (!is_pointer(addr))
		return 0;
	err = proc__read_u64(s->owner->proc, addr, &vptr);
	if (err)
		return err == -EFAULT ? 0 : err;
	return pytensor_find__cxx_kind(s->owner, vptr, ret);
}

/* Whether n of all samples confirm an offset. */
static bool are_enough(const struct search *s, size_t n, size_t all)
{
	return s->few ? n && n == all : n >= MIN_SAMPLES && n * 10 >= all * 9;
}

/* Selects the offset with most votes; none if another has as many. Returns its votes, 0: none. */
static size_t elect(const size_t *votes, size_t n, size_t *ret)
{
	size_t best = 0, second = 0;

	for (size_t i = 0; i < n; i++) {
		if (votes[i] > best) {
			second = best;
			best = votes[i];
			*ret = i;
		} else if (votes[i] > second) {
			second = votes[i];
		}
	}
	return best > second ? best : 0;
}

/* Drops samples without a TensorImpl: their object has ended, and says nothing of the layout. */
static int find_cdata(struct search *s)
{
	size_t votes[4] = { 0 }, at = 0, n, kept = 0;
	enum cxx_kind kind;
	int err;

	for (size_t i = 0; i < s->n; i++) {
		bool any = false;

		for (size_t k = 0; k < 4; k++) {
			err = kind_at(s, word(s->v[i].head + 16 + 8 * k), &kind);
			if (err)
				return err;
			votes[k] += kind == CXX_TENSOR;
			any |= kind == CXX_TENSOR;
		}
		if (any)
			s->v[kept++] = s->v[i];
	}
	s->n = kept;
	s->few = s->n < MIN_SAMPLES;
	n = elect(votes, 4, &at);
	if (!are_enough(s, n, s->n)) {
		s->why = "the C++ object behind a Python tensor was not found";
		return n ? -ENOTSUP : -EAGAIN;
	}
	s->l.cdata = 16 + 8 * at;
	return 0;
}

/* Reads the TensorImpls and drops samples without one. */
static int read_impls(struct search *s)
{
	size_t kept = 0;
	enum cxx_kind kind;
	int err;

	for (size_t i = 0; i < s->n; i++) {
		struct sample *x = &s->v[i];

		x->impl_at = word(x->head + s->l.cdata);
		err = kind_at(s, x->impl_at, &kind);
		if (err)
			return err;
		if (kind != CXX_TENSOR)
			continue;
		/* The smallest known TensorImpl has 176 bytes, and the memory after it may not be
		 * readable. */
		x->impl_len = IMPL_BYTES;
		err = proc__read(s->owner->proc, x->impl_at, x->impl, x->impl_len);
		if (err == -EFAULT) {
			x->impl_len = 192;
			err = proc__read(s->owner->proc, x->impl_at, x->impl, x->impl_len);
		}
		if (err && err != -EFAULT)
			return err;
		if (!err)
			s->v[kept++] = *x;
	}
	s->n = kept;
	return 0;
}

/* Finds the field that points to an object of this kind in most samples. */
static int find_pointer(struct search *s, enum cxx_kind want, uint16_t *ret, size_t *votes_ret)
{
	size_t votes[6] = { 0 }, at = 0;
	enum cxx_kind kind;
	int err;

	for (size_t i = 0; i < s->n; i++) {
		for (size_t k = 0; k < 6; k++) {
			err = kind_at(s, word(s->v[i].impl + 8 * k), &kind);
			if (err)
				return err;
			votes[k] += kind == want;
		}
	}
	*votes_ret = elect(votes, 6, &at);
	*ret = *votes_ret ? 8 * at : 0;
	return 0;
}

static void find_pyobj(struct search *s)
{
	size_t votes[12] = { 0 }, at = 0;

	for (size_t i = 0; i < s->n; i++)
		for (size_t k = 4; k < 12; k++)
			votes[k] += (word(s->v[i].impl + 8 * k) & ~3ull) == s->v[i].obj;
	/* Without this offset, only tensors inside wrappers lose their names. */
	if (elect(votes, 12, &at) * 10 >= s->n * 9)
		s->l.pyobj = 8 * at;
}

static int find_sizes(struct search *s)
{
	size_t votes[32] = { 0 }, shaped[32] = { 0 }, at = 0, n;
	struct pytensor t;

	for (size_t i = 0; i < s->n; i++) {
		for (size_t k = 8; k < 26; k++) {
			unsigned sizes = 8 * (k / 2);

			if (sizes + SIZES_BYTES + 24 > s->v[i].impl_len ||
			    !pytensor_find__parse_impl(s->v[i].impl, sizes, k % 2, &t))
				continue;
			votes[k]++;
			/* A useful shape: only sizes multiply to the number of elements. */
			shaped[k] += t.ndim >= 1 && t.ndim <= INLINE_DIMS &&
				     t.numel >= (s->few ? FEW_ELEMENTS : 2);
		}
	}
	n = s->few && elect(shaped, 32, &at) ? votes[at] : elect(votes, 32, &at);
	if (n * 10 < s->n * 9 || shaped[at] < (s->few ? 1 : 2)) {
		s->why = "sizes and type of a tensor were not found";
		return n * 10 < s->n * 9 ? -ENOTSUP : -EAGAIN;
	}
	s->l.sizes = 8 * (at / 2);
	s->l.flag_first = at % 2;
	return 0;
}

static int read_storages(struct search *s)
{
	int err;

	for (size_t i = 0; i < s->n; i++) {
		struct sample *x = &s->v[i];
		uint64_t at = word(x->impl + s->l.storage);
		enum cxx_kind kind;

		err = kind_at(s, at, &kind);
		if (err)
			return err;
		x->has_storage = kind == CXX_STORAGE &&
				 pytensor_find__parse_impl(x->impl, s->l.sizes, s->l.flag_first,
							   &x->t);
		if (!x->has_storage)
			continue;
		err = proc__read(s->owner->proc, at, x->storage, sizeof(x->storage));
		if (err && err != -EFAULT)
			return err;
		x->has_storage = !err;
	}
	return 0;
}

/* Checks data_ptr_ {data, context, deleter, device}, size_bytes_. The index of a CPU is -1 or 0, so
 * a size of 256 bytes is no device. A wrapper of tensors has a storage with a size and no memory. A
 * fake tensor has one of the meta device.
 */
static bool data_fits(const struct sample *x, unsigned at, uint64_t need)
{
	const uint8_t *device = x->storage + at + 24;
	uint64_t size = word(x->storage + at + 32);
	bool index_fits = device[1] == x->t.device_index || (!device[0] && device[1] == 0xff);

	if (pytensor_find__is_meta(x->storage, at))
		return size < 1ull << 50;
	return device[0] == x->t.device_type && index_fits && size < 1ull << 50 &&
	       (need <= size || !word(x->storage + at));
}

static int find_data(struct search *s)
{
	size_t votes[8] = { 0 }, told[8] = { 0 }, all = 0, at = 0, n;
	bool memory = false;

	for (size_t i = 0; i < s->n; i++) {
		const struct sample *x = &s->v[i];

		if (!x->has_storage)
			continue;
		all++;
		for (size_t k = 1; k < 6; k++) {
			uint64_t need = pytensor_find__impl_extent(x->impl, s->l.sizes, &x->t);

			if (!data_fits(x, 8 * k, need))
				continue;
			votes[k]++;
			memory |= word(x->storage + 8 * k) != 0;
			told[k] += need && (!s->few || x->t.numel >= FEW_ELEMENTS) &&
				   word(x->storage + 8 * k) &&
				   word(x->storage + 8 * k + 32) == need;
		}
	}
	/* On the CPU a pointer may look like a size, but not like exactly the size that the shape
	 * needs. */
	n = elect(told, 8, &at);
	if (n < (s->few ? 1 : 2) || votes[at] * 10 < all * 9) {
		s->why = memory ? "address and size of a tensor's storage were not found"
				: "no tensor has memory so far";
		return all < MIN_SAMPLES || !memory ? -EAGAIN : -ENOTSUP;
	}
	s->l.data = 8 * at;
	return 0;
}

/*
 * Finds AutogradMeta {vptr, std::string name_, Variable grad_}. An empty string of the new ABI
 * points into itself; one of the old ABI is a single pointer. Every gradient must be null or a
 * tensor with the same number of elements.
 */
static int find_grad(struct search *s)
{
	size_t strings = 0, metas = 0, wrong = 0;
	enum cxx_kind kind;
	unsigned grad;
	uint64_t at, numel;
	int err;

	for (size_t i = 0; i < s->n; i++) {
		struct sample *x = &s->v[i];

		x->meta_at = word(x->impl + s->l.meta);
		err = kind_at(s, x->meta_at, &kind);
		if (err)
			return err;
		if (kind != CXX_AUTOGRAD ||
		    proc__read(s->owner->proc, x->meta_at, x->meta, sizeof(x->meta)))
			continue;
		x->has_meta = true;
		metas++;
		strings += word(x->meta + 8) == x->meta_at + 24;
	}
	if (!metas || (strings && strings != metas))
		return 0;
	grad = strings ? 40 : 16;
	for (size_t i = 0; i < s->n; i++) {
		struct sample *x = &s->v[i];

		at = x->has_meta ? word(x->meta + grad) : 0;
		if (!at)
			continue;
		err = kind_at(s, at, &kind);
		if (err)
			return err;
		if (kind == CXX_UNDEFINED)
			continue;
		if (kind != CXX_TENSOR ||
		    proc__read_u64(s->owner->proc, at + s->l.sizes + SIZES_BYTES + 8, &numel) ||
		    numel != x->t.numel)
			wrong++;
	}
	/* a gradient may change meanwhile */
	if (wrong * 10 <= metas)
		s->l.grad = grad;
	return 0;
}

static int search(struct search *s)
{
	size_t votes;
	int err;

	err = find_cdata(s);
	if (!err)
		err = read_impls(s);
	if (!err)
		err = find_pointer(s, CXX_STORAGE, &s->l.storage, &votes);
	if (err)
		return err;
	if (s->few ? !votes : votes < MIN_SAMPLES) {
		s->why = "the storage of a tensor was not found";
		return -EAGAIN;
	}
	find_pyobj(s);
	err = find_sizes(s);
	if (!err)
		err = read_storages(s);
	if (!err)
		err = find_data(s);
	if (!err)
		err = find_pointer(s, CXX_AUTOGRAD, &s->l.meta, &votes);
	if (!err && votes)
		err = find_grad(s);
	return err;
}

/* Takes a layout of a released version. Whether gradients can be read is found as in search(). */
static int take_known(struct search *s, const uint64_t *objs, size_t n)
{
	struct pytensor_layout l;
	int err = pytensor_known__find(s->owner, objs, n, &l);

	if (err)
		return err;
	s->l = l;
	err = read_impls(s) ?: read_storages(s);
	return err ? err : find_grad(s);
}

/* Takes samples spread over all tensors, since adjacent ones are similar; objs: their objects. */
static int take_samples(struct search *s, const uint64_t *all, size_t n, uint64_t *objs)
{
	for (size_t i = 0; i < n && s->n < MAX_SAMPLES; i += 1 + (n - 1) / MAX_SAMPLES) {
		struct sample *x = &s->v[s->n];
		int err = proc__read(s->owner->proc, all[i], x->head, sizeof(x->head));

		if (err && err != -EFAULT)
			return err;
		if (err)
			continue;
		x->obj = all[i];
		objs[s->n++] = all[i];
	}
	s->few = s->n < MIN_SAMPLES;
	return 0;
}

int pytensors__calibrate(struct pytensors *t, const uint64_t *objs, size_t n, const char **why)
{
	struct search s = { .owner = t, .why = "no tensor could be read" };
	uint64_t sampled[MAX_SAMPLES];
	int err, known;

	s.v = calloc(MAX_SAMPLES, sizeof(*s.v));
	if (!s.v)
		return -ENOMEM;
	err = take_samples(&s, objs, n, sampled);
	n = s.n;
	if (!err)
		err = n ? search(&s) : -EAGAIN;
	if (n && (err == -EAGAIN || err == -ENOTSUP)) {
		known = take_known(&s, sampled, n);
		err = known == -ENOENT ? err : known;
	}
	if (s.n && s.few && (err == -EAGAIN || err == -ENOTSUP)) {
		s.why = "there are too few tensors to find out how this PyTorch stores them";
		err = -EAGAIN;
	}
	if (!err) {
		t->l = s.l;
		t->calibrated = true;
	}
	*why = s.why;
	free(s.v);
	return err;
}
