/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Parts of a reading, one file each. census.c calls them. */
#include "inspect/census/reading.h"

/* names.c: names the tensors of modules and of optimizers. */
int census__name_modules(struct reading *r);
int census__name_optimizers(struct reading *r);
/* Names the keys and values in the caches of transformers and the pools of SGLang. */
int census__name_caches(struct reading *r);
/* Calls fn for the tensors inside a wrapper. name: the attribute; "" for DTensor's local part. */
int census__inner(struct reading *r, uint64_t obj,
		  int (*fn)(struct reading *r, uint64_t obj, const char *name, void *ctx),
		  void *ctx);

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
/* Forgets optimizers that only wrap others. 0 or -errno. */
int census__drop_wrappers(struct reading *r);
/* Begins the counts of all optimizers, and of one before its objects are read. 0 or -ENOMEM. */
int census__begin_counts(struct reading *r);
void census__begin_count(struct reading *r, size_t optimizer);
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
void census__free_fronts(struct census *c);

/* merge.c: combines n tensors and their labels into storages. */
int census__merge(struct reading *r, const struct pytensor *v, const struct label *labels, size_t n,
		  struct census_state *ret);
