/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* One reading of a process: its objects by type, the names that they get, and the list of tensors. */
#include <errno.h>

#include "inspect/census.h"
#include "inspect/pyobj.h"
#include "inspect/pytensor.h"
#include "inspect/python/pydict.h"
#include "inspect/python/pygc.h"

struct map64;
struct memcache;

#define CENSUS_MAX_TENSORS (4u << 20)
#define CENSUS_MAX_MODULES (1u << 20)
/* Maximum length of a name: module path, key, and the parameter that it is for. */
#define CENSUS_NAME_ROOM 16384
#define CENSUS_MAX_TEXT (256u << 20)

enum type_kind {
	TYPE_OTHER,
	TYPE_TENSOR,
	TYPE_WRAPPER /* subclass of Tensor */,
	TYPE_MODULE,
	TYPE_OPTIMIZER,
	TYPE_CACHE, /* holds keys and values of attention */
};

#define CENSUS_CACHE_TYPES 2

/* The variable before the names in a model. */
struct front {
	uint64_t root, type;
	char *text; /* "teacher"; owned */
};

struct census {
	const struct python *py;
	const struct proc *proc;
	struct memcache *cache;
	struct pytensors *tensors;
	struct pygc gc;
	size_t saved_flags; /* see pygraph__find_flags() */
	/* Addresses of type objects in the target; function may be 0. */
	uint64_t tensor_base, tensor, parameter, module, optimizer, function;
	uint64_t list;			     /* 0: unknown */
	uint64_t caches[CENSUS_CACHE_TYPES]; /* 0: not imported */
	struct front *fronts;		     /* kept from reading to reading */
	size_t nfronts, capfronts;
};

/* A Python object found by walking the collector's lists. */
struct found {
	uint64_t obj, type;
};

struct found_list {
	struct found *v;
	size_t n, cap;
};

/* Name and role of a tensor. Texts are offsets into reading.text; 0 is "". */
struct label {
	uint32_t name, module, cls, root;
	uint8_t kind;	   /* enum census_kind */
	bool leaf;	   /* a leaf of autograd's graph, so not an activation */
	bool grad;	   /* true: the gradient of tensor of; false: a tensor inside it */
	uint32_t of;	   /* 1 + index in the list of the tensor that led to it; 0: none */
	uint32_t count_of; /* 1 + index of the optimizer whose steps it counts; 0: none */
	uint32_t model;	   /* 1 + index of the model that the name is of; 0: none */
	uint32_t at;	   /* offset of that name in name: 8 in "grad of fc.weight" */
};

struct named {
	uint64_t obj;
	struct label label;
	bool wrapper; /* a subclass, which may contain tensors */
};

/* A tree of modules. Texts are offsets into reading.text; 0 is "". */
struct model_root {
	uint64_t root, type; /* the root module and its class */
	uint64_t bytes;	     /* its parameters and buffers */
	uint32_t cls, path, front;
	uint32_t like; /* index of the first model that has a name in common with it */
	bool named;    /* it has tensors */
};

/* Memory that a container holds. */
struct held {
	uint64_t addr, size;
	uint32_t name; /* offset into reading.text */
};

/* The graph of a tensor that a container got during the reading, in place of another. */
struct passing {
	uint64_t grad_fn;
	uint32_t name; /* offset into reading.text */
};

struct reading {
	struct census *c;
	struct pymem m;
	const struct census_opts *o;
	uint64_t began, cpu_began; /* CLOCK_MONOTONIC, CPU time of this thread; ns */
	uint64_t (*clock)(void);   /* of counts */
	struct map64 *types;	   /* type object -> enum type_kind */
	struct map64 *seen;	   /* object -> enum type_kind, for objects in the lists below */
	struct found_list tensors, modules, optimizers, caches;
	struct census_optimizer *counts; /* of each in optimizers; owned */
	size_t ncounts;
	struct named *named;
	size_t nnamed, named_cap;
	struct map64 *by_obj; /* object -> index in named */
	struct model_root *models;
	size_t nmodels, capmodels;
	struct map64 *model_at;	    /* root module -> index in models */
	struct map64 *module_roots; /* any other module -> root of its model */
	bool reached;		    /* the variables that lead to models were searched */
	char *text;
	size_t text_len, text_cap;
	struct passing *passing; /* owned */
	size_t npassing;
	struct held *held; /* with census_opts.memory; owned */
	size_t nheld;
	bool torn;
	bool holders_cut; /* see census_state */
};

