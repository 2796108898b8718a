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
	struct pymem *m;
	struct nntree *t;
	struct map64 *types; /* address -> index, or NOT_A_MODULE */
	struct map64 *keys;  /* address of a str -> text offset */
	struct pyitems attrs, children;
	struct pending *stack;
	size_t n, cap, items;
	/* Addresses of the strs "_modules", "_parameters" and "_buffers"; 0: not met yet. */
	uint64_t modules_key, parameters_key, buffers_key;
};

/* Appends a text and its NUL to t->text. *ret: its offset. 0, -E2BIG or -ENOMEM. */
static int add_text(struct nntree *t, const char *s, size_t len, uint32_t *ret)
{
	int err;

	if (t->text_len + len + 1 > MAX_TEXT)
		return -E2BIG;
	err = array__grow(&t->text, &t->text_cap, t->text_len + len + 1, 1);
	if (err)
		return err;
	memcpy(t->text + t->text_len, s, len);
	t->text[t->text_len + len] = '\0';
	*ret = t->text_len;
	t->text_len += len + 1;
	return 0;
}

/* Whether an error concerns one object only. Other errors end the walk. */
static bool is_local(int err)
{
	return err == -EAGAIN || err == -EFAULT || err == -EBADMSG || err == -ENOENT ||
	       err == -E2BIG;
}

/* Adds a type and its name, if it is a module's; *ret: its index, or NOT_A_MODULE. */
static int add_type(struct walk *w, uint64_t addr, uint32_t *ret)
{
	struct nntree *t = w->t;
	char name[NN_MAX_CLASS];
	uint32_t text;
	int err;

	err = pytype__is_a(w->m, addr, "Module", "torch.nn.modules.module");
	if (err < 0)
		return err;
	if (!err) {
		*ret = NOT_A_MODULE;
		return 0;
	}
	err = pytype__name(w->m, addr, name, sizeof(name))
		      ?: add_text(t, name, strlen(name), &text);
	if (err)
		return err;
	err = array__grow(&t->types, &t->types_cap, t->ntypes + 1, sizeof(*t->types));
	if (err)
		return err;
	*ret = t->ntypes;
	t->types[t->ntypes++] = (struct nntree_type){ .addr = addr, .text = text };
	return 0;
}

/* Index of a module's type; -EBADMSG: not a module. */
static int find_type(struct walk *w, uint64_t addr, uint32_t *ret)
{
	uint64_t known;
	uint32_t i;
	int err;

	if (map64__get(w->types, addr, &known)) {
		i = known;
	} else {
		err = add_type(w, addr, &i) ?: map64__set(w->types, addr, i);
		if (err)
			return err;
	}
	if (i == NOT_A_MODULE)
		return -EBADMSG;
	*ret = i;
	return 0;
}

/* Whether the type is a wrapper that names its module "module": 1, 0 or -errno. */
static int is_parallel(struct walk *w, struct nntree_type *type)
{
	int err;

	if (type->parallel == PARALLEL_UNKNOWN) {
		err = pytype__is_a(w->m, type->addr, "DistributedDataParallel", NULL);
		if (!err)
			err = pytype__is_a(w->m, type->addr, "DataParallel", NULL);
		if (err < 0)
			return err;
		type->parallel = err ? PARALLEL_YES : PARALLEL_NO;
	}
	return type->parallel == PARALLEL_YES;
}

