/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Does the walk of nn.Module.named_modules() from outside: depth first, in the order of _modules. A
 * module that is reached twice keeps its first name. The stack is on the heap, since the target
 * decides the depth.
 */
#include "inspect/torch/nntree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map64.h"
#include "inspect/pyobj.h"
#include "inspect/python/pydict.h"
#include "inspect/python/pystr.h"

#define MAX_MODULES 1000000u
#define MAX_DEPTH 1024u
#define MAX_TEXT (64u << 20)
#define MAX_ITEMS (32u << 20) /* dict entries in one walk, which bounds hostile trees */
#define MAX_PENDING (4u << 20)
#define STRIPPED UINT32_MAX /* component added by a wrapper, not part of the name */
#define TRIES 3
#define NOT_A_MODULE UINT32_MAX

struct pending {	    /* a module to visit */
	uint64_t addr, key; /* key: the str under which its parent has it */
	uint32_t parent;
};

struct walk {
	struct pymem *mem;
	struct nntree *tree;
	struct map64 *types; /* address -> index, or NOT_A_MODULE */
	struct map64 *keys;  /* address of a str -> text offset */
	struct pyitems attrs, children;
	struct pending *stack;
	size_t n, cap, items;
	/* Addresses of the strs "_modules", "_parameters" and "_buffers"; 0: not met yet. */
	uint64_t modules_key, parameters_key, buffers_key;
};

/* Appends a text and its NUL to tree->text. *ret: its offset. 0, -E2BIG or -ENOMEM. */
static int add_text(struct nntree *tree, const char *s, size_t len, uint32_t *ret)
{
	int err;

	if (tree->text_len + len + 1 > MAX_TEXT)
		return -E2BIG;
	err = array__grow(&tree->text, &tree->text_cap, tree->text_len + len + 1, 1);
	if (err)
		return err;
	memcpy(tree->text + tree->text_len, s, len);
	tree->text[tree->text_len + len] = '\0';
	*ret = tree->text_len;
	tree->text_len += len + 1;
	return 0;
}

/* True if an error concerns one object only. Other errors end the walk. */
static bool is_local(int err)
{
	return err == -EAGAIN || err == -EFAULT || err == -EBADMSG || err == -ENOENT ||
	       err == -E2BIG;
}

/* Adds a type and its name, if it is a module's; *ret: its index, or NOT_A_MODULE. */
static int add_type(struct walk *walk, uint64_t addr, uint32_t *ret)
{
	struct nntree *tree = walk->tree;
	char name[NN_MAX_CLASS];
	uint32_t text;
	int err;

	err = pytype__is_a(walk->mem, addr, "Module", "torch.nn.modules.module");
	if (err < 0)
		return err;
	if (!err) {
		*ret = NOT_A_MODULE;
		return 0;
	}
	err = pytype__name(walk->mem, addr, name, sizeof(name))
		      ?: add_text(tree, name, strlen(name), &text);
	if (err)
		return err;
	err = array__grow(&tree->types, &tree->types_cap, tree->ntypes + 1, sizeof(*tree->types));
	if (err)
		return err;
	*ret = tree->ntypes;
	tree->types[tree->ntypes++] = (struct nntree_type){ .addr = addr, .text = text };
	return 0;
}

/* Index of a module's type; -EBADMSG: not a module. */
static int find_type(struct walk *walk, uint64_t addr, uint32_t *ret)
{
	uint64_t known;
	uint32_t i;
	int err;

	if (map64__get(walk->types, addr, &known)) {
		i = known;
	} else {
		err = add_type(walk, addr, &i) ?: map64__set(walk->types, addr, i);
		if (err)
			return err;
	}
	if (i == NOT_A_MODULE)
		return -EBADMSG;
	*ret = i;
	return 0;
}

/* Whether the type is a wrapper that names its module "module": 1, 0 or -errno. */
static int is_parallel(struct walk *walk, struct nntree_type *type)
{
	int err;

	if (type->parallel == PARALLEL_UNKNOWN) {
		err = pytype__is_a(walk->mem, type->addr, "DistributedDataParallel",
				   /*module=*/NULL);
		if (!err)
			err = pytype__is_a(walk->mem, type->addr, "DataParallel", /*module=*/NULL);
		if (err < 0)
			return err;
		type->parallel = err ? PARALLEL_YES : PARALLEL_NO;
	}
	return type->parallel == PARALLEL_YES;
}

