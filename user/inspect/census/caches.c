/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Names of keys and values that attention keeps for the next tokens, by the object that holds them:
 *
 * transformers.cache_utils.Cache (DynamicCache, StaticCache ...): `layers`, a list of objects with
 * `keys` and `values`; before 4.56 the lists `key_cache` and `value_cache`.
 * sglang.srt.mem_cache.memory_pool.KVCache (MHATokenToKVPool ...), the token_to_kv_pool of a model
 * runner: the lists `k_buffer` and `v_buffer`, or `kv_buffer`.
 *
 * vLLM's layers and hand-made caches are modules: census__is_kv_name() says which attributes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/census/internal.h"
#include "inspect/python/pystr.h"
#include "inspect/pytype.h"

#define DEPTH_MAX 3 /* a cache, its list, a layer */

bool census__is_kv_name(const char *name)
{
	static const char *const names[] = { "kv_cache",  "k_cache",	 "v_cache",
					     "key_cache", "value_cache", "kv_caches" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(name, names[i]))
			return true;
	}
	return false;
}

static int name_held(struct reading *r, uint64_t obj, const char *name, int depth);

/* Names the tensors that these attributes of a cache or a layer hold. */
static int name_attrs(struct reading *r, uint64_t obj, uint64_t type, const char *name,
		      const char *before, int depth)
{
	static const char *const keys[] = { "layers",	"key_cache", "value_cache", "k_buffer",
					    "v_buffer", "kv_buffer", "keys",	    "values" };
	struct pyitems attrs = { 0 };
	char text[512];
	uint64_t value;
	int err = pydict__attrs(&r->m, obj, type, &attrs);

	for (size_t i = 0; !err && i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (pystr__find(&r->m, &attrs, keys[i], NULL, &value))
			continue;
		snprintf(text, sizeof(text), "%.400s%s%s", name, before, keys[i]);
		err = name_held(r, value, text, depth + 1);
	}
	pyitems__fini(&attrs);
	return err;
}

static int name_held(struct reading *r, uint64_t obj, const char *name, int depth)
{
	struct label label = { .kind = CENSUS_KV_CACHE };
	uint64_t *list = NULL, type;
	enum type_kind kind;
	char text[512];
	size_t n = 0;
	int err;

	err = reading__kind_of(r, obj, &kind);
	if (err)
		return err;
	if (kind == TYPE_TENSOR || kind == TYPE_WRAPPER)
		return census__name_tensor(r, obj, name, label);
	if (kind != TYPE_OTHER || depth > DEPTH_MAX)
		return 0;
	err = census__list_items(r, obj, &list, &n);
	for (size_t i = 0; !err && i < n; i++) {
		snprintf(text, sizeof(text), "%.400s[%zu]", name, i);
		err = i % 16 ? 0 : reading__check_time(r);
		if (!err)
			err = name_held(r, list[i], text, depth + 1);
		r->torn |= err == -EAGAIN;
		if (reading__is_local(err))
			err = 0;
	}
	free(list);
	if (err != -EBADMSG)
		return err;
	err = pydict__type_of(&r->m, obj, &type);
	return err ? err : name_attrs(r, obj, type, name, ".", depth);
}

static int name_cache(struct reading *r, const struct found *f)
{
	char cls[128];
	int err = pytype__name(&r->m, f->type, cls, sizeof(cls));

	if (err >= 0)
		err = name_attrs(r, f->obj, f->type, cls, " ", 0);
	r->torn |= err == -EAGAIN;
	return reading__is_local(err) ? 0 : err;
}

int census__name_caches(struct reading *r)
{
	int err = 0;

	for (size_t i = 0; !err && i < r->caches.n; i++) {
		err = reading__check_time(r);
		if (!err)
			err = name_cache(r, &r->caches.v[i]);
	}
	return err;
}
