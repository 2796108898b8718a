/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Names come from trees, one for each root module. A tree is read on first use and again when a
 * module is missing from it. Pauses after each reading, and a share of time for all readings, limit
 * the cost in targets that make modules all the time.
 */
#include "inspect/torch.h"

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
#include "inspect/torch/pybind.h"

/* Data for the probes on module calls: module types, the code object of a call, and the function to
 * probe. */

#define TORCH_MODULE "torch.nn.modules.module"
#define LOOKS 5		   /* additional attempts */
#define LOOK_PAUSE 2000000 /* ns */
/* The function of torch._C that Module._call_impl calls first; by 2.15 it is _is_tracing. */
#define TRACING_STATE "_get_tracing_state"
#define IS_TRACING "_is_tracing"

int nnmodules__is_type(struct pymem *mem, uint64_t type)
{
	return pytype__is_a(mem, type, "Module", TORCH_MODULE);
}

/* Finds the class torch.nn.Module. -EBADMSG: another object has its name. */
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
	const struct pylayout *layout = python__layout(py);
	uint64_t func, found_code;
	struct pymem mem;
	uint32_t argc;
	int err;

	err = pyobj__type_attr(py, type, name, &func) ?: pyobj__func_code(py, func, &found_code);
	if (err)
		return err;
	pymem__init(&mem, py, false);
	err = pymem__read(&mem, found_code + layout->co_argcount, &argc, sizeof(argc));
	if (err)
		return err;
	if (!argc)
		return -ENOENT;
	*code = found_code;
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
	const struct pylayout *layout = python__layout(py);
	uint64_t type, call;
	struct pymem mem;
	int err;

	err = find_module_type(py, &type);
	if (err)
		return err;
	pymem__init(&mem, py, false);
	err = pymem__u64(&mem, type + layout->tp_call, &call);
	if (err)
		return err;
	if (!call)
		return -ENOENT;
	*addr = call;
	return 0;
}

#define CODE_WORDS 16 /* words of a code object that are searched for its tuple of names */
#define NAMES 64

/* True if a tuple of str objects has the name among its first NAMES items. */
static bool has_name(const struct python *py, struct pymem *mem, uint64_t tuple, const char *name)
{
	const struct pylayout *layout = python__layout(py);
	uint64_t n, item;
	char text[64];

	if (pymem__u64(mem, tuple + layout->tuple_item - 8, &n /* ob_size precedes the items */))
		return false;
	for (uint64_t i = 0; i < n && i < NAMES; i++) {
		if (pymem__u64(mem, tuple + layout->tuple_item + 8 * i, &item) ||
		    pyobj__str(py, item, text, sizeof(text)) < 0)
			continue;
		if (!strcmp(text, name))
			return true;
	}
	return false;
}

/* True if one of the tuples in a code object has the name. */
static bool uses_name(const struct python *py, struct pymem *mem, uint64_t code, const char *name)
{
	uint64_t words[CODE_WORDS], type;
	char type_name[16];

	if (pymem__read(mem, code, words, sizeof(words)))
		return false;
	for (size_t i = 0; i < CODE_WORDS; i++) {
		if (words[i] % 8 || pyobj__type(py, words[i], &type) ||
		    pyobj__type_name(py, type, type_name, sizeof(type_name)) ||
		    strcmp(type_name, "tuple"))
			continue;
		if (has_name(py, mem, words[i], name))
			return true;
	}
	return false;
}

/* Name of the function that Module._call_impl calls first. */
static const char *first_called_name(const struct python *py, struct pymem *mem)
{
	uint64_t type, code;

	if (!find_module_type(py, &type) && !find_method_code(py, type, "_call_impl", &code) &&
	    uses_name(py, mem, code, IS_TRACING))
		return IS_TRACING;
	return TRACING_STATE;
}

