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

#define MAX_NAME (NN_MAX_NAME + READING_KEY + 64)
#define MAX_LIST 65536u /* list items examined */
#define FIRST_ITEMS 64	/* a longer list whose first items hold nothing is a history */
/* Depths of name_state(). */
#define MAX_STATE_DEPTH 3 /* tensors are named down to here */
#define COUNT_DEPTH 1	  /* of state[parameter]["step"] */
#define SETTING_DEPTH 2	  /* for a setting of a group: a tensor, or one list or dict of tensors */
#define LIST_ITEMS 24	  /* PyListObject.ob_item */
#define DEPTH_MAX 3	  /* levels of containers in a cache: its list, a layer, the layer's list */
#define CHECK_EVERY 16	  /* parameters between two checks of the time */

/* True if an attribute of a module with this name holds keys and values, as in vLLM. */
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

/* Reads the items of a list or tuple, at most MAX_LIST. The caller frees *ret. -EBADMSG: the object
 * is neither a list nor a tuple. *n_items: their number. */
static int list_items(struct reading *reading, uint64_t list, uint64_t **ret, size_t *n_items)
{
	uint64_t type, flags, count, at;
	uint64_t *items;
	int err;

	err = pydict__type_of(&reading->mem, list, &type)
		      ?: pymem__constant_u64(&reading->mem, type + reading->mem.layout->tp_flags,
					     &flags);
	if (err)
		return err;
	if (!(flags & (PYTYPE_TUPLE | PYTYPE_LIST)))
		return -EBADMSG;
	err = pymem__u64(&reading->mem, list + reading->mem.layout->ob_size, &count);
	at = list + reading->mem.layout->tuple_item;
	if (!err && !(flags & PYTYPE_TUPLE))
		err = pymem__u64(&reading->mem, list + LIST_ITEMS, &at);
	if (err)
		return err;
	count = count < MAX_LIST ? count : MAX_LIST;
	items = malloc(count ? count * sizeof(*items) : 1);
	if (!items)
		return -ENOMEM;
	err = pymem__read(&reading->mem, at, items, count * sizeof(*items));
	if (err) {
		free(items);
		return err;
	}
	*ret = items;
	*n_items = count;
	return 0;
}

static const char *join_name(char *buf, size_t size, const char *prefix, const char *key)
{
	snprintf(buf, size, "%s%s%s", prefix, *prefix ? "." : "", key);
	return buf;
}

/* Sets the label of an object, unless it has a label of the same or an earlier kind. */
static int set_label(struct reading *reading, uint64_t obj, const struct label *label, bool wrapper)
{
	uint64_t i;
	int err;

	if (map64__get(reading->by_obj, obj, &i)) {
		struct label *old = &reading->named[i].label;

		if (label->kind >= old->kind) /* kinds are in the order of precedence */
			return 0;
		if (old->cls && !label->cls)
			old->kind = label->kind; /* the name within a module stays */
		else
			*old = *label;
		return 0;
	}
	if (reading->nnamed >= CENSUS_MAX_TENSORS)
		return -E2BIG;
	err = array__grow(&reading->named, &reading->named_cap, reading->nnamed + 1,
			  sizeof(*reading->named))
		      ?: map64__set(reading->by_obj, obj, reading->nnamed);
	if (err)
		return err;
	reading->named[reading->nnamed++] = (struct named){ .obj = obj,
							    .label = *label,
							    .wrapper = wrapper };
	return 0;
}

/* Memory changed during a snapshot: drops all names after the first n, and the memory that was
 * read. torn: reading.torn before the snapshot. */
static void forget_names(struct reading *reading, size_t n, bool torn)
{
	for (; reading->nnamed > n; reading->nnamed--)
		map64__del(reading->by_obj, reading->named[reading->nnamed - 1].obj, /*old=*/NULL);
	reading->torn = torn;
	pymem__forget(&reading->mem);
}

