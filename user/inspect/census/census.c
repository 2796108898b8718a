/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One reading. It sorts the objects in the collector's lists by type and names those that modules
 * and optimizers hold. It then reads the tensors in bulk, with their gradients and the contents of
 * wrappers, and combines them into storages.
 */
#include "inspect/census.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/map64.h"
#include "inspect/census/internal.h"
#include "inspect/process/memcache.h"
#include "inspect/pyobj.h"
#include "inspect/python.h"

#define WALKS 3			   /* walks of the lists, at least, while these keep changing */
#define WALKS_WITHIN 1000000000ULL /* ns within which more walks begin */
#define OBJECTS_AT_ONCE 16384	   /* between two checks of the time; about 2 ms */
#define LAYOUT_TRIES 8		   /* attempts to find the layout of tensors that come and go */
#define FEW_TENSORS 400		   /* with more, another attempt has the same result */

const char *census_kind__name(enum census_kind k)
{
	static const char *const names[CENSUS_KINDS] = {
		[CENSUS_PARAMETER] = "parameter",   [CENSUS_BUFFER] = "buffer",
		[CENSUS_GRADIENT] = "gradient",	    [CENSUS_OPTIMIZER] = "optimizer_state",
		[CENSUS_ACTIVATION] = "activation", [CENSUS_OTHER] = "unknown",
		[CENSUS_KV_CACHE] = "kv_cache",
	};

	return k < CENSUS_KINDS ? names[k] : "unknown";
}

/* ---- types ---- */

/* Address of a class in a module of the target. 0; -ENOENT: not imported; or another error. */
static int find_type(const struct python *py, const char *module, const char *name, uint64_t *ret)
{
	uint64_t m;
	int err = pyobj__module(py, module, &m);

	return err ? err : pyobj__module_attr(py, m, name, ret);
}

static int find_types(struct census *c)
{
	const struct {
		const char *module, *name;
		uint64_t *at;
	} types[] = {
		{ "torch", "Tensor", &c->tensor },
		{ "torch.nn.modules.module", "Module", &c->module },
		{ "torch.nn.parameter", "Parameter", &c->parameter },
		{ "torch.optim.optimizer", "Optimizer", &c->optimizer },
	};
	int err = find_type(c->py, "torch._C", "TensorBase", &c->tensor_base);

	if (err) /* PyTorch 2.0 and before */
		err = find_type(c->py, "torch._C", "_TensorBase", &c->tensor_base);
	for (size_t i = 0; !err && i < sizeof(types) / sizeof(types[0]); i++)
		err = find_type(c->py, types[i].module, types[i].name, types[i].at);
	if (err)
		return err;
	if (find_type(c->py, "torch._C", "_FunctionBase", &c->function))
		c->function = 0; /* then tensors saved by custom autograd Functions stay unnamed */
	return 0;
}

/* PyTorch is not imported: no object is of its types. */
static void set_no_types(struct census *c)
{
	c->tensor_base = c->tensor = c->parameter = c->module = c->optimizer = NOT_IMPORTED;
	c->function = 0;
}

static bool is_not_imported(int err)
{
	return err == -ENOENT || err == -EBADMSG;
}

/* ---- objects ---- */

/* Adds an object to a list of at most max, unless the reading has it already. */
static int add_object(struct reading *r, struct found_list *list, size_t max, uint64_t obj,
		      uint64_t type, enum type_kind kind)
{
	uint64_t known;
	int err;

	if (map64__get(r->seen, obj, &known))
		return 0;
	if (list->n >= max)
		return -E2BIG;
	err = array__grow(&list->v, &list->cap, list->n + 1, sizeof(*list->v))
		      ?: map64__set(r->seen, obj, kind);
	if (err)
		return err;
	list->v[list->n++] = (struct found){ obj, type };
	return 0;
}

struct walk {
	struct reading *r;
	unsigned since_check; /* objects since the last check of the time */
	/* The last types seen, since most objects share a few types. */
	struct {
		uint64_t type;
		enum type_kind kind;
	} last[64];
};

