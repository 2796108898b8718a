/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_TORCH_PYTENSOR_H
#define MT_TORCH_PYTENSOR_H
/*
 * PyTorch's tensors read from outside: the Python object, its c10::TensorImpl, the StorageImpl that
 * several tensors may share, and the gradient. Where the fields lie is found by looking at tensors
 * that are there: fields that have to agree with one another do, in all of them. C++ objects are
 * known by their vtable's type name; what does not verify is not told.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct proc;
struct pytensors;

#define PYTENSOR_DIMS 8 /* sizes told of a shape; ndim may be more */

enum pytensor_state {
	PYTENSOR_OK,
	PYTENSOR_NO_STORAGE, /* nothing of its own: sparse ones, wrappers, "meta", undefined */
	PYTENSOR_TORN,	     /* it changed all the while */
	PYTENSOR_BAD,	     /* unreadable, or not a tensor (by now) */
};

struct pytensor {
	uint64_t obj;	/* the Python object to begin with, or 0 */
	uint64_t impl;	/* c10::TensorImpl: where obj is 0, this is where to begin */
	uint64_t pyobj; /* the Python object that the TensorImpl knows of; 0: none, or not known */
	uint64_t storage;    /* c10::StorageImpl */
	uint64_t addr, size; /* of the storage: where its bytes are, and how many */
	uint64_t grad;	     /* TensorImpl of .grad, 0: none */
	uint64_t grad_fn;    /* its node in autograd's graph, 0: none. Not verified */
	uint64_t numel;
	int64_t sizes[PYTENSOR_DIMS];
	uint8_t ndim;
	uint8_t dtype;	      /* c10::ScalarType */
	uint8_t device_type;  /* c10::DeviceType */
	uint8_t device_index; /* 0 where there is but one */
	uint8_t state;	      /* enum pytensor_state */
	bool context; /* its data is held by something else, that goes when the storage does */
};

struct pytensors *pytensors__new(const struct proc *p); /* borrows p. NULL on ENOMEM */
void pytensors__free(struct pytensors *t);		/* NULL is fine */
/*
 * Finds the layout from n Python tensors that are there: some tens, different ones, parameters
 * among them. 0; -EAGAIN too few that tell something; -ENOTSUP they do not look alike in any
 * layout; *why (static text) says what was not found.
 */
int pytensors__calibrate(struct pytensors *t, const uint64_t *objs, size_t n, const char **why);
bool pytensors__calibrated(const struct pytensors *t);
/* Whether .grad is known: no tensor that needs a gradient has been seen before. */
bool pytensors__know_grad(const struct pytensors *t);
/* Where a c10::TensorImpl has the pointer to its storage; 0: not calibrated. */
unsigned pytensors__storage_at(const struct pytensors *t);

/*
 * Reads n tensors with few system calls: of each, obj is given, or obj 0 and impl. Twice; what
 * changed in between is read again a few times. 0 or -ESRCH, -EPERM, -ENOMEM; states of the tensors
 * are their own.
 */
int pytensors__read(struct pytensors *t, struct pytensor *v, size_t n);

/* "float32"; "dtype 77" for one we do not know. buf of 16. */
const char *pytensor__dtype(uint8_t dtype, char *buf, size_t size);
/* In eighths of a byte; 0: unknown. */
unsigned pytensor__dtype_bits(uint8_t dtype);

#endif
