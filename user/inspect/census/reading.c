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

int reading__check_time(const struct reading *reading)
{
	uint64_t limit = reading->opts->limit_ns;

	if (clock__monotonic() - reading->began > READING_WAITS * limit ||
	    clock__read(CLOCK_THREAD_CPUTIME_ID) - reading->cpu_began > limit)
		return -ETIME;
	return reading->opts->cancelled && reading->opts->cancelled(reading->opts->ctx) ? -ECANCELED
											: 0;
}

/* ---- types ---- */

/* As pytype__mro(), through the cache of memory blocks. There are thousands of types, and a system
 * call costs the same for a word as for a block. */
static int cached_mro(struct reading *reading, uint64_t type, uint64_t *ret)
{
	const struct pylayout *layout = reading->mem.layout;
	struct memcache *cache = reading->census->cache;
	uint64_t meta, flags, mro, n;
	int err;

	err = memcache__read(cache, type + layout->ob_type, &meta, sizeof(meta))
		      ?: memcache__read(cache, meta + layout->tp_flags, &flags, sizeof(flags));
	if (err)
		return err;
	if (!(flags & PYTYPE_TYPE))
		return -EBADMSG;
	err = memcache__read(cache, type + layout->tp_mro, &mro, sizeof(mro))
		      ?: memcache__read(cache, mro + layout->ob_size, &n, sizeof(n));
	if (err)
		return err;
	if (!n || n > PYTYPE_MRO_MAX)
		return -EBADMSG;
	return memcache__read(cache, mro + layout->tuple_item, ret, n * sizeof(*ret)) ?: (int)n;
}

/* Finds the kind of a type by its bases. 0 or an error that ends the reading. */
static int examine_type(struct reading *reading, uint64_t type, enum type_kind *ret)
{
	uint64_t mro[PYTYPE_MRO_MAX];
	int n = cached_mro(reading, type, mro);

	/* The cached memory may be older than the type: it is from any moment of this reading. */
	if (n < 0 || mro[0] != type)
		n = pytype__mro(&reading->mem, type, mro, PYTYPE_MRO_MAX);
	*ret = TYPE_OTHER;
	if (n < 0)
		return n == -ESRCH || n == -EPERM || n == -ENOMEM ? n : 0;
	for (int i = 0; i < n; i++) {
		if (mro[i] == reading->census->tensor_base)
			*ret = type == reading->census->tensor || type == reading->census->parameter
				       ? TYPE_TENSOR
				       : TYPE_WRAPPER;
		else if (mro[i] == reading->census->module)
			*ret = TYPE_MODULE;
		else if (mro[i] == reading->census->optimizer)
			*ret = TYPE_OPTIMIZER;
		for (size_t k = 0; k < CENSUS_CACHE_TYPES && *ret == TYPE_OTHER; k++) {
			if (reading->census->caches[k] && mro[i] == reading->census->caches[k])
				*ret = TYPE_CACHE;
		}
	}
	return 0;
}

int reading__type_kind(struct reading *reading, uint64_t type, enum type_kind *ret)
{
	uint64_t known;
	int err;

	if (map64__get(reading->types, type, &known)) {
		*ret = known;
		return 0;
	}
	err = examine_type(reading, type, ret);
	if (!err && map64__count(reading->types) < MAX_TYPES)
		err = map64__set(reading->types, type, *ret);
	return err;
}

int reading__kind_of(struct reading *reading, uint64_t obj, enum type_kind *ret)
{
	uint64_t known, type;
	uint32_t no;
	int err;

	if (numbers__get(&reading->objects, obj, &no) && reading->kinds[no] != TYPE_OTHER) {
		*ret = reading->kinds[no];
		return 0;
	}
	*ret = TYPE_OTHER;
	if (map64__get(reading->seen, obj, &known)) {
		*ret = known;
		return 0;
	}
	err = pydict__type_of(&reading->mem, obj, &type);
	if (err)
		return err == -ESRCH || err == -EPERM || err == -ENOMEM ? err : 0;
	return reading__type_kind(reading, type, ret);
}

