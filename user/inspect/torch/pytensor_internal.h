/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by pytensor.c and pygraph.c. */
#include <string.h>

#include "base/hash.h"
#include "inspect/proc.h"
#include "inspect/pytensor.h"

struct map64;

/* Kind of a C++ object, by the class name of its vtable. */
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
#define SIZES_AT 8     /* offset of the sizes in it, after size_ */
#define STRIDES_AT 48  /* offset of the strides in it, after the sizes */
#define DEVICE_META 14 /* c10::DeviceType::Meta */
#define INLINE_DIMS 5
#define MAX_DIMS 64

/* All different shapes, by number. Number 0 has no sizes. */
struct shapes {
	int64_t (*v)[PYTENSOR_DIMS];
	size_t n, cap;
	struct map64 *numbers; /* hash -> number */
	struct hash_seed seed;
};

struct pytensors {
	const struct proc *proc;
	struct shapes shapes;
	struct map64 *vtables; /* address -> enum cxx_kind */
	struct pytensor_layout layout;
	bool calibrated;
};

/* Kind of the object with this vtable; CXX_OTHER if it cannot be read. Also recognizes autograd
 * nodes, which takes longer. 0, -ESRCH, -EPERM, -ENOMEM. */
int pytensors__node_kind(struct pytensors *tensors, uint64_t vptr, enum cxx_kind *ret);
