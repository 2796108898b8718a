/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Entries of dicts and attributes of instances, all from one moment: they are read whole, checked
 * against the dict's count, and read again if the dict changed. */
#include <stddef.h>
#include <stdint.h>

#include "inspect/pyobj.h"

struct pyitem {
	uint64_t key, value; /* objects in the target, not 0 */
};

struct pyitems {
	struct pyitem *v; /* in the dict's order */
	size_t n;
	/* private: buffers that the next reading reuses */
	size_t cap, raw_cap;
	uint8_t *raw;
};

void pyitems__fini(struct pyitems *it); /* {0} is a valid initial value */

/* Bits of tp_flags that name a built-in base type. */
#define PYTYPE_LIST (1ul << 25)
#define PYTYPE_TUPLE (1ul << 26)
#define PYTYPE_BYTES (1ul << 27)
#define PYTYPE_STR (1ul << 28)
#define PYTYPE_DICT (1ul << 29)
#define PYTYPE_TYPE (1ul << 31)
/* 0 if obj's type has this bit, -EBADMSG if not, -EFAULT. */
int pydict__check_kind(struct pymem *mem, uint64_t obj, uint64_t bit);
/* The tuple or bytes object that a field points to, and its length. Returns as
 * pydict__check_kind(). */
int pydict__sequence(struct pymem *mem, uint64_t field, uint64_t bit, uint64_t *obj, uint64_t *n);
/* Current type of an object. -EBADMSG for a NULL or misaligned pointer. */
int pydict__type_of(struct pymem *mem, uint64_t obj, uint64_t *type);

/* Entries of a dict or of a subclass of it. An OrderedDict's order after move_to_end() is ignored.
 * 0, -EBADMSG not a dict, -EAGAIN keeps changing, -E2BIG, -EFAULT, -ENOMEM. */
int pydict__items(struct pymem *mem, uint64_t dict, struct pyitems *ret);
/* Attributes in an instance's own dictionary, in every version's layout. type: the instance's type.
 * Returns as pydict__items(). */
int pydict__attrs(struct pymem *mem, uint64_t obj, uint64_t type, struct pyitems *ret);
