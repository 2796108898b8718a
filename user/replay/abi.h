/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPLAY_ABI_H
#define MT_REPLAY_ABI_H
/*
 * Where a PyTorch is, and where in its allocator's table of virtual functions each function stands.
 * PyTorch's pluggable allocator derives from the same class as the native one, and its table,
 * unlike that one's, has names: the functions are exported. So each place is known by name,
 * whatever the version.
 */
#include <limits.h>
#include <stdbool.h>

struct facts;
struct failure;
struct replay_opts;

struct replay_torch {
	char lib[PATH_MAX]; /* libc10_cuda.so, for messages */
	int dir;	    /* its folder (O_PATH), by which it is loaded; -1: none */
	char version[64];   /* of torch/version.py; "" not known */
	unsigned raw_alloc, raw_delete, init, empty_cache, set_fraction;
};

/* Finds the PyTorch of opts->python, else the recorded one (trust.h). 0, or -errno and *f;
 * ret->dir is the caller's to close either way. */
int replay_torch__find(const struct replay_opts *opts, const struct facts *facts,
		       struct replay_torch *ret, struct failure *f);

#endif
