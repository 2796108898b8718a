/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The modules below an nn.Module at one time: address, type, name, class. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inspect/pyobj.h"

#define NN_MAX_NAME 4096 /* bytes; modules with longer names are left out */
#define NN_MAX_CLASS 512 /* bytes; longer ones are cut */

struct nntree_node {
	uint64_t addr;
	uint32_t parent; /* index; the root is its own parent */
	uint32_t type;	 /* index in types */
	uint32_t text;	 /* offset of its own component in nntree.text; UINT32_MAX: a wrapper's */
	uint16_t len;	 /* bytes of the whole name */
	uint16_t depth : 15;
	uint16_t marked : 1; /* for the caller's use */
};

/* Whether a type is a wrapper that names its module "module". */
enum parallel { PARALLEL_UNKNOWN, PARALLEL_NO, PARALLEL_YES };

struct nntree_type {
	uint64_t addr;
	uint32_t text; /* offset of its name in nntree.text */
	enum parallel parallel;
};

struct nntree {
	struct nntree_node *nodes;
	struct nntree_type *types;
	char *text; /* NUL-terminated strings */
	size_t n;   /* modules; the root is the first */
	size_t cap, ntypes, types_cap, text_len, text_cap;
	struct map64 *by_addr;
	size_t root_class; /* node whose class names the tree: the root, or the module in a wrapper */
	bool torn;	   /* part of the tree kept changing, so modules may be missing */
	bool tensors;	   /* a module has a parameter or buffer, or could not be read */
};

/*
 * Reads the tree below root, starting a snapshot in mem. Leaves out unreadable children and those
 * beyond the limits (1e6 modules, depth 1024, names of NN_MAX_NAME). 0; -EBADMSG root is not an
 * nn.Module or keeps changing; -EFAULT; -ESRCH; -ENOMEM.
 */
int nntree__read(struct pymem *mem, uint64_t root, struct nntree **ret);
void nntree__free(struct nntree *tree); /* accepts NULL */

/* Sets *ret to the index of the module of this type at addr; 0: the root. False: the tree has none
 * there. */
bool nntree__find(const struct nntree *tree, uint64_t addr, uint64_t type, size_t *ret);
uint64_t nntree__type(const struct nntree *tree, size_t i);
const char *nntree__class(const struct nntree *tree, size_t i);
/* Class of the root, or of the module inside if the root is a wrapper. */
const char *nntree__root_class(const struct nntree *tree);
/* Dotted name without the components of wrappers, "" for the root. buf has NN_MAX_NAME + 1 bytes
 * and is returned. */
char *nntree__name(const struct nntree *tree, size_t i, char *buf);
