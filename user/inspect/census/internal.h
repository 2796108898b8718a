/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* One reading of a process: its objects by type, the names that they get, and the list of tensors. */
#include <errno.h>

#include "base/numbers.h"
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
	TYPE_CACHE, /* an object that holds keys and values of attention */
};

#define CENSUS_CACHE_TYPES 2
#define NOT_IMPORTED UINT64_MAX /* the address of no object */

/* See struct census_front. */
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
	/* Addresses of type objects in the target; function may be 0. Those of PyTorch:
	 * NOT_IMPORTED. */
	uint64_t tensor_base, tensor, parameter, module, optimizer, function;
	uint64_t python_class;		     /* a class that is written in Python */
	uint64_t list;			     /* 0: unknown */
	uint64_t caches[CENSUS_CACHE_TYPES]; /* 0: not imported */
	struct front *fronts;		     /* kept between readings */
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
	uint8_t kind; /* enum census_kind */
	bool leaf;    /* a leaf of autograd's graph, so not an activation */
	bool grad;    /* true: the gradient of the parent; false: a tensor inside the parent */
	uint32_t parent_no; /* 1 + index in census_list.v of the tensor that led to it; 0: none */
	uint32_t optimizer_no; /* 1 + index of the optimizer whose steps the tensor counts; 0: none */
	uint32_t model_no;     /* 1 + index of the model that the tensor belongs to; 0: none */
	uint32_t front_at; /* offset in name of the name within the model: 8 in "grad of fc.weight" */
};

struct named {
	uint64_t obj;
	struct label label;
	bool wrapper; /* a subclass, which may contain tensors */
};

/* A tree of modules. Texts are offsets into reading.text; 0 is "". */
struct model_root {
	uint64_t root, type;	   /* the root module and its class */
	uint64_t bytes;		   /* bytes of the parameters and buffers */
	uint32_t cls, path, front; /* path: of a variable that leads to the model */
	uint32_t first_alike;	   /* index of the first model that has a name in common with it */
	bool has_tensors;
};

/* Memory of an object that is no tensor, and that a container holds. */
struct held {
	uint64_t addr, size;
	uint32_t name; /* offset into reading.text */
};

/* Autograd's graph of a tensor that replaced another one in its container during the reading. */
struct passing {
	uint64_t grad_fn;
	uint32_t name; /* path of the place: offset into reading.text */
};

struct reading {
	struct census *census;
	struct pymem mem;
	const struct census_opts *opts;
	uint64_t began, cpu_began; /* CLOCK_MONOTONIC, CPU time of this thread; ns */
	uint64_t (*clock)(void);   /* clock of census_optimizer.begin and end */
	struct map64 *types;	   /* type object -> enum type_kind */
	/* Objects of tensors, and other objects that get a number: those of the search for holders.
	 */
	struct numbers objects;
	uint8_t *kinds; /* enum type_kind by number; TYPE_OTHER: no tensor of the walk */
	size_t capkinds;
	size_t ntensors;    /* tensors of the walk; they have the first numbers */
	struct map64 *seen; /* object -> enum type_kind, for objects in the lists below */
	struct found_list modules, optimizers, caches;
	struct census_optimizer *counts; /* one for each of optimizers; owned */
	size_t ncounts;
	struct named *named;
	size_t nnamed, named_cap;
	struct map64 *by_obj; /* object -> index in named */
	struct model_root *models;
	size_t nmodels, capmodels;
	struct map64 *model_at;	    /* root module -> index in models */
	struct map64 *module_roots; /* any other module -> root of its model */
	bool models_reached;	    /* see census_state */
	char *text;
	size_t text_len, text_cap;
	struct passing *passing; /* owned */
	size_t npassing;
	struct held *held; /* with census_opts.memory; owned */
	size_t nheld;
	bool torn;
	bool holders_cut; /* see census_state */
};

#define NO_OBJECT UINT32_MAX

/* The part of a struct pytensor that a reading keeps. It is small, because there may be a million. */
struct listed {
	uint64_t impl, addr, size;
	uint32_t obj;	/* number of the Python object to start from, or NO_OBJECT */
	uint32_t label; /* index in census_list.labels */
	uint32_t shape;
	uint32_t ndim : 8;
	uint32_t dtype : 6;
	uint32_t device_type : 5;
	uint32_t device_index : 6;
	uint32_t state : 2; /* enum pytensor_state */
	uint32_t context : 1;
	uint32_t single : 1;  /* it has one element */
	uint32_t grad : 1;    /* it has a gradient */
	uint32_t grad_fn : 1; /* autograd's graph has a node for it */
	uint32_t wrapper : 1; /* a subclass, which may contain tensors */
};

/* All tensors to read, each with its label. */
struct census_list {
	struct listed *v;
	size_t n, cap;
	struct label *labels; /* the first is that of all tensors without a name */
	size_t nlabels, caplabels;
	uint64_t *storages; /* by label: the StorageImpl of a tensor with a label of its own */
	size_t capstorages;
	uint64_t *nodes; /* in autograd's graph, of tensors that were read */
	size_t nnodes, capnodes;
};

/* The Python object of a tensor in the list; 0: none. */
static inline uint64_t listed__obj(const struct reading *reading, const struct listed *tensor)
{
	return tensor->obj == NO_OBJECT ? 0 : reading->objects.keys[tensor->obj];
}

