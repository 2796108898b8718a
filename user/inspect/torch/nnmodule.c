/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Names come from trees, one for each root module. A tree is read on first use and again when a
 * module is missing from it. Pauses after each reading, and a share of time for all readings, limit
 * the cost in targets that make modules all the time.
 */
#include "inspect/nnmodule.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/map64.h"
#include "inspect/pyobj.h"
#include "inspect/python.h"
#include "inspect/python/pydict.h"
#include "inspect/torch/nntree.h"

/* Data for the probes on module calls: module types, the code object of a call, and the function to
 * probe. */

#define TORCH_MODULE "torch.nn.modules.module"
#define LOOKS 5		   /* additional attempts */
#define LOOK_PAUSE 2000000 /* ns */
/* The function of torch._C that Module._call_impl calls first; by 2.15 it is _is_tracing. */
#define TRACING_STATE "_get_tracing_state"
#define IS_TRACING "_is_tracing"

/* M_SELF: PyCFunctionObject.m_self (Include/cpython/methodobject.h), all versions, from the
 * object's type on. It is an object of pybind11: a PyCapsule, from version 3 on another type. Both
 * have the address of a function_record RECORD bytes behind the type. */
#define M_SELF 16
#define RECORD 8
/* Offset of impl in pybind11::detail::function_record, in pybind11 2.2 to 3.0; the name is at 0. */
#define RECORD_IMPL 48

int nnmodules__is_type(struct pymem *m, uint64_t type)
{
	return pytype__is_a(m, type, "Module", TORCH_MODULE);
}

static int find_module_type(const struct python *py, uint64_t *type)
{
	uint64_t module;
	int err;

	err = pyobj__module(py, TORCH_MODULE, &module)
		      ?: pyobj__module_attr(py, module, "Module", type);
	if (err)
		return err;
	return pyobj__is_a(py, *type, "Module", TORCH_MODULE) ? 0 : -EBADMSG;
}

/* Code object of a method that keeps self in local 0, so not in a closure cell. -ENOENT: no such
 * method. */
static int find_method_code(const struct python *py, uint64_t type, const char *name,
			    uint64_t *code)
{
	const struct pylayout *l = python__layout(py);
	uint64_t func, c;
	struct pymem m;
	uint32_t argc;
	int err;

	err = pyobj__type_attr(py, type, name, &func) ?: pyobj__func_code(py, func, &c);
	if (err)
		return err;
	pymem__init(&m, py, false);
	err = pymem__read(&m, c + l->co_argcount, &argc, sizeof(argc));
	if (err)
		return err;
	if (!argc)
		return -ENOENT;
	*code = c;
	return 0;
}

/*
 * Code object of the outermost frame of a module's call: _wrapped_call_impl's, or in PyTorch 1
 * _call_impl's, which is also __call__. While the program changes the class, a look-up can miss the
 * first method. So if __call__ is not _call_impl, both are looked up again.
 */
static int find_outermost_code(const struct python *py, uint64_t type, uint64_t *code)
{
	static const struct timespec pause = { .tv_nsec = LOOK_PAUSE };
	uint64_t called;
	int err;

	for (int i = 0;; i++) {
		err = find_method_code(py, type, "_wrapped_call_impl", code);
		if (err != -ENOENT)
			return err;
		err = find_method_code(py, type, "_call_impl", code);
		if (err || i == LOOKS ||
		    (!find_method_code(py, type, "__call__", &called) && called == *code))
			return err;
		nanosleep(&pause, NULL);
	}
}

int nnmodules__call_codes(const struct python *py, uint64_t *codes, size_t max, size_t *n)
{
	uint64_t type, code;
	int err;

	if (!max)
		return -EINVAL;
	err = find_module_type(py, &type) ?: find_outermost_code(py, type, &code);
	if (err)
		return err;
	codes[0] = code;
	*n = 1;
	return 0;
}

int nnmodules__slot_call(const struct python *py, uint64_t *addr)
{
	const struct pylayout *l = python__layout(py);
	uint64_t type, call;
	struct pymem m;
	int err;

	err = find_module_type(py, &type);
	if (err)
		return err;
	pymem__init(&m, py, false);
	err = pymem__u64(&m, type + l->tp_call, &call);
	if (err)
		return err;
	if (!call)
		return -ENOENT;
	*addr = call;
	return 0;
}

