/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PYTHON_PYDICT_H
#define MT_PYTHON_PYDICT_H
/*
 * The entries of dicts and of instances' attributes, as a snapshot: taken whole, checked against
 * the dict's own count, taken again when it changed meanwhile. Internal to python/,
 * torch/ and census/.
 */
#include <stddef.h>
#include <stdint.h>

#include "python/pymem.h"

struct pyitem {
	uint64_t key, value; /* objects in the target, neither is 0 */
};

struct pyitems {
	struct pyitem *v; /* in the dict's order */
	size_t n;
	/* private: buffers that the next snapshot uses again */
	size_t cap, raw_cap;
	uint8_t *raw;
};

void pyitems__fini(struct pyitems *it); /* {0} is a valid start */

/* Bits of tp_flags that say what a type derives from. */
#define PYTYPE_TUPLE (1ul << 26)
#define PYTYPE_BYTES (1ul << 27)
#define PYTYPE_STR (1ul << 28)
#define PYTYPE_DICT (1ul << 29)
#define PYTYPE_TYPE (1ul << 31)
/* 0 if obj's type has this bit, -EBADMSG if not, -EFAULT. */
int pydict__check_kind(struct pymem *m, uint64_t obj, uint64_t bit);
/* Type of an object as it is now. A NULL or misaligned pointer is -EBADMSG. */
int pydict__type_of(struct pymem *m, uint64_t obj, uint64_t *type);

/*
 * Entries of a dict object (dict or a subclass of it; an OrderedDict's own order after
 * move_to_end() is not looked at). 0, -EBADMSG not a dict, -EAGAIN changing all the time, -E2BIG,
 * -EFAULT, -ENOMEM.
 */
int pydict__items(struct pymem *m, uint64_t dict, struct pyitems *ret);
/* Attributes in an instance's own dictionary, wherever its version keeps it. type: the instance's. */
int pydict__attrs(struct pymem *m, uint64_t obj, uint64_t type, struct pyitems *ret);

#endif
