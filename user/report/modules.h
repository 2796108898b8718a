/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPORT_MODULES_H
#define MT_REPORT_MODULES_H
/* The modules of a device as the tree that they are, with what each holds itself and with all
 * inside. */
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

struct report_select;

struct module_node {
	const char *root, *name,
		*cls; /* the model's. root: class of the outermost module, name: dotted */
	uint64_t total, own, count;   /* total and count: of all inside */
	uint32_t parent, first, next; /* ids + 1, 0: none; of one parent the largest first */
};

struct module_rest {
	uint64_t bytes, count;
};

struct module_tree {
	struct module_node *all; /* sorted by root and name: a module comes before what is in it */
	size_t n;
	uint32_t roots; /* id + 1 of the first */
	struct module_rest before, outside,
		filtered; /* in no module; what select leaves out. With all own, they add up */
};

/* select may be NULL. 0, -ENOMEM, -ENOENT (as model__rows()); the model must outlive *ret, which is
 * for __free(). */
int report_modules__build(const struct model *m, size_t device, enum row_when when,
			  const struct report_select *select, struct module_tree *ret);
void report_modules__free(struct module_tree *t);

#endif