#define CODE_WORDS 16 /* words of a code object that are searched for its tuple of names */
#define NAMES 64

/* Whether a tuple of str objects has the name among its first NAMES items. */
static bool has_name(const struct python *py, struct pymem *m, uint64_t tuple, const char *name)
{
	const struct pylayout *l = python__layout(py);
	uint64_t n, item;
	char text[64];

	if (pymem__u64(m, tuple + l->tuple_item - 8, &n))
		return false;
	for (uint64_t i = 0; i < n && i < NAMES; i++) {
		if (pymem__u64(m, tuple + l->tuple_item + 8 * i, &item) ||
		    pyobj__str(py, item, text, sizeof(text)) < 0)
			continue;
		if (!strcmp(text, name))
			return true;
	}
	return false;
}

/* Whether one of the tuples in a code object has the name. */
static bool uses_name(const struct python *py, struct pymem *m, uint64_t code, const char *name)
{
	uint64_t words[CODE_WORDS], type;
	char type_name[16];

	if (pymem__read(m, code, words, sizeof(words)))
		return false;
	for (size_t i = 0; i < CODE_WORDS; i++) {
		if (words[i] % 8 || pyobj__type(py, words[i], &type) ||
		    pyobj__type_name(py, type, type_name, sizeof(type_name)) ||
		    strcmp(type_name, "tuple"))
			continue;
		if (has_name(py, m, words[i], name))
			return true;
	}
	return false;
}

/* Name of the function that Module._call_impl calls first. */
static const char *first_called_name(const struct python *py, struct pymem *m)
{
	uint64_t type, code;

	if (!find_module_type(py, &type) && !find_method_code(py, type, "_call_impl", &code) &&
	    uses_name(py, m, code, IS_TRACING))
		return IS_TRACING;
	return TRACING_STATE;
}

int nnmodules__first_called(const struct python *py, uint64_t *addr, const char **name)
{
	const struct pylayout *l = python__layout(py);
	uint64_t module, function, self, record, text, impl;
	char found_name[32] = "";
	struct pymem m;
	int err;

	pymem__init(&m, py, false);
	*name = first_called_name(py, &m);
	err = pyobj__module(py, "torch._C", &module)
		      ?: pyobj__module_attr(py, module, *name, &function);
	if (err)
		return err;
	err = pymem__u64(&m, function + l->ob_type + M_SELF, &self)
		      ?: pymem__u64(&m, self + l->ob_type + RECORD, &record);
	if (err)
		return err;
	err = pymem__u64(&m, record, &text) ?: pymem__read(&m, text, found_name, strlen(*name) + 1);
	if (err)
		return err;
	if (strcmp(found_name, *name))
		return -EBADMSG;
	err = pymem__u64(&m, record + RECORD_IMPL, &impl);
	if (!err)
		*addr = impl;
	return err;
}

#define MAX_ROOTS 256
#define MAX_STRAYS 4096
#define MAX_PREFIXES 4096
#define PAUSE_NS 50000000ull   /* minimum time between two readings of a tree */
#define PAUSE_COSTS 20	       /* minimum pause, as a multiple of the reading's duration */
#define SHARE 10	       /* all readings take at most 1/SHARE of the time */
#define SAVED_NS 2000000000ull /* maximum of unused reading time that is saved up */

struct root {
	uint64_t addr, type;
	struct nntree *tree;
	uint64_t next_read; /* ns */
	uint64_t used;	    /* order of use; the least recently used root is dropped */
	bool sole;	    /* nnmodules__model() returned it as its own root */
};

/* A module outside all trees, and its name. */
struct stray {
	uint64_t addr, root, type;
	char *name;
};

struct nnmodules {
	struct pymem m;
	struct root roots[MAX_ROOTS];
	size_t nroots;
	struct stray strays[MAX_STRAYS];
	size_t nstrays;
	struct map64 *stray_at;	    /* address -> index */
	uint64_t credit, credit_at; /* ns of reading that are allowed, and when that was computed */
	uint64_t uses;		    /* counter for root.used */
	bool changed;		    /* a name that was returned has changed */
	bool urgent;		    /* nnmodules__recheck() will change names */
	struct map64 *models;	    /* module -> root of its model, from the census; NULL: none */
	/* Texts before the names of the modules below a root. */
	struct prefix {
		uint64_t type;
		char *text;
	} * prefixes;
	struct map64 *prefix_at; /* root -> index */
	size_t nprefixes, capprefixes;
	char name[NN_MAX_NAME + 1], cls[NN_MAX_CLASS], root_cls[NN_MAX_CLASS];
	char name_a[NN_MAX_NAME + 1], name_b[NN_MAX_NAME + 1]; /* names being compared */
};