/* Names an object if it is a tensor. label: its label without the name. */
static int name_tensor(struct reading *reading, uint64_t obj, const char *name, struct label label)
{
	enum type_kind kind;
	int err;

	err = reading__kind_of(reading, obj, &kind);
	if (err || !type_kind__is_tensor(kind))
		return err;
	return reading__add_text(reading, name, &label.name)
		       ?: set_label(reading, obj, &label, kind == TYPE_WRAPPER);
}

/* ---- modules ---- */

struct tree {
	struct nntree *tree;
	/* Made by torch.fx from another module, whose parts it may hold under other names. */
	bool graph;
	size_t order; /* number of trees that were read before it */
};

/* Order in which trees name tensors: graphs of torch.fx last, larger trees first. */
static int by_precedence(const void *a, const void *b)
{
	const struct tree *tree = a, *y = b;
	size_t nx = tree->tree->n;
	size_t ny = y->tree->n;

	if (tree->graph != y->graph)
		return tree->graph - y->graph;
	if (nx != ny)
		return nx < ny ? 1 : -1;
	return tree->order < y->order ? -1 : 1;
}

/* Adds all modules that another module holds to *children. */
static int find_children(struct reading *reading, struct map64 *children)
{
	struct pyitems attrs = { 0 }, items = { 0 };
	uint64_t known = 0, dict;
	int err = 0;

	for (size_t i = 0; !err && i < reading->modules.n; i++) {
		const struct found *found = &reading->modules.v[i];

		err = pydict__attrs(&reading->mem, found->obj, found->type, &attrs)
			      ?: pystr__find(&reading->mem, &attrs, "_modules", &known, &dict);
		if (!err)
			err = pydict__items(&reading->mem, dict, &items);
		for (size_t k = 0; !err && k < items.n; k++)
			if (items.v[k].value != found->obj)
				err = map64__set(children, items.v[k].value, 1);
		reading->torn |= err == -EAGAIN;
		if (err && !reading__is_local(err))
			break;
		err = reading__check_time(reading);
	}
	pyitems__fini(&attrs);
	pyitems__fini(&items);
	return err;
}

/* Reads the tree of a module, and adds its modules to done. v, n, cap: array of trees, their number
 * and its room. graph is set for torch.fx's. */
static int add_tree(struct reading *reading, const struct found *found, struct map64 *done,
		    struct tree **v, size_t *n, size_t *cap)
{
	struct nntree *tree;
	int err;

	err = nntree__read(&reading->mem, found->obj, &tree);
	if (err) {
		reading->torn |= err == -EBADMSG;
		return reading__is_local(err) ? 0 : err;
	}
	reading->torn |= tree->torn;
	err = array__grow(v, cap, *n + 1, sizeof(**v));
	for (size_t i = 0; !err && i < tree->n; i++)
		err = map64__set(done, tree->nodes[i].addr, 1);
	if (err) {
		nntree__free(tree);
		return err;
	}
	(*v)[*n] = (struct tree){ .tree = tree, .order = *n };
	(*v)[(*n)++].graph = pytype__is_a(&reading->mem, nntree__type(tree, 0), "GraphModule",
					  "torch.fx.graph_module") == 1;
	return 0;
}

/* Reads all module trees: first from modules that no other module holds, then from the rest, which
 * hold one another. */
static int read_trees(struct reading *reading, struct tree **trees, size_t *n_trees)
{
	struct map64 *children = map64__new();
	struct map64 *done = map64__new();
	size_t cap = 0;
	uint64_t unused;
	int err = -ENOMEM;

	if (!children || !done)
		goto out;
	pymem__begin_snapshot(&reading->mem);
	err = find_children(reading, children);
	if (!err && !pymem__holds(&reading->mem)) {
		map64__clear(children);
		pymem__forget(&reading->mem);
		err = find_children(reading, children);
	}
	/* Pass 0 skips children. Pass 1 skips what pass 0 has read. */
	for (size_t pass = 0; !err && pass < 2; pass++) {
		for (size_t i = 0; !err && i < reading->modules.n; i++) {
			if (map64__get(pass ? done : children, reading->modules.v[i].obj, &unused))
				continue;
			err = reading__check_time(reading)
				      ?: add_tree(reading, &reading->modules.v[i], done, trees,
						  n_trees, &cap);
		}
	}
out:
	map64__free(children);
	map64__free(done);
	return err;
}

