/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/torch/pytensor_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map64.h"
#include "base/text.h"
#include "inspect/proc.h"
#include "inspect/pytensor.h"

/* 0 or -ENOMEM; shapes__fini() must follow in both cases. */
static int shapes__init(struct shapes *shapes)
{
	shapes->numbers = map64__new();
	shapes->seed = hash__seed();
	shapes->v = calloc(1, sizeof(*shapes->v));
	shapes->n = shapes->cap = 1;
	return shapes->numbers && shapes->v ? 0 : -ENOMEM;
}

/* Frees the contents; accepts a zeroed struct. */
static void shapes__fini(struct shapes *shapes)
{
	free(shapes->v);
	map64__free(shapes->numbers);
}

static void shapes__clear(struct shapes *shapes)
{
	shapes->n = 1;
	map64__clear(shapes->numbers);
}

/* Sets *ret to the number of a shape with these PYTENSOR_DIMS sizes; adds a new shape. 0 or
 * -ENOMEM. */
static int shapes__number(struct shapes *shapes, const int64_t *sizes, uint32_t *ret)
{
	const size_t room = sizeof(*shapes->v);
	uint64_t hash, at = shapes->n - 1;
	int err;

	if (!memcmp(shapes->v[at], sizes, room)) { /* often the same as the last new one */
		*ret = (uint32_t)at;
		return 0;
	}
	hash = hash__bytes(shapes->seed, sizes, room);
	if (map64__get(shapes->numbers, hash, &at) && !memcmp(shapes->v[at], sizes, room)) {
		*ret = (uint32_t)at;
		return 0;
	}
	err = array__grow(&shapes->v, &shapes->cap, shapes->n + 1, room);
	if (!err)
		err = map64__set(shapes->numbers, hash, shapes->n);
	if (err)
		return err;
	memcpy(shapes->v[shapes->n], sizes, room);
	*ret = (uint32_t)shapes->n++;
	return 0;
}

#define MAX_SAMPLES 256
#define MIN_SAMPLES 3
/* With fewer than MIN_SAMPLES, all samples must agree, and one must have FEW_ELEMENTS: then hardly
 * another word equals its number of elements, or its size in bytes. */
#define FEW_ELEMENTS 64
#define MAX_VTABLES 4096
#define MAX_BASES 16  /* base classes between a node's class and Node */
#define AT_ONCE 2048u /* tensors in one round of reads */
#define TRIES 4
#define LOOKED_AT 256u	     /* tensors compared with each layout */
#define FEWER_IMPL_BYTES 192 /* where IMPL_BYTES cannot be read */

#define INFO_NAME 8u /* offset of the name in a std::type_info */
/* Offsets behind sizes_and_strides_ in a TensorImpl: numel_, data_type_, device_opt_. */
#define AFTER_NUMEL 8u
#define AFTER_DTYPE 16u
#define AFTER_DEVICE 18u
#define AFTER_BYTES 24u
/* Offsets from data_ptr_ in a StorageImpl: context, deleter, device, size_bytes_. */
#define DATA_CONTEXT 8u
#define DATA_DELETER 16u
#define DATA_DEVICE 24u
#define DATA_SIZE 32u
#define PY_FLAGS 3ull /* bits of a pointer to a Python object that are flags */
/* Limits of what is plausible. */
#define MOST_ELEMENTS (1ull << 56)
#define MOST_BYTES (1ull << 50)
#define LAST_DTYPE 63
#define LAST_DEVICE_TYPE 31
#define LAST_DEVICE 63

/* ---- C++ objects ---- */

/* Functions below that return an int return 0 or -errno unless they say otherwise. */

/* True if the word can be the address of a C++ object. */
static bool is_pointer(uint64_t p)
{
	return p >= 4096 && p % 8 == 0 && p < 1ull << 56;
}

/* Mangled type name from type information (C++ ABI): "N3c1010TensorImplE". Reads it in small
 * pieces, because the memory after it may not be readable. */
static int info_name(const struct proc *proc, uint64_t info, char *buf, size_t size)
{
	uint64_t name;
	int err;

	err = is_pointer(info) ? proc__read_u64(proc, info + INFO_NAME, &name) : -EFAULT;
	for (size_t at = 0; !err && at < size - 1; at += 16) {
		size_t piece = size - 1 - at < 16 ? size - 1 - at : 16;

		if (name > UINT64_MAX - size)
			return -EFAULT;
		err = proc__read(proc, name + at, buf + at, piece);
		if (!err && memchr(buf + at, '\0', piece))
			return 0;
	}
	buf[size - 1] = '\0';
	return err;
}

/* Reads the type information pointer in front of a vtable. */
static int vtable_info(const struct proc *proc, uint64_t vptr, uint64_t *info)
{
	return is_pointer(vptr) ? proc__read_u64(proc, vptr - 8, info) : -EFAULT;
}

/* Whether a class derives from autograd's Node, by single inheritance: {vptr, name, base}. 1, 0 or
 * -errno. */
static int is_node(const struct proc *proc, uint64_t info)
{
	static const char single[] = "N10__cxxabiv120__si_class_type_infoE",
			  node[] = "N5torch8autograd4NodeE";
	uint64_t info_words[3], meta_info;
	char name[64];
	int err;

	for (int depth = 0; depth < MAX_BASES; depth++) {
		err = info_name(proc, info, name, sizeof(name));
		if (err || !strcmp(name, node))
			return err ? err : 1;
		/* A class without a base has no third word. */
		err = proc__read(proc, info, info_words, sizeof(info_words));
		if (!err)
			err = vtable_info(proc, info_words[0], &meta_info)
				      ?: info_name(proc, meta_info, name, sizeof(name));
		if (err || strcmp(name, single))
			return err;
		info = info_words[2];
	}
	return 0;
}