/* Offset of the text of key, the name of a module in its parent; STRIPPED if a wrapper added it. */
static int find_component(struct walk *walk, uint64_t key, const struct nntree_node *parent,
			  uint32_t *ret)
{
	static const char *const wrapper_names[] = { "_fsdp_wrapped_module", "_orig_mod",
						     "_checkpoint_wrapped_module" };
	char buf[NN_MAX_NAME + 1];
	uint64_t known;
	uint32_t text;
	bool cut;
	int err;

	if (map64__get(walk->keys, key, &known)) {
		text = known;
	} else {
		err = pystr__read(walk->mem, key, buf, sizeof(buf), &cut);
		if (err < 0)
			return err;
		if (cut)
			return -E2BIG;
		err = add_text(walk->tree, buf, err, &text) ?: map64__set(walk->keys, key, text);
		if (err)
			return err;
	}
	*ret = text;
	for (size_t i = 0; i < sizeof(wrapper_names) / sizeof(wrapper_names[0]); i++)
		if (!strcmp(walk->tree->text + text, wrapper_names[i]))
			*ret = STRIPPED;
	if (!strcmp(walk->tree->text + text, "module")) {
		err = is_parallel(walk, &walk->tree->types[parent->type]);
		if (err < 0)
			return err;
		if (err)
			*ret = STRIPPED;
	}
	return 0;
}

/* Adds a new module with its name below its parent's. The root is its own pending->parent. */
static int add_node(struct walk *walk, const struct pending *pending, uint32_t type)
{
	struct nntree *tree = walk->tree;
	struct nntree_node node = {
		.addr = pending->addr, .parent = pending->parent, .type = type, .text = STRIPPED
	};
	size_t len = 0;
	int err;

	if (tree->n) {
		const struct nntree_node *parent = &tree->nodes[pending->parent];

		if (parent->depth + 1u > MAX_DEPTH)
			return -E2BIG;
		err = find_component(walk, pending->key, parent, &node.text);
		if (err)
			return err;
		len = parent->len;
		if (node.text != STRIPPED)
			len += (len ? 1 : 0) + strlen(tree->text + node.text);
		if (len > NN_MAX_NAME)
			return -E2BIG;
		node.depth = parent->depth + 1u;
		/* A wrapper holds one module, so the last module with an empty name is the wrapped
		 * one. */
		if (!len)
			tree->root_class = tree->n;
	}
	node.len = len;
	err = array__grow(&tree->nodes, &tree->cap, tree->n + 1, sizeof(*tree->nodes))
		      ?: map64__set(tree->by_addr, pending->addr, tree->n);
	if (err)
		return err;
	tree->nodes[tree->n++] = node;
	return 0;
}

/* True if the dict in this attribute of a module has a value that is not None. True also if it
 * cannot be read. *known: address of the str with this name, 0 until it was met. */
static bool has_value(struct walk *walk, const char *attr, uint64_t *known)
{
	char name[NN_MAX_CLASS];
	uint64_t dict, type;

	if (pystr__find(walk->mem, &walk->attrs, attr, known, &dict) ||
	    pydict__items(walk->mem, dict, &walk->children))
		return true;
	for (size_t i = 0; i < walk->children.n; i++)
		if (pydict__type_of(walk->mem, walk->children.v[i].value, &type) ||
		    pytype__name(walk->mem, type, name, sizeof(name)) ||
		    strcmp(name, "NoneType") != 0)
			return true;
	return false;
}

/* Pushes a module's children, the first on top. */
static int push_children(struct walk *walk, uint64_t addr, uint32_t self)
{
	uint64_t type = walk->tree->types[walk->tree->nodes[self].type].addr, modules;
	int err;

	err = pydict__attrs(walk->mem, addr, type, &walk->attrs);
	/* tensors: a module has some, or that is not known */
	if (!walk->tree->tensors)
		walk->tree->tensors = err ||
				      has_value(walk, "_parameters", &walk->parameters_key) ||
				      has_value(walk, "_buffers", &walk->buffers_key);
	if (err)
		return err;
	err = pystr__find(walk->mem, &walk->attrs, "_modules", &walk->modules_key, &modules)
		      ?: pydict__items(walk->mem, modules, &walk->children);
	if (err)
		return err;
	walk->items += walk->attrs.n + walk->children.n;
	if (walk->n + walk->children.n > MAX_PENDING)
		return -E2BIG;
	err = array__grow(&walk->stack, &walk->cap, walk->n + walk->children.n,
			  sizeof(*walk->stack));
	if (err)
		return err;
	for (size_t i = walk->children.n; i-- > 0;)
		walk->stack[walk->n++] = (struct pending){ walk->children.v[i].value,
							   walk->children.v[i].key, self };
	return 0;
}

