/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_TORCH_NNTREE_H
#define MT_TORCH_NNTREE_H
/*
 * The modules below one nn.Module, as they were at one time: address, type, name, class. Internal
 * to nnmodule.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "python/pymem.h"

#define NN_MAX_NAME 4096 /* bytes; modules with longer names are left out */
#define NN_MAX_CLASS 512 /* bytes; longer ones are cut */

struct nntree;

/*
 * Begins a walk with m and reads the tree. Children that cannot be read, and what is beyond the
 * limits (1e6 modules, depth 1024, names of NN_MAX_NAME) are left out: their names are not known,
 * the others' are right. 0; -EBADMSG root is no nn.Module or keeps changing; -EFAULT; -ESRCH;
 * -ENOMEM.
 */
int nntree__read(struct pymem *m, uint64_t root, struct nntree **ret);
void nntree__free(struct nntree *t); /* NULL is fine */

/* True if part of it changed all the time while it was read: modules may be missing that are there.
 */
bool nntree__torn(const struct nntree *t);
size_t nntree__count(const struct nntree *t);
/* Index of a module; the root's is 0. */
bool nntree__find(const struct nntree *t, uint64_t addr, size_t *ret);
uint64_t nntree__addr(const struct nntree *t, size_t i);
uint64_t nntree__type(const struct nntree *t, size_t i);
const char *nntree__class(const struct nntree *t, size_t i);
/* Class of the root, or of what it wraps when it is a wrapper. */
const char *nntree__root_class(const struct nntree *t);
/* Dotted name without the parts of wrappers, "" for the root. buf of NN_MAX_NAME + 1. Returns buf. */
char *nntree__name(const struct nntree *t, size_t i, char *buf);
/* A mark on a module, for the owner's use. */
void nntree__mark(struct nntree *t, size_t i);
bool nntree__marked(const struct nntree *t, size_t i);

#endif