static bool is_list(struct reading *reading, uint64_t obj)
{
	uint64_t type;

	return reading->census->list && !pydict__type_of(&reading->mem, obj, &type) &&
	       type == reading->census->list;
}

struct module_walk {
	struct reading *reading;
	struct pyitems attrs, items;
	uint64_t known_params, known_buffers; /* see pystr__find() */
	uint32_t model_no;		      /* see struct label */
	char prefix[NN_MAX_NAME + 1];
	char key[READING_KEY], name[MAX_NAME];
};

/* Names the tensors in an attribute that is a list: `kv_cache` in older versions of vLLM has one
 * tensor for each pipeline stage. */
static int name_kv_list(struct module_walk *walk, const struct pyitem *item, struct label label)
{
	uint64_t *list = NULL;
	char name[MAX_NAME];
	size_t n = 0;
	int err = reading__key(walk->reading, item->key, walk->key, sizeof(walk->key));

	if (err || !is_kv_name(walk->key))
		return err;
	label.kind = CENSUS_KV_CACHE;
	err = list_items(walk->reading, item->value, &list, &n);
	for (size_t i = 0; !err && i < n; i++) {
		join_name(walk->name, sizeof(walk->name), walk->prefix, walk->key);
		snprintf(name, sizeof(name), "%.*s[%zu]", MAX_NAME - 24, walk->name, i);
		err = name_tensor(walk->reading, list[i], name, label);
	}
	free(list);
	return err;
}

/* Names a tensor that an entry of a module's dictionary holds. */
static int name_item(struct module_walk *walk, const struct pyitem *item, struct label label)
{
	enum type_kind kind;
	/* Check the value first: most attributes are not tensors. */
	int err = reading__kind_of(walk->reading, item->value, &kind);

	if (err)
		return err;
	if (type_kind__is_tensor(kind)) {
		err = reading__key(walk->reading, item->key, walk->key, sizeof(walk->key));
		if (err)
			return err;
		if (label.kind != CENSUS_PARAMETER && is_kv_name(walk->key))
			label.kind = CENSUS_KV_CACHE;
		join_name(walk->name, sizeof(walk->name), walk->prefix, walk->key);
		return name_tensor(walk->reading, item->value, walk->name, label);
	}
	if (label.kind == CENSUS_OTHER && is_list(walk->reading, item->value))
		return name_kv_list(walk, item, label);
	return 0;
}

/* Names the tensors and modules among a module's attributes. */
static int name_items(struct module_walk *walk, const struct pyitems *items,
		      const struct label *label)
{
	int err = 0;

	for (size_t i = 0; !err && i < items->n; i++) {
		err = name_item(walk, &items->v[i], *label);
		if (reading__is_local(err))
			err = 0;
	}
	return err;
}

/* Names the tensors in a dictionary of a module: _parameters or _buffers. *known: address of the
 * str with this name, 0 until it was met. */
static int name_dict(struct module_walk *walk, const char *attr, uint64_t *known,
		     const struct label *label)
{
	uint64_t dict;
	int err;

	err = pystr__find(&walk->reading->mem, &walk->attrs, attr, known, &dict)
		      ?: pydict__items(&walk->reading->mem, dict, &walk->items);
	return err ?: name_items(walk, &walk->items, label);
}