/* Kind by the mangled class name. */
static enum cxx_kind kind_by_name(const char *name)
{
	/* Classes of a program itself, which are in other namespaces, are not supported. */
	if (!text__starts(name, "N3c10") && !text__starts(name, "N2at") &&
	    !text__starts(name, "N5torch"))
		return CXX_OTHER;
	if (strstr(name, "UndefinedTensorImpl"))
		return CXX_UNDEFINED;
	if (strstr(name, "StorageImpl"))
		return CXX_STORAGE;
	if (strstr(name, "AutogradMeta") || strstr(name, "DifferentiableViewMeta"))
		return CXX_AUTOGRAD;
	return strstr(name, "TensorImpl") || strstr(name, "TensorWrapper") ? CXX_TENSOR : CXX_OTHER;
}

/* Kind of the object with this vtable; CXX_OTHER if it cannot be read. 0, -ESRCH, -EPERM,
 * -ENOMEM. */
static int kind_of_vtable(struct pytensors *tensors, uint64_t vptr, enum cxx_kind *ret)
{
	uint64_t known, info;
	char name[128];
	int err;

	if (map64__get(tensors->vtables, vptr, &known)) {
		*ret = known;
		return 0;
	}
	*ret = CXX_OTHER;
	err = vtable_info(tensors->proc, vptr, &info)
		      ?: info_name(tensors->proc, info, name, sizeof(name));
	if (err)
		return err == -EFAULT ? 0 : err;
	*ret = kind_by_name(name);
	/* A library may be unloaded and its addresses reused, so only positive results are
	 * cached. */
	if (*ret != CXX_OTHER && map64__count(tensors->vtables) < MAX_VTABLES)
		return map64__set(tensors->vtables, vptr, *ret);
	return 0;
}

int pytensors__node_kind(struct pytensors *tensors, uint64_t vptr, enum cxx_kind *ret)
{
	uint64_t info;
	char name[64];
	int err = kind_of_vtable(tensors, vptr, ret);

	if (err || *ret != CXX_OTHER)
		return err;
	err = vtable_info(tensors->proc, vptr, &info) ?: is_node(tensors->proc, info);
	if (err > 0) {
		*ret = CXX_NODE;
		err = info_name(tensors->proc, info, name, sizeof(name));
		if (!err && !strcmp(name, "N5torch8autograd14AccumulateGradE"))
			*ret = CXX_ACCUMULATE;
	}
	return err == -EFAULT ? 0 : err;
}

static unsigned width_of(uint8_t dtype)
{
	return pytensor__dtype_bits(dtype);
}

/* Parses shape, type and device in a TensorImpl's bytes, with sizes_and_strides_ at `sizes`.
 * flag_first: device_opt_ has its flag before its value. False: the values are implausible, so the
 * offset is wrong. */
