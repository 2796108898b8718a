/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Groups memory by what holds it, by the names in the program's objects. Tensors of one container
 * are one holder: "global history[*]". Memory of modules with a known role is one holder for each
 * role and module, where modules that differ only in numbers are one: "blocks.*.mlp.weight, .bias".
 * The rest has no name and is one holder for each role.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

/* A tensor, or several equal ones. Texts are borrowed until holders__group() returns. */
struct held {
	const char *name;     /* as in struct row and census_tensor; NULL or "": not known */
	const char *category; /* category__name(); NULL: several */
	const char *module, *module_class, *module_root; /* "": none */
	const char *detail;				 /* "[256, 16] float32"; NULL: not known */
	uint64_t bytes, count;
	uint64_t size; /* size of each tensor; 0: sizes differ or are not known */
};

struct holder {
	const char *name;     /* "": not known */
	const char *category; /* borrowed from the first held; NULL: several */
	const char *module;   /* its module or their pattern, "blocks.*.mlp"; "": a root or none */
	const char *module_class, *module_root; /* borrowed; "": none, or several */
	const char *detail;			/* borrowed; NULL: not known, or they differ */
	uint64_t bytes, count;
	uint64_t size;	  /* size of each tensor; 0: sizes differ or are not known */
	uint32_t modules; /* number of distinct modules */
};

struct holders {
	struct holder *all; /* by bytes, largest first */
	size_t n;
	uint32_t *of; /* of[i]: index in all of the holder of held i */
	char *text;   /* private */
};

/* by_role: parameters, gradients and so on are one holder for each role, not for each module.
 * Returns 0 or -ENOMEM. */
int holders__group(const struct held *v, size_t n, bool by_role, struct holders *ret);
void holders__free(struct holders *h);
/* Groups the rows of memory from before attach, made by line with names (row_opts.by BY_LINE, no
 * any_*). of is HOLDERS_NONE for other rows. Counts are those of known blocks. */
#define HOLDERS_NONE UINT32_MAX
int holders__of_rows(const struct row *rows, size_t n, bool by_role, struct holders *ret);

/* Rows of a table. Memory from before attach has one row for each holder and role, with its name. */
struct holder_rows {
	struct row *all; /* in the order of row__compare(), with cumulative sums */
	size_t n;
	struct row *of_model;	/* private */
	struct holders holders; /* private */
};
/* Makes the rows as model__rows() does, with the same errors. names: false for the model's rows
 * alone. */
int holder_rows__of(const struct model *m, size_t device, const struct row_opts *opts, bool names,
		    struct holder_rows *ret);
void holder_rows__free(struct holder_rows *r); /* frees its contents and zeroes it */
