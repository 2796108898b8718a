/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The modules below an nn.Module at one time: address, type, name, class. Internal to nnmodule. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inspect/pyobj.h"

#define NN_MAX_NAME 4096 /* bytes; modules with longer names are left out */
#define NN_MAX_CLASS 512 /* bytes; longer ones are cut */

struct nntree;

/*
 * Reads the tree below root, starting a snapshot in m. Leaves out unreadable children and those
 * beyond the limits (1e6 modules, depth 1024, names of NN_MAX_NAME). 0; -EBADMSG root is not an
 * nn.Module or keeps changing; -EFAULT; -ESRCH; -ENOMEM.
 */
int nntree__read(struct pymem *m, uint64_t root, struct nntree **ret);
void nntree__free(struct nntree *t); /* accepts NULL */

/* True: part of the tree kept changing, so modules may be missing. */
bool nntree__torn(const struct nntree *t);
/* False: no module of the tree has a parameter or buffer, as of a loss. True if not known. */
bool nntree__has_tensors(const struct nntree *t);
size_t nntree__count(const struct nntree *t);
/* Index of a module; the root's is 0. */
bool nntree__find(const struct nntree *t, uint64_t addr, size_t *ret);
uint64_t nntree__addr(const struct nntree *t, size_t i);
uint64_t nntree__type(const struct nntree *t, size_t i);
const char *nntree__class(const struct nntree *t, size_t i);
/* Class of the root, or of the module inside if the root is a wrapper. */
const char *nntree__root_class(const struct nntree *t);
/* Dotted name without the components of wrappers, "" for the root. buf has NN_MAX_NAME + 1 bytes
 * and is returned. */
char *nntree__name(const struct nntree *t, size_t i, char *buf);
/* A flag on a module, for the caller's use. */
void nntree__mark(struct nntree *t, size_t i);
bool nntree__marked(const struct nntree *t, size_t i);