int reading__number(struct reading *reading, uint64_t obj, enum type_kind kind, uint32_t *ret)
{
	int is_new = numbers__add(&reading->objects, obj, ret);

	if (is_new <= 0)
		return is_new;
	if (array__grow(&reading->kinds, &reading->capkinds, reading->objects.n, 1))
		return -ENOMEM;
	reading->kinds[*ret] = kind;
	return 0;
}

/* ---- labels ---- */

int reading__add_text(struct reading *reading, const char *s, uint32_t *ret)
{
	size_t len = strlen(s);
	int err;

	if (!len) {
		*ret = 0;
		return 0;
	}
	if (reading->text_len + len + 1 > CENSUS_MAX_TEXT)
		return -E2BIG;
	err = array__grow(&reading->text, &reading->text_cap, reading->text_len + len + 1, 1);
	if (err)
		return err;
	memcpy(reading->text + reading->text_len, s, len + 1);
	*ret = reading->text_len;
	reading->text_len += len + 1;
	return 0;
}

int reading__key(struct reading *reading, uint64_t key, char *buf, size_t size)
{
	bool cut = false;
	int n = pystr__read(&reading->mem, key, buf, size - sizeof(".."), &cut);

	if (n < 0)
		return n;
	if (cut)
		strcat(buf, "..");
	return 0;
}

/* ---- the list of tensors ---- */

int census_list__add_label(struct census_list *list, const struct label *label, uint32_t *ret)
{
	int err = array__grow(&list->labels, &list->caplabels, list->nlabels + 1,
			      sizeof(*list->labels))
			  ?: array__grow(&list->storages, &list->capstorages, list->nlabels + 1,
					 sizeof(*list->storages));

	if (err)
		return err;
	*ret = (uint32_t)list->nlabels;
	list->storages[list->nlabels] = 0;
	list->labels[list->nlabels++] = *label;
	return 0;
}

int census_list__own_label(struct census_list *list, size_t i, struct label **ret)
{
	struct label copy = *census_list__label(list, i);
	int err = list->v[i].label ? 0 : census_list__add_label(list, &copy, &list->v[i].label);

	*ret = err ? NULL : &list->labels[list->v[i].label];
	return err;
}

void census_list__free(struct census_list *list)
{
	free(list->v);
	free(list->labels);
	free(list->storages);
	free(list->nodes);
}

/* ---- a reading ---- */

int reading__init(struct reading *reading, struct census *census, const struct census_opts *opts)
{
	memset(reading, 0, sizeof(*reading));
	reading->census = census;
	reading->opts = opts;
	reading->clock = opts->clock ? opts->clock : clock__monotonic;
	reading->began = clock__monotonic();
	reading->cpu_began = clock__read(CLOCK_THREAD_CPUTIME_ID);
	pymem__init(&reading->mem, census->py, true);
	reading->types = map64__new();
	reading->seen = map64__new();
	reading->by_obj = map64__new();
	reading->model_at = map64__new();
	reading->module_roots = map64__new();
	/* Offset 0 is "". */
	reading->text = calloc(1, 1);
	reading->text_len = reading->text_cap = 1;
	return reading->types && reading->seen && reading->by_obj && reading->model_at &&
			       reading->module_roots && reading->text
		       ? 0
		       : -ENOMEM;
}

void reading__forget_objects(struct reading *reading)
{
	memcache__release(reading->census->cache);
	map64__free(reading->types);
	map64__free(reading->seen);
	map64__free(reading->by_obj);
	numbers__fini(&reading->objects);
	free(reading->kinds);
	free(reading->modules.v);
	free(reading->optimizers.v);
	free(reading->caches.v);
	free(reading->named);
	reading->types = reading->seen = reading->by_obj = NULL;
	reading->kinds = NULL;
	reading->modules.v = reading->optimizers.v = reading->caches.v = NULL;
	reading->named = NULL;
}

void reading__fini(struct reading *reading)
{
	pymem__fini(&reading->mem);
	reading__forget_objects(reading);
	map64__free(reading->model_at);
	map64__free(reading->module_roots);
	free(reading->models);
	free(reading->held);
	free(reading->passing);
	free(reading->counts);
	free(reading->text);
}