/* Adds a module that is new, and pushes its children. */
static int visit_module(struct walk *walk, const struct pending *pending)
{
	uint64_t type, seen;
	uint32_t type_ix;
	int err;

	if (map64__get(walk->tree->by_addr, pending->addr, &seen))
		return 0;
	err = pydict__type_of(walk->mem, pending->addr, &type) ?: find_type(walk, type, &type_ix);
	if (err)
		return err;
	return add_node(walk, pending, type_ix)
		       ?: push_children(walk, pending->addr, walk->tree->n - 1);
}

/* Adds the root and all modules below it. 0 or -errno. */
static int walk_tree(struct walk *walk, uint64_t root)
{
	int err;

	err = visit_module(walk, &(struct pending){ .addr = root });
	/* A module without readable children still counts, even as the root. */
	if (err && (!is_local(err) || !walk->tree->n))
		return err == -EAGAIN ? -EBADMSG : err;
	walk->tree->torn = err == -EAGAIN;
	while (walk->n && walk->tree->n < MAX_MODULES && walk->items < MAX_ITEMS) {
		struct pending next = walk->stack[--walk->n];

		err = visit_module(walk, &next);
		if (err && !is_local(err))
			return err;
		walk->tree->torn |= err == -EAGAIN;
	}
	return 0;
}

/* Reads a tree. The caller frees *ret. */
static int read_once(struct pymem *mem, uint64_t root, struct nntree **ret)
{
	struct walk walk = { .mem = mem };
	int err = -ENOMEM;

	walk.tree = calloc(1, sizeof(*walk.tree));
	walk.types = map64__new();
	walk.keys = map64__new();
	if (walk.tree)
		walk.tree->by_addr = map64__new();
	if (walk.tree && walk.tree->by_addr && walk.types && walk.keys)
		err = walk_tree(&walk, root);
	pyitems__fini(&walk.attrs);
	pyitems__fini(&walk.children);
	map64__free(walk.types);
	map64__free(walk.keys);
	free(walk.stack);
	if (err)
		nntree__free(walk.tree);
	else
		*ret = walk.tree;
	return err;
}

int nntree__read(struct pymem *mem, uint64_t root, struct nntree **ret)
{
	struct nntree *tree = NULL;
	int err;

	pymem__begin_snapshot(mem);
	err = read_once(mem, root, &tree);
	if (pymem__holds(mem) || err == -ENOMEM) {
		if (!err)
			tree->torn = false; /* the snapshot was consistent */
		goto out;
	}
	/* Memory changed meanwhile. Object by object, each with its own check, is slower but
	 * succeeds. */
	for (int i = 0; i < TRIES; i++) {
		nntree__free(tree);
		tree = NULL;
		pymem__forget(mem);
		err = read_once(mem, root, &tree);
		if (err || !tree->torn)
			break;
	}
out:
	if (!err)
		*ret = tree;
	return err;
}

void nntree__free(struct nntree *tree)
{
	if (!tree)
		return;
	map64__free(tree->by_addr);
	free(tree->nodes);
	free(tree->types);
	free(tree->text);
	free(tree);
}

bool nntree__find(const struct nntree *tree, uint64_t addr, uint64_t type, size_t *ret)
{
	uint64_t i;

	if (!map64__get(tree->by_addr, addr, &i) || nntree__type(tree, i) != type)
		return false;
	*ret = i;
	return true;
}

uint64_t nntree__type(const struct nntree *tree, size_t i)
{
	return tree->types[tree->nodes[i].type].addr;
}

const char *nntree__class(const struct nntree *tree, size_t i)
{
	return tree->text + tree->types[tree->nodes[i].type].text;
}

const char *nntree__root_class(const struct nntree *tree)
{
	return nntree__class(tree, tree->root_class);
}

char *nntree__name(const struct nntree *tree, size_t i, char *buf)
{
	const struct nntree_node *node = &tree->nodes[i];
	char *end = buf + node->len;

	*end = '\0';
	while (end > buf) {
		if (node->text != STRIPPED) {
			const char *s = tree->text + node->text;
			size_t len = strlen(s);

			end -= len;
			memcpy(end, s, len);
			if (end > buf)
				*--end = '.';
		}
		node = &tree->nodes[node->parent];
	}
	return buf;
}
