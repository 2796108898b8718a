/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/census/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/map64.h"
#include "inspect/process/memcache.h"
#include "inspect/pyobj.h"
#include "inspect/python/pystr.h"

#define MAX_TYPES (1u << 20)

int reading__check_time(const struct reading *r)
{
	uint64_t limit = r->o->limit_ns;

	if (clock__monotonic() - r->began > READING_WAITS * limit ||
	    clock__read(CLOCK_THREAD_CPUTIME_ID) - r->cpu_began > limit)
		return -ETIME;
	return r->o->cancelled && r->o->cancelled(r->o->ctx) ? -ECANCELED : 0;
}

/* ---- types ---- */

/* As pytype__mro(), through the cache of memory blocks. There are thousands of types, and a system
 * call costs the same for a word as for a block. */
static int cached_mro(struct reading *r, uint64_t type, uint64_t *ret)
{
	const struct pylayout *l = r->m.l;
	struct memcache *c = r->c->cache;
	uint64_t meta, flags, mro, n;
	int err;

	err = memcache__read(c, type + l->ob_type, &meta, sizeof(meta))
		      ?: memcache__read(c, meta + l->tp_flags, &flags, sizeof(flags));
	if (err)
		return err;
	if (!(flags & PYTYPE_TYPE))
		return -EBADMSG;
	err = memcache__read(c, type + l->tp_mro, &mro, sizeof(mro))
		      ?: memcache__read(c, mro + l->ob_size, &n, sizeof(n));
	if (err)
		return err;
	if (!n || n > PYTYPE_MRO_MAX)
		return -EBADMSG;
	return memcache__read(c, mro + l->tuple_item, ret, n * sizeof(*ret)) ?: (int)n;
}

/* Finds the kind of a type by its bases. 0 or an error that ends the reading. */
static int examine_type(struct reading *r, uint64_t type, enum type_kind *ret)
{
	uint64_t mro[PYTYPE_MRO_MAX];
	int n = cached_mro(r, type, mro);

	/* The cached memory may be older than the type: it is from any moment of this reading. */
	if (n < 0 || mro[0] != type)
		n = pytype__mro(&r->m, type, mro, PYTYPE_MRO_MAX);
	*ret = TYPE_OTHER;
	if (n < 0)
		return n == -ESRCH || n == -EPERM || n == -ENOMEM ? n : 0;
	for (int i = 0; i < n; i++) {
		if (mro[i] == r->c->tensor_base)
			*ret = type == r->c->tensor || type == r->c->parameter ? TYPE_TENSOR
									       : TYPE_WRAPPER;
		else if (mro[i] == r->c->module)
			*ret = TYPE_MODULE;
		else if (mro[i] == r->c->optimizer)
			*ret = TYPE_OPTIMIZER;
		for (size_t k = 0; k < CENSUS_CACHE_TYPES && *ret == TYPE_OTHER; k++) {
			if (r->c->caches[k] && mro[i] == r->c->caches[k])
				*ret = TYPE_CACHE;
		}
	}
	return 0;
}

int reading__type_kind(struct reading *r, uint64_t type, enum type_kind *ret)
{
	uint64_t known;
	int err;

	if (map64__get(r->types, type, &known)) {
		*ret = known;
		return 0;
	}
	err = examine_type(r, type, ret);
	if (!err && map64__count(r->types) < MAX_TYPES)
		err = map64__set(r->types, type, *ret);
	return err;
}

int reading__kind_of(struct reading *r, uint64_t obj, enum type_kind *ret)
{
	uint64_t known, type;
	int err;

	*ret = TYPE_OTHER;
	if (map64__get(r->seen, obj, &known)) {
		*ret = known;
		return 0;
	}
	err = pydict__type_of(&r->m, obj, &type);
	if (err)
		return err == -ESRCH || err == -EPERM || err == -ENOMEM ? err : 0;
	return reading__type_kind(r, type, ret);
}

/* ---- labels ---- */

int reading__add_text(struct reading *r, const char *s, uint32_t *ret)
{
	size_t len = strlen(s);
	int err;

	if (!len) {
		*ret = 0;
		return 0;
	}
	if (r->text_len + len + 1 > CENSUS_MAX_TEXT)
		return -E2BIG;
	err = array__grow(&r->text, &r->text_cap, r->text_len + len + 1, 1);
	if (err)
		return err;
	memcpy(r->text + r->text_len, s, len + 1);
	*ret = r->text_len;
	r->text_len += len + 1;
	return 0;
}

int reading__key(struct reading *r, uint64_t key, char *buf, size_t size)
{
	bool cut = false;
	int n = pystr__read(&r->m, key, buf, size - sizeof(".."), &cut);

	if (n < 0)
		return n;
	if (cut)
		strcat(buf, "..");
	return 0;
}

/* ---- a reading ---- */

int reading__init(struct reading *r, struct census *c, const struct census_opts *o)
{
	memset(r, 0, sizeof(*r));
	r->c = c;
	r->o = o;
	r->clock = o->clock ? o->clock : clock__monotonic;
	r->began = clock__monotonic();
	r->cpu_began = clock__read(CLOCK_THREAD_CPUTIME_ID);
	pymem__init(&r->m, c->py, true);
	r->types = map64__new();
	r->seen = map64__new();
	r->by_obj = map64__new();
	r->model_at = map64__new();
	r->module_roots = map64__new();
	/* Offset 0 is "". */
	r->text = calloc(1, 1);
	r->text_len = r->text_cap = 1;
	return r->types && r->seen && r->by_obj && r->model_at && r->module_roots && r->text
		       ? 0
		       : -ENOMEM;
}

void reading__forget_objects(struct reading *r)
{
	map64__free(r->types);
	map64__free(r->seen);
	map64__free(r->by_obj);
	free(r->tensors.v);
	free(r->modules.v);
	free(r->optimizers.v);
	free(r->caches.v);
	free(r->named);
	r->types = r->seen = r->by_obj = NULL;
	r->tensors.v = r->modules.v = r->optimizers.v = r->caches.v = NULL;
	r->named = NULL;
}

void reading__fini(struct reading *r)
{
	pymem__fini(&r->m);
	reading__forget_objects(r);
	map64__free(r->model_at);
	map64__free(r->module_roots);
	free(r->models);
	free(r->held);
	free(r->passing);
	free(r->counts);
	free(r->text);
}