struct nnmodules *nnmodules__new(const struct python *py)
{
	struct nnmodules *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->stray_at = map64__new();
	n->prefix_at = map64__new();
	if (!n->stray_at || !n->prefix_at) {
		map64__free(n->stray_at);
		map64__free(n->prefix_at);
		free(n);
		errno = ENOMEM;
		return NULL;
	}
	pymem__init(&n->m, py, true);
	n->credit = SAVED_NS;
	n->credit_at = clock__monotonic();
	return n;
}

static void forget_strays(struct nnmodules *n)
{
	for (size_t i = 0; i < n->nstrays; i++)
		free(n->strays[i].name);
	n->nstrays = 0;
	map64__clear(n->stray_at);
}

static void forget_prefixes(struct nnmodules *n)
{
	for (size_t i = 0; i < n->nprefixes; i++)
		free(n->prefixes[i].text);
	n->nprefixes = 0;
	map64__clear(n->prefix_at);
}

void nnmodules__free(struct nnmodules *n)
{
	if (!n)
		return;
	for (size_t i = 0; i < n->nroots; i++)
		nntree__free(n->roots[i].tree);
	forget_strays(n);
	map64__free(n->stray_at);
	map64__free(n->models);
	forget_prefixes(n);
	map64__free(n->prefix_at);
	free(n->prefixes);
	pymem__fini(&n->m);
	free(n);
}

/* Whether a module whose name was returned (marked) has another name in the later tree. Marks in
 * that tree the modules that keep their names. */
static bool compare_trees(struct nnmodules *n, const struct nntree *old, struct nntree *later)
{
	bool same_root = !strcmp(nntree__root_class(old), nntree__root_class(later));
	bool changed = false;

	for (size_t i = 0; i < old->n; i++) {
		size_t j;

		if (!old->nodes[i].marked)
			continue;
		if (same_root &&
		    nntree__find(later, old->nodes[i].addr, nntree__type(old, i), &j) &&
		    !strcmp(nntree__class(old, i), nntree__class(later, j)) &&
		    !strcmp(nntree__name(old, i, n->name_a), nntree__name(later, j, n->name_b)))
			later->nodes[j].marked = 1;
		else
			changed = true;
	}
	return changed;
}

static bool any_marked(const struct nntree *t)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->nodes[i].marked)
			return true;
	return false;
}

static void drop_root(struct nnmodules *n, struct root *r)
{
	if (r->tree && any_marked(r->tree))
		n->changed = true;
	nntree__free(r->tree);
	*r = n->roots[--n->nroots];
}

static struct root *find_root(struct nnmodules *n, uint64_t addr)
{
	for (size_t i = 0; i < n->nroots; i++) {
		if (n->roots[i].addr == addr) {
			n->roots[i].used = ++n->uses;
			return &n->roots[i];
		}
	}
	return NULL;
}

/* Adds a root; drops the least recently used one if there is no room. */
static struct root *add_root(struct nnmodules *n, uint64_t addr)
{
	struct root *r;

	if (n->nroots == MAX_ROOTS) {
		struct root *oldest = &n->roots[0];

		for (size_t i = 1; i < n->nroots; i++)
			if (n->roots[i].used < oldest->used)
				oldest = &n->roots[i];
		drop_root(n, oldest);
	}
	r = &n->roots[n->nroots++];
	*r = (struct root){ .addr = addr, .used = ++n->uses };
	return r;
}

/* Whether the tree contains, below its root, a module that nnmodules__model() returned as its own
 * root. */
static bool has_sole_root(const struct nnmodules *n, const struct nntree *t)
{
	size_t at;

	for (size_t i = 0; i < n->nroots; i++) {
		const struct root *r = &n->roots[i];

		if (r->sole && nntree__find(t, r->addr, r->type, &at) && at > 0)
			return true;
	}
	return false;
}