/* Names the tensors of node i of a tree: parameters, buffers, then those in other attributes. */
static int name_module(struct module_walk *walk, const struct nntree *tree, size_t i)
{
	struct label label = { .model_no = walk->model_no };
	int err;

	nntree__name(tree, i, walk->prefix);
	err = pydict__attrs(&walk->reading->mem, tree->nodes[i].addr, nntree__type(tree, i),
			    &walk->attrs)
		      ?: reading__add_text(walk->reading, walk->prefix, &label.module);
	if (err)
		return err;
	err = reading__add_text(walk->reading, nntree__class(tree, i), &label.cls)
		      ?: reading__add_text(walk->reading, nntree__root_class(tree), &label.root);
	if (err)
		return err;
	label.kind = CENSUS_PARAMETER;
	err = name_dict(walk, "_parameters", &walk->known_params, &label);
	if (err)
		return err;
	label.kind = CENSUS_BUFFER;
	err = name_dict(walk, "_buffers", &walk->known_buffers, &label);
	if (err)
		return err;
	/* Tensors in the program's own attributes have names, too. */
	label.kind = CENSUS_OTHER;
	return name_items(walk, &walk->attrs, &label);
}

/* Names the tensors of all modules in a tree. */
static int name_tree(struct module_walk *walk, const struct nntree *tree)
{
	int err = 0;

	for (size_t i = 0; i < tree->n; i++) {
		err = i % CHECK_EVERY ? 0 : reading__check_time(walk->reading);
		if (!err)
			err = name_module(walk, tree, i);
		walk->reading->torn |= err == -EAGAIN;
		if (err && !reading__is_local(err))
			return err;
	}
	return 0;
}

/* Names a tree from a snapshot. If memory changed meanwhile, repeats it object by object, each with
 * its own check. */
static int name_tree_snapshot(struct module_walk *walk, const struct nntree *tree)
{
	size_t n = walk->reading->nnamed;
	bool torn = walk->reading->torn;
	int err;

	pymem__begin_snapshot(&walk->reading->mem);
	err = name_tree(walk, tree);
	if ((err && err != -ETIME) || pymem__holds(&walk->reading->mem))
		return err;
	forget_names(walk->reading, n, torn);
	return err ?: name_tree(walk, tree);
}

/* Reads all module trees and names their tensors. */
static int name_modules(struct reading *reading)
{
	struct module_walk *walk = calloc(1, sizeof(*walk));
	struct tree *trees = NULL;
	size_t n = 0;
	int err;

	if (!walk)
		return -ENOMEM;
	walk->reading = reading;
	err = read_trees(reading, &trees, &n);
	if (n)
		qsort(trees, n, sizeof(*trees), by_precedence);
	for (size_t i = 0; !err && i < n; i++)
		err = census__add_model(reading, trees[i].tree, trees[i].graph, &walk->model_no)
			      ?: name_tree_snapshot(walk, trees[i].tree);
	if (!err)
		err = census__find_alike(reading);
	for (size_t i = 0; i < n; i++)
		nntree__free(trees[i].tree);
	free(trees);
	pyitems__fini(&walk->attrs);
	pyitems__fini(&walk->items);
	free(walk);
	return err;
}

/* ---- optimizers ---- */

/* Sets *ret if an optimizer only wraps another: accelerate's wrappers have neither groups nor
 * state, lightning's have the state of the optimizer that they wrap. states: states seen so far. An
 * optimizer that cannot be read counts as none. */
static int is_wrapper(struct reading *reading, const struct found *found, struct map64 *states,
		      bool *ret)
{
	struct pyitems attrs = { 0 };
	uint64_t value, before;
	int err = pydict__attrs(&reading->mem, found->obj, found->type, &attrs);

	*ret = false;
	if (err)
		goto out;
	if (!pystr__find(&reading->mem, &attrs, "state", /*known=*/NULL, &value)) {
		*ret = map64__get(states, value, &before); /* another optimizer has this state */
		err = map64__set(states, value, 1);
	} else {
		*ret = pystr__find(&reading->mem, &attrs, "param_groups", /*known=*/NULL, &value) ==
		       -ENOENT;
	}
out:
	pyitems__fini(&attrs);
	return reading__is_local(err) ? 0 : err;
}

