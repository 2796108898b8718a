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
#define LAST_TYPES 64		   /* types whose kind is kept next to the walk */

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

/* Finds the classes that objects are sorted by. 0 or -errno: torch is not imported, or its modules
 * cannot be read. */
static int find_types(struct census *census)
{
	const struct {
		const char *module, *name;
		uint64_t *at;
	} types[] = {
		{ "torch", "Tensor", &census->tensor },
		{ "torch.nn.modules.module", "Module", &census->module },
		{ "torch.nn.parameter", "Parameter", &census->parameter },
		{ "torch.optim.optimizer", "Optimizer", &census->optimizer },
	};
	int err = find_type(census->py, "torch._C", "TensorBase", &census->tensor_base);

	if (err) /* PyTorch 2.0 and before */
		err = find_type(census->py, "torch._C", "_TensorBase", &census->tensor_base);
	for (size_t i = 0; !err && i < sizeof(types) / sizeof(types[0]); i++)
		err = find_type(census->py, types[i].module, types[i].name, types[i].at);
	if (err)
		return err;
	if (find_type(census->py, "torch._C", "_FunctionBase", &census->function))
		census->function = 0; /* tensors that custom Functions saved stay unnamed */
	return 0;
}

/* PyTorch is not imported: no object is of its types. */
static void set_no_types(struct census *census)
{
	census->tensor_base = census->tensor = census->parameter = census->module =
		census->optimizer = NOT_IMPORTED;
	census->function = 0;
}

static bool is_not_imported(int err)
{
	return err == -ENOENT || err == -EBADMSG;
}

/* ---- objects ---- */

/* Numbers a tensor, unless the reading has the object already. */
static int add_tensor(struct reading *reading, uint64_t obj, enum type_kind kind)
{
	uint64_t known;
	uint32_t no;
	int err;

	if (map64__get(reading->seen, obj, &known))
		return 0;
	if (reading->objects.n >= CENSUS_MAX_TENSORS && !numbers__get(&reading->objects, obj, &no))
		return -E2BIG;
	err = reading__number(reading, obj, kind, &no);
	reading->ntensors = reading->objects.n;
	return err;
}

/* Adds an object to a list of at most max, unless the reading has it already. */
static int add_object(struct reading *reading, struct found_list *list, size_t max, uint64_t obj,
		      uint64_t type, enum type_kind kind)
{
	uint64_t known;
	uint32_t no;
	int err;

	if (map64__get(reading->seen, obj, &known) || numbers__get(&reading->objects, obj, &no))
		return 0;
	if (list->n >= max)
		return -E2BIG;
	err = array__grow(&list->v, &list->cap, list->n + 1, sizeof(*list->v))
		      ?: map64__set(reading->seen, obj, kind);
	if (err)
		return err;
	list->v[list->n++] = (struct found){ obj, type };
	return 0;
}

struct walk {
	struct reading *reading;
	unsigned since_check; /* objects since the last check of the time */
	/* The last types seen, since most objects share a few types. */
	struct {
		uint64_t type;
		enum type_kind kind;
	} last[LAST_TYPES];
};

/* Sorts an object of the collector's lists by its type. 0 or an error that ends the walk. */
static int on_object(uint64_t obj, uint64_t type, void *ctx)
{
	struct walk *walk = ctx;
	size_t slot = type / 16 % LAST_TYPES; /* types begin at multiples of 16 */
	enum type_kind kind;
	int err;

	if (++walk->since_check >= OBJECTS_AT_ONCE) {
		walk->since_check = 0;
		err = reading__check_time(walk->reading);
		if (err)
			return err;
	}
	if (walk->last[slot].type != type) {
		err = reading__type_kind(walk->reading, type, &kind);
		if (err)
			return err;
		walk->last[slot].type = type;
		walk->last[slot].kind = kind;
	}
	switch (walk->last[slot].kind) {
	case TYPE_TENSOR:
	case TYPE_WRAPPER:
		return add_tensor(walk->reading, obj, walk->last[slot].kind);
	case TYPE_MODULE:
		return add_object(walk->reading, &walk->reading->modules, CENSUS_MAX_MODULES, obj,
				  type, TYPE_MODULE);
	case TYPE_OPTIMIZER:
		return add_object(walk->reading, &walk->reading->optimizers, CENSUS_MAX_MODULES,
				  obj, type, TYPE_OPTIMIZER);
	case TYPE_CACHE:
		return add_object(walk->reading, &walk->reading->caches, CENSUS_MAX_MODULES, obj,
				  type, TYPE_CACHE);
	default:
		return 0;
	}
}