/* Reads a root's tree. Keeps the old one on failure, or if the new one may lack modules. */
static int read_root(struct nnmodules *n, struct root *r)
{
	uint64_t start = clock__monotonic(), end, cost;
	struct nntree *t;
	int err;

	err = nntree__read(&n->m, r->addr, &t);
	end = clock__monotonic();
	cost = end - start;
	n->credit -= cost < n->credit ? cost : n->credit;
	r->next_read = end + (PAUSE_COSTS * cost > PAUSE_NS ? PAUSE_COSTS * cost : PAUSE_NS);
	if (err)
		return err;
	if (r->tree && t->torn && nntree__type(t, 0) == r->type) {
		nntree__free(t);
		return 0;
	}
	if (r->tree && compare_trees(n, r->tree, t))
		n->changed = true;
	else if (!r->tree && has_sole_root(n, t))
		n->urgent = true;
	nntree__free(r->tree);
	r->tree = t;
	r->type = nntree__type(t, 0);
	return 0;
}

/* Adds up the reading time that is allowed by now. True: some is left. */
static bool may_read(struct nnmodules *n)
{
	uint64_t now = clock__monotonic();

	n->credit += (now - n->credit_at) / SHARE;
	n->credit = n->credit < SAVED_NS ? n->credit : SAVED_NS;
	n->credit_at = now;
	return n->credit > 0;
}

/* Gets the root at addr. *ret is NULL if it may not be read now. */
static int get_root(struct nnmodules *n, uint64_t addr, struct root **ret)
{
	struct root *r = find_root(n, addr);
	uint64_t type;
	int err;

	err = pydict__type_of(&n->m, addr, &type);
	if (r && (err || r->type != type)) {
		drop_root(n, r);
		r = NULL;
	}
	if (err)
		return err;
	if (!r && may_read(n)) {
		r = add_root(n, addr);
		err = read_root(n, r);
		if (err) {
			drop_root(n, r);
			return err;
		}
	}
	*ret = r;
	return 0;
}

/* Finds a module in a tree, and reads the tree again if allowed. */
static bool find_module(struct nnmodules *n, struct root *r, uint64_t self, uint64_t type,
			size_t *ret)
{
	for (int again = 0; again < 2; again++) {
		if (nntree__find(r->tree, self, type, ret))
			return true;
		if (again || clock__monotonic() < r->next_read || !may_read(n) || read_root(n, r))
			return false;
	}
	return false;
}

/* Reads the class name of a module's type. -EBADMSG: not a module. */
static int read_class_name(struct nnmodules *n, uint64_t type, char *buf)
{
	int err;

	pymem__forget(&n->m);
	err = nnmodules__is_type(&n->m, type);
	if (err <= 0)
		return err && err != -EAGAIN ? err : -EBADMSG;
	return pytype__name(&n->m, type, buf, NN_MAX_CLASS);
}

static const struct stray *find_stray(const struct nnmodules *n, uint64_t addr, uint64_t root)
{
	uint64_t i;

	if (!map64__get(n->stray_at, addr, &i) || n->strays[i].root != root)
		return NULL;
	return &n->strays[i];
}

/* Keeps the name of a module outside of the root's tree. */
static int keep_stray(struct nnmodules *n, uint64_t addr, uint64_t root, uint64_t type,
		      const char *name)
{
	char *copy = strdup(name);
	struct stray *s;
	uint64_t i;

	if (!copy)
		return -ENOMEM;
	if (map64__get(n->stray_at, addr, &i)) {
		s = &n->strays[i];
		free(s->name);
	} else {
		if (n->nstrays == MAX_STRAYS)
			forget_strays(n);
		if (map64__set(n->stray_at, addr, n->nstrays)) {
			free(copy);
			return -ENOMEM;
		}
		s = &n->strays[n->nstrays++];
	}
	*s = (struct stray){ .addr = addr, .root = root, .type = type, .name = copy };
	return 0;
}

/* Joins two names into n->name. If that is too long, the name is "?". */
static void join_names(struct nnmodules *n, const char *a, const char *b)
{
	size_t a_len = strlen(a);
	size_t b_len = strlen(b);

	if (a_len + b_len + 1 > NN_MAX_NAME) {
		strcpy(n->name, "?");
		return;
	}
	memmove(n->name, a, a_len);
	if (a_len)
		n->name[a_len++] = '.';
	memcpy(n->name + a_len, b, b_len + 1);
}

/* Names a module outside the root's tree: the parent's name and "?". If the parent is outside, too,
 * but contains the module: the path below the parent. */
