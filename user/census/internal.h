/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CENSUS_INTERNAL_H
#define MT_CENSUS_INTERNAL_H
/* What census.c, names.c and merge.c share, and nobody else includes. */
#include "census/census.h"
#include "python/pydict.h"
#include "python/pygc.h"
#include "python/pymem.h"
#include "torch/pytensor.h"

struct map64;
struct memcache;

#define CENSUS_MAX_TENSORS (4u << 20)
#define CENSUS_MAX_MODULES (1u << 20)
#define CENSUS_NAME_ROOM                                                                           \
	16384 /* for the longest name: a path of modules, a key, and what it is of */
#define CENSUS_MAX_TEXT (256u << 20)

enum type_kind {
	TYPE_OTHER,
	TYPE_TENSOR,
	TYPE_WRAPPER /* a tensor's subclass */,
	TYPE_MODULE,
	TYPE_OPTIMIZER
};

struct census {
	const struct python *py;
	const struct proc *proc;
	struct memcache *cache;
	struct pytensors *tensors;
	struct pygc gc;
	size_t saved_flags; /* see pygraph__find_flags() */
	uint64_t tensor_base, tensor, parameter, module, optimizer, function; /* type objects in the
		target; the last may be 0 */
};

/* A Python object that the walk over all of them found. */
struct found {
	uint64_t obj, type;
};

struct found_list {
	struct found *v;
	size_t n, cap;
};

/* What a tensor is called. Texts are offsets into the reading's; 0 is "". */
struct label {
	uint32_t name, module, cls, root;
	uint8_t kind; /* enum census_kind */
	bool leaf;    /* what graphs begin with: no activation, whatever is kept of it */
	bool grad;    /* it is the gradient of that, else it lies in it: */
	uint32_t of;  /* the tensor of the list that it was found by, + 1; 0: none */
};

struct named {
	uint64_t obj;
	struct label label;
	bool wrapper; /* of a subclass: what it holds may be tensors */
};

struct reading {
	struct census *c;
	struct pymem m;
	const struct census_opts *o;
	uint64_t deadline;
	struct map64 *types; /* type object -> enum type_kind */
	struct map64 *seen;  /* object -> enum type_kind, of those in the lists below */
	struct found_list tensors, modules, optimizers;
	struct named *named;
	size_t nnamed, named_cap;
	struct map64 *by_obj; /* object -> index of named */
	char *text;
	size_t text_len, text_cap;
	bool torn;
};

/* All that is to be read, with what it is called. */
struct census_list {
	struct pytensor *v;
	struct label *labels;
	bool *wrapper;
	size_t n, cap;
};

/* True for errors that concern one object; others end the reading. */
bool census__is_local(int err);
/* 0 while there is time; -ETIME, -ECANCELED. */
int census__go_on(const struct reading *r);
/* What a type is. 0 or an error that ends the reading. */
int census__type_kind(struct reading *r, uint64_t type, enum type_kind *ret);
/* The same of an object as it is now; TYPE_OTHER for whatever cannot be read. */
int census__kind_of(struct reading *r, uint64_t obj, enum type_kind *ret);
int census__add_text(struct reading *r, const char *s, uint32_t *ret);
/* Gives an object a name unless it has a better one. */
int census__name(struct reading *r, uint64_t obj, const struct label *label, bool wrapper);
bool census__label(const struct reading *r, uint64_t obj, struct label *ret);

/* names.c: names all that modules and optimizers hold. */
int census__name_modules(struct reading *r);
int census__name_optimizers(struct reading *r);
/* Calls fn for the tensors that a wrapper holds, DTensor's local part among them; name: the
 * attribute's, "" for that one. */
int census__inner(struct reading *r, uint64_t obj,
		  int (*fn)(struct reading *r, uint64_t obj, const char *name, void *ctx),
		  void *ctx);

/* tensors.c */
void census_list__free(struct census_list *l);
int census_list__add(struct census_list *l, uint64_t obj, uint64_t impl, const struct label *label,
		     bool wrapper);
/* Finds the layout, if it is not known yet. */
int census__calibrate(struct reading *r, const char **why);
/* Reads all tensors there are into l, which is empty. */
int census__read_tensors(struct reading *r, struct census_list *l);

/* locals.c: variables that hold tensors without a name, found before the tensors are read
 * and used after it. */
struct census_locals {
	struct pylocal *v;
	struct pyitem *globals; /* likewise, of the main module */
	size_t n, nglobals;
};

int census__find_locals(struct reading *r, struct census_locals *ret);
int census__name_locals(struct reading *r, struct census_list *l,
			const struct census_locals *locals);
void census_locals__free(struct census_locals *l);

/* owners.c: containers that hold tensors without a name, looked at before the tensors are
 * read and after it. */
struct census_owners;

int census__find_owners(struct reading *r, struct census_owners **ret);
int census__name_owners(struct reading *r, struct census_list *l,
			const struct census_owners *before);
void census_owners__free(struct census_owners *o); /* NULL is fine */

/* saved.c: what autograd's graph keeps for backward. */
int census__add_saved(struct reading *r, struct census_list *l);

/* merge.c: tensors and their labels to storages. v and labels have n entries. */
int census__merge(struct reading *r, const struct pytensor *v, const struct label *labels, size_t n,
		  struct census_state *ret);

#endif