/* Sorts an object of the collector's lists by its type. 0 or an error that ends the walk. */
static int on_object(uint64_t obj, uint64_t type, void *ctx)
{
	struct walk *w = ctx;
	size_t slot = type / 16 % 64;
	enum type_kind kind;
	int err;

	if (++w->since_check >= OBJECTS_AT_ONCE) {
		w->since_check = 0;
		err = reading__check_time(w->r);
		if (err)
			return err;
	}
	if (w->last[slot].type != type) {
		err = reading__type_kind(w->r, type, &kind);
		if (err)
			return err;
		w->last[slot].type = type;
		w->last[slot].kind = kind;
	}
	switch (w->last[slot].kind) {
	case TYPE_TENSOR:
	case TYPE_WRAPPER:
		return add_object(w->r, &w->r->tensors, CENSUS_MAX_TENSORS, obj, type,
				  w->last[slot].kind);
	case TYPE_MODULE:
		return add_object(w->r, &w->r->modules, CENSUS_MAX_MODULES, obj, type, TYPE_MODULE);
	case TYPE_OPTIMIZER:
		return add_object(w->r, &w->r->optimizers, CENSUS_MAX_MODULES, obj, type,
				  TYPE_OPTIMIZER);
	case TYPE_CACHE:
		return add_object(w->r, &w->r->caches, CENSUS_MAX_MODULES, obj, type, TYPE_CACHE);
	default:
		return 0;
	}
}

/* Classes of objects that hold keys and values. Libraries may be imported at any time. */
static void find_cache_types(struct census *c)
{
	static const char *const names[CENSUS_CACHE_TYPES][2] = {
		{ "transformers.cache_utils", "Cache" },
		{ "sglang.srt.mem_cache.memory_pool", "KVCache" },
	};

	for (size_t i = 0; i < CENSUS_CACHE_TYPES; i++) {
		if (find_type(c->py, names[i][0], names[i][1], &c->caches[i]))
			c->caches[i] = 0;
	}
}

static void pause_briefly(void)
{
	static const struct timespec pause = { .tv_nsec = 5000000 };

	nanosleep(&pause, NULL);
}

/* Walks the collector's lists until they do not change during a walk: a collection takes objects
 * out of them and clears their links. */
static int walk_objects(struct reading *r, uint64_t *objects)
{
	uint64_t quarter = r->o->limit_ns / 4;
	uint64_t until = r->began + (quarter < WALKS_WITHIN ? quarter : WALKS_WITHIN);
	struct pygc_stats stats = { 0 };
	struct walk w = { .r = r };
	int err = 0;

	for (int walks = 0; !err && (walks < WALKS || clock__monotonic() < until); walks++) {
		memcache__forget(r->c->cache);
		err = pygc__walk(&r->c->gc, r->c->cache, UINT64_MAX, on_object, &w, &stats);
		if (err || !stats.torn)
			break;
		pause_briefly();
		err = reading__check_time(r);
	}
	r->torn |= stats.torn;
	*objects = stats.objects;
	return err;
}

static bool is_unknown_layout(int err)
{
	return err == -EAGAIN || err == -ENOTSUP;
}

/* Finds the layout of tensors. The tensors of a small program may have ended since the walk, so
 * this walks the lists again. */
static int find_layout(struct reading *r, uint64_t *objects, const char **why)
{
	int err = census__calibrate(r, false, why), walk_err;

	if (is_unknown_layout(err))
		err = census__calibrate(r, true, why);
	for (int i = 1; is_unknown_layout(err) && r->tensors.n < FEW_TENSORS && i < LAYOUT_TRIES;
	     i++) {
		pause_briefly();
		walk_err = reading__check_time(r) ?: walk_objects(r, objects);
		if (walk_err)
			return walk_err;
		err = census__calibrate(r, true, why);
	}
	return err;
}

/* Reads the objects, then the tensors, and merges them into s. -EAGAIN: no tensor was found. Other
 * errors set *why only if find_layout() does. */