static int name_stray(struct nnmodules *n, uint64_t self, uint64_t type, struct root *root,
		      uint64_t root_addr, uint64_t parent)
{
	const struct stray *known;
	char base[NN_MAX_NAME + 1] = "?";
	struct root *r = NULL;
	uint64_t parent_type;
	size_t i;

	strcpy(n->name, "?");
	if (!parent || parent == self || pydict__type_of(&n->m, parent, &parent_type))
		return keep_stray(n, self, root_addr, type, n->name);
	if (root && nntree__find(root->tree, parent, parent_type, &i)) {
		join_names(n, nntree__name(root->tree, i, base), "?");
		return keep_stray(n, self, root_addr, type, n->name);
	}
	known = find_stray(n, parent, root_addr);
	if (known && known->type == parent_type)
		strcpy(base, known->name);
	/* get_root() may drop root to make room. */
	if (!get_root(n, parent, &r) && r && find_module(n, r, self, type, &i))
		join_names(n, base, nntree__name(r->tree, i, n->name_a));
	else
		join_names(n, base, "?");
	return keep_stray(n, self, root_addr, type, n->name);
}

/* The largest other root whose tree contains the module; NULL: none. */
static struct root *find_holder(struct nnmodules *n, uint64_t addr, uint64_t type)
{
	struct root *best = NULL;
	size_t at;

	for (size_t i = 0; i < n->nroots; i++) {
		struct root *r = &n->roots[i];

		if (r->addr != addr && nntree__find(r->tree, addr, type, &at) &&
		    (!best || r->tree->n > best->tree->n))
			best = r;
	}
	return best;
}

/* The root of the model that a module is in, by the census, if its tree has the module; 0: none. */
static uint64_t find_model(struct nnmodules *n, uint64_t addr, uint64_t type)
{
	struct root *r = NULL;
	uint64_t root;
	size_t at;

	if (!n->models || !map64__get(n->models, addr, &root) || get_root(n, root, &r) || !r)
		return 0;
	return nntree__find(r->tree, addr, type, &at) ? root : 0;
}

/* Searches the trees that are already read, then uses the census's map. */
uint64_t nnmodules__model(struct nnmodules *n, uint64_t root)
{
	struct root *r = NULL, *holder;
	uint64_t model, type;

	if (pydict__type_of(&n->m, root, &type))
		return root;
	holder = find_holder(n, root, type);
	if (holder)
		return holder->addr;
	model = find_model(n, root, type);
	if (model)
		return model;
	if (!get_root(n, root, &r) && r)
		r->sole = true;
	return root;
}

int nnmodules__has_tensors(struct nnmodules *n, uint64_t root)
{
	struct root *r = NULL;

	if (get_root(n, root, &r) || !r)
		return -EAGAIN;
	return r->tree->tensors || r->tree->torn;
}

void nnmodules__set_models(struct nnmodules *n, struct map64 *roots)
{
	uint64_t root;

	map64__free(n->models);
	n->models = roots;
	for (size_t i = 0; roots && i < n->nroots && !n->urgent; i++)
		n->urgent = n->roots[i].sole && map64__get(roots, n->roots[i].addr, &root);
}

static const char *prefix_of(const struct nnmodules *n, uint64_t root, uint64_t type)
{
	uint64_t i;

	return map64__get(n->prefix_at, root, &i) && n->prefixes[i].type == type
		       ? n->prefixes[i].text
		       : "";
}

int nnmodules__set_prefix(struct nnmodules *n, uint64_t root, uint64_t type, const char *text)
{
	struct prefix f = { .type = type };
	uint64_t i;
	int err;

	if (!strcmp(prefix_of(n, root, type), text))
		return 0;
	for (i = 0; i < n->nroots; i++)
		n->urgent |= n->roots[i].addr == root;
	n->changed |= n->urgent;
	if (n->nprefixes == MAX_PREFIXES)
		forget_prefixes(n);
	f.text = strndup(text, NN_MAX_NAME / 2);
	if (!f.text)
		return -ENOMEM;
	if (map64__get(n->prefix_at, root, &i)) {
		free(n->prefixes[i].text);
		n->prefixes[i] = f;
		return 0;
	}
	err = array__grow(&n->prefixes, &n->capprefixes, n->nprefixes + 1, sizeof(f))
		      ?: map64__set(n->prefix_at, root, n->nprefixes);
	if (err) {
		free(f.text);
		return err;
	}
	n->prefixes[n->nprefixes++] = f;
	return 0;
}

