/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Names of tensors in modules: the dotted names of the root module's named_parameters(), without
 * the parts that wrappers add. Names of optimizer state: by the parameter that it is for. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map64.h"
#include "inspect/census/internal.h"
#include "inspect/pyobj.h"
#include "inspect/python/pystr.h"
#include "inspect/torch/nntree.h"

#define MAX_KEY 512 /* bytes of an attribute's name; longer names are cut and end in ".." */
#define MAX_NAME (NN_MAX_NAME + MAX_KEY + 64)
#define MAX_LIST 65536u /* list items examined */
#define FIRST_ITEMS 64	/* of a list, if they hold nothing */
#define MAX_STATE_DEPTH 3
#define COUNT_DEPTH 1	 /* of "step" */
#define LIST_ITEMS 24	 /* PyListObject.ob_item */
#define DESCR_MEMBER 40	 /* PyMemberDescrObject.d_member */
#define MEMBER_OFFSET 16 /* PyMemberDef.offset */
#define DEPTH_MAX 3	 /* a cache, its list, a layer */

/* Whether an attribute of a module with this name holds keys and values, as in vLLM. */
static bool is_kv_name(const char *name)
{
	static const char *const names[] = { "kv_cache",  "k_cache",	 "v_cache",
					     "key_cache", "value_cache", "kv_caches" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(name, names[i]))
			return true;
	}
	return false;
}

/* Reads the items of a list or tuple, at most 65,536. The caller frees *ret. -EBADMSG: neither. */
static int list_items(struct reading *r, uint64_t list, uint64_t **ret, size_t *n)
{
	uint64_t type, flags, count, at;
	uint64_t *v;
	int err;

	err = pydict__type_of(&r->m, list, &type);
	if (!err)
		err = pymem__old_u64(&r->m, type + r->m.l->tp_flags, &flags);
	if (!err && !(flags & (PYTYPE_TUPLE | PYTYPE_LIST)))
		err = -EBADMSG;
	if (!err)
		err = pymem__u64(&r->m, list + r->m.l->ob_size, &count);
	if (err)
		return err;
	at = list + r->m.l->tuple_item;
	if (!(flags & PYTYPE_TUPLE))
		err = pymem__u64(&r->m, list + LIST_ITEMS, &at);
	if (err)
		return err;
	count = count < MAX_LIST ? count : MAX_LIST;
	v = malloc(count ? count * sizeof(*v) : 1);
	if (!v)
		return -ENOMEM;
	err = pymem__read(&r->m, at, v, count * sizeof(*v));
	if (err) {
		free(v);
		return err;
	}
	*ret = v;
	*n = count;
	return 0;
}

static int key_text(struct reading *r, uint64_t key, char *buf, size_t size)
{
	bool cut = false;
	int n = pystr__read(&r->m, key, buf, size - 3, &cut);

	if (n < 0)
		return n;
	if (cut)
		strcat(buf, "..");
	return 0;
}

static const char *join(char *buf, size_t size, const char *prefix, const char *key)
{
	snprintf(buf, size, "%s%s%s", prefix, *prefix ? "." : "", key);
	return buf;
}

/* Names an object if it is a tensor; label: all but its name. */
static int name_tensor(struct reading *r, uint64_t obj, const char *name, struct label label)
{
	enum type_kind kind;
	int err;

	err = reading__kind_of(r, obj, &kind);
	if (err || (kind != TYPE_TENSOR && kind != TYPE_WRAPPER))
		return err;
	err = reading__add_text(r, name, &label.name);
	return err ? err : reading__name(r, obj, &label, kind == TYPE_WRAPPER);
}

/* ---- modules ---- */

struct tree {
	struct nntree *t;
	/* Made by torch.fx from another module, whose parts it may hold under other names. */
	bool graph;
	size_t order;
};

static int by_worth(const void *a, const void *b)
{
	const struct tree *x = a, *y = b;
	size_t nx = nntree__count(x->t), ny = nntree__count(y->t);

	if (x->graph != y->graph)
		return x->graph - y->graph;
	if (nx != ny)
		return nx < ny ? 1 : -1;
	return x->order < y->order ? -1 : 1;
}

