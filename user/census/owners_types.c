/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which objects the search for holders looks into, by their types. */
#include <string.h>

#include "census/owners.h"
#include "lib/map64.h"
#include "process/memcache.h"
#include "python/pytype.h"

/* int, bytes, str, exceptions and types */
#define TYPE_ATOMS (1ul << 24 | PYTYPE_BYTES | PYTYPE_STR | 1ul << 30 | PYTYPE_TYPE)

static const struct {
	const char *name;
	enum shape shape;
} by_name[] = {
	{ "function", SHAPE_FUNCTION },
	{ "cell", SHAPE_CELL },
	{ "method", SHAPE_METHOD },
	{ "collections.deque", SHAPE_DEQUE },
	{ "ContextVar", SHAPE_CONTEXT_VAR },
	{ "_contextvars.ContextVar", SHAPE_CONTEXT_VAR },
	{ "set", SHAPE_SET },
	{ "frozenset", SHAPE_SET },
	{ "functools._lru_cache_wrapper", SHAPE_CACHE },
	{ "functools._lru_list_elem", SHAPE_LINK },
	{ "functools.partial", SHAPE_PARTIAL },
	{ "mappingproxy", SHAPE_WRAPPER },
	{ "staticmethod", SHAPE_WRAPPER },
	{ "classmethod", SHAPE_WRAPPER },
	{ "types.SimpleNamespace", SHAPE_INSTANCE },
	/* Each module has these, and they hold nothing of the program. */
	{ "ModuleSpec", SHAPE_NONE },
	{ "SourceFileLoader", SHAPE_NONE },
	{ "ExtensionFileLoader", SHAPE_NONE },
};

static enum shape shape_by_name(struct reading *r, uint64_t type, uint64_t flags)
{
	char name[64];

	if (pytype__name(&r->m, type, name, sizeof(name)) < 0)
		return SHAPE_NONE;
	for (size_t i = 0; i < sizeof(by_name) / sizeof(*by_name); i++)
		if (!strcmp(name, by_name[i].name))
			return by_name[i].shape;
	if (r->o->memory && !strcmp(name, "bytearray"))
		return SHAPE_BYTEARRAY;
	if (r->o->memory && !strcmp(name, "numpy.ndarray"))
		return SHAPE_ARRAY;
	if (!strcmp(name, "mmap.mmap"))
		return r->o->memory ? SHAPE_MMAP : SHAPE_NONE;
	if (pytype__is_a(&r->m, type, "_thread._local", NULL) > 0)
		return SHAPE_THREAD_LOCAL;
	return flags & TYPE_HEAP ? SHAPE_INSTANCE : SHAPE_NONE;
}

static int shape_of_type(struct census_owners *l, uint64_t type, enum shape *ret)
{
	uint64_t known, flags;
	enum type_kind kind;
	int err;

	*ret = SHAPE_NONE;
	if (map64__get(l->types, type, &known)) {
		*ret = known;
		return 0;
	}
	err = reading__type_kind(l->r, type, &kind);
	if (err)
		return err;
	if (kind == TYPE_TENSOR || kind == TYPE_WRAPPER)
		*ret = SHAPE_TENSOR;
	else if (pymem__old_u64(&l->r->m, type + l->r->m.l->tp_flags, &flags))
		*ret = SHAPE_NONE;
	else if (l->r->o->memory && flags & (PYTYPE_BYTES | PYTYPE_STR))
		*ret = flags & PYTYPE_BYTES ? SHAPE_BYTES : SHAPE_STR;
	else if (flags & PYTYPE_TYPE)
		*ret = SHAPE_CLASS;
	else if (flags & TYPE_ATOMS)
		*ret = SHAPE_NONE;
	else if (flags & PYTYPE_LIST)
		*ret = SHAPE_LIST;
	else if (flags & PYTYPE_TUPLE)
		*ret = SHAPE_TUPLE;
	else if (flags & PYTYPE_DICT)
		*ret = SHAPE_DICT;
	else
		*ret = shape_by_name(l->r, type, flags);
	return map64__set(l->types, type, *ret);
}

int census_owners__shape_of(struct census_owners *l, uint64_t obj, uint64_t *type, enum shape *ret)
{
	*ret = SHAPE_NONE;
	if (!obj || obj % 8)
		return 0;
	if (memcache__read(l->r->c->cache, obj + l->r->m.l->ob_type, type, sizeof(*type)) ||
	    !*type || *type % 8)
		return 0;
	return shape_of_type(l, *type, ret);
}

bool census_owners__is_container(void *ctx, uint64_t obj)
{
	struct census_owners *l = ctx;
	enum shape shape;
	uint64_t type;

	return !census_owners__shape_of(l, obj, &type, &shape) && shape != SHAPE_NONE &&
	       shape < SHAPE_TENSOR;
}