/* Offset of the text of key, the name of a module in its parent; STRIPPED if a wrapper added it. */
static int find_component(struct walk *w, uint64_t key, const struct nntree_node *parent,
			  uint32_t *ret)
{
	static const char *const wrapper_names[] = { "_fsdp_wrapped_module", "_orig_mod",
						     "_checkpoint_wrapped_module" };
	char buf[NN_MAX_NAME + 1];
	uint64_t known;
	uint32_t text;
	bool cut;
	int err;

	if (map64__get(w->keys, key, &known)) {
		text = known;
	} else {
		err = pystr__read(w->m, key, buf, sizeof(buf), &cut);
		if (err < 0)
			return err;
		if (cut)
			return -E2BIG;
		err = add_text(w->t, buf, err, &text) ?: map64__set(w->keys, key, text);
		if (err)
			return err;
	}
	*ret = text;
	for (size_t i = 0; i < sizeof(wrapper_names) / sizeof(wrapper_names[0]); i++)
		if (!strcmp(w->t->text + text, wrapper_names[i]))
			*ret = STRIPPED;
	if (!strcmp(w->t->text + text, "module")) {
		err = is_parallel(w, &w->t->types[parent->type]);
		if (err < 0)
			return err;
		if (err)
			*ret = STRIPPED;
	}
	return 0;
}

/* Adds a new module. The root is its own p->parent. */
static int add_node(struct walk *w, const struct pending *p, uint32_t type)
{
	struct nntree *t = w->t;
	struct nntree_node node = {
		.addr = p->addr, .parent = p->parent, .type = type, .text = STRIPPED
	};
	size_t len = 0;
	int err;

	if (t->n) {
		const struct nntree_node *parent = &t->nodes[p->parent];

		if (parent->depth + 1u > MAX_DEPTH)
			return -E2BIG;
		err = find_component(w, p->key, parent, &node.text);
		if (err)
			return err;
		len = parent->len;
		if (node.text != STRIPPED)
			len += (len ? 1 : 0) + strlen(t->text + node.text);
		if (len > NN_MAX_NAME)
			return -E2BIG;
		node.depth = parent->depth + 1u;
		/* A wrapper holds one module, so the last module with an empty name is the wrapped
		 * one. */
		if (!len)
			t->root_class = t->n;
	}
	node.len = len;
	err = array__grow(&t->nodes, &t->cap, t->n + 1, sizeof(*t->nodes))
		      ?: map64__set(t->by_addr, p->addr, t->n);
	if (err)
		return err;
	t->nodes[t->n++] = node;
	return 0;
}

/* Whether the dict in this attribute of a module has a value that is not None. True also if it
 * cannot be read. */
static bool has_value(struct walk *w, const char *attr, uint64_t *known)
{
	char name[NN_MAX_CLASS];
	uint64_t dict, type;

	if (pystr__find(w->m, &w->attrs, attr, known, &dict) ||
	    pydict__items(w->m, dict, &w->children))
		return true;
	for (size_t i = 0; i < w->children.n; i++)
		if (pydict__type_of(w->m, w->children.v[i].value, &type) ||
		    pytype__name(w->m, type, name, sizeof(name)) || strcmp(name, "NoneType") != 0)
			return true;
	return false;
}

/* Pushes a module's children, the first on top. */
static int push_children(struct walk *w, uint64_t addr, uint32_t self)
{
	uint64_t type = w->t->types[w->t->nodes[self].type].addr, modules;
	int err;

	err = pydict__attrs(w->m, addr, type, &w->attrs);
	if (!w->t->tensors)
		w->t->tensors = err || has_value(w, "_parameters", &w->parameters_key) ||
				has_value(w, "_buffers", &w->buffers_key);
	if (err)
		return err;
	err = pystr__find(w->m, &w->attrs, "_modules", &w->modules_key, &modules)
		      ?: pydict__items(w->m, modules, &w->children);
	if (err)
		return err;
	w->items += w->attrs.n + w->children.n;
	if (w->n + w->children.n > MAX_PENDING)
		return -E2BIG;
	err = array__grow(&w->stack, &w->cap, w->n + w->children.n, sizeof(*w->stack));
	if (err)
		return err;
	for (size_t i = w->children.n; i-- > 0;)
		w->stack[w->n++] = (struct pending){ w->children.v[i].value, w->children.v[i].key,
						     self };
	return 0;
}