int nnmodules__first_called(const struct python *py, uint64_t *addr, const char **name)
{
	uint64_t module;
	struct pymem mem;
	int err;

	pymem__init(&mem, py, false);
	*name = first_called_name(py, &mem);
	err = pyobj__module(py, "torch._C", &module);
	return err ?: pybind__word(py, module, *name, PYBIND_IMPL, addr);
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

/* A stray is a module that is not in the tree of the root that it was called under. */
struct stray {
	uint64_t addr, root, type;
	char *name;
};

struct nnmodules {
	struct pymem mem;
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
	struct nnmodules *modules = calloc(1, sizeof(*modules));

	if (!modules)
		return NULL;
	modules->stray_at = map64__new();
	modules->prefix_at = map64__new();
	if (!modules->stray_at || !modules->prefix_at) {
		map64__free(modules->stray_at);
		map64__free(modules->prefix_at);
		free(modules);
		errno = ENOMEM;
		return NULL;
	}
	pymem__init(&modules->mem, py, true);
	modules->credit = SAVED_NS;
	modules->credit_at = clock__monotonic();
	return modules;
}

/* Forgets the names of all modules that are outside the trees of their roots. */
static void forget_strays(struct nnmodules *modules)
{
	for (size_t i = 0; i < modules->nstrays; i++)
		free(modules->strays[i].name);
	modules->nstrays = 0;
	map64__clear(modules->stray_at);
}

static void forget_prefixes(struct nnmodules *modules)
{
	for (size_t i = 0; i < modules->nprefixes; i++)
		free(modules->prefixes[i].text);
	modules->nprefixes = 0;
	map64__clear(modules->prefix_at);
}

void nnmodules__free(struct nnmodules *modules)
{
	if (!modules)
		return;
	for (size_t i = 0; i < modules->nroots; i++)
		nntree__free(modules->roots[i].tree);
	forget_strays(modules);
	map64__free(modules->stray_at);
	map64__free(modules->models);
	forget_prefixes(modules);
	map64__free(modules->prefix_at);
	free(modules->prefixes);
	pymem__fini(&modules->mem);
	free(modules);
}

/* True if a module whose name was returned (marked) has another name in the later tree. Marks in
 * that tree the modules that keep their names. */
static bool compare_trees(struct nnmodules *modules, const struct nntree *old, struct nntree *later)
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
		    !strcmp(nntree__name(old, i, modules->name_a),
			    nntree__name(later, j, modules->name_b)))
			later->nodes[j].marked = 1;
		else
			changed = true;
	}
	return changed;
}

static bool any_marked(const struct nntree *tree)
{
	for (size_t i = 0; i < tree->n; i++)
		if (tree->nodes[i].marked)
			return true;
	return false;
}

/* Removes a root, by moving the last one to its place. Notes a change if one of its names was
 * used. */
static void drop_root(struct nnmodules *modules, struct root *root)
{
	if (root->tree && any_marked(root->tree))
		modules->changed = true;
	nntree__free(root->tree);
	*root = modules->roots[--modules->nroots];
}

/* NULL: no tree was read for this root. */
static struct root *find_root(struct nnmodules *modules, uint64_t addr)
{
	for (size_t i = 0; i < modules->nroots; i++) {
		if (modules->roots[i].addr == addr) {
			modules->roots[i].used = ++modules->uses;
			return &modules->roots[i];
		}
	}
	return NULL;
}

/* Adds a root; drops the least recently used one if there is no room. */
static struct root *add_root(struct nnmodules *modules, uint64_t addr)
{
	struct root *root;

	if (modules->nroots == MAX_ROOTS) {
		struct root *oldest = &modules->roots[0];

		for (size_t i = 1; i < modules->nroots; i++)
			if (modules->roots[i].used < oldest->used)
				oldest = &modules->roots[i];
		drop_root(modules, oldest);
	}
	root = &modules->roots[modules->nroots++];
	*root = (struct root){ .addr = addr, .used = ++modules->uses };
	return root;
}

/* True if the tree contains, below its root, a module that nnmodules__model() returned as its own
 * root. */
static bool has_sole_root(const struct nnmodules *modules, const struct nntree *tree)
{
	size_t at;

	for (size_t i = 0; i < modules->nroots; i++) {
		const struct root *root = &modules->roots[i];

		if (root->sole && nntree__find(tree, root->addr, root->type, &at) && at > 0)
			return true;
	}
	return false;
}

/* Reads a root's tree. Keeps the old one on failure, or if the new one may lack modules. */
static int read_root(struct nnmodules *modules, struct root *root)
{
	uint64_t start = clock__monotonic(), end, cost;
	struct nntree *tree;
	int err;

	err = nntree__read(&modules->mem, root->addr, &tree);
	end = clock__monotonic();
	cost = end - start;
	modules->credit -= cost < modules->credit ? cost : modules->credit;
	root->next_read = end + (PAUSE_COSTS * cost > PAUSE_NS ? PAUSE_COSTS * cost : PAUSE_NS);
	if (err)
		return err;
	if (root->tree && tree->torn && nntree__type(tree, 0) == root->type) {
		nntree__free(tree);
		return 0;
	}
	if (root->tree && compare_trees(modules, root->tree, tree))
		modules->changed = true;
	else if (!root->tree && has_sole_root(modules, tree))
		modules->urgent = true;
	nntree__free(root->tree);
	root->tree = tree;
	root->type = nntree__type(tree, 0);
	return 0;
}