/* Forgets optimizers that only wrap others. 0 or -errno. */
static int drop_wrappers(struct reading *reading)
{
	struct map64 *states = map64__new();
	int err = states ? 0 : -ENOMEM;
	bool wrapper;
	size_t n = 0;

	for (size_t i = 0; !err && i < reading->optimizers.n; i++) {
		err = reading__check_time(reading)
			      ?: is_wrapper(reading, &reading->optimizers.v[i], states, &wrapper);
		if (err)
			break;
		if (!wrapper)
			reading->optimizers.v[n++] = reading->optimizers.v[i];
	}
	map64__free(states);
	if (!err)
		reading->optimizers.n = n;
	return err;
}

/* True if a list is long and its first items hold nothing, such as a history of losses. */
static bool is_history(struct reading *reading, const uint64_t *list, size_t n)
{
	enum type_kind kind;
	uint64_t type, flags;

	if (n <= FIRST_ITEMS)
		return false;
	for (size_t i = 0; i < FIRST_ITEMS; i++) {
		if (pydict__type_of(&reading->mem, list[i], &type) ||
		    reading__type_kind(reading, type, &kind) || kind != TYPE_OTHER ||
		    pymem__constant_u64(&reading->mem, type + reading->mem.layout->tp_flags,
					&flags) ||
		    flags & (PYTYPE_TUPLE | PYTYPE_LIST | PYTYPE_DICT))
			return false;
	}
	return true;
}

struct state_walk {
	struct reading *reading;
	size_t optimizer;   /* its index */
	const char *cls;    /* class of the optimizer */
	const char *suffix; /* end of the names: " of layers.3.weight", or "" */
	struct label label;
};

/* Names the tensors in an entry of a parameter's state: a tensor, or lists and dicts of tensors.
 * path: keys from the state to obj, such as "exp_avg". depth: number of these keys. */
static int name_state(struct state_walk *walk, uint64_t obj, const char *path, int depth)
{
	char name[MAX_NAME * 2], key[READING_KEY];
	/* state[parameter]["step"] */
	bool is_count = depth == COUNT_DEPTH && !strcmp(path, "step");
	struct pyitems items = { 0 };
	enum type_kind kind;
	uint64_t *list = NULL;
	size_t n = 0;
	int err;

	err = reading__kind_of(walk->reading, obj, &kind);
	if (err)
		return err;
	if (type_kind__is_tensor(kind)) {
		struct label label = walk->label;

		label.optimizer_no = is_count && kind == TYPE_TENSOR ? walk->optimizer + 1 : 0;
		snprintf(name, sizeof(name), "%s %s%s", walk->cls, path, walk->suffix);
		/* where the parameter's name begins, which can get a model's front */
		label.front_at = strlen(name) -
				 (*walk->suffix ? strlen(walk->suffix) - strlen(" of ") : 0);
		return name_tensor(walk->reading, obj, name, label);
	}
	if (is_count)
		return census__python_count(walk->reading, walk->optimizer, obj);
	if (depth >= MAX_STATE_DEPTH || strlen(path) > MAX_NAME)
		return 0;
	err = reading__check_time(walk->reading) ?: list_items(walk->reading, obj, &list, &n);
	if (!err && is_history(walk->reading, list, n))
		n = 0;
	for (size_t i = 0; !err && i < n; i++) {
		snprintf(name, sizeof(name), "%s[%zu]", path, i);
		err = list[i] ? name_state(walk, list[i], name, depth + 1) : 0;
	}
	free(list);
	if (err != -EBADMSG)
		return err;
	err = pydict__items(&walk->reading->mem, obj, &items);
	for (size_t i = 0; !err && i < items.n; i++) {
		if (reading__key(walk->reading, items.v[i].key, key, sizeof(key)))
			continue;
		err = name_state(walk, items.v[i].value, join_name(name, sizeof(name), path, key),
				 depth + 1);
	}
	pyitems__fini(&items);
	return reading__is_local(err) && err != -EAGAIN ? 0 : err;
}