/* All tensors to read, each with its label. */
struct census_list {
	struct pytensor *v;
	struct label *labels;
	bool *wrapper;
	size_t n, cap;
};

static inline bool type_kind__is_tensor(enum type_kind kind)
{
	return kind == TYPE_TENSOR || kind == TYPE_WRAPPER;
}

/* Whether an error concerns one object only. Other errors end the reading. */
static inline bool reading__is_local(int err)
{
	return err == -EAGAIN || err == -EFAULT || err == -EBADMSG || err == -ENOENT ||
	       err == -E2BIG;
}

/* A reading waits for a busy machine's CPUs, too: it may last so many times its limit. */
#define READING_WAITS 4

/* 0; -ECANCELED; -ETIME: this thread has used limit_ns of CPU time since cpu_began, or
 * READING_WAITS times as much time has passed. */
int reading__check_time(const struct reading *r);
/* Kind of a type. 0 or an error that ends the reading. */
int reading__type_kind(struct reading *r, uint64_t type, enum type_kind *ret);
/* Kind of an object's current type; TYPE_OTHER if it cannot be read. 0 or an error that ends the
 * reading. */
int reading__kind_of(struct reading *r, uint64_t obj, enum type_kind *ret);
int reading__add_text(struct reading *r, const char *s, uint32_t *ret);
#define READING_KEY 512 /* bytes of an attribute's name; longer names are cut and end in ".." */
/* Text of a str object that names an attribute. 0 or -errno. */
int reading__key(struct reading *r, uint64_t key, char *buf, size_t size);

/* ---- a reading ---- */

/* Begins a reading of c with these options, and its clocks. The caller calls reading__fini() in any
 * case. 0 or -ENOMEM. */
int reading__init(struct reading *r, struct census *c, const struct census_opts *o);
void reading__fini(struct reading *r);
/* Frees the lists and maps of objects, whose numbers stay, because a million tensors take room.
 * Only texts can be added afterwards. */
void reading__forget_objects(struct reading *r);

/* Parts of a reading, one file each. census.c calls them. */

/* names.c: names the tensors of modules and of optimizers, and the keys and values in the caches of
 * transformers and the pools of SGLang. */
int census__name_objects(struct reading *r);

/* tensors.c: the list of tensors */
/* Finds the layout of tensors, if not known yet. all: also from unnamed tensors, if there are
 * enough named ones. -EAGAIN or -ENOTSUP, with *why: not found. */
int census__calibrate(struct reading *r, bool all, const char **why);
/* Reads all tensors into l, which must be empty. */
int census__read_tensors(struct reading *r, struct census_list *l);

/* owners.c, owners_names.c: containers that hold unnamed tensors. Found before the tensors are
 * read, and again after. Adds other memory to the reading if it asks for it. */
struct census_owners;

int census__find_owners(struct reading *r, struct census_owners **ret);
int census__name_owners(struct reading *r, struct census_list *l, struct census_owners *before);
void census_owners__free(struct census_owners *o); /* accepts NULL */

/* counts.c: the steps that optimizers count. */
/* Takes a count that is a Python object, if it is an int. 0 or an error that ends the reading. */
int census__python_count(struct reading *r, size_t optimizer, uint64_t obj);
/* Reads the tensors of the list that are counts. 0 or an error that ends the reading. */
int census__read_counts(struct reading *r, const struct census_list *l);

/* models.c: the trees of modules. */
struct nntree;

/* Adds a tree. graph: made by torch.fx. *ret: 1 + its index. */
int census__add_model(struct reading *r, const struct nntree *t, bool graph, uint32_t *ret);
/* Compares the names in models, once all have theirs. */
int census__find_alike(struct reading *r);
/* Takes the variables that lead to models from the search for containers. */
int census__reach_models(struct reading *r, const struct census_owners *l);
/* Puts variables before the names of models that have names in common. */
int census__front_names(struct reading *r, struct census_list *l);
/* No text may be added afterwards. */
int census__take_models(struct reading *r, struct census_state *s);

/* merge.c: combines n tensors and their labels into storages. */
int census__merge(struct reading *r, const struct pytensor *v, const struct label *labels, size_t n,
		  struct census_state *ret);
