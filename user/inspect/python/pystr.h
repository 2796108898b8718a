/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Python's str objects and look-up by name. */
#include <stddef.h>
#include <stdint.h>

#include "inspect/pyobj.h"

struct pyitems;

/*
 * Reads a str as UTF-8: at most size - 1 and PYOBJ_MAX_STRING bytes, cut at a whole character.
 * U+0000 and surrogates become U+FFFD. cut (may be NULL): the text was longer. Returns bytes
 * written without the NUL, or -errno.
 */
int pystr__read(struct pymem *mem, uint64_t obj, char *buf, size_t size, bool *cut);
/* Size of a str object and its characters, bytes. 0 or -errno; -ENOENT: the characters are
 * elsewhere. */
int pystr__size(struct pymem *mem, uint64_t obj, uint64_t *ret);
/* 1 if the str has this text (at most PYOBJ_MAX_STRING bytes), 0 if not or not a str, or -errno. */
int pystr__equal(struct pymem *mem, uint64_t obj, const char *text);
/* Value under a str key. *known (may be NULL): address of the key's str found earlier in this walk,
 * 0 at first. Names are interned, so comparing addresses mostly suffices. 0, -ENOENT, -errno. */
int pystr__find(struct pymem *mem, const struct pyitems *it, const char *key, uint64_t *known,
		uint64_t *value);
