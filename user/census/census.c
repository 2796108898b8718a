/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One reading. It sorts the objects in the collector's lists by type and names those that modules
 * and optimizers hold. It then reads the tensors in bulk, with their gradients and the contents of
 * wrappers, and combines them into storages.
 */
#include "census/census.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "census/internal.h"
#include "lib/array.h"
#include "lib/clock.h"
#include "lib/map64.h"
#include "process/memcache.h"
#include "process/proc.h"
#include "python/pyobj.h"
#include "python/python.h"
#include "python/pytype.h"

#define WALKS 3 /* attempts while the lists keep changing */
#define MAX_TYPES (1u << 20)
#define OBJECTS_AT_ONCE 16384 /* about 2 ms */

const char *census_kind__name(enum census_kind k)
{
	static const char *const names[CENSUS_KINDS] = {
		[CENSUS_PARAMETER] = "parameter",   [CENSUS_BUFFER] = "buffer",
		[CENSUS_GRADIENT] = "gradient",	    [CENSUS_OPTIMIZER] = "optimizer_state",
		[CENSUS_ACTIVATION] = "activation", [CENSUS_OTHER] = "unknown",
	};

	return k < CENSUS_KINDS ? names[k] : "unknown";
}

bool census__is_local(int err)
{
	return err == -EAGAIN || err == -EFAULT || err == -EBADMSG || err == -ENOENT ||
	       err == -E2BIG;
}

int census__check_time(const struct reading *r)
{
	if (clock__monotonic() > r->deadline)
		return -ETIME;
	return r->o->cancelled && r->o->cancelled(r->o->ctx) ? -ECANCELED : 0;
}

/* ---- types ---- */

static int type_object(const struct python *py, const char *module, const char *name, uint64_t *ret)
{
	uint64_t m;
	int err = pyobj__module(py, module, &m);

	return err ? err : pyobj__module_attr(py, m, name, ret);
}

static int find_types(struct census *c)
{
	int err;

	err = type_object(c->py, "torch._C", "TensorBase", &c->tensor_base);
	if (err) /* PyTorch 2.0 and before */
		err = type_object(c->py, "torch._C", "_TensorBase", &c->tensor_base);
	if (!err)
		err = type_object(c->py, "torch", "Tensor", &c->tensor);
	if (!err)
		err = type_object(c->py, "torch.nn.modules.module", "Module", &c->module);
	if (!err)
		err = type_object(c->py, "torch.nn.parameter", "Parameter", &c->parameter);
	if (!err)
		err = type_object(c->py, "torch.optim.optimizer", "Optimizer", &c->optimizer);
	if (!err && type_object(c->py, "torch._C", "_FunctionBase", &c->function))
		c->function = 0; /* tensors saved by such functions stay without a name */
	return err;
}

/* As pytype__mro(), through the cache of memory blocks. There are thousands of types, and a system
 * call costs the same for a word as for a block. */
static int cached_mro(struct reading *r, uint64_t type, uint64_t *ret)
{
	const struct pylayout *l = r->m.l;
	struct memcache *c = r->c->cache;
	uint64_t meta, flags, mro, n;
	int err;

	err = memcache__read(c, type + l->ob_type, &meta, sizeof(meta));
	if (!err)
		err = memcache__read(c, meta + l->tp_flags, &flags, sizeof(flags));
	if (!err && !(flags & PYTYPE_TYPE))
		err = -EBADMSG;
	if (!err)
		err = memcache__read(c, type + l->tp_mro, &mro, sizeof(mro));
	if (!err)
		err = memcache__read(c, mro + l->ob_size, &n, sizeof(n));
	if (!err && (!n || n > PYTYPE_MRO_MAX))
		err = -EBADMSG;
	if (!err)
		err = memcache__read(c, mro + l->tuple_item, ret, n * sizeof(*ret));
	return err ? err : (int)n;
}

static int examine_type(struct reading *r, uint64_t type, enum type_kind *ret)
{
	uint64_t mro[PYTYPE_MRO_MAX];
	int n = cached_mro(r, type, mro);

	/* The cached block may be older than the type. */
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
	}
	return 0;
}

int census__type_kind(struct reading *r, uint64_t type, enum type_kind *ret)
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

int census__kind_of(struct reading *r, uint64_t obj, enum type_kind *ret)
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
	return census__type_kind(r, type, ret);
}

/* ---- labels ---- */

int census__add_text(struct reading *r, const char *s, uint32_t *ret)
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

int census__name(struct reading *r, uint64_t obj, const struct label *label, bool wrapper)
{
	uint64_t i;
	int err;

	if (map64__get(r->by_obj, obj, &i)) {
		struct label *old = &r->named[i].label;

		if (label->kind >= old->kind)
			return 0;
		if (old->cls && !label->cls)
			old->kind = label->kind; /* the name within a module stays */
		else
			*old = *label;
		return 0;
	}
	if (r->nnamed >= CENSUS_MAX_TENSORS)
		return -E2BIG;
	err = array__grow(&r->named, &r->named_cap, r->nnamed + 1, sizeof(*r->named));
	if (!err)
		err = map64__set(r->by_obj, obj, r->nnamed);
	if (!err)
		r->named[r->nnamed++] = (struct named){ .obj = obj,
							.label = *label,
							.wrapper = wrapper };
	return err;
}

