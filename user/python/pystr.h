/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PYTHON_PYSTR_H
#define MT_PYTHON_PYSTR_H
/* Python's str objects and the lookup of names. Internal to pyobj, pytype and nntree. */
#include <stddef.h>
#include <stdint.h>

#include "python/pymem.h"

struct pyitems;

/*
 * As UTF-8, at most size - 1 bytes (nor PYOBJ_MAX_STRING), cut at a whole character. What C strings
 * or UTF-8 cannot hold (U+0000, surrogates) becomes U+FFFD. Bytes written without the NUL, or
 * -errno. cut (if not NULL): there was more.
 */
int pystr__read(struct pymem *m, uint64_t obj, char *buf, size_t size, bool *cut);
/* 1 if the str object has this text (at most PYOBJ_MAX_STRING bytes), 0 if not or not a str, or
 * -errno. */
int pystr__equal(struct pymem *m, uint64_t obj, const char *text);
/*
 * Value under a str key. *known (if not NULL) is the address of a str found to be the key earlier
 * in this walk, 0 at first: names in programs are interned, so that mostly no text has to be read.
 * 0, -ENOENT, -errno.
 */
int pystr__find(struct pymem *m, const struct pyitems *it, const char *key, uint64_t *known,
		uint64_t *value);

#endif
