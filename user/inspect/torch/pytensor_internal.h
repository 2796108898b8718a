/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by pytensor.c, pytensor_find.c and pygraph.c. */
#include <string.h>

#include "base/hash.h"
#include "inspect/pytensor.h"

struct map64;

static inline uint64_t word(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Kind of a C++ object, by its vtable. */
enum cxx_kind {
	CXX_OTHER,
	CXX_TENSOR,
	CXX_UNDEFINED,
	CXX_STORAGE,
	CXX_AUTOGRAD,
	CXX_NODE,
	CXX_ACCUMULATE
};

/*
 * Byte offsets; 0: not known. In all versions these TensorImpl fields are adjacent:
 * sizes_and_strides_ (a size_t, five sizes, five strides), storage_offset_, numel_, data_type_,
 * device_opt_. So are data, context, deleter, device and size_bytes_ in StorageImpl. Calibration
 * verifies both.
 */
struct pytensor_layout {
	uint16_t cdata;	  /* THPVariable: TensorImpl * */
	uint16_t storage; /* TensorImpl: storage_ */
	uint16_t meta;	  /* TensorImpl: autograd_meta_ */
	uint16_t pyobj;	  /* TensorImpl: object in pyobj_slot_ */
	uint16_t sizes;	  /* TensorImpl: sizes_and_strides_ */
	uint16_t data;	  /* StorageImpl: data_ptr_ */
	uint16_t grad;	  /* AutogradMeta: grad_ */
	/* device_opt_ has its flag first (older c10::optional), not last (std::optional). */
	bool flag_first;
};

#define IMPL_BYTES 256 /* larger than any TensorImpl */
#define STORAGE_BYTES 96
#define META_BYTES 64
#define SIZES_BYTES 88 /* sizeof SizesAndStrides */
#define DEVICE_META 14 /* c10::DeviceType::Meta */
#define INLINE_DIMS 5
#define MAX_DIMS 64

/* Each shape once. Number 0 has no sizes. */
struct shapes {
	int64_t (*v)[PYTENSOR_DIMS];
	size_t n, cap;
	struct map64 *numbers; /* hash -> number */
	struct hash_seed seed;
};

int shapes__init(struct shapes *s);  /* 0 or -ENOMEM; then shapes__fini() is due, too */
void shapes__fini(struct shapes *s); /* all 0 is fine */
void shapes__clear(struct shapes *s);
/* Finds the number of PYTENSOR_DIMS sizes, or adds them. 0 or -ENOMEM. */
int shapes__number(struct shapes *s, const int64_t *sizes, uint32_t *ret);

struct pytensors {
	const struct proc *proc;
	struct shapes shapes;
	struct map64 *vtables; /* address -> enum cxx_kind */
	struct pytensor_layout l;
	bool calibrated;
};

/* Kind of the object with this vtable; CXX_OTHER if it cannot be read. 0, -ESRCH, -EPERM,
 * -ENOMEM. */
int pytensor_find__cxx_kind(struct pytensors *t, uint64_t vptr, enum cxx_kind *ret);
/* As pytensor_find__cxx_kind(); also recognizes autograd nodes, which takes longer. */
int pytensor_find__cxx_node_kind(struct pytensors *t, uint64_t vptr, enum cxx_kind *ret);
/* Finds the layout of a released PyTorch that fits n Python tensors. One tensor with memory is
 * enough. 0; -ENOENT: none fits better than the others; -ESRCH, -EPERM, -ENOMEM. */
int pytensor_known__find(struct pytensors *t, const uint64_t *objs, size_t n,
			 struct pytensor_layout *ret);
/* Reads shape, type and device from a TensorImpl's bytes. False: implausible at this offset. */
bool pytensor_find__parse_impl(const uint8_t *impl, unsigned sizes, bool flag_first,
			       struct pytensor *ret);
/* Whether a StorageImpl's bytes are of the meta device: it has a size and no memory. The tensor may
 * say another device: FakeTensor does. at: offset of data_ptr_. */
bool pytensor_find__is_meta(const uint8_t *storage, unsigned at);
/* Minimum bytes of the tensor's storage; 0: not known. */
uint64_t pytensor_find__impl_extent(const uint8_t *impl, unsigned sizes, const struct pytensor *t);
