/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Groups memory by the object that holds it, from the names in the program's objects. Tensors of
 * one container have one holder: "global history[*]". Memory of modules with a known role has one
 * holder for each role and module. Modules that differ only in numbers count as one module:
 * "blocks.*.mlp.weight, .bias". Memory without a name has one holder for each role.
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
	const char *module;   /* the module, or a pattern "blocks.*.mlp"; "": a root or none */
	const char *module_class, *module_root; /* borrowed; "": none, or several */
	const char *detail;			/* borrowed; NULL: not known, or they differ */
	uint64_t bytes, count;
	uint64_t size;	  /* size of each tensor; 0: sizes differ or are not known */
	uint32_t modules; /* number of distinct modules */
};

struct holders {
	struct holder *all; /* by bytes, largest first */
	size_t n;
	/* holder_of[i]: index in all, of the holder of the i-th struct held or row that was given. */
	uint32_t *holder_of;
	char *text; /* private: owns the names */
};

/* by_role: parameters, gradients and so on are one holder for each role, not for each module.
 * Returns 0 or -ENOMEM. */
int holders__group(const struct held *v, size_t n, bool by_role, struct holders *ret);
void holders__free(struct holders *h);
/* Groups those rows that are memory from before attach. rows: from model__rows() with BY_LINE and
 * without any_*. holder_of is HOLDERS_NONE for other rows. Counts are those of known blocks.
 * Returns 0 or -ENOMEM. */
#define HOLDERS_NONE UINT32_MAX
int holders__of_rows(const struct row *rows, size_t n, bool by_role, struct holders *ret);

/* Rows of a table. Memory from before attach has one row for each holder and role, with its name. */
struct holder_rows {
	struct row *all; /* in the order of row__compare(), with cumulative sums */
	size_t n;
	struct row *of_model;	/* private */
	struct holders holders; /* private */
};
/* Makes the rows as model__rows() does, with the same errors. names: false to get the rows of
 * model__rows() unchanged. */
int holder_rows__of(const struct model *m, size_t device, const struct row_opts *opts, bool names,
		    struct holder_rows *ret);
void holder_rows__free(struct holder_rows *r); /* frees its contents and zeroes it */