/* Classes of objects that hold keys and values. Libraries may be imported at any time. */
static void find_cache_types(struct census *census)
{
	static const char *const names[CENSUS_CACHE_TYPES][2] = {
		{ "transformers.cache_utils", "Cache" },
		{ "sglang.srt.mem_cache.memory_pool", "KVCache" },
	};

	for (size_t i = 0; i < CENSUS_CACHE_TYPES; i++) {
		if (find_type(census->py, names[i][0], names[i][1], &census->caches[i]))
			census->caches[i] = 0;
	}
}

/* Waits 5 ms for the program to go on. */
static void pause_briefly(void)
{
	static const struct timespec pause = { .tv_nsec = 5000000 };

	nanosleep(&pause, NULL);
}

/* Walks the collector's lists until they do not change during a walk: a collection takes objects
 * out of them and clears their links. */
static int walk_objects(struct reading *reading, uint64_t *objects)
{
	/* The walks may take a quarter of the time for the whole reading. */
	uint64_t quarter = reading->opts->limit_ns / 4;
	uint64_t until = reading->began + (quarter < WALKS_WITHIN ? quarter : WALKS_WITHIN);
	struct pygc_stats stats = { 0 };
	struct walk walk = { .reading = reading };
	int err = 0;

	for (int walks = 0; !err && (walks < WALKS || clock__monotonic() < until); walks++) {
		memcache__forget(reading->census->cache);
		err = pygc__walk(&reading->census->gc, reading->census->cache,
				 /*deadline=*/UINT64_MAX, on_object, &walk, &stats);
		if (err || !stats.torn)
			break;
		pause_briefly();
		err = reading__check_time(reading);
	}
	reading->torn |= stats.torn;
	*objects = stats.objects;
	return err;
}

static bool is_unknown_layout(int err)
{
	return err == -EAGAIN || err == -ENOTSUP;
}

/* Finds the layout of tensors. The tensors of a small program may have ended since the walk, so
 * this walks the lists again. *objects: their number in the last walk. */
static int find_layout(struct reading *reading, uint64_t *objects, const char **why)
{
	int err = census__calibrate(reading, /*all=*/false, why); /* from named tensors */
	int walk_err;

	if (is_unknown_layout(err))
		err = census__calibrate(reading, /*all=*/true, why); /* and unnamed ones */
	for (int i = 1;
	     is_unknown_layout(err) && reading->ntensors < FEW_TENSORS && i < LAYOUT_TRIES; i++) {
		pause_briefly();
		walk_err = reading__check_time(reading) ?: walk_objects(reading, objects);
		if (walk_err)
			return walk_err;
		err = census__calibrate(reading, /*all=*/true, why);
	}
	return err;
}

/* Reads the objects, then the tensors, and merges them into *state. -EAGAIN: no tensor was found.
 * Other errors set *why only if find_layout() does. */
static int read_all(struct reading *reading, struct census_list *list, struct census_state *state,
		    const char **why)
{
	int err;

	find_cache_types(reading->census);
	err = walk_objects(reading, &state->objects) ?: census__name_objects(reading);
	if (err)
		return err;
	if (!reading->ntensors && !reading->nnamed && !reading->opts->memory) {
		*why = reading->torn ? "the garbage collector runs all the time"
				     : census__no_tensor;
		return -EAGAIN;
	}
	if (reading->ntensors || reading->nnamed)
		err = find_layout(reading, &state->objects, why);
	if (!err)
		err = census__read_tensors(reading, list);
	if (err)
		return err;
	reading__forget_objects(reading);
	return census__merge(reading, list, state);
}