/* Names the state that an optimizer keeps for a parameter, which is the item's key. */
static int name_param_state(struct reading *reading, size_t optimizer, const char *cls,
			    const struct pyitem *item)
{
	struct state_walk walk = {
		.reading = reading, .optimizer = optimizer, .cls = cls, .suffix = ""
	};
	char suffix[MAX_NAME + sizeof(" of ")];
	uint64_t i;

	walk.label.kind = CENSUS_OPTIMIZER;
	if (map64__get(reading->by_obj, item->key, &i) && reading->named[i].label.name) {
		const struct label *param = &reading->named[i].label;

		snprintf(suffix, sizeof(suffix), " of %s", reading->text + param->name);
		walk.suffix = suffix;
		walk.label.module = param->module;
		walk.label.cls = param->cls;
		walk.label.root = param->root;
		walk.label.model_no = param->model_no;
	}
	return name_state(&walk, item->value, "", 0);
}

/* Names the tensors of parameter group `number` of an optimizer, the dict `group`: parameters
 * outside modules, and settings, such as a learning rate. optimizer: index in reading->optimizers;
 * cls: its class. "step" counts as in a parameter's state. 0 or an error that ends the reading. */
static int name_group(struct reading *reading, size_t optimizer, const char *cls, uint64_t group,
		      size_t number)
{
	struct state_walk walk = {
		.reading = reading, .optimizer = optimizer, .cls = cls, .suffix = ""
	};
	struct pyitems items = { 0 };
	char key[READING_KEY], name[MAX_NAME];
	uint64_t *list = NULL;
	size_t n = 0;
	int err;

	err = pydict__items(&reading->mem, group, &items);
	for (size_t i = 0; !err && i < items.n; i++) {
		if (reading__key(reading, items.v[i].key, key, sizeof(key)))
			continue;
		if (strcmp(key, "params")) {
			walk.label = (struct label){ .kind = CENSUS_OPTIMIZER };
			err = name_state(&walk, items.v[i].value, key,
					 strcmp(key, "step") ? SETTING_DEPTH : COUNT_DEPTH);
		} else {
			err = list_items(reading, items.v[i].value, &list, &n);
			for (size_t k = 0; !err && k < n; k++) {
				snprintf(name, sizeof(name), "%s param_groups[%zu].params[%zu]",
					 cls, number, k);
				err = name_tensor(reading, list[k], name,
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

/* Names the parameters and the state of an optimizer, an index in reading->optimizers. 0 or an
 * error that ends the reading. */
static int name_optimizer(struct reading *reading, size_t optimizer)
{
	const struct found *found = &reading->optimizers.v[optimizer];
	struct pyitems attrs = { 0 }, items = { 0 };
	char cls[READING_KEY];
	uint64_t value, *list = NULL;
	size_t n = 0;
	int err;

	reading->counts[optimizer] = (struct census_optimizer){ .obj = found->obj,
								.begin = reading->clock() };
	err = pytype__name(&reading->mem, found->type, cls, sizeof(cls))
		      ?: pydict__attrs(&reading->mem, found->obj, found->type, &attrs);
	if (err)
		goto out;
	/* Groups first: they give parameters outside modules the names used for their state. */
	if (!pystr__find(&reading->mem, &attrs, "param_groups", /*known=*/NULL, &value))
		err = list_items(reading, value, &list, &n);
	for (size_t i = 0; !err && i < n; i++)
		err = reading__check_time(reading)
			      ?: name_group(reading, optimizer, cls, list[i], i);
	free(list);
	if (err)
		goto out;
	err = pystr__find(&reading->mem, &attrs, "state", /*known=*/NULL, &value)
		      ?: pydict__items(&reading->mem, value, &items);
	for (size_t i = 0; !err && i < items.n; i++) {
		err = i % CHECK_EVERY ? 0 : reading__check_time(reading);
		if (!err)
			err = name_param_state(reading, optimizer, cls, &items.v[i]);
		reading->torn |= err == -EAGAIN;
		if (reading__is_local(err))
			err = 0;
	}
out:
	pyitems__fini(&attrs);
	pyitems__fini(&items);
	reading->torn |= err == -EAGAIN;
	return reading__is_local(err) ? 0 : err;
}

/* Names the tensors of all optimizers, and counts those of each (reading->counts). Repeats one,
 * once, if memory changed meanwhile. */
static int name_optimizers(struct reading *reading)
{
	int err = drop_wrappers(reading);

	if (err)
		return err;
	reading->counts = calloc(reading->optimizers.n + 1, sizeof(*reading->counts));
	if (!reading->counts)
		return -ENOMEM;
	reading->ncounts = reading->optimizers.n;
	for (size_t i = 0; !err && i < reading->optimizers.n; i++) {
		size_t n = reading->nnamed;
		bool torn = reading->torn;

		pymem__begin_snapshot(&reading->mem);
		err = name_optimizer(reading, i);
		if (err || pymem__holds(&reading->mem))
			continue;
		forget_names(reading, n, torn);
		err = name_optimizer(reading, i);
	}
	return err;
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

static int name_cached(struct reading *r, uint64_t obj, const char *name, int depth);

/* Names the tensors in the attributes of a cache or of a layer that hold keys and values. */
static int name_attrs(struct reading *reading, uint64_t obj, uint64_t type, const char *name,
		      const char *separator, int depth)
{
	static const char *const keys[] = { "layers",	"key_cache", "value_cache", "k_buffer",
					    "v_buffer", "kv_buffer", "keys",	    "values" };
	struct pyitems attrs = { 0 };
	char text[512];
	uint64_t value;
	int err = pydict__attrs(&reading->mem, obj, type, &attrs);

	for (size_t i = 0; !err && i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (pystr__find(&reading->mem, &attrs, keys[i], /*known=*/NULL, &value))
			continue;
		snprintf(text, sizeof(text), "%.400s%s%s", name, separator, keys[i]);
		err = name_cached(reading, value, text, depth + 1);
	}
	pyitems__fini(&attrs);
	return err;
}

/* Names an object of a cache if it is a tensor, otherwise the tensors in it: in a list, a layer. */
static int name_cached(struct reading *reading, uint64_t obj, const char *name, int depth)
{
	struct label label = { .kind = CENSUS_KV_CACHE };
	uint64_t *list = NULL, type;
	enum type_kind kind;
	char text[512];
	size_t n = 0;
	int err;

	err = reading__kind_of(reading, obj, &kind);
	if (err)
		return err;
	if (type_kind__is_tensor(kind))
		return name_tensor(reading, obj, name, label);
	if (kind != TYPE_OTHER || depth > DEPTH_MAX)
		return 0;
	err = list_items(reading, obj, &list, &n);
	for (size_t i = 0; !err && i < n; i++) {
		snprintf(text, sizeof(text), "%.400s[%zu]", name, i);
		err = i % CHECK_EVERY ? 0 : reading__check_time(reading);
		if (!err)
			err = name_cached(reading, list[i], text, depth + 1);
		reading->torn |= err == -EAGAIN;
		if (reading__is_local(err))
			err = 0;
	}
	free(list);
	if (err != -EBADMSG)
		return err;
	return pydict__type_of(&reading->mem, obj, &type)
		       ?: name_attrs(reading, obj, type, name, ".", depth);
}

/* Names the tensors in a cache of keys and values. */
static int name_cache(struct reading *reading, const struct found *found)
{
	char cls[128];
	int err = pytype__name(&reading->mem, found->type, cls, sizeof(cls))
			  ?: name_attrs(reading, found->obj, found->type, cls, " ", 0);

	reading->torn |= err == -EAGAIN;
	return reading__is_local(err) ? 0 : err;
}

int census__name_objects(struct reading *reading)
{
	int err = name_modules(reading) ?: name_optimizers(reading);

	for (size_t i = 0; !err && i < reading->caches.n; i++)
		err = reading__check_time(reading) ?: name_cache(reading, &reading->caches.v[i]);
	return err;
}