static bool parse_impl(const uint8_t *impl, unsigned sizes, bool flag_first, struct pytensor *ret)
{
	const uint8_t *after = impl + sizes + SIZES_BYTES;
	uint64_t ndim = proc__word(impl + sizes);
	uint64_t offset = proc__word(after); /* storage_offset_ */
	uint64_t numel = proc__word(after + AFTER_NUMEL);
	uint64_t product = 1;
	const uint8_t *device = after + AFTER_DEVICE + flag_first;
	uint8_t has_device = after[AFTER_DEVICE + (flag_first ? 0 : 2)];
	int8_t index = (int8_t)device[1], last_index = device[0] ? LAST_DEVICE : 0;
	uint16_t dtype;

	memcpy(&dtype, after + AFTER_DTYPE, sizeof(dtype));
	if (ndim > MAX_DIMS || offset > MOST_ELEMENTS || numel > MOST_ELEMENTS ||
	    dtype > LAST_DTYPE || has_device != 1 || device[0] > LAST_DEVICE_TYPE || index < -1 ||
	    index > last_index)
		return false;
	for (size_t i = 0; ndim <= INLINE_DIMS && i < ndim; i++) {
		uint64_t n = proc__word(impl + sizes + SIZES_AT + 8 * i);

		if (n > MOST_ELEMENTS || __builtin_mul_overflow(product, n, &product))
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

/* True if a StorageImpl's bytes are of the meta device: it has a size and no memory. The tensor may
 * say another device: FakeTensor does. at: offset of data_ptr_. */
static bool is_meta(const uint8_t *storage, unsigned at)
{
	return storage[at + 24] == DEVICE_META && !proc__word(storage + at);
}

/* Bytes of its storage that a tensor needs, from its sizes, strides and offset; 0: not known. */
static uint64_t impl_extent(const uint8_t *impl, unsigned sizes, const struct pytensor *tensor)
{
	/* index of the last element, from the offset on */
	uint64_t last = proc__word(impl + sizes + SIZES_BYTES);

	if (!tensor->numel || tensor->ndim > INLINE_DIMS || !width_of(tensor->dtype))
		return 0;
	for (size_t i = 0; i < tensor->ndim; i++) {
		uint64_t stride = proc__word(impl + sizes + STRIDES_AT + 8 * i), step;
		uint64_t n = proc__word(impl + sizes + SIZES_AT + 8 * i);

		if (stride > MOST_ELEMENTS || __builtin_mul_overflow(n - 1, stride, &step) ||
		    __builtin_add_overflow(last, step, &last))
			return UINT64_MAX;
	}
	/* width_of() is in bits. */
	return last > UINT64_MAX / 256 ? UINT64_MAX
				       : ((last + 1) * width_of(tensor->dtype) + 7) / 8;
}

/* ---- reading ---- */

struct pytensors *pytensors__new(const struct proc *proc)
{
	struct pytensors *tensors = calloc(1, sizeof(*tensors));

	if (!tensors)
		return NULL;
	tensors->proc = proc;
	tensors->vtables = map64__new();
	if (!tensors->vtables || shapes__init(&tensors->shapes)) {
		pytensors__free(tensors);
		return NULL;
	}
	return tensors;
}

void pytensors__free(struct pytensors *tensors)
{
	if (!tensors)
		return;
	map64__free(tensors->vtables);
	shapes__fini(&tensors->shapes);
	free(tensors);
}

bool pytensors__calibrated(const struct pytensors *tensors)
{
	return tensors->calibrated;
}

bool pytensors__know_grad(const struct pytensors *tensors)
{
	return tensors->layout.grad != 0;
}

unsigned pytensors__storage_at(const struct pytensors *tensors)
{
	return tensors->layout.storage;
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

bool pytensor__is_leaf(const struct pytensor *tensor)
{
	return tensor->autograd && !tensor->grad_fn;
}

unsigned pytensor__dtype_bits(uint8_t dtype)
{
	return dtype < N_DTYPES ? dtypes[dtype].bits : 0;
}

/* Buffers for up to AT_ONCE tensors that are read together. */
struct round {
	struct pytensors *tensors;
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

static void round__free(struct round *round)
{
	free(round->pieces);
	free(round->whose);
	free(round->err);
	free(round->impl);
	free(round->storage);
	free(round->meta);
	free(round->words);
}

/* Allocates the buffers of a round. 0 or -ENOMEM. */
static int round__init(struct round *round, struct pytensors *tensors)
{
	memset(round, 0, sizeof(*round));
	round->tensors = tensors;
	round->pieces = calloc(AT_ONCE, sizeof(*round->pieces));
	round->whose = calloc(AT_ONCE, sizeof(*round->whose));
	round->err = calloc(AT_ONCE, sizeof(*round->err));
	round->impl = calloc(AT_ONCE, sizeof(*round->impl));
	round->storage = calloc(AT_ONCE, sizeof(*round->storage));
	round->meta = calloc(AT_ONCE, sizeof(*round->meta));
	round->words = calloc(AT_ONCE, sizeof(*round->words));
	round->impl_len = tensors->layout.sizes + SIZES_BYTES + AFTER_BYTES;
	if (round->pieces && round->whose && round->err && round->impl && round->storage &&
	    round->meta && round->words)
		return 0;
	round__free(round);
	return -ENOMEM;
}

/* Plans a read for tensor i, for read_wanted(). If addr cannot be a pointer, round->err[i] is
 * -EFAULT. */
static void add_piece(struct round *round, size_t i, uint64_t addr, void *buf, size_t len)
{
	round->err[i] = -EFAULT;
	if (!is_pointer(addr))
		return;
	round->whose[round->n] = (uint32_t)i;
	round->pieces[round->n++] = (struct proc_piece){ .addr = addr, .buf = buf, .len = len };
}

/* Does the planned reads and sets round->err of their tensors. */
static int read_wanted(struct round *round)
{
	int err = proc__readv(round->tensors->proc, round->pieces, round->n);

	for (size_t i = 0; i < round->n; i++)
		round->err[round->whose[i]] = round->pieces[i].err;
	round->n = 0;
	return err;
}

/* Reads each Python tensor's pointer to its TensorImpl. */
static int read_links(struct round *round, struct pytensor *tensors, size_t n)
{
	int err;

	for (size_t i = 0; i < n; i++)
		add_piece(round, i,
			  tensors[i].obj ? tensors[i].obj + round->tensors->layout.cdata : 0,
			  &round->words[i], 8);
	err = read_wanted(round);
	for (size_t i = 0; !err && i < n; i++)
		if (tensors[i].obj)
			tensors[i].impl = round->err[i] ? 0 : round->words[i];
	return err;
}

/* Parses a TensorImpl; the state stays BAD if it is not one. */
static int take_impl(struct round *round, struct pytensor *tensor, size_t i)
{
	const uint8_t *impl = round->impl[i];
	enum cxx_kind kind;
	int err;

	tensor->state = PYTENSOR_BAD;
	tensor->storage = tensor->addr = tensor->size = tensor->grad = tensor->grad_fn =
		tensor->pyobj = 0;
	tensor->autograd = false;
	if (round->err[i])
		return 0;
	err = kind_of_vtable(round->tensors, proc__word(impl), &kind);
	if (err)
		return err;
	if (kind == CXX_UNDEFINED)
		tensor->state = PYTENSOR_NO_STORAGE;
	if (kind != CXX_TENSOR || !parse_impl(impl, round->tensors->layout.sizes,
					      round->tensors->layout.flag_first, tensor))
		return 0;
	tensor->state = PYTENSOR_NO_STORAGE;
	tensor->storage = proc__word(impl + round->tensors->layout.storage);
	if (round->tensors->layout.pyobj)
		tensor->pyobj = proc__word(impl + round->tensors->layout.pyobj) & ~PY_FLAGS;
	return 0;
}

/* Reads the TensorImpls and sets what they tell. */
static int read_impls(struct round *round, struct pytensor *tensors, size_t n)
{
	int err;

	for (size_t i = 0; i < n; i++)
		add_piece(round, i, tensors[i].impl, round->impl[i], round->impl_len);
	err = read_wanted(round);
	for (size_t i = 0; !err && i < n; i++)
		err = take_impl(round, &tensors[i], i);
	return err;
}

/* Parses a StorageImpl; the state becomes OK if it fits the tensor, BAD if not. */
static int take_storage(struct round *round, struct pytensor *tensor, size_t i)
{
	const uint8_t *bytes = round->storage[i];
	unsigned data = round->tensors->layout.data;
	enum cxx_kind kind;
	uint64_t need;
	int err;

	if (tensor->state != PYTENSOR_NO_STORAGE || !tensor->storage)
		return 0;
	tensor->state = PYTENSOR_BAD;
	if (round->err[i])
		return 0;
	err = kind_of_vtable(round->tensors, proc__word(bytes), &kind);
	if (err || kind != CXX_STORAGE)
		return err;
	if (is_meta(bytes, data)) {
		tensor->state = PYTENSOR_NO_STORAGE;
		return 0;
	}
	/* StorageImpl has the device, too, and they must agree. A tensor fits into its storage,
	 * unless the storage was emptied. */
	if (bytes[data + DATA_DEVICE] != tensor->device_type ||
	    (tensor->device_type && bytes[data + DATA_DEVICE + 1] != tensor->device_index))
		return 0;
	tensor->addr = proc__word(bytes + data);
	tensor->size = proc__word(bytes + data + DATA_SIZE);
	/* Allocators use the memory's address as context. Its position among the two words depends
	 * on std::tuple. */
	tensor->context = proc__word(bytes + data + DATA_CONTEXT) != tensor->addr &&
			  proc__word(bytes + data + DATA_DELETER) != tensor->addr;
	if (!tensor->addr || !tensor->size) {
		tensor->state = PYTENSOR_NO_STORAGE;
		return 0;
	}
	need = impl_extent(round->impl[i], round->tensors->layout.sizes, tensor);
	if (tensor->size <= MOST_BYTES && need <= tensor->size)
		tensor->state = PYTENSOR_OK;
	return 0;
}

/* Reads the storages of tensors that have one. */
static int read_storages(struct round *round, struct pytensor *tensors, size_t n)
{
	int err;

	for (size_t i = 0; i < n; i++)
		add_piece(round, i,
			  tensors[i].state == PYTENSOR_NO_STORAGE ? tensors[i].storage : 0,
			  round->storage[i], round->tensors->layout.data + 40u);
	err = read_wanted(round);
	for (size_t i = 0; !err && i < n; i++)
		err = take_storage(round, &tensors[i], i);
	return err;
}

void pytensors__forget_shapes(struct pytensors *tensors)
{
	shapes__clear(&tensors->shapes);
}

const int64_t *pytensors__shape(const struct pytensors *tensors, uint32_t shape)
{
	return tensors->shapes.v[shape];
}

/* Reads the sizes of a tensor. More than INLINE_DIMS are outside the TensorImpl; unreadable ones
 * stay 0, since they are only displayed. impl: bytes of the TensorImpl; ret: PYTENSOR_DIMS sizes, 0
 * after the last. 0 or -errno, other than -EFAULT. */
static int read_sizes(const struct pytensors *tensors, const uint8_t *impl, unsigned ndim,
		      int64_t *ret)
{
	const uint8_t *sizes = impl + tensors->layout.sizes + SIZES_AT;
	unsigned n = ndim < PYTENSOR_DIMS ? ndim : PYTENSOR_DIMS;
	int err;

	memset(ret, 0, PYTENSOR_DIMS * sizeof(*ret));
	if (ndim <= INLINE_DIMS) {
		memcpy(ret, sizes, n * sizeof(*ret));
		return 0;
	}
	if (!is_pointer(proc__word(sizes)))
		return 0;
	err = proc__read(tensors->proc, proc__word(sizes), ret, n * sizeof(*ret));
	if (err)
		memset(ret, 0, PYTENSOR_DIMS * sizeof(*ret));
	return err == -EFAULT ? 0 : err;
}

/* Sets the numbers of the tensors' shapes. */
static int read_shapes(struct round *round, struct pytensor *tensors, size_t n)
{
	int64_t sizes[PYTENSOR_DIMS];
	int err = 0;

	for (size_t i = 0; !err && i < n; i++) {
		tensors[i].shape = 0;
		if (tensors[i].state == PYTENSOR_BAD)
			continue;
		err = read_sizes(round->tensors, round->impl[i], tensors[i].ndim, sizes);
		if (!err)
			err = shapes__number(&round->tensors->shapes, sizes, &tensors[i].shape);
	}
	return err;
}

/* Sets the gradients and nodes of tensors that have AutogradMeta. */
static int read_grads(struct round *round, struct pytensor *tensors, size_t n)
{
	enum cxx_kind kind;
	int err;

	if (!round->tensors->layout.grad)
		return 0;
	for (size_t i = 0; i < n; i++)
		add_piece(round, i,
			  tensors[i].state == PYTENSOR_BAD
				  ? 0
				  : proc__word(round->impl[i] + round->tensors->layout.meta),
			  round->meta[i], round->tensors->layout.grad + 16u);
	err = read_wanted(round);
	for (size_t i = 0; !err && i < n; i++) {
		if (round->err[i])
			continue;
		err = kind_of_vtable(round->tensors, proc__word(round->meta[i]), &kind);
		if (err || kind != CXX_AUTOGRAD)
			continue;
		tensors[i].autograd = true;
		/* AutogradMeta {.., Variable grad_, std::shared_ptr<Node> grad_fn_} */
		tensors[i].grad = proc__word(round->meta[i] + round->tensors->layout.grad);
		tensors[i].grad_fn = proc__word(round->meta[i] + round->tensors->layout.grad + 8);
		if (!is_pointer(tensors[i].grad))
			tensors[i].grad = 0;
		if (!is_pointer(tensors[i].grad_fn))
			tensors[i].grad_fn = 0;
	}
	return err;
}

/* Reads the tensors step by step; each step follows pointers of the one before. */
static int read_once(struct round *round, struct pytensor *tensor, size_t n)
{
	int err = read_links(round, tensor, n) ?: read_impls(round, tensor, n);

	if (err)
		return err;
	err = read_storages(round, tensor, n) ?: read_shapes(round, tensor, n);
	return err ?: read_grads(round, tensor, n);
}

/* True if two readings of a tensor agree. A gradient that came or went between them makes them
 * differ. */
static bool same_reading(const struct pytensor *a, const struct pytensor *b)
{
	return a->obj == b->obj && a->impl == b->impl && a->storage == b->storage &&
	       a->addr == b->addr && a->size == b->size && a->state == b->state &&
	       a->grad == b->grad;
}

/* Reads all tensors twice, and those that differ again. again has room for n. */
static int read_round(struct round *round, struct pytensor *tensors, struct pytensor *again,
		      size_t n)
{
	int err;

	err = read_once(round, tensors, n);
	for (size_t i = 0; i < n; i++)
		again[i] = tensors[i];
	if (!err)
		err = read_once(round, again, n);
	for (size_t i = 0; !err && i < n; i++) {
		int tries;

		for (tries = 0; !err && tries < TRIES && !same_reading(&tensors[i], &again[i]);
		     tries++) {
			tensors[i] = again[i];
			err = read_once(round, &again[i], 1);
		}
		if (tries == TRIES)
			tensors[i].state = PYTENSOR_TORN;
	}
	return err;
}

int pytensors__read(struct pytensors *tensors, struct pytensor *tensor, size_t n)
{
	struct pytensor *again;
	struct round round;
	int err;

	if (!n)
		return 0;
	if (!tensors->calibrated)
		return -EINVAL;
	err = round__init(&round, tensors);
	if (err)
		return err;
	again = calloc(AT_ONCE, sizeof(*again));
	err = again ? 0 : -ENOMEM;
	for (size_t i = 0; !err && i < n; i += AT_ONCE)
		err = read_round(&round, tensor + i, again, n - i < AT_ONCE ? n - i : AT_ONCE);
	free(again);
	round__free(&round);
	return err;
}

/* ---- copies ---- */

/* Finds sizes_and_strides_ in the copy, right after the pointer to the Python object, and parses
 * the TensorImpl. Returns the member's offset; 0: not found. */
static unsigned find_copied_sizes(const struct mt_rec_tensor *copy, struct pytensor *ret)
{
	/* At least 32 bytes come before: vtable, counts, storage_ and autograd_meta_. */
	for (unsigned at = 32; at + 8 + SIZES_BYTES + AFTER_BYTES <= sizeof(copy->impl); at += 8) {
		if ((proc__word(copy->impl + at) & ~PY_FLAGS) != copy->object)
			continue;
		/* The version of PyTorch decides whether device_opt_ has its flag first. */
		if (parse_impl(copy->impl, at + 8, /*flag_first=*/false, ret) ||
		    parse_impl(copy->impl, at + 8, /*flag_first=*/true, ret))
			return at + 8;
	}
	return 0;
}

/* True if data_ptr_ can be at this offset of the copied storage. */
static bool copied_data_fits(const struct mt_rec_tensor *copy, unsigned at, uint64_t need,
			     const struct pytensor *t)
{
	const uint8_t *data = copy->storage + at;
	uint64_t size = proc__word(data + DATA_SIZE);

	return data[DATA_DEVICE] == t->device_type &&
	       (!data[DATA_DEVICE] || data[DATA_DEVICE + 1] == t->device_index) &&
	       proc__word(data) >= 4096 && size && size <= MOST_BYTES && need <= size;
}

/* Sets the fields of the tensor's storage, if it has memory. */
static int take_copied_storage(struct pytensors *tensors, const struct mt_rec_tensor *copy,
			       unsigned sizes, struct pytensor *ret)
{
	uint64_t need = impl_extent(copy->impl, sizes, ret);
	enum cxx_kind kind;
	int err = kind_of_vtable(tensors, proc__word(copy->storage), &kind);

	/* At 16, in PyTorch 2.0 to 2.2 at 24. */
	for (unsigned at = 16; !err && kind == CXX_STORAGE && at <= 24; at += 8) {
		if (!copied_data_fits(copy, at, need, ret))
			continue;
		ret->storage = copy->storage_at;
		ret->addr = proc__word(copy->storage + at);
		ret->size = proc__word(copy->storage + at + DATA_SIZE);
		ret->state = PYTENSOR_OK;
		break;
	}
	return err;
}

/* Takes the sizes. False: those outside of the TensorImpl could not be copied. */
static bool take_copied_shape(const struct mt_rec_tensor *copy, unsigned sizes,
			      const struct pytensor *tensor, uint64_t shape[PYTENSOR_DIMS])
{
	size_t n = tensor->ndim < PYTENSOR_DIMS ? tensor->ndim : PYTENSOR_DIMS;
	uint64_t product = 1;

	_Static_assert(PYTENSOR_DIMS <= MT_TENSOR_SIZES, "the copy has the sizes");
	memset(shape, 0, PYTENSOR_DIMS * sizeof(*shape));
	if (tensor->ndim <= INLINE_DIMS)
		memcpy(shape, copy->impl + sizes + SIZES_AT, n * sizeof(*shape));
	else
		memcpy(shape, copy->sizes, n * sizeof(*shape));
	for (size_t i = 0; i < n; i++)
		if (__builtin_mul_overflow(product, shape[i], &product))
			return false;
	if (n == tensor->ndim)
		return product == tensor->numel;
	return !tensor->numel || (product && tensor->numel % product == 0);
}

int pytensors__of_copy(struct pytensors *tensors, const struct mt_rec_tensor *copy,
		       struct pytensor *ret, uint64_t shape[PYTENSOR_DIMS], bool *shape_known)
{
	enum cxx_kind kind;
	unsigned sizes;
	int err = kind_of_vtable(tensors, proc__word(copy->impl), &kind);

	*ret = (struct pytensor){ .state = PYTENSOR_NO_STORAGE };
	if (err)
		return err;
	sizes = kind == CXX_TENSOR ? find_copied_sizes(copy, ret) : 0;
	if (!sizes)
		return -EBADMSG;
	*shape_known = take_copied_shape(copy, sizes, ret, shape);
	return take_copied_storage(tensors, copy, sizes, ret);
}

/*
 * ---- layouts of released versions of PyTorch ----
 *
 * Some programs have too few tensors, or too brief ones, to find the layout by search. A known
 * layout needs one tensor that agrees in all fields.
 */

/* Offsets measured from PyTorch's headers. grad depends on the C++ library and is found by search. */
static const struct pytensor_layout known_layouts[] = {
	/* 2.10 to 2.12 */
	{ .cdata = 16, .storage = 16, .meta = 24, .pyobj = 56, .sizes = 64, .data = 16 },
	/* 2.13 */
	{ .cdata = 16, .storage = 16, .meta = 24, .pyobj = 48, .sizes = 56, .data = 16 },
	/* 2.3 to 2.9 */
	{ .cdata = 24, .storage = 16, .meta = 24, .pyobj = 56, .sizes = 64, .data = 16 },
	/* 2.0 to 2.2 */
	{ .cdata = 24,
	  .storage = 24,
	  .meta = 32,
	  .pyobj = 64,
	  .sizes = 72,
	  .data = 24,
	  .flag_first = true },
};

#define N_KNOWN (sizeof(known_layouts) / sizeof(known_layouts[0]))

/* Sets *ret to the number of tensors that have memory and lead back to their Python object in this
 * layout. objs: their n objects; tensor: room for n readings. */
static int count_fitting(struct pytensors *tensors, const struct pytensor_layout *l,
			 const uint64_t *objs, struct pytensor *tensor, size_t n, size_t *ret)
{
	struct pytensor_layout old = tensors->layout;
	bool calibrated = tensors->calibrated;
	int err;

	for (size_t i = 0; i < n; i++)
		tensor[i] = (struct pytensor){ .obj = objs[i] };
	tensors->layout = *l;
	tensors->calibrated = true;
	err = pytensors__read(tensors, tensor, n);
	tensors->layout = old;
	tensors->calibrated = calibrated;
	*ret = 0;
	for (size_t i = 0; !err && i < n; i++)
		*ret += tensor[i].state == PYTENSOR_OK && tensor[i].pyobj == tensor[i].obj;
	return err;
}

/* Finds the layout of a released PyTorch that fits n Python tensors. One tensor with memory is
 * enough. 0; -ENOENT: none fits better than the others; -ESRCH, -EPERM, -ENOMEM. */
static int find_known(struct pytensors *tensors, const uint64_t *objs, size_t n,
		      struct pytensor_layout *ret)
{
	size_t best = 0, second = 0, fit;
	struct pytensor *tensor;
	int err = 0;

	n = n < LOOKED_AT ? n : LOOKED_AT;
	tensor = calloc(n + 1, sizeof(*tensor));
	if (!tensor)
		return -ENOMEM;
	for (size_t k = 0; !err && k < N_KNOWN; k++) {
		err = count_fitting(tensors, &known_layouts[k], objs, tensor, n, &fit);
		if (err)
			break;
		if (fit > best) {
			second = best;
			best = fit;
			*ret = known_layouts[k];
		} else if (fit > second) {
			second = fit;
		}
	}
	free(tensor);
	if (err)
		return err;
	return best > second ? 0 : -ENOENT;
}

/*
 * ---- the layout from a few tens of samples, field by field ----
 *
 * An offset is used only if no sample contradicts it, several confirm it, and no other offset fits
 * as well.
 */

struct sample {
	uint64_t obj;
	uint8_t head[48]; /* the start of the Python object */
	uint8_t impl[IMPL_BYTES], storage[STORAGE_BYTES], meta[META_BYTES];
	uint64_t impl_at, meta_at;
	size_t impl_len; /* number of readable bytes */
	struct pytensor tensor;
	bool has_storage, has_meta;
};

struct search {
	struct pytensors *owner;
	struct sample *v;
	size_t n;
	bool few; /* fewer than MIN_SAMPLES */
	struct pytensor_layout layout;
	const char *why;
};

/* Sets *ret to the kind of the object at addr; CXX_OTHER: addr is no pointer, or unreadable. */
static int kind_at(struct search *search, uint64_t addr, enum cxx_kind *ret)
{
	uint64_t vptr;
	int err;

	*ret = CXX_OTHER;
	if (!is_pointer(addr))
		return 0;
	err = proc__read_u64(search->owner->proc, addr, &vptr);
	if (err)
		return err == -EFAULT ? 0 : err;
	return kind_of_vtable(search->owner, vptr, ret);
}

/* True if n samples are enough to confirm an offset, of `all` that could. */
static bool are_enough(const struct search *search, size_t n, size_t all)
{
	return search->few ? n && n == all : n >= MIN_SAMPLES && n * 10 >= all * 9;
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

/* Finds the field of a Python tensor that points to its TensorImpl. Drops samples without one,
 * whose object has ended. 0, -EAGAIN, -ENOTSUP or the error of a read. */
static int find_cdata(struct search *search)
{
	size_t votes[4] = { 0 }; /* for the words after the object's head, which has 16 bytes */
	size_t at = 0, n, kept = 0;
	enum cxx_kind kind;
	int err;

	for (size_t i = 0; i < search->n; i++) {
		bool any = false;

		for (size_t k = 0; k < 4; k++) {
			err = kind_at(search, proc__word(search->v[i].head + 16 + 8 * k), &kind);
			if (err)
				return err;
			votes[k] += kind == CXX_TENSOR;
			any |= kind == CXX_TENSOR;
		}
		if (any)
			search->v[kept++] = search->v[i];
	}
	search->n = kept;
	search->few = search->n < MIN_SAMPLES;
	n = elect(votes, 4, &at);
	if (!are_enough(search, n, search->n)) {
		search->why = "the C++ object behind a Python tensor was not found";
		return n ? -ENOTSUP : -EAGAIN;
	}
	search->layout.cdata = 16 + 8 * at;
	return 0;
}

/* Reads the TensorImpls and drops samples without one. */
static int read_sample_impls(struct search *search)
{
	size_t kept = 0;
	enum cxx_kind kind;
	int err;

	for (size_t i = 0; i < search->n; i++) {
		struct sample *sample = &search->v[i];

		sample->impl_at = proc__word(sample->head + search->layout.cdata);
		err = kind_at(search, sample->impl_at, &kind);
		if (err)
			return err;
		if (kind != CXX_TENSOR)
			continue;
		/* The smallest known TensorImpl has 176 bytes, and the memory after it may not be
		 * readable. */
		sample->impl_len = IMPL_BYTES;
		err = proc__read(search->owner->proc, sample->impl_at, sample->impl,
				 sample->impl_len);
		if (err == -EFAULT) {
			sample->impl_len = FEWER_IMPL_BYTES;
			err = proc__read(search->owner->proc, sample->impl_at, sample->impl,
					 sample->impl_len);
		}
		if (err && err != -EFAULT)
			return err;
		if (!err)
			search->v[kept++] = *sample;
	}
	search->n = kept;
	return 0;
}

/* Finds the field that points to an object of kind `want` in most samples. *ret: its offset;
 * *votes_ret: number of these samples. */
static int find_pointer(struct search *search, enum cxx_kind want, uint16_t *ret, size_t *votes_ret)
{
	size_t votes[6] = { 0 }, at = 0;
	enum cxx_kind kind;
	int err;

	for (size_t i = 0; i < search->n; i++) {
		for (size_t k = 0; k < 6; k++) {
			err = kind_at(search, proc__word(search->v[i].impl + 8 * k), &kind);
			if (err)
				return err;
			votes[k] += kind == want;
		}
	}
	*votes_ret = elect(votes, 6, &at);
	*ret = *votes_ret ? 8 * at : 0;
	return 0;
}

/* Finds the field of a TensorImpl that points back to the Python object. */
static void find_pyobj(struct search *search)
{
	size_t votes[12] = { 0 }, at = 0;

	for (size_t i = 0; i < search->n; i++)
		for (size_t k = 4; k < 12; k++)
			votes[k] += (proc__word(search->v[i].impl + 8 * k) & ~PY_FLAGS) ==
				    search->v[i].obj;
	/* Without this offset, only tensors inside wrappers lose their names. */
	if (elect(votes, 12, &at) * 10 >= search->n * 9)
		search->layout.pyobj = 8 * at;
}

/* Finds sizes_and_strides_. Candidate k is the offset 8 * (k / 2), with device_opt_'s flag first if
 * k is odd. */
static int find_sizes(struct search *search)
{
	size_t votes[32] = { 0 }, shaped[32] = { 0 }, at = 0, n;
	struct pytensor tensor;

	for (size_t i = 0; i < search->n; i++) {
		for (size_t k = 8; k < 26; k++) {
			unsigned sizes = 8 * (k / 2);

			if (sizes + SIZES_BYTES + AFTER_BYTES > search->v[i].impl_len ||
			    !parse_impl(search->v[i].impl, sizes, k % 2, &tensor))
				continue;
			votes[k]++;
			/* A useful shape: only sizes multiply to the number of elements. */
			shaped[k] += tensor.ndim >= 1 && tensor.ndim <= INLINE_DIMS &&
				     tensor.numel >= (search->few ? FEW_ELEMENTS : 2);
		}
	}
	n = search->few && elect(shaped, 32, &at) ? votes[at] : elect(votes, 32, &at);
	/* At least nine of ten samples must agree. */
	if (n * 10 < search->n * 9 || shaped[at] < (search->few ? 1 : 2)) {
		search->why = "sizes and type of a tensor were not found";
		return n * 10 < search->n * 9 ? -ENOTSUP : -EAGAIN;
	}
	search->layout.sizes = 8 * (at / 2);
	search->layout.flag_first = at % 2;
	return 0;
}

/* Reads the samples' StorageImpls and parses their TensorImpls. */
static int read_sample_storages(struct search *search)
{
	int err;

	for (size_t i = 0; i < search->n; i++) {
		struct sample *sample = &search->v[i];
		uint64_t at = proc__word(sample->impl + search->layout.storage);
		enum cxx_kind kind;

		err = kind_at(search, at, &kind);
		if (err)
			return err;
		sample->has_storage = kind == CXX_STORAGE &&
				      parse_impl(sample->impl, search->layout.sizes,
						 search->layout.flag_first, &sample->tensor);
		if (!sample->has_storage)
			continue;
		err = proc__read(search->owner->proc, at, sample->storage, sizeof(sample->storage));
		if (err && err != -EFAULT)
			return err;
		sample->has_storage = !err;
	}
	return 0;
}

/* True if data_ptr_ {data, context, deleter, device} and size_bytes_ can be at this offset of the
 * storage. need: from impl_extent(). The index of a CPU is -1 or 0, so a size of 256 bytes is no
 * device. A wrapper of tensors has a storage with a size and no memory. A fake tensor has one of
 * the meta device. */
static bool data_fits(const struct sample *sample, unsigned at, uint64_t need)
{
	const uint8_t *device = sample->storage + at + DATA_DEVICE;
	uint64_t size = proc__word(sample->storage + at + DATA_SIZE);
	bool index_fits = device[1] == sample->tensor.device_index ||
			  (!device[0] && device[1] == 0xff);

	if (is_meta(sample->storage, at))
		return size < MOST_BYTES;
	return device[0] == sample->tensor.device_type && index_fits && size < MOST_BYTES &&
	       (need <= size || !proc__word(sample->storage + at));
}

/* Finds data_ptr_ among the first words of a storage: the device and the size in bytes must fit in
 * nearly all samples, and be exactly what the shape needs in some. */
static int find_data(struct search *search)
{
	/* number of samples that fit, by the word k at which data_ptr_ may be */
	size_t votes[8] = { 0 }, exact[8] = { 0 }, all = 0, at = 0, n;
	bool memory = false;

	for (size_t i = 0; i < search->n; i++) {
		const struct sample *sample = &search->v[i];

		if (!sample->has_storage)
			continue;
		all++;
		for (size_t k = 1; k < 6; k++) {
			uint64_t need = impl_extent(sample->impl, search->layout.sizes,
						    &sample->tensor);

			if (!data_fits(sample, 8 * k, need))
				continue;
			votes[k]++;
			memory |= proc__word(sample->storage + 8 * k) != 0;
			exact[k] += need &&
				    (!search->few || sample->tensor.numel >= FEW_ELEMENTS) &&
				    proc__word(sample->storage + 8 * k) &&
				    proc__word(sample->storage + 8 * k + DATA_SIZE) == need;
		}
	}
	/* On the CPU a pointer may look like a size, but not like exactly the size that the shape
	 * needs. */
	n = elect(exact, 8, &at);
	if (n < (search->few ? 1 : 2) || votes[at] * 10 < all * 9) {
		search->why = memory ? "address and size of a tensor's storage were not found"
				     : "no tensor has memory so far";
		return all < MIN_SAMPLES || !memory ? -EAGAIN : -ENOTSUP;
	}
	search->layout.data = 8 * at;
	return 0;
}

/*
 * Finds AutogradMeta {vptr, std::string name_, Variable grad_}. An empty string of the new ABI
 * points into itself; one of the old ABI is a single pointer. Every gradient must be null or a
 * tensor with the same number of elements.
 */
static int find_grad(struct search *search)
{
	size_t strings = 0, metas = 0, wrong = 0;
	enum cxx_kind kind;
	unsigned grad;
	uint64_t at, numel;
	int err;

	for (size_t i = 0; i < search->n; i++) {
		struct sample *sample = &search->v[i];

		sample->meta_at = proc__word(sample->impl + search->layout.meta);
		err = kind_at(search, sample->meta_at, &kind);
		if (err)
			return err;
		if (kind != CXX_AUTOGRAD || proc__read(search->owner->proc, sample->meta_at,
						       sample->meta, sizeof(sample->meta)))
			continue;
		sample->has_meta = true;
		metas++;
		strings += proc__word(sample->meta + 8) == sample->meta_at + 24;
	}
	if (!metas || (strings && strings != metas))
		return 0;
	grad = strings ? 40 : 16; /* after a std::string of the new ABI, or of the old one */
	for (size_t i = 0; i < search->n; i++) {
		struct sample *sample = &search->v[i];

		at = sample->has_meta ? proc__word(sample->meta + grad) : 0;
		if (!at)
			continue;
		err = kind_at(search, at, &kind);
		if (err)
			return err;
		if (kind == CXX_UNDEFINED)
			continue;
		if (kind != CXX_TENSOR ||
		    proc__read_u64(search->owner->proc,
				   at + search->layout.sizes + SIZES_BYTES + AFTER_NUMEL, &numel) ||
		    numel != sample->tensor.numel)
			wrong++;
	}
	/* a gradient may change meanwhile */
	if (wrong * 10 <= metas)
		search->layout.grad = grad;
	return 0;
}

/* Finds the fields in turn; each needs those before it. 0, -EAGAIN, -ENOTSUP with search->why; or
 * -errno. */
static int find_layout(struct search *search)
{
	size_t votes;
	int err;

	err = find_cdata(search) ?: read_sample_impls(search);
	err = err ?: find_pointer(search, CXX_STORAGE, &search->layout.storage, &votes);
	if (err)
		return err;
	if (search->few ? !votes : votes < MIN_SAMPLES) {
		search->why = "the storage of a tensor was not found";
		return -EAGAIN;
	}
	find_pyobj(search);
	err = find_sizes(search) ?: read_sample_storages(search);
	if (err)
		return err;
	err = find_data(search) ?: find_pointer(search, CXX_AUTOGRAD, &search->layout.meta, &votes);
	if (err)
		return err;
	return votes ? find_grad(search) : 0;
}

/* Uses the layout of a released version that fits the n objects `objs`, and finds the offset of
 * gradients with find_grad(). */
static int take_known(struct search *search, const uint64_t *objs, size_t n)
{
	struct pytensor_layout l;
	int err = find_known(search->owner, objs, n, &l);

	if (err)
		return err;
	search->layout = l;
	err = read_sample_impls(search) ?: read_sample_storages(search);
	return err ? err : find_grad(search);
}

/* Takes samples spread over the n objects `all`, since adjacent tensors are similar. objs: gets the
 * samples' objects. */
static int take_samples(struct search *search, const uint64_t *all, size_t n, uint64_t *objs)
{
	for (size_t i = 0; i < n && search->n < MAX_SAMPLES; i += 1 + (n - 1) / MAX_SAMPLES) {
		struct sample *sample = &search->v[search->n];
		int err = proc__read(search->owner->proc, all[i], sample->head,
				     sizeof(sample->head));

		if (err && err != -EFAULT)
			return err;
		if (err)
			continue;
		sample->obj = all[i];
		objs[search->n++] = all[i];
	}
	search->few = search->n < MIN_SAMPLES;
	return 0;
}

/* Searches the layout field by field; if that fails, tries those of released versions. */
int pytensors__calibrate(struct pytensors *tensors, const uint64_t *objs, size_t n,
			 const char **why)
{
	struct search search = { .owner = tensors, .why = "no tensor could be read" };
	uint64_t sampled[MAX_SAMPLES];
	int err, known;

	search.v = calloc(MAX_SAMPLES, sizeof(*search.v));
	if (!search.v)
		return -ENOMEM;
	err = take_samples(&search, objs, n, sampled);
	n = search.n;
	if (!err)
		err = n ? find_layout(&search) : -EAGAIN;
	if (n && (err == -EAGAIN || err == -ENOTSUP)) {
		known = take_known(&search, sampled, n);
		err = known == -ENOENT ? err : known;
	}
	if (search.n && search.few && (err == -EAGAIN || err == -ENOTSUP)) {
		search.why = "there are too few tensors to find out how this PyTorch stores them";
		err = -EAGAIN;
	}
	if (!err) {
		tensors->layout = search.layout;
		tensors->calibrated = true;
	}
	*why = search.why;
	free(search.v);
	return err;
}