/* Adds all submodules to *children. */
static int find_children(struct reading *r, struct map64 *children)
{
	struct pyitems attrs = { 0 }, items = { 0 };
	uint64_t known = 0, dict;
	int err = 0;

	for (size_t i = 0; !err && i < r->modules.n; i++) {
		const struct found *f = &r->modules.v[i];

		err = pydict__attrs(&r->m, f->obj, f->type, &attrs);
		if (!err)
			err = pystr__find(&r->m, &attrs, "_modules", &known, &dict);
		if (!err)
			err = pydict__items(&r->m, dict, &items);
		for (size_t k = 0; !err && k < items.n; k++)
			if (items.v[k].value != f->obj)
				err = map64__set(children, items.v[k].value, 1);
		r->torn |= err == -EAGAIN;
		if (!err || reading__is_local(err))
			err = reading__check_time(r);
	}
	pyitems__fini(&attrs);
	pyitems__fini(&items);
	return err;
}

static int add_tree(struct reading *r, const struct found *f, struct map64 *done, struct tree **v,
		    size_t *n, size_t *cap)
{
	struct nntree *t;
	int err;

	err = nntree__read(&r->m, f->obj, &t);
	if (err) {
		r->torn |= err == -EBADMSG;
		return reading__is_local(err) ? 0 : err;
	}
	r->torn |= nntree__torn(t);
	err = array__grow(v, cap, *n + 1, sizeof(**v));
	for (size_t i = 0; !err && i < nntree__count(t); i++)
		err = map64__set(done, nntree__addr(t, i), 1);
	if (err) {
		nntree__free(t);
		return err;
	}
	(*v)[*n] = (struct tree){ .t = t, .order = *n };
	(*v)[(*n)++].graph = pytype__is_a(&r->m, nntree__type(t, 0), "GraphModule",
					  "torch.fx.graph_module") == 1;
	return 0;
}

/* Reads all module trees: first from modules that no other module holds, then from the rest, which
 * hold one another. */
static int read_trees(struct reading *r, struct tree **v, size_t *n)
{
	struct map64 *children = map64__new(), *done = map64__new();
	size_t cap = 0;
	uint64_t x;
	int err = children && done ? 0 : -ENOMEM;

	pymem__begin_snapshot(&r->m);
	if (!err)
		err = find_children(r, children);
	if (!err && !pymem__holds(&r->m)) {
		map64__clear(children);
		pymem__forget(&r->m);
		err = find_children(r, children);
	}
	for (size_t pass = 0; !err && pass < 2; pass++) {
		for (size_t i = 0; !err && i < r->modules.n; i++) {
			if (map64__get(pass ? done : children, r->modules.v[i].obj, &x))
				continue;
			err = reading__check_time(r)
				      ?: add_tree(r, &r->modules.v[i], done, v, n, &cap);
		}
	}
	map64__free(children);
	map64__free(done);
	return err;
}

static bool is_list(struct reading *r, uint64_t obj)
{
	uint64_t type;

	return r->c->list && !pydict__type_of(&r->m, obj, &type) && type == r->c->list;
}

struct module_walk {
	struct reading *r;
	struct pyitems attrs, items;
	uint64_t known_params, known_buffers;
	uint32_t model; /* see struct label */
	char prefix[NN_MAX_NAME + 1];
	char key[MAX_KEY], name[MAX_NAME];
};

/* Names the tensors in an attribute that is a list: vLLM's older versions keep one of each pipeline
 * stage in `kv_cache`. */
