/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPLAY_ABI_H
#define MT_REPLAY_ABI_H
/*
 * Where a PyTorch is, and where in its allocator's table of virtual functions each function stands. PyTorch's pluggable allocator
 * derives from the same class as the native one, and its table, unlike that one's, has names: the functions are exported. So
 * each place is known by name, whatever the version.
 */
#include <limits.h>
#include <stdbool.h>

struct facts;
struct failure;

struct replay_torch {
	char lib[PATH_MAX];  /* libc10_cuda.so */
	char version[64];    /* of torch/version.py; "" not known */
	unsigned raw_alloc, raw_delete, init, empty_cache, set_fraction;
};

/*
 * That of an interpreter, which is run to say where it is; NULL: the one that was recorded, if nobody but root and we could
 * have changed it. 0, or -errno and *f.
 */
int replay_torch__find(const char *python, const struct facts *facts, struct replay_torch *ret, struct failure *f);

#endif