int census__read(struct census *census, const struct census_opts *opts, struct census_state *ret,
		 const char **why)
{
	struct census_state state = { 0 };
	struct census_list list = { 0 };
	struct reading reading;
	int err;

	*why = "";
	if (census->tensor_base == NOT_IMPORTED && find_types(census))
		set_no_types(census);
	pytensors__forget_shapes(census->tensors);
	err = reading__init(&reading, census, opts) ?: read_all(&reading, &list, &state, why);
	if (err) {
		census_state__free(&state);
		if (err == -ETIME)
			*why = "there are too many objects to read in the time given";
		else if (!**why)
			*why = err == -ESRCH ? "the process ended" : "its memory cannot be read";
		goto out;
	}
	state.begin = reading.began;
	state.end = clock__monotonic();
	state.modules = reading.modules.n;
	state.optimizers = reading.optimizers.n;
	state.module_roots = reading.module_roots;
	reading.module_roots = NULL;
	state.counts = reading.counts;
	state.ncounts = reading.ncounts;
	reading.counts = NULL;
	state.torn_lists = reading.torn;
	state.holders_cut = reading.holders_cut;
	state.know_grad = pytensors__know_grad(census->tensors);
	*ret = state;
out:
	census_list__free(&list);
	reading__fini(&reading);
	return err;
}

const char census__no_tensor[] = "there is no tensor yet";
const char census__no_lists[] =
	"a free-threaded Python keeps no lists of its objects, so tensors have no names";

/* Finds the types and the garbage collector's lists. need_torch: -ENOENT if torch is not imported.
 * 0 or -errno; *why (static) is set for -ENOENT, -ENOTSUP and -EAGAIN. */
static int find_objects(struct census *census, bool need_torch, uint64_t within_ns,
			const char **why)
{
	int err = find_types(census);

	if (is_not_imported(err) && need_torch) {
		*why = "torch is not imported (yet)";
		return -ENOENT;
	}
	if (is_not_imported(err))
		set_no_types(census);
	else if (err)
		return err;
	if (find_type(census->py, "builtins", "list", &census->list))
		census->list = 0;
	if (find_type(census->py, "_frozen_importlib", "ModuleSpec", &census->python_class))
		census->python_class = census->module;
	if (python__layout(census->py)->free_threaded) {
		*why = census__no_lists;
		return -ENOTSUP;
	}
	err = pygc__find(census->py, within_ns, &census->gc);
	if (err != -ENOENT && err != -EAGAIN)
		return err;
	*why = "the lists of this Python's garbage collector are not known to this "
	       "version, or it runs all the time, so tensors have no names";
	return -EAGAIN;
}

struct census *census__open(const struct python *py, bool need_torch, uint64_t within_ns,
			    const char **why)
{
	struct census *census = calloc(1, sizeof(*census));
	int err;

	*why = "";
	if (!census)
		return NULL;
	census->py = py;
	census->proc = python__proc(py);
	census->cache = memcache__new(census->proc);
	census->tensors = pytensors__new(census->proc);
	err = census->cache && census->tensors ? find_objects(census, need_torch, within_ns, why)
					       : -ENOMEM;
	if (!err)
		return census;
	/* If the process has ended, report that as the cause. */
	if (err != -ENOMEM && err != -EPERM && python__ended(py)) {
		*why = "the process has ended, or its Python has";
		err = -ESRCH;
	}
	census__free(census);
	errno = -err;
	return NULL;
}

void census__free(struct census *census)
{
	if (!census)
		return;
	memcache__free(census->cache);
	pytensors__free(census->tensors);
	for (size_t i = 0; i < census->nfronts; i++)
		free(census->fronts[i].text);
	free(census->fronts);
	free(census);
}