static int name_kv_list(struct module_walk *w, const struct pyitem *item, struct label label)
{
	uint64_t *list = NULL;
	char name[MAX_NAME];
	size_t n = 0;
	int err = key_text(w->r, item->key, w->key, sizeof(w->key));

	if (err || !is_kv_name(w->key))
		return err;
	label.kind = CENSUS_KV_CACHE;
	err = list_items(w->r, item->value, &list, &n);
	for (size_t i = 0; !err && i < n; i++) {
		join(w->name, sizeof(w->name), w->prefix, w->key);
		snprintf(name, sizeof(name), "%.*s[%zu]", MAX_NAME - 24, w->name, i);
		err = name_tensor(w->r, list[i], name, label);
	}
	free(list);
	return err;
}

static int name_items(struct module_walk *w, const struct pyitems *it, const struct label *label)
{
	struct label l;
	int err = 0;

	for (size_t i = 0; !err && i < it->n; i++) {
		enum type_kind kind;

		/* Check the value first: most attributes are not tensors. */
		err = reading__kind_of(w->r, it->v[i].value, &kind);
		if (err)
			continue;
		l = *label;
		if (kind == TYPE_TENSOR || kind == TYPE_WRAPPER) {
			err = key_text(w->r, it->v[i].key, w->key, sizeof(w->key));
			if (!err && l.kind != CENSUS_PARAMETER && is_kv_name(w->key))
				l.kind = CENSUS_KV_CACHE;
			if (!err)
				err = name_tensor(w->r, it->v[i].value,
						  join(w->name, sizeof(w->name), w->prefix, w->key),
						  l);
		} else if (l.kind == CENSUS_OTHER && is_list(w->r, it->v[i].value)) {
			err = name_kv_list(w, &it->v[i], l);
		}
		if (reading__is_local(err))
			err = 0;
	}
	return err;
}

static int name_dict(struct module_walk *w, const char *attr, uint64_t *known,
		     const struct label *label)
{
	uint64_t dict;
	int err;

	err = pystr__find(&w->r->m, &w->attrs, attr, known, &dict);
	if (!err)
		err = pydict__items(&w->r->m, dict, &w->items);
	return err ? err : name_items(w, &w->items, label);
}

static int name_module(struct module_walk *w, const struct nntree *t, size_t i)
{
	struct label label = { .model = w->model };
	int err;

	nntree__name(t, i, w->prefix);
	err = pydict__attrs(&w->r->m, nntree__addr(t, i), nntree__type(t, i), &w->attrs);
	if (!err)
		err = reading__add_text(w->r, w->prefix, &label.module);
	if (!err)
		err = reading__add_text(w->r, nntree__class(t, i), &label.cls);
	if (!err)
		err = reading__add_text(w->r, nntree__root_class(t), &label.root);
	label.kind = CENSUS_PARAMETER;
	if (!err)
		err = name_dict(w, "_parameters", &w->known_params, &label);
	label.kind = CENSUS_BUFFER;
	if (!err)
		err = name_dict(w, "_buffers", &w->known_buffers, &label);
	/* Tensors in the program's own attributes have names, too. */
	label.kind = CENSUS_OTHER;
	return err ? err : name_items(w, &w->attrs, &label);
}

static int name_tree(struct module_walk *w, const struct nntree *t)
{
	int err = 0;

	for (size_t i = 0; i < nntree__count(t); i++) {
		err = i % 16 ? 0 : reading__check_time(w->r);
		if (!err)
			err = name_module(w, t, i);
		w->r->torn |= err == -EAGAIN;
		if (err && !reading__is_local(err))
			return err;
	}
	return 0;
}

/* Names a tree from a snapshot. If memory changed meanwhile, repeats it object by object, each with
 * its own check. */
static int name_tree_snapshot(struct module_walk *w, const struct nntree *t)
{
	size_t n = w->r->nnamed;
	bool torn = w->r->torn;
	int err;

	pymem__begin_snapshot(&w->r->m);
	err = name_tree(w, t);
	if ((err && err != -ETIME) || pymem__holds(&w->r->m))
		return err;
	for (; w->r->nnamed > n; w->r->nnamed--)
		map64__del(w->r->by_obj, w->r->named[w->r->nnamed - 1].obj, NULL);
	w->r->torn = torn;
	pymem__forget(&w->r->m);
	return err ? err : name_tree(w, t);
}