/* Adds up the reading time that is allowed by now. True: some is left. */
static bool may_read(struct nnmodules *modules)
{
	uint64_t now = clock__monotonic();

	modules->credit += (now - modules->credit_at) / SHARE;
	modules->credit = modules->credit < SAVED_NS ? modules->credit : SAVED_NS;
	modules->credit_at = now;
	return modules->credit > 0;
}

/* Gets the root at addr. *ret is NULL if it may not be read now. */
static int get_root(struct nnmodules *modules, uint64_t addr, struct root **ret)
{
	struct root *root = find_root(modules, addr);
	uint64_t type;
	int err;

	err = pydict__type_of(&modules->mem, addr, &type);
	/* Another object has the address now. */
	if (root && (err || root->type != type)) {
		drop_root(modules, root);
		root = NULL;
	}
	if (err)
		return err;
	if (!root && may_read(modules)) {
		root = add_root(modules, addr);
		err = read_root(modules, root);
		if (err) {
			drop_root(modules, root);
			return err;
		}
	}
	*ret = root;
	return 0;
}

/* Finds a module in a tree, and reads the tree again if allowed. */
static bool find_module(struct nnmodules *modules, struct root *root, uint64_t self, uint64_t type,
			size_t *ret)
{
	for (int again = 0; again < 2; again++) {
		if (nntree__find(root->tree, self, type, ret))
			return true;
		if (again || clock__monotonic() < root->next_read || !may_read(modules) ||
		    read_root(modules, root))
			return false;
	}
	return false;
}

/* Reads the class name of a module's type. -EBADMSG: not a module. */
static int read_class_name(struct nnmodules *modules, uint64_t type, char *buf)
{
	int err;

	pymem__forget(&modules->mem);
	err = nnmodules__is_type(&modules->mem, type);
	if (err <= 0)
		return err && err != -EAGAIN ? err : -EBADMSG;
	return pytype__name(&modules->mem, type, buf, NN_MAX_CLASS);
}

/* Returns the name that a module outside the trees got under this root; NULL: none. */
static const struct stray *find_stray(const struct nnmodules *modules, uint64_t addr, uint64_t root)
{
	uint64_t i;

	if (!map64__get(modules->stray_at, addr, &i) || modules->strays[i].root != root)
		return NULL;
	return &modules->strays[i];
}

/* Keeps the name of a stray. Returns 0 or -ENOMEM. */
static int keep_stray(struct nnmodules *modules, uint64_t addr, uint64_t root, uint64_t type,
		      const char *name)
{
	char *copy = strdup(name);
	struct stray *stray;
	uint64_t i;

	if (!copy)
		return -ENOMEM;
	if (map64__get(modules->stray_at, addr, &i)) {
		stray = &modules->strays[i];
		free(stray->name);
	} else {
		if (modules->nstrays == MAX_STRAYS)
			forget_strays(modules);
		if (map64__set(modules->stray_at, addr, modules->nstrays)) {
			free(copy);
			return -ENOMEM;
		}
		stray = &modules->strays[modules->nstrays++];
	}
	*stray = (struct stray){ .addr = addr, .root = root, .type = type, .name = copy };
	return 0;
}

/* Joins the names of a module and of one below it to modules->name. If that is too long, it is "?".
 */
static void join_names(struct nnmodules *modules, const char *name, const char *below)
{
	size_t a_len = strlen(name);
	size_t b_len = strlen(below);

	if (a_len + b_len + 1 > NN_MAX_NAME) {
		strcpy(modules->name, "?");
		return;
	}
	memmove(modules->name, name, a_len);
	if (a_len)
		modules->name[a_len++] = '.';
	memcpy(modules->name + a_len, below, b_len + 1);
}

/* Names a module outside the root's tree: the parent's name and "?". If the parent is outside, too,
 * but contains the module: the path below the parent. Returns 0 or -ENOMEM. A stray is such a
 * module. */