static int read_all(struct reading *r, struct census_list *l, struct census_state *s,
		    const char **why)
{
	int err;

	find_cache_types(r->c);
	err = walk_objects(r, &s->objects) ?: census__name_objects(r);
	if (err)
		return err;
	if (!r->tensors.n && !r->nnamed && !r->o->memory) {
		*why = r->torn ? "the garbage collector runs all the time" : census__no_tensor;
		return -EAGAIN;
	}
	if (r->tensors.n || r->nnamed)
		err = find_layout(r, &s->objects, why);
	if (!err)
		err = census__read_tensors(r, l);
	if (err)
		return err;
	reading__forget_objects(r);
	return census__merge(r, l->v, l->labels, l->n, s);
}

static void free_list(struct census_list *l)
{
	free(l->v);
	free(l->labels);
	free(l->wrapper);
}

int census__read(struct census *c, const struct census_opts *o, struct census_state *ret,
		 const char **why)
{
	struct census_state s = { 0 };
	struct census_list l = { 0 };
	struct reading r;
	int err;

	*why = "";
	if (c->tensor_base == NOT_IMPORTED && find_types(c))
		set_no_types(c);
	pytensors__forget_shapes(c->tensors);
	err = reading__init(&r, c, o) ?: read_all(&r, &l, &s, why);
	if (err) {
		census_state__free(&s);
		if (err == -ETIME)
			*why = "there are too many objects to read in the time given";
		else if (!**why)
			*why = err == -ESRCH ? "the process ended" : "its memory cannot be read";
		goto out;
	}
	s.begin = r.began;
	s.end = clock__monotonic();
	s.modules = r.modules.n;
	s.optimizers = r.optimizers.n;
	s.module_roots = r.module_roots;
	r.module_roots = NULL;
	s.counts = r.counts;
	s.ncounts = r.ncounts;
	r.counts = NULL;
	s.torn_lists = r.torn;
	s.holders_cut = r.holders_cut;
	s.know_grad = pytensors__know_grad(c->tensors);
	*ret = s;
out:
	free_list(&l);
	reading__fini(&r);
	return err;
}

const char census__no_tensor[] = "there is no tensor yet";
const char census__no_lists[] =
	"a free-threaded Python keeps no lists of its objects, so tensors have no names";

/* Finds the types and the garbage collector's lists. need_torch: -ENOENT if torch is not imported.
 * 0 or -errno; *why (static) is set for -ENOENT, -ENOTSUP and -EAGAIN. */
static int find_objects(struct census *c, bool need_torch, uint64_t within_ns, const char **why)
{
	int err = find_types(c);

	if (is_not_imported(err) && need_torch) {
		*why = "torch is not imported (yet)";
		return -ENOENT;
	}
	if (is_not_imported(err))
		set_no_types(c);
	else if (err)
		return err;
	if (find_type(c->py, "builtins", "list", &c->list))
		c->list = 0;
	if (find_type(c->py, "_frozen_importlib", "ModuleSpec", &c->python_class))
		c->python_class = c->module;
	if (python__layout(c->py)->free_threaded) {
		*why = census__no_lists;
		return -ENOTSUP;
	}
	err = pygc__find(c->py, within_ns, &c->gc);
	if (err != -ENOENT && err != -EAGAIN)
		return err;
	*why = "the lists of this Python's garbage collector are not known to this "
	       "version, or it runs all the time, so tensors have no names";
	return -EAGAIN;
}

struct census *census__open(const struct python *py, bool need_torch, uint64_t within_ns,
			    const char **why)
{
	struct census *c = calloc(1, sizeof(*c));
	int err;

	*why = "";
	if (!c)
		return NULL;
	c->py = py;
	c->proc = python__proc(py);
	c->cache = memcache__new(c->proc);
	c->tensors = pytensors__new(c->proc);
	err = c->cache && c->tensors ? find_objects(c, need_torch, within_ns, why) : -ENOMEM;
	if (!err)
		return c;
	/* If the process has ended, report that as the cause. */
	if (err != -ENOMEM && err != -EPERM && python__ended(py)) {
		*why = "the process has ended, or its Python has";
		err = -ESRCH;
	}
	census__free(c);
	errno = -err;
	return NULL;
}

void census__free(struct census *c)
{
	if (!c)
		return;
	memcache__free(c->cache);
	pytensors__free(c->tensors);
	for (size_t i = 0; i < c->nfronts; i++)
		free(c->fronts[i].text);
	free(c->fronts);
	free(c);
}