static inline const struct label *census_list__label(const struct census_list *list, size_t i)
{
	return &list->labels[list->v[i].label];
}

static inline bool type_kind__is_tensor(enum type_kind kind)
{
	return kind == TYPE_TENSOR || kind == TYPE_WRAPPER;
}

/* True if an error concerns one object only. Other errors end the reading. */
static inline bool reading__is_local(int err)
{
	return err == -EAGAIN || err == -EFAULT || err == -EBADMSG || err == -ENOENT ||
	       err == -E2BIG;
}

/* A reading may last this many times its limit of CPU time, because it waits for CPUs on a busy
 * machine. */
#define READING_WAITS 4

/* 0; -ECANCELED; -ETIME: this thread has used limit_ns of CPU time since cpu_began, or
 * READING_WAITS times as much time has passed. */
int reading__check_time(const struct reading *reading);
/* Kind of a type. 0 or an error that ends the reading. */
int reading__type_kind(struct reading *reading, uint64_t type, enum type_kind *ret);
/* Kind of an object's current type; TYPE_OTHER if it cannot be read. 0 or an error that ends the
 * reading. */
int reading__kind_of(struct reading *reading, uint64_t obj, enum type_kind *ret);
/* Adds a text to reading.text. *ret: its offset. 0, -ENOMEM or -E2BIG. */
int reading__add_text(struct reading *reading, const char *s, uint32_t *ret);
#define READING_KEY 512 /* bytes of an attribute's name; longer names are cut and end in ".." */
/* Sets *ret to the number of an object. kind: what it is, if the object is new. 0 or -ENOMEM. */
int reading__number(struct reading *reading, uint64_t obj, enum type_kind kind, uint32_t *ret);
/* Text of a str object that names an attribute. 0 or -errno. */
int reading__key(struct reading *reading, uint64_t key, char *buf, size_t size);

/* Adds a label. *ret: its number. 0 or -ENOMEM. */
int census_list__add_label(struct census_list *list, const struct label *label, uint32_t *ret);
/* Sets *ret to the label of tensor i alone, for a change. It is valid until a label is added. 0 or
 * -ENOMEM. */
int census_list__own_label(struct census_list *list, size_t i, struct label **ret);
void census_list__free(struct census_list *list); /* frees the contents */

/* ---- a reading ---- */

/* Begins a reading of census with these options, and its clocks. The caller calls reading__fini()
 * in any case. 0 or -ENOMEM. */
int reading__init(struct reading *reading, struct census *census, const struct census_opts *opts);
void reading__fini(struct reading *reading);
/* Frees the lists and maps of objects and the memory that was read, because a million tensors take
 * much memory. The lists' lengths stay. Only texts can be added afterwards. */
void reading__forget_objects(struct reading *reading);

/* Parts of a reading, one file each. census.c calls them. */

/* names.c: names the tensors of modules, of optimizers, and of caches for keys and values. 0 or an
 * error that ends the reading. */
int census__name_objects(struct reading *reading);

/* tensors.c: the list of tensors */
/* Finds the layout of tensors, if not known yet. all: also from unnamed tensors, if there are
 * enough named ones. -EAGAIN or -ENOTSUP, with *why: not found. */
int census__calibrate(struct reading *reading, bool all, const char **why);
/* Reads all tensors into list, which must be empty. */
int census__read_tensors(struct reading *reading, struct census_list *list);

/* owners.c, owners_names.c: names tensors by the containers that hold them. census__find_owners()
 * searches the containers before the tensors are read, census__name_owners() again after. The
 * second one also sets reading.held with census_opts.memory. */
struct census_owners;

int census__find_owners(struct reading *reading, struct census_owners **ret);
int census__name_owners(struct reading *reading, struct census_list *list,
			struct census_owners *before);
void census_owners__free(struct census_owners *o); /* accepts NULL */

/* counts.c: the steps that optimizers count. */
/* Adds a count of an optimizer's steps that is a Python int; ignores other objects. 0 or an error
 * that ends the reading. */
int census__python_count(struct reading *reading, size_t optimizer, uint64_t obj);
/* Reads the values of all tensors of the list that count steps. 0 or an error that ends the
 * reading. */
int census__read_counts(struct reading *reading, const struct census_list *list);

/* models.c: the trees of modules. */
struct nntree;

/* Adds a tree of modules. graph: torch.fx made it from the modules of another tree. *ret: 1 + index
 * in reading.models. */
int census__add_model(struct reading *reading, const struct nntree *tree, bool graph,
		      uint32_t *ret);
/* Sets model_root.first_alike of all models. Call it when all tensors of modules have names. */
int census__find_alike(struct reading *reading);
/* Sets the paths of models to those of the variables that both searches found. */
int census__reach_models(struct reading *reading, struct census_owners *owners);
/* Puts variables before the names of tensors in models that have names in common. */
int census__front_names(struct reading *reading, struct census_list *list);
/* Sets the models and fronts of *state. Their texts point into reading.text, so no text may be
 * added afterwards. */
int census__take_models(struct reading *reading, struct census_state *state);

/* merge.c: combines tensors and their labels into storages. Uses the memory of the list, which is
 * empty afterwards. */
int census__merge(struct reading *reading, struct census_list *list, struct census_state *ret);