bool census__label(const struct reading *r, uint64_t obj, struct label *ret)
{
	uint64_t i;

	if (!map64__get(r->by_obj, obj, &i))
		return false;
	*ret = r->named[i].label;
	return true;
}

/* ---- objects ---- */

static int add_object(struct reading *r, struct found_list *list, size_t max, uint64_t obj,
		      uint64_t type, enum type_kind kind)
{
	uint64_t known;
	int err;

	if (map64__get(r->seen, obj, &known))
		return 0;
	if (list->n >= max)
		return -E2BIG;
	err = array__grow(&list->v, &list->cap, list->n + 1, sizeof(*list->v));
	if (!err)
		err = map64__set(r->seen, obj, kind);
	if (!err)
		list->v[list->n++] = (struct found){ obj, type };
	return err;
}

struct walk {
	struct reading *r;
	unsigned since; /* objects since the last check of the time */
	/* The last types seen, since most objects share a few types. */
	struct {
		uint64_t type;
		enum type_kind kind;
	} last[64];
};

static int on_object(uint64_t obj, uint64_t type, void *ctx)
{
	struct walk *w = ctx;
	size_t slot = type / 16 % 64;
	enum type_kind kind;
	int err;

	if (++w->since >= OBJECTS_AT_ONCE) {
		w->since = 0;
		err = census__check_time(w->r);
		if (err)
			return err;
	}
	if (w->last[slot].type != type) {
		err = census__type_kind(w->r, type, &kind);
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
	default:
		return 0;
	}
}

static int walk_objects(struct reading *r, uint64_t *objects)
{
	static const struct timespec pause = { .tv_nsec = 5000000 };
	struct pygc_stats stats = { 0 };
	struct walk w = { .r = r };
	int err = 0;

	for (int i = 0; !err && i < WALKS; i++) {
		memcache__forget(r->c->cache);
		err = pygc__walk(&r->c->gc, r->c->cache, UINT64_MAX, on_object, &w, &stats);
		if (err || !stats.torn)
			break;
		/* The garbage collector may be running; wait for it. */
		nanosleep(&pause, NULL);
	}
	r->torn |= stats.torn;
	*objects = stats.objects;
	return err;
}

static int read_all(struct reading *r, struct census_list *l, struct census_state *s,
		    const char **why)
{
	int err;

	err = walk_objects(r, &s->objects);
	if (!err)
		err = census__name_modules(r);
	if (!err)
		err = census__name_optimizers(r);
	if (err)
		return err;
	if (!r->tensors.n && !r->nnamed) {
		*why = "there is no tensor yet";
		return -EAGAIN;
	}
	err = census__calibrate(r, why);
	if (!err)
		err = census__read_tensors(r, l);
	return err ? err : census__merge(r, l->v, l->labels, l->n, s);
}

static int reading__init(struct reading *r, struct census *c)
{
	memset(r, 0, sizeof(*r));
	r->c = c;
	pymem__init(&r->m, c->py, true);
	r->types = map64__new();
	r->seen = map64__new();
	r->by_obj = map64__new();
	/* Offset 0 is "". */
	r->text = calloc(1, 1);
	r->text_len = r->text_cap = 1;
	return r->types && r->seen && r->by_obj && r->text ? 0 : -ENOMEM;
}

static void reading__fini(struct reading *r)
{
	pymem__fini(&r->m);
	map64__free(r->types);
	map64__free(r->seen);
	map64__free(r->by_obj);
	free(r->tensors.v);
	free(r->modules.v);
	free(r->optimizers.v);
	free(r->named);
	free(r->text);
}

int census__read(struct census *c, const struct census_opts *o, struct census_state *ret,
		 const char **why)
{
	uint64_t bytes = memcache__bytes(c->cache);
	struct census_state s = { 0 };
	struct census_list l = { 0 };
	struct reading r;
	int err;

	*why = "";
	s.begin = clock__monotonic();
	err = reading__init(&r, c);
	r.o = o;
	r.deadline = s.begin + o->limit_ns;
	if (!err)
		err = read_all(&r, &l, &s, why);
	if (!err) {
		s.end = clock__monotonic();
		s.modules = r.modules.n;
		s.optimizers = r.optimizers.n;
		s.torn_lists = r.torn;
		s.know_grad = pytensors__know_grad(c->tensors);
		s.bytes_read = memcache__bytes(c->cache) - bytes;
		*ret = s;
	} else {
		census_state__free(&s);
		if (err == -ETIME)
			*why = "there are too many objects to read in the time given";
		else if (!**why)
			*why = err == -ESRCH ? "the process ended" : "its memory cannot be read";
	}
	census_list__free(&l);
	reading__fini(&r);
	return err;
}

struct census *census__open(const struct python *py, const char **why)
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
	err = c->cache && c->tensors ? find_types(c) : -ENOMEM;
	if (err == -ENOENT || err == -EBADMSG) {
		*why = "torch is not imported (yet)";
		err = -ENOENT;
	} else if (!err) {
		err = pygc__find(py, &c->gc);
		if (err == -ENOENT)
			err = -ENOTSUP;
		if (err == -ENOTSUP)
			*why = "the lists of this Python's garbage collector are not known to this "
			       "version";
	}
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
	free(c);
}
