/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPLAY_TRUST_H
#define MT_REPLAY_TRUST_H
/*
 * Where PyTorch is. A recording says where its own was, and what it says is code that we are to run: it is taken only where
 * nobody but root and we (or the user behind sudo) could have put it there. What the person names is run as it is.
 */
#include <stddef.h>

struct facts;
struct failure;

/* Runs the interpreter, as the user behind sudo if there is one, and asks for the folder of its torch. 0, or -errno and *f. */
int replay_trust__ask(const char *python, char *torch, size_t size, struct failure *f);
/* The folder of the recorded process's torch: the fact torch_lib, else by its interpreter. 0, or -errno and *f. */
int replay_trust__recorded(const struct facts *facts, char *torch, size_t size, struct failure *f);
/* Could only root or we have put it there? It, and all folders on the way to it; links are followed. */
int replay_trust__path(const char *path);

#endif