/* Adds a module that is new, and pushes its children. */
static int visit_module(struct walk *w, const struct pending *p)
{
	uint64_t type, seen;
	uint32_t type_ix;
	int err;

	if (map64__get(w->t->by_addr, p->addr, &seen))
		return 0;
	err = pydict__type_of(w->m, p->addr, &type) ?: find_type(w, type, &type_ix);
	if (err)
		return err;
	return add_node(w, p, type_ix) ?: push_children(w, p->addr, w->t->n - 1);
}

static int walk_tree(struct walk *w, uint64_t root)
{
	int err;

	err = visit_module(w, &(struct pending){ .addr = root });
	/* A module without readable children still counts, even as the root. */
	if (err && (!is_local(err) || !w->t->n))
		return err == -EAGAIN ? -EBADMSG : err;
	w->t->torn = err == -EAGAIN;
	while (w->n && w->t->n < MAX_MODULES && w->items < MAX_ITEMS) {
		struct pending p = w->stack[--w->n];

		err = visit_module(w, &p);
		if (err && !is_local(err))
			return err;
		w->t->torn |= err == -EAGAIN;
	}
	return 0;
}

static int read_once(struct pymem *m, uint64_t root, struct nntree **ret)
{
	struct walk w = { .m = m };
	int err = -ENOMEM;

	w.t = calloc(1, sizeof(*w.t));
	w.types = map64__new();
	w.keys = map64__new();
	if (w.t)
		w.t->by_addr = map64__new();
	if (w.t && w.t->by_addr && w.types && w.keys)
		err = walk_tree(&w, root);
	pyitems__fini(&w.attrs);
	pyitems__fini(&w.children);
	map64__free(w.types);
	map64__free(w.keys);
	free(w.stack);
	if (err)
		nntree__free(w.t);
	else
		*ret = w.t;
	return err;
}

int nntree__read(struct pymem *m, uint64_t root, struct nntree **ret)
{
	struct nntree *t = NULL;
	int err;

	pymem__begin_snapshot(m);
	err = read_once(m, root, &t);
	if (pymem__holds(m) || err == -ENOMEM) {
		if (!err)
			t->torn = false; /* the snapshot was consistent */
		goto out;
	}
	/* Memory changed meanwhile. Object by object, each with its own check, is slower but
	 * succeeds. */
	for (int i = 0; i < TRIES; i++) {
		nntree__free(t);
		t = NULL;
		pymem__forget(m);
		err = read_once(m, root, &t);
		if (err || !t->torn)
			break;
	}
out:
	if (!err)
		*ret = t;
	return err;
}

void nntree__free(struct nntree *t)
{
	if (!t)
		return;
	map64__free(t->by_addr);
	free(t->nodes);
	free(t->types);
	free(t->text);
	free(t);
}

bool nntree__find(const struct nntree *t, uint64_t addr, uint64_t type, size_t *ret)
{
	uint64_t i;

	if (!map64__get(t->by_addr, addr, &i) || nntree__type(t, i) != type)
		return false;
	*ret = i;
	return true;
}

uint64_t nntree__type(const struct nntree *t, size_t i)
{
	return t->types[t->nodes[i].type].addr;
}

const char *nntree__class(const struct nntree *t, size_t i)
{
	return t->text + t->types[t->nodes[i].type].text;
}

const char *nntree__root_class(const struct nntree *t)
{
	return nntree__class(t, t->root_class);
}

char *nntree__name(const struct nntree *t, size_t i, char *buf)
{
	const struct nntree_node *node = &t->nodes[i];
	char *end = buf + node->len;

	*end = '\0';
	while (end > buf) {
		if (node->text != STRIPPED) {
			const char *s = t->text + node->text;
			size_t len = strlen(s);

			end -= len;
			memcpy(end, s, len);
			if (end > buf)
				*--end = '.';
		}
		node = &t->nodes[node->parent];
	}
	return buf;
}
