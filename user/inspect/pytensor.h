/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * PyTorch's tensors and autograd nodes, read from outside.
 *
 * Tensors: the Python object, its c10::TensorImpl, the StorageImpl that tensors may share, and the
 * gradient. Field offsets are found from existing tensors, whose fields must agree. C++ objects are
 * identified by the type name of their vtable. Objects that fail a check are not reported.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memtrace.h"

struct proc;
struct pytensors;

#define PYTENSOR_DIMS 8 /* dimensions reported; ndim may be larger */

enum pytensor_state {
	PYTENSOR_OK,
	PYTENSOR_NO_STORAGE, /* no storage: sparse, wrapper, "meta", fake or undefined */
	PYTENSOR_TORN,	     /* kept changing while it was read */
	PYTENSOR_BAD,	     /* unreadable, or not a tensor (any more) */
};

struct pytensor {
	uint64_t obj;  /* Python object to start from, or 0 */
	uint64_t impl; /* c10::TensorImpl; the start if obj is 0 */
	/* Python object that the TensorImpl points to; 0: none, or not known. */
	uint64_t pyobj;
	uint64_t storage;    /* c10::StorageImpl */
	uint64_t addr, size; /* the storage's memory and its size in bytes */
	uint64_t grad;	     /* TensorImpl of .grad, 0: none */
	uint64_t grad_fn;    /* node in autograd's graph, 0: none; not verified */
	uint64_t numel;
	uint32_t shape; /* see pytensors__shape() */
	uint8_t ndim;
	uint8_t dtype;	      /* c10::ScalarType */
	uint8_t device_type;  /* c10::DeviceType */
	uint8_t device_index; /* 0 if there is only one */
	uint8_t state;	      /* enum pytensor_state */
	/* The storage's memory belongs to another object, which is released with the storage. */
	bool context;
	bool autograd; /* has an AutogradMeta */
};

struct pytensors *pytensors__new(const struct proc *proc); /* borrows proc. NULL on ENOMEM */
void pytensors__free(struct pytensors *tensors);	   /* accepts NULL */
/*
 * Finds the layout from n Python tensors: best a few tens of different ones, with parameters among
 * them. One or two are enough if they agree and one has a shape and 64 elements. In the layout of a
 * released version, one with memory is enough. Tensors that have ended by now do not count.
 * 0; -EAGAIN: too few useful tensors; -ENOTSUP: no layout fits. *why (static text): the field that
 * was not found.
 */
int pytensors__calibrate(struct pytensors *tensors, const uint64_t *objs, size_t n,
			 const char **why);
bool pytensors__calibrated(const struct pytensors *tensors);
/* Whether .grad can be read: needs an earlier sample that requires a gradient. */
bool pytensors__know_grad(const struct pytensors *tensors);
/* Offset of the storage pointer in a c10::TensorImpl; 0: not calibrated. */
unsigned pytensors__storage_at(const struct pytensors *tensors);

/*
 * Reads n tensors, from obj or, if obj is 0, from impl, with few system calls. Reads twice, and
 * tensors that changed a few more times. 0, -ESRCH, -EPERM, -ENOMEM; each tensor has its own state.
 */
int pytensors__read(struct pytensors *tensors, struct pytensor *tensor, size_t n);

/* The PYTENSOR_DIMS first sizes of a shape, 0 for dimensions that it does not have and if they
 * could not be read. Many tensors share a shape. Valid until the next pytensors__read() or
 * pytensors__forget_shapes(). */
const int64_t *pytensors__shape(const struct pytensors *tensors, uint32_t shape);
/* Forgets the shapes of all tensors read so far. */
void pytensors__forget_shapes(struct pytensors *tensors);

/*
 * Reads a tensor from the copies of its objects that a BPF program made (bpf/oom.bpf.h). Needs no
 * calibration: a TensorImpl points back to its Python object right before its sizes. Sets only
 * storage, addr, size, numel, ndim, dtype, device and state, which is PYTENSOR_OK or
 * PYTENSOR_NO_STORAGE. shape: as pytensors__shape(). *shape_known: false if it has many dimensions,
 * which could not be copied. 0; -EBADMSG: not a tensor; -ESRCH, -EPERM, -ENOMEM.
 */
int pytensors__of_copy(struct pytensors *tensors, const struct mt_rec_tensor *copy,
		       struct pytensor *ret, uint64_t shape[PYTENSOR_DIMS], bool *shape_known);

/* True if the tensor can be a leaf of autograd's graph, such as a parameter. tensor must have been
 * read together with its autograd fields. */
bool pytensor__is_leaf(const struct pytensor *tensor);
/* "float32"; "dtype 77" for an unknown one. buf has 16 bytes. */
const char *pytensor__dtype(uint8_t dtype, char *buf, size_t size);
/* Bits of an element; 0: unknown. */
unsigned pytensor__dtype_bits(uint8_t dtype);

/*
 * PyTorch's autograd nodes, read from their first words: class, sequence number and thread.
 * A node is identified by its address, its class's vtable, its sequence number (counted per thread)
 * and its thread's number. The offsets of the two numbers depend on the PyTorch version. The
 * version's own layout is used as long as its values are possible and the other layout does not fit
 * clearly better, otherwise the other layout, otherwise none.
 */

/* Layout of struct Node (torch/csrc/autograd/function.h); offsets in words of 8 bytes. */
struct node_layout {
	uint8_t sequence; /* sequence_nr_ */
	uint8_t thread;	  /* thread_id_ */
	/* sizeof(Node) in bytes, where the members of a derived class begin */
	uint16_t size;
};

#define NODE_NO_SEQUENCE UINT64_MAX /* sequence number of AccumulateGrad, which runs first */
#define NODE_LAYOUTS 2
#define NODE_THREADS 64

/* Statistics of new nodes, for each layout. Zero it, then call node_guess__init(). */
struct node_guess {
	unsigned int likely; /* layout of the PyTorch version */
	/* Numbers of nodes, by layout. good: the values follow those of the thread's previous node;
	 * bad: they are impossible. */
	uint64_t good[NODE_LAYOUTS], bad[NODE_LAYOUTS];
	uint64_t seen;
	struct {
		uint32_t tid;
		uint64_t node, sequence[NODE_LAYOUTS], thread[NODE_LAYOUTS];
	} last[NODE_THREADS]; /* last node of each thread, in slot tid % NODE_THREADS */
};

void node_guess__init(struct node_guess *guess, const char *torch_version);
/* Adds a node that this thread of the target has just made. head: the node's first words. */
void node_guess__see(struct node_guess *guess, uint32_t tid, uint64_t node,
		     const __u64 head[MT_NODE_WORDS]);
/* The layout to use; NULL: none is plausible. */
const struct node_layout *node_guess__layout(const struct node_guess *guess);

/* Class of an object without namespaces ("AddmmBackward0"), from the type name in front of its
 * vtable (Itanium C++ ABI). 0, -EBADMSG: no such name, -EFAULT, -ESRCH. */
int autograd_node__class(const struct proc *proc, uint64_t vptr, char *buf, size_t size);
/* Last component of a mangled type name: "N5torch8autograd14AccumulateGradE" -> "AccumulateGrad".
 * False: not a type name. */
bool autograd_node__plain_name(const char *mangled, char *buf, size_t size);