static int name_stray(struct nnmodules *modules, uint64_t self, uint64_t type, struct root *root,
		      uint64_t root_addr, uint64_t parent)
{
	const struct stray *known;
	char base[NN_MAX_NAME + 1] = "?";
	struct root *parent_root = NULL;
	uint64_t parent_type;
	size_t i;

	strcpy(modules->name, "?");
	if (!parent || parent == self || pydict__type_of(&modules->mem, parent, &parent_type))
		return keep_stray(modules, self, root_addr, type, modules->name);
	if (root && nntree__find(root->tree, parent, parent_type, &i)) {
		join_names(modules, nntree__name(root->tree, i, base), "?");
		return keep_stray(modules, self, root_addr, type, modules->name);
	}
	known = find_stray(modules, parent, root_addr);
	if (known && known->type == parent_type)
		strcpy(base, known->name);
	/* get_root() may drop root to make room. */
	if (!get_root(modules, parent, &parent_root) && parent_root &&
	    find_module(modules, parent_root, self, type, &i))
		join_names(modules, base, nntree__name(parent_root->tree, i, modules->name_a));
	else
		join_names(modules, base, "?");
	return keep_stray(modules, self, root_addr, type, modules->name);
}

/* The largest other root whose tree contains the module; NULL: none. */
static struct root *find_holder(struct nnmodules *modules, uint64_t addr, uint64_t type)
{
	struct root *best = NULL;
	size_t at;

	for (size_t i = 0; i < modules->nroots; i++) {
		struct root *root = &modules->roots[i];

		if (root->addr != addr && nntree__find(root->tree, addr, type, &at) &&
		    (!best || root->tree->n > best->tree->n))
			best = root;
	}
	return best;
}

/* The root of the model that a module is in, by the census, if its tree has the module; 0: none. */
static uint64_t find_model(struct nnmodules *modules, uint64_t addr, uint64_t type)
{
	struct root *r = NULL;
	uint64_t root;
	size_t at;

	if (!modules->models || !map64__get(modules->models, addr, &root) ||
	    get_root(modules, root, &r) || !r)
		return 0;
	return nntree__find(r->tree, addr, type, &at) ? root : 0;
}

/* Searches the trees that are already read, then uses the census's map. */
uint64_t nnmodules__model(struct nnmodules *modules, uint64_t root)
{
	struct root *new_root = NULL, *holder;
	uint64_t model, type;

	if (pydict__type_of(&modules->mem, root, &type))
		return root;
	holder = find_holder(modules, root, type);
	if (holder)
		return holder->addr;
	model = find_model(modules, root, type);
	if (model)
		return model;
	if (!get_root(modules, root, &new_root) && new_root)
		new_root->sole = true;
	return root;
}

int nnmodules__has_tensors(struct nnmodules *modules, uint64_t root)
{
	struct root *r = NULL;

	if (get_root(modules, root, &r) || !r)
		return -EAGAIN;
	return r->tree->tensors || r->tree->torn;
}

void nnmodules__set_models(struct nnmodules *modules, struct map64 *roots)
{
	uint64_t root;

	map64__free(modules->models);
	modules->models = roots;
	for (size_t i = 0; roots && i < modules->nroots && !modules->urgent; i++)
		modules->urgent = modules->roots[i].sole &&
				  map64__get(roots, modules->roots[i].addr, &root);
}

/* The root's prefix; "": none, or of another object that had its address. */
static const char *prefix_of(const struct nnmodules *modules, uint64_t root, uint64_t type)
{
	uint64_t i;

	return map64__get(modules->prefix_at, root, &i) && modules->prefixes[i].type == type
		       ? modules->prefixes[i].text
		       : "";
}

int nnmodules__set_prefix(struct nnmodules *modules, uint64_t root, uint64_t type, const char *text)
{
	struct prefix prefix = { .type = type };
	uint64_t i;
	int err;

	if (!strcmp(prefix_of(modules, root, type), text))
		return 0;
	/* Names that were returned change if the root was read already. */
	for (i = 0; i < modules->nroots; i++)
		modules->urgent |= modules->roots[i].addr == root;
	modules->changed |= modules->urgent;
	if (modules->nprefixes == MAX_PREFIXES)
		forget_prefixes(modules);
	prefix.text = strndup(text, NN_MAX_NAME / 2);
	if (!prefix.text)
		return -ENOMEM;
	if (map64__get(modules->prefix_at, root, &i)) {
		free(modules->prefixes[i].text);
		modules->prefixes[i] = prefix;
		return 0;
	}
	err = array__grow(&modules->prefixes, &modules->capprefixes, modules->nprefixes + 1,
			  sizeof(prefix))
		      ?: map64__set(modules->prefix_at, root, modules->nprefixes);
	if (err) {
		free(prefix.text);
		return err;
	}
	modules->prefixes[modules->nprefixes++] = prefix;
	return 0;
}