int census__name_modules(struct reading *r)
{
	struct module_walk *w = calloc(1, sizeof(*w));
	struct tree *trees = NULL;
	size_t n = 0;
	int err;

	if (!w)
		return -ENOMEM;
	w->r = r;
	err = read_trees(r, &trees, &n);
	if (n)
		qsort(trees, n, sizeof(*trees), by_worth);
	for (size_t i = 0; !err && i < n; i++)
		err = census__add_model(r, trees[i].t, trees[i].graph, &w->model)
			      ?: name_tree_snapshot(w, trees[i].t);
	if (!err)
		err = census__find_alike(r);
	for (size_t i = 0; i < n; i++)
		nntree__free(trees[i].t);
	free(trees);
	pyitems__fini(&w->attrs);
	pyitems__fini(&w->items);
	free(w);
	return err;
}

/* ---- optimizers ---- */

/* A long list whose first items hold nothing, such as a history of losses. */
static bool is_history(struct reading *r, const uint64_t *list, size_t n)
{
	enum type_kind kind;
	uint64_t type, flags;

	if (n <= FIRST_ITEMS)
		return false;
	for (size_t i = 0; i < FIRST_ITEMS; i++) {
		if (pydict__type_of(&r->m, list[i], &type) || reading__type_kind(r, type, &kind) ||
		    kind != TYPE_OTHER || pymem__old_u64(&r->m, type + r->m.l->tp_flags, &flags) ||
		    flags & (PYTYPE_TUPLE | PYTYPE_LIST | PYTYPE_DICT))
			return false;
	}
	return true;
}

struct state_walk {
	struct reading *r;
	size_t optimizer; /* its index */
	const char *cls;  /* class of the optimizer */
	const char *of;	  /* " of layers.3.weight", or "" */
	struct label label;
};

/* Names the tensors in an entry of a parameter's state: a tensor, or lists and dicts of tensors.
 * what: the key, "exp_avg". */
static int name_state(struct state_walk *w, uint64_t obj, const char *what, int depth)
{
	char name[MAX_NAME * 2], key[MAX_KEY];
	/* state[parameter]["step"] */
	bool counts = depth == COUNT_DEPTH && !strcmp(what, "step");
	struct pyitems items = { 0 };
	enum type_kind kind;
	uint64_t *list = NULL;
	size_t n = 0;
	int err;

	err = reading__kind_of(w->r, obj, &kind);
	if (err)
		return err;
	if (kind == TYPE_TENSOR || kind == TYPE_WRAPPER) {
		struct label label = w->label;

		label.count_of = counts && kind == TYPE_TENSOR ? w->optimizer + 1 : 0;
		snprintf(name, sizeof(name), "%s %s%s", w->cls, what, w->of);
		label.at = strlen(name) - (*w->of ? strlen(w->of) - strlen(" of ") : 0);
		return name_tensor(w->r, obj, name, label);
	}
	if (counts)
		return census__python_count(w->r, w->optimizer, obj);
	if (depth >= MAX_STATE_DEPTH || strlen(what) > MAX_NAME)
		return 0;
	err = reading__check_time(w->r) ?: list_items(w->r, obj, &list, &n);
	if (!err && is_history(w->r, list, n))
		n = 0;
	for (size_t i = 0; !err && i < n; i++) {
		snprintf(name, sizeof(name), "%s[%zu]", what, i);
		err = list[i] ? name_state(w, list[i], name, depth + 1) : 0;
	}
	free(list);
	if (err != -EBADMSG)
		return err;
	err = pydict__items(&w->r->m, obj, &items);
	for (size_t i = 0; !err && i < items.n; i++) {
		if (key_text(w->r, items.v[i].key, key, sizeof(key)))
			continue;
		err = name_state(w, items.v[i].value, join(name, sizeof(name), what, key),
				 depth + 1);
	}
	pyitems__fini(&items);
	return reading__is_local(err) && err != -EAGAIN ? 0 : err;
}

