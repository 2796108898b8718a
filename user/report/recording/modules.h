/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The tree of a device's modules, with the memory of each one alone and with all inside. */
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

struct report_select;

struct module_node {
	const char *root, *name,
		/* names owned by the model. root: class of the outermost module; name: dotted */
		*cls;
	uint64_t total, own, count;   /* bytes with all inside, and alone; blocks with all inside */
	uint32_t parent, first, next; /* ids + 1; 0: none. Siblings are sorted, largest first */
};

struct module_rest {
	uint64_t bytes, count;
};

struct module_tree {
	/* modules sorted by root and name: a module precedes its children */
	struct module_node *all;
	size_t n;
	uint32_t roots; /* id + 1 of the first root */
	struct module_rest before, outside,
		filtered; /* before attach; in no module; not selected. They and all own add up */
};

/* Builds the tree. select may be NULL. Returns 0, -ENOMEM, or -ENOENT as model__rows() does. The
 * model must outlive *ret, which the caller frees. */
int report_modules__build(const struct model *m, size_t device, enum row_when when,
			  const struct report_select *select, struct module_tree *ret);
void report_modules__free(struct module_tree *t);