/* Puts the root's prefix before modules->name, if there is room. */
static void put_prefix(struct nnmodules *modules, uint64_t root, uint64_t type)
{
	const char *prefix = prefix_of(modules, root, type);
	size_t prefix_len = strlen(prefix);
	size_t name_len = strlen(modules->name);
	size_t dot = name_len > 0;

	if (!prefix_len || prefix_len + dot + name_len > NN_MAX_NAME)
		return;
	memmove(modules->name + prefix_len + dot, modules->name, name_len + 1);
	memcpy(modules->name, prefix, prefix_len);
	if (dot)
		modules->name[prefix_len] = '.';
}

/* Names a module without the root's prefix: by the root's tree, otherwise as a stray. */
static int name_module(struct nnmodules *modules, uint64_t self, uint64_t root, uint64_t parent,
		       struct nnmodule *ret)
{
	uint64_t type, root_type;
	struct root *found_root = NULL;
	size_t i;
	int err;

	err = pydict__type_of(&modules->mem, self, &type) ?: get_root(modules, root, &found_root);
	if (err)
		return err;
	if (found_root && find_module(modules, found_root, self, type, &i)) {
		found_root->tree->nodes[i].marked = 1;
		ret->name = nntree__name(found_root->tree, i, modules->name);
		ret->cls = strcpy(modules->cls, nntree__class(found_root->tree, i));
		ret->root = strcpy(modules->root_cls, nntree__root_class(found_root->tree));
		return 0;
	}
	err = read_class_name(modules, type, modules->cls);
	if (err)
		return err;
	if (found_root)
		strcpy(modules->root_cls, nntree__root_class(found_root->tree));
	else
		err = pydict__type_of(&modules->mem, root, &root_type)
			      ?: read_class_name(modules, root_type, modules->root_cls);
	err = err ?: name_stray(modules, self, type, found_root, root, parent);
	if (err)
		return err;
	*ret = (struct nnmodule){ .name = modules->name,
				  .cls = modules->cls,
				  .root = modules->root_cls };
	return 0;
}

int nnmodules__name(struct nnmodules *modules, uint64_t self, uint64_t root, uint64_t parent,
		    struct nnmodule *ret)
{
	uint64_t type;
	int err = name_module(modules, self, root, parent, ret);

	if (!err && modules->nprefixes && !pydict__type_of(&modules->mem, root, &type))
		put_prefix(modules, root, type);
	return err;
}

/* Drops strays that no longer exist, or that are in their root's tree now. True: there was one in
 * its root's tree, so its name changes. */
static bool recheck_strays(struct nnmodules *modules)
{
	bool changed = false;
	uint64_t type;

	for (size_t i = 0; i < modules->nstrays;) {
		struct stray *stray = &modules->strays[i];
		struct root *root = find_root(modules, stray->root);
		bool gone = pydict__type_of(&modules->mem, stray->addr, &type) ||
			    type != stray->type,
		     placed;
		size_t at;

		placed = !gone && root && nntree__find(root->tree, stray->addr, type, &at);
		changed |= placed;
		if (!gone && !placed) {
			i++;
			continue;
		}
		map64__del(modules->stray_at, stray->addr, /*old=*/NULL);
		free(stray->name);
		*stray = modules->strays[--modules->nstrays];
		/* The key exists, so this needs no memory. */
		if (i < modules->nstrays)
			map64__set(modules->stray_at, stray->addr, i);
	}
	return changed;
}

bool nnmodules__is_urgent(const struct nnmodules *modules)
{
	return modules->urgent;
}

/* Reads all trees again. A root that turns out to be part of a model is no longer `sole`. */
bool nnmodules__recheck(struct nnmodules *modules, uint64_t *cost_ns)
{
	uint64_t start = clock__monotonic();
	bool changed;

	for (size_t i = 0; i < modules->nroots;) {
		if (read_root(modules, &modules->roots[i]))
			drop_root(modules, &modules->roots[i]);
		else
			i++;
	}
	for (size_t i = 0; i < modules->nroots; i++) {
		struct root *root = &modules->roots[i];
		uint64_t addr = root->addr;

		if (!root->sole || (!find_holder(modules, addr, root->type) &&
				    !find_model(modules, addr, root->type)))
			continue;
		root = find_root(modules, addr); /* find_model() may move roots */
		if (root)
			root->sole = false;
		modules->changed = true;
	}
	changed = recheck_strays(modules);
	changed |= modules->changed | modules->urgent;
	modules->changed = modules->urgent = false;
	if (cost_ns)
		*cost_ns = clock__monotonic() - start;
	return changed;
}