static int name_param_state(struct reading *r, size_t optimizer, const char *cls,
			    const struct pyitem *item)
{
	struct state_walk w = { .r = r, .optimizer = optimizer, .cls = cls, .of = "" };
	char of[MAX_NAME + 8];
	struct label param;

	w.label.kind = CENSUS_OPTIMIZER;
	if (reading__label(r, item->key, &param) && param.name) {
		snprintf(of, sizeof(of), " of %s", r->text + param.name);
		w.of = of;
		w.label.module = param.module;
		w.label.cls = param.cls;
		w.label.root = param.root;
		w.label.model = param.model;
	}
	return name_state(&w, item->value, "", 0);
}

/* Names parameters outside modules, and tensors among the settings, such as a learning rate. */
static int name_group(struct reading *r, size_t optimizer, const char *cls, uint64_t group,
		      size_t number)
{
	struct state_walk w = { .r = r, .optimizer = optimizer, .cls = cls, .of = "" };
	struct pyitems items = { 0 };
	char key[MAX_KEY], name[MAX_NAME];
	uint64_t *list = NULL;
	size_t n = 0;
	int err;

	err = pydict__items(&r->m, group, &items);
	for (size_t i = 0; !err && i < items.n; i++) {
		if (key_text(r, items.v[i].key, key, sizeof(key)))
			continue;
		if (strcmp(key, "params")) {
			w.label = (struct label){ .kind = CENSUS_OPTIMIZER };
			err = name_state(&w, items.v[i].value, key,
					 strcmp(key, "step") ? MAX_STATE_DEPTH - 1 : COUNT_DEPTH);
		} else {
			err = list_items(r, items.v[i].value, &list, &n);
			for (size_t k = 0; !err && k < n; k++) {
				snprintf(name, sizeof(name), "%s param_groups[%zu].params[%zu]",
					 cls, number, k);
				err = name_tensor(r, list[k], name,
						  (struct label){ .kind = CENSUS_PARAMETER });
			}
			free(list);
			list = NULL;
		}
		if (reading__is_local(err) && err != -EAGAIN)
			err = 0;
	}
	pyitems__fini(&items);
	return err;
}

static int name_optimizer(struct reading *r, size_t optimizer)
{
	const struct found *f = &r->optimizers.v[optimizer];
	struct pyitems attrs = { 0 }, items = { 0 };
	char cls[MAX_KEY];
	uint64_t value, *list = NULL;
	size_t n = 0;
	int err;

	census__begin_count(r, optimizer);
	err = pytype__name(&r->m, f->type, cls, sizeof(cls));
	if (!err)
		err = pydict__attrs(&r->m, f->obj, f->type, &attrs);
	/* Groups first: they give parameters outside modules the names used for their state. */
	if (!err && pystr__find(&r->m, &attrs, "param_groups", NULL, &value) == 0)
		err = list_items(r, value, &list, &n);
	for (size_t i = 0; !err && i < n; i++)
		err = reading__check_time(r) ?: name_group(r, optimizer, cls, list[i], i);
	free(list);
	if (!err)
		err = pystr__find(&r->m, &attrs, "state", NULL, &value);
	if (!err)
		err = pydict__items(&r->m, value, &items);
	for (size_t i = 0; !err && i < items.n; i++) {
		err = i % 16 ? 0 : reading__check_time(r);
		if (!err)
			err = name_param_state(r, optimizer, cls, &items.v[i]);
		r->torn |= err == -EAGAIN;
		if (reading__is_local(err))
			err = 0;
	}
	pyitems__fini(&attrs);
	pyitems__fini(&items);
	r->torn |= err == -EAGAIN;
	return reading__is_local(err) ? 0 : err;
}

