/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CENSUS_CENSUS_H
#define MT_CENSUS_CENSUS_H
/*
 * What a program's memory is for, read from its own objects: parameters and buffers of its modules,
 * their gradients, the state of its optimizers, and all other tensors that Python knows of. Nothing
 * is stopped and nothing written; the program goes on while it is read. What was changing, or does
 * not verify, is left out and counted: no name is a guess.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct census;
struct proc;
struct python;

/* In the order of precedence: of several tensors that share a storage, the first gives it its name.
 */
enum census_kind {
	CENSUS_PARAMETER,
	CENSUS_BUFFER,
	CENSUS_GRADIENT,
	CENSUS_OPTIMIZER,
	CENSUS_ACTIVATION, /* kept for backward by autograd's graph, and made by what is in that
			      graph */
	CENSUS_OTHER,
	CENSUS_KINDS,
};

const char *census_kind__name(
	enum census_kind k); /* "parameter", "optimizer_state", ... "unknown" */

#define CENSUS_DIMS 8

/* One storage: what the allocator handed out. Texts are the target's: hostile. They live as long as
 * the state. */
struct census_tensor {
	uint64_t addr, size;
	const char
		*name;	    /* "layers.3.weight", "grad of ...", "AdamW exp_avg of ..."; "" where it
			     has none. Where a   storage holds several: "layers.0.weight and 11 more" */
	const char *module; /* the module that the parameter belongs to: "layers.3"; "" for a root
			       or none */
	const char *cls;    /* of that module: "Linear"; "" for none */
	const char *root;   /* class of the outermost module */
	int64_t shape[CENSUS_DIMS]; /* of the tensor that gave it its name */
	uint32_t views;		    /* tensors that share it, that one included */
	uint8_t ndim;		    /* may be more than CENSUS_DIMS */
	uint8_t dtype;		    /* see pytensor__dtype() */
	uint8_t kind;		    /* enum census_kind */
	uint8_t device_type, device_index;
	bool allocated; /* by the device's ordinary allocator, and not memory that was there: an
			   array of numpy's, a file */
};

struct census_device {
	uint8_t type, index;
	uint64_t bytes[CENSUS_KINDS]; /* of storages */
	uint64_t count[CENSUS_KINDS];
};

struct census_state {
	struct census_tensor *tensors; /* by device, then by address */
	size_t ntensors;
	struct census_device *devices;
	size_t ndevices;
	char *text;		      /* private: the names live here */
	struct map64 *params;	      /* private: TensorImpl -> index of its storage's tensor, */
	struct map64 *param_storages; /* -> StorageImpl, */
	uint64_t storage_at;	      /* to which it has a pointer here */
	uint64_t modules, optimizers, objects; /* seen; objects: all of Python's */
	uint64_t torn;			       /* tensors that changed all the while */
	uint64_t unreadable; /* tensors that could not be read, or did not verify */
	bool torn_lists;     /* of objects, of a module, of an optimizer: things may be missing */
	bool know_grad;	     /* gradients can be told */
	uint64_t begin, end; /* CLOCK_MONOTONIC, ns: when the reading was */
	uint64_t bytes_read;
};

/*
 * Borrows py, which has to outlive it. NULL with errno, and *why, static text: ENOENT torch is not
 * imported, ENOTSUP the collector's lists are not understood, ESRCH the process has ended, or its
 * Python has; ENOMEM, ...
 */
struct census *census__open(const struct python *py, const char **why);
void census__free(struct census *c); /* NULL is fine */

struct census_opts {
	bool named_only;   /* leave out what is CENSUS_OTHER and has no name */
	uint64_t limit_ns; /* of the time it takes */
	/* Asked every few milliseconds, where not NULL: true ends it with -ECANCELED. */
	bool (*cancelled)(void *ctx);
	void *ctx;
};

/*
 * Reads. 0 with *ret; -EAGAIN no tensor is there yet, or too few to know how they are laid out;
 * -ENOTSUP they are laid out in no way that we know; -ETIME, -ESRCH, -EPERM, -ENOMEM, -ECANCELED.
 * *why (static text) has it in words. May run on a thread of its own: shares nothing with other
 * users of py that changes.
 */
int census__read(struct census *c, const struct census_opts *o, struct census_state *ret,
		 const char **why);
void census_state__free(struct census_state *s); /* what it holds, not s; zeroes it */
/* Lets go of all that census__param() does not need: tensors are then those that have parameters.
 * Best effort. */
void census_state__keep_params(struct census_state *s);

/*
 * The storage of the parameter whose c10::TensorImpl is at this address, as of that reading; NULL:
 * none, or it is another one's by now.
 */
const struct census_tensor *census__param(const struct census_state *s, const struct proc *p,
					  uint64_t impl);

#endif