/* Puts the root's prefix before n->name, if there is room. */
static void put_prefix(struct nnmodules *n, uint64_t root, uint64_t type)
{
	const char *prefix = prefix_of(n, root, type);
	size_t a = strlen(prefix);
	size_t b = strlen(n->name);
	size_t dot = b > 0;

	if (!a || a + dot + b > NN_MAX_NAME)
		return;
	memmove(n->name + a + dot, n->name, b + 1);
	memcpy(n->name, prefix, a);
	if (dot)
		n->name[a] = '.';
}

/* Names a module without the root's prefix: by the root's tree, otherwise as a stray. */
static int name_module(struct nnmodules *n, uint64_t self, uint64_t root, uint64_t parent,
		       struct nnmodule *ret)
{
	uint64_t type, root_type;
	struct root *r = NULL;
	size_t i;
	int err;

	err = pydict__type_of(&n->m, self, &type) ?: get_root(n, root, &r);
	if (err)
		return err;
	if (r && find_module(n, r, self, type, &i)) {
		r->tree->nodes[i].marked = 1;
		ret->name = nntree__name(r->tree, i, n->name);
		ret->cls = strcpy(n->cls, nntree__class(r->tree, i));
		ret->root = strcpy(n->root_cls, nntree__root_class(r->tree));
		return 0;
	}
	err = read_class_name(n, type, n->cls);
	if (err)
		return err;
	if (r)
		strcpy(n->root_cls, nntree__root_class(r->tree));
	else
		err = pydict__type_of(&n->m, root, &root_type)
			      ?: read_class_name(n, root_type, n->root_cls);
	err = err ?: name_stray(n, self, type, r, root, parent);
	if (err)
		return err;
	*ret = (struct nnmodule){ .name = n->name, .cls = n->cls, .root = n->root_cls };
	return 0;
}

int nnmodules__name(struct nnmodules *n, uint64_t self, uint64_t root, uint64_t parent,
		    struct nnmodule *ret)
{
	uint64_t type;
	int err = name_module(n, self, root, parent, ret);

	if (!err && n->nprefixes && !pydict__type_of(&n->m, root, &type))
		put_prefix(n, root, type);
	return err;
}

/* Drops strays that no longer exist. True: a stray is in its root's tree now. */
static bool recheck_strays(struct nnmodules *n)
{
	bool changed = false;
	uint64_t type;

	for (size_t i = 0; i < n->nstrays;) {
		struct stray *s = &n->strays[i];
		struct root *r = find_root(n, s->root);
		bool gone = pydict__type_of(&n->m, s->addr, &type) || type != s->type, placed;
		size_t at;

		placed = !gone && r && nntree__find(r->tree, s->addr, type, &at);
		changed |= placed;
		if (!gone && !placed) {
			i++;
			continue;
		}
		map64__del(n->stray_at, s->addr, NULL);
		free(s->name);
		*s = n->strays[--n->nstrays];
		/* The key exists, so this needs no memory. */
		if (i < n->nstrays)
			map64__set(n->stray_at, s->addr, i);
	}
	return changed;
}

bool nnmodules__is_urgent(const struct nnmodules *n)
{
	return n->urgent;
}

/* Reads all trees again. A root that turns out to be part of a model is no longer `sole`. */
bool nnmodules__recheck(struct nnmodules *n, uint64_t *cost_ns)
{
	uint64_t start = clock__monotonic();
	bool changed;

	for (size_t i = 0; i < n->nroots;) {
		if (read_root(n, &n->roots[i]))
			drop_root(n, &n->roots[i]);
		else
			i++;
	}
	for (size_t i = 0; i < n->nroots; i++) {
		struct root *r = &n->roots[i];
		uint64_t addr = r->addr;

		if (!r->sole || (!find_holder(n, addr, r->type) && !find_model(n, addr, r->type)))
			continue;
		r = find_root(n, addr); /* find_model() may move roots */
		if (r)
			r->sole = false;
		n->changed = true;
	}
	changed = recheck_strays(n);
	changed |= n->changed | n->urgent;
	n->changed = n->urgent = false;
	if (cost_ns)
		*cost_ns = clock__monotonic() - start;
	return changed;
}