int census__name_optimizers(struct reading *r)
{
	int err = census__drop_wrappers(r) ?: census__begin_counts(r);

	for (size_t i = 0; !err && i < r->optimizers.n; i++) {
		size_t n = r->nnamed;
		bool torn = r->torn;

		pymem__begin_snapshot(&r->m);
		err = name_optimizer(r, i);
		if (err || pymem__holds(&r->m))
			continue;
		for (; r->nnamed > n; r->nnamed--)
			map64__del(r->by_obj, r->named[r->nnamed - 1].obj, NULL);
		r->torn = torn;
		pymem__forget(&r->m);
		err = name_optimizer(r, i);
	}
	return err;
}

/* ---- wrappers ---- */

/* Offset of a __slots__ attribute in an instance, such as DTensor's local part. -ENOENT: no such
 * slot. */
static int slot_offset(struct reading *r, uint64_t type, const char *name, uint64_t *ret)
{
	uint64_t mro[PYTYPE_MRO_MAX], descr, member, at, offset;
	char text[64] = "";
	int err, n;

	n = pytype__mro(&r->m, type, mro, PYTYPE_MRO_MAX);
	for (int i = 0; i < n; i++) {
		if (pytype__attr(&r->m, mro[i], name, &descr))
			continue;
		err = pymem__u64(&r->m, descr + DESCR_MEMBER, &member);
		if (!err)
			err = pymem__u64(&r->m, member, &at);
		if (!err)
			err = pymem__read(&r->m, at, text, strlen(name) + 1);
		if (!err)
			err = pymem__u64(&r->m, member + MEMBER_OFFSET, &offset);
		if (err || memcmp(text, name, strlen(name) + 1) || offset < 16 || offset > 4096)
			return -ENOENT;
		*ret = offset;
		return 0;
	}
	return n < 0 ? n : -ENOENT;
}

int census__inner(struct reading *r, uint64_t obj,
		  int (*fn)(struct reading *r, uint64_t obj, const char *name, void *ctx),
		  void *ctx)
{
	static const char *const local[] = { "_local_tensor", "elem" };
	struct pyitems attrs = { 0 };
	uint64_t type, offset, value;
	enum type_kind kind;
	char key[MAX_KEY];
	int err;

	err = pydict__type_of(&r->m, obj, &type);
	for (size_t i = 0; !err && i < sizeof(local) / sizeof(local[0]); i++) {
		if (slot_offset(r, type, local[i], &offset) ||
		    pymem__u64(&r->m, obj + offset, &value))
			continue;
		err = reading__kind_of(r, value, &kind);
		if (!err && (kind == TYPE_TENSOR || kind == TYPE_WRAPPER))
			err = fn(r, value, "", ctx);
	}
	if (!err)
		err = pydict__attrs(&r->m, obj, type, &attrs);
	for (size_t i = 0; !err && i < attrs.n; i++) {
		err = reading__kind_of(r, attrs.v[i].value, &kind);
		if (err || (kind != TYPE_TENSOR && kind != TYPE_WRAPPER) ||
		    key_text(r, attrs.v[i].key, key, sizeof(key)))
			continue;
		if (!strcmp(key, local[0]) || !strcmp(key, local[1]))
			key[0] = '\0';
		err = fn(r, attrs.v[i].value, key, ctx);
	}
	pyitems__fini(&attrs);
	return reading__is_local(err) ? 0 : err;
}

/*
 * ---- keys and values that attention keeps for the next tokens, by the object that holds them ----
 *
 * transformers.cache_utils.Cache (DynamicCache, StaticCache ...): `layers`, a list of objects with
 * `keys` and `values`; before 4.56 the lists `key_cache` and `value_cache`.
 * sglang.srt.mem_cache.memory_pool.KVCache (MHATokenToKVPool ...), the token_to_kv_pool of a model
 * runner: the lists `k_buffer` and `v_buffer`, or `kv_buffer`.
 *
 * vLLM's layers and hand-made caches are modules: is_kv_name() says which attributes.
 */

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
		return name_tensor(r, obj, name, label);
	if (kind != TYPE_OTHER || depth > DEPTH_MAX)
		return 0;
	err = list_items(r, obj, &list, &n);
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
