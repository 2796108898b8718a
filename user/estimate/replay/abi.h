/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Finds a PyTorch, and the slots of its allocator's functions in the table of virtual functions.
 * PyTorch's pluggable allocator derives from the same class as the native one, and its functions
 * are exported by name. So the slots of both are known without a list of versions.
 */
#include <limits.h>

struct facts;
struct failure;
struct replay_opts;

struct replay_torch {
	char lib[PATH_MAX]; /* path of libc10_cuda.so, for messages */
	int dir;	    /* descriptor (O_PATH) of the library's folder; -1: none */
	char version[64];   /* version in torch/version.py; "": unknown */
	unsigned raw_alloc, raw_delete, init, empty_cache, set_fraction;
};

/* Finds the PyTorch of opts->python, otherwise the recorded one (trust.h). Returns 0, or -errno and
 * *f. The caller closes ret->dir in both cases. */
int replay_torch__find(const struct replay_opts *opts, const struct facts *facts,
		       struct replay_torch *ret, struct failure *f);
