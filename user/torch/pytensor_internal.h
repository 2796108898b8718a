/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_TORCH_PYTENSOR_INTERNAL_H
#define MT_TORCH_PYTENSOR_INTERNAL_H
/* What pytensor.c and pytensor_find.c share, and nobody else includes. */
#include "torch/pytensor.h"

struct map64;

/* What an object of C++ is, by its vtable. */
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
 * Byte offsets; 0: not known. Within TensorImpl, sizes_and_strides_ (a size_t, five sizes, five
 * strides), storage_offset_, numel_, data_type_ and device_opt_ follow one another in all versions,
 * and so do data, context, deleter, device and size_bytes_ in StorageImpl: that they do is part of
 * what is verified.
 */
struct pytensor_layout {
	uint16_t cdata;	  /* THPVariable: TensorImpl * */
	uint16_t storage; /* TensorImpl: storage_ */
	uint16_t meta;	  /* autograd_meta_ */
	uint16_t pyobj;	  /* pyobj_slot_'s object */
	uint16_t sizes;	  /* sizes_and_strides_ */
	uint16_t data;	  /* StorageImpl: data_ptr_ */
	uint16_t grad;	  /* AutogradMeta: grad_ */
	bool flag_first;  /* device_opt_ has its flag in front (c10::optional of old) and not behind
			     (std::optional) */
};

#define IMPL_BYTES 256 /* more than any TensorImpl */
#define STORAGE_BYTES 96
#define META_BYTES 64
#define SIZES_BYTES 88 /* sizeof SizesAndStrides */
#define INLINE_DIMS 5
#define MAX_DIMS 64

struct pytensors {
	const struct proc *proc;
	struct map64 *vtables; /* address -> enum cxx_kind */
	struct pytensor_layout l;
	bool calibrated;
};

/* -ESRCH, -EPERM, -ENOMEM; else 0 with *ret, CXX_OTHER for whatever cannot be read. */
int pytensor_find__cxx_kind(struct pytensors *t, uint64_t vptr, enum cxx_kind *ret);
/* The same, and autograd's nodes, which take longer to tell. */
int pytensor_find__cxx_node_kind(struct pytensors *t, uint64_t vptr, enum cxx_kind *ret);
/* What a TensorImpl's bytes say: shape, type and device into *ret. False: they make no sense at
 * this offset. */
bool pytensor_find__parse_impl(const uint8_t *impl, unsigned sizes, bool flag_first,
			       struct pytensor *ret);
/* Bytes that its storage must have at least; 0 where that cannot be said. */
uint64_t pytensor_find__impl_extent(const uint8_t *impl, unsigned sizes, const struct pytensor *t);

#endif
