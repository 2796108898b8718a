/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Shapes of objects, by their types. An object begins with the fields of a class in C, its base.
 * Attributes and slots of classes in Python follow. The base decides the shape. An object whose
 * base has no shape of its own is searched word by word if the garbage collector tracks it.
 */
#include <string.h>

#include "base/array.h"
#include "base/map64.h"
#include "inspect/census/owners.h"
#include "inspect/process/memcache.h"
#include "inspect/pyobj.h"

#define TYPE_MANAGED_DICT (1ul << 4) /* from CPython 3.11 on */
#define TYPE_TRACKED (1ul << 14)
/* int, bytes, str */
#define TYPE_ATOMS (1ul << 24 | PYTYPE_BYTES | PYTYPE_STR)
#define HEAD 16		/* bytes of PyObject: reference count and type */
#define ARRAY_DESCR 40u /* offset after the head of PyArrayObject.descr */
#define DESCR_KIND 8u	/* and of PyArray_Descr.kind */
#define SLOTS_MAX 64u
#define MEMBERS_MAX 256
#define MEMBER_OBJECT 16 /* Py_T_OBJECT_EX, which a slot has */
#define TYPES_MAX (1u << 20)

/* CPython's struct PyMemberDef (Include/cpython/descrobject.h, Include/structmember.h). */
struct member {
	uint64_t name;
	int32_t type, pad;
	uint64_t offset, flags, doc;
};

static const struct {
	const char *name;
	enum shape shape;
} by_name[] = {
	{ "function", SHAPE_FUNCTION },
	{ "cell", SHAPE_CELL },
	{ "method", SHAPE_METHOD },
	{ "collections.deque", SHAPE_DEQUE },
	{ "ContextVar", SHAPE_CONTEXT_VAR },
	{ "_contextvars.ContextVar", SHAPE_CONTEXT_VAR },
	{ "set", SHAPE_SET },
	{ "frozenset", SHAPE_SET },
	{ "functools._lru_cache_wrapper", SHAPE_CACHE },
	{ "functools._lru_list_elem", SHAPE_LINK },
	{ "functools.partial", SHAPE_PARTIAL },
	{ "_thread._local", SHAPE_THREAD_LOCAL },
	{ "generator", SHAPE_GENERATOR },
	{ "coroutine", SHAPE_GENERATOR },
	{ "async_generator", SHAPE_GENERATOR },
	{ "frame", SHAPE_FRAME },
	{ "traceback", SHAPE_TRACEBACK },
	{ "_queue.SimpleQueue", SHAPE_QUEUE },
	{ "itertools._tee_dataobject", SHAPE_TEE },
	{ "numpy.ndarray", SHAPE_ARRAY },
	{ "mmap.mmap", SHAPE_MMAP },
	{ "bytearray", SHAPE_BYTEARRAY },
	/* Weak references do not own what they point to. */
	{ "weakref", SHAPE_NONE },
	{ "weakproxy", SHAPE_NONE },
	{ "weakcallableproxy", SHAPE_NONE },
	{ "weakref.ReferenceType", SHAPE_NONE },
	{ "weakref.ProxyType", SHAPE_NONE },
	{ "weakref.CallableProxyType", SHAPE_NONE },
	/* The following types hold nothing of the program, except modules, which are roots. */
	{ "module", SHAPE_NONE },
	{ "code", SHAPE_NONE },
	{ "getset_descriptor", SHAPE_NONE },
	{ "member_descriptor", SHAPE_NONE },
	{ "method_descriptor", SHAPE_NONE },
	{ "wrapper_descriptor", SHAPE_NONE },
	{ "classmethod_descriptor", SHAPE_NONE },
	{ "method-wrapper", SHAPE_NONE },
};

/* Classes in Python whose objects hold nothing of the program; each module has some. */
static const char *const empty_classes[] = { "ModuleSpec", "SourceFileLoader",
					     "ExtensionFileLoader" };

/* True if objects of the class hold no tensor. Also true if its name cannot be read. */
static bool is_empty_class(struct reading *reading, uint64_t type)
{
	char name[64];

	if (pytype__name(&reading->mem, type, name, sizeof(name)) < 0)
		return true;
	for (size_t i = 0; i < sizeof(empty_classes) / sizeof(*empty_classes); i++)
		if (!strcmp(name, empty_classes[i]))
			return true;
	return false;
}

/* Sets *ret to the shape of a type in C that by_name lists. False: it is not listed. */
static bool shape_by_name(struct reading *reading, uint64_t base, enum shape *ret)
{
	char name[64];

	if (pytype__name(&reading->mem, base, name, sizeof(name)) < 0)
		return false;
	for (size_t i = 0; i < sizeof(by_name) / sizeof(*by_name); i++)
		if (!strcmp(name, by_name[i].name)) {
			*ret = by_name[i].shape;
			if ((*ret == SHAPE_BYTEARRAY || *ret == SHAPE_MMAP) &&
			    !reading->opts->memory)
				*ret = SHAPE_NONE;
			return true;
		}
	return false;
}

/* Adds the slots that a class in Python declares. */
static int add_slots(struct census_owners *owners, uint64_t type, struct owner_type *to)
{
	const struct pylayout *layout = owners->reading->mem.layout;
	struct member member;
	uint64_t at;

	if (pymem__constant_u64(&owners->reading->mem, type + layout->tp_members, &at) || !at)
		return 0;
	for (int i = 0; i < MEMBERS_MAX && to->nslots < SLOTS_MAX; i++, at += sizeof(member)) {
		int err = pymem__read_constant(&owners->reading->mem, at, &member, sizeof(member));

		if (err || !member.name)
			return 0;
		if (member.type != MEMBER_OBJECT || member.offset < HEAD ||
		    member.offset > 1u << 20)
			continue;
		err = array__grow(&owners->slots, &owners->capslots, owners->nslots + 1,
				  sizeof(*owners->slots));
		if (err)
			return err;
		owners->slots[owners->nslots++] = (struct owner_slot){ member.name,
								       (uint32_t)member.offset };
		to->nslots++;
	}
	return 0;
}

/* Finds the first class in C among a type and its bases, and the slots of the classes before it,
 * which are in Python. *base 0: there is none. */
static int find_base(struct census_owners *owners, uint64_t type, struct owner_type *t,
		     uint64_t *base)
{
	uint64_t mro[PYTYPE_MRO_MAX], dealloc;
	int n = pytype__mro(&owners->reading->mem, type, mro, PYTYPE_MRO_MAX), err = 0;

	/* CPython 3.9 and before do not prepare all of its own types: these have no list of bases */
	*base = n > 0 ? 0 : type;
	t->slots = owners->nslots;
	for (int i = 0; !err && i < n; i++) {
		if (pymem__constant_u64(&owners->reading->mem,
					mro[i] + owners->reading->mem.layout->tp_dealloc, &dealloc))
			return 0;
		/* Classes in Python have subtype_dealloc(). */
		if (dealloc != owners->python_dealloc) {
			*base = mro[i];
			return 0;
		}
		err = add_slots(owners, mro[i], t);
	}
	return err;
}

/* Sets the number of the base's words that are searched, and whether items follow them. */
static void find_words(struct census_owners *owners, uint64_t base, struct owner_type *type)
{
	const struct pylayout *layout = owners->reading->mem.layout;
	uint64_t flags, size, item;

	if (pymem__constant_u64(&owners->reading->mem, base + layout->tp_flags, &flags) ||
	    !(flags & TYPE_TRACKED) ||
	    pymem__constant_u64(&owners->reading->mem, base + layout->tp_basicsize, &size) ||
	    pymem__constant_u64(&owners->reading->mem,
				base + layout->tp_basicsize + 8 /* tp_itemsize */, &item) ||
	    size <= HEAD)
		return;
	size = (size - HEAD) / 8;
	type->words = size < OWNER_WORDS_MAX ? size : OWNER_WORDS_MAX;
	type->items = item == 8;
}

/* Finds the shape of a type, its slots, and whether its objects have attributes. */
static int examine_type(struct census_owners *owners, uint64_t type, uint64_t flags,
			struct owner_type *to)
{
	enum shape shape = SHAPE_NONE;
	uint64_t dictoffset, base;
	int err;

	if (is_empty_class(owners->reading, type))
		return 0;
	err = find_base(owners, type, to, &base);
	if (err || !base)
		return err;
	if (pymem__constant_u64(&owners->reading->mem,
				type + owners->reading->mem.layout->tp_dictoffset, &dictoffset))
		return 0;
	to->attrs = dictoffset ||
		    (owners->reading->mem.layout->minor >= 11 && flags & TYPE_MANAGED_DICT);
	to->dict = (int64_t)dictoffset > 0 && dictoffset < 1u << 20 ? (uint32_t)dictoffset : 0;
	if (flags & PYTYPE_LIST)
		shape = SHAPE_LIST;
	else if (flags & PYTYPE_TUPLE)
		shape = SHAPE_TUPLE;
	else if (flags & PYTYPE_DICT)
		shape = SHAPE_DICT;
	else if (!shape_by_name(owners->reading, base, &shape))
		shape = SHAPE_INSTANCE;
	if (shape == SHAPE_INSTANCE || shape == SHAPE_GENERATOR ||
	    (shape == SHAPE_QUEUE && owners->reading->mem.layout->minor < 13))
		find_words(owners, base, to);
	if (shape == SHAPE_INSTANCE && !to->words && !to->items && !to->attrs && !to->nslots)
		shape = SHAPE_NONE;
	to->shape = shape;
	return 0;
}

/* Sets *t for a type: tensors, classes and objects with memory by their flags, others by their
 * bases. */
static int shape_of_type(struct census_owners *owners, uint64_t type, struct owner_type *t)
{
	enum type_kind kind;
	uint64_t flags;
	int err = reading__type_kind(owners->reading, type, &kind);

	if (err)
		return err;
	if (pymem__constant_u64(&owners->reading->mem, type + owners->reading->mem.layout->tp_flags,
				&flags))
		flags = TYPE_ATOMS;
	if (type_kind__is_tensor(kind)) {
		err = examine_type(owners, type, flags, t);
		t->shape = SHAPE_TENSOR;
		return err;
	}
	if (owners->reading->opts->memory && flags & (PYTYPE_BYTES | PYTYPE_STR))
		t->shape = flags & PYTYPE_BYTES ? SHAPE_BYTES : SHAPE_STR;
	else if (flags & PYTYPE_TYPE)
		t->shape = SHAPE_CLASS;
	else if (!(flags & TYPE_ATOMS))
		return examine_type(owners, type, flags, t);
	return 0;
}

/* Adds a type. *ret: its value in owners->types. */
static int add_type(struct census_owners *owners, uint64_t type, uint64_t *ret)
{
	struct owner_type known = { 0 };
	int err = array__grow(&owners->kinds, &owners->capkinds, owners->nkinds + 1,
			      sizeof(*owners->kinds))
			  ?: shape_of_type(owners, type, &known);

	if (err)
		return err;
	*ret = known.shape;
	if (known.shape != SHAPE_NONE && owners->nkinds < TYPES_MAX) {
		owners->kinds[owners->nkinds] = known;
		*ret |= (uint64_t)owners->nkinds++ << 8;
	}
	return map64__set(owners->types, type, *ret);
}

/* True if an array of numpy holds objects: data, nd, dimensions, strides, base, descr, flags. The
 * second field of descr begins with its kind, which is 'O' then. */
static bool holds_objects(struct census_owners *owners, uint64_t obj)
{
	uint64_t descr, kind;

	return !memcache__read(owners->reading->census->cache, obj + HEAD + ARRAY_DESCR, &descr,
			       sizeof(descr)) &&
	       !memcache__read(owners->reading->census->cache, descr + HEAD + DESCR_KIND, &kind,
			       sizeof(kind)) &&
	       (kind & 0xff) == 'O';
}

/* owners->types: type -> shape, and index in owners->kinds << 8. */
int census_owners__shape_of(struct census_owners *owners, uint64_t obj, uint64_t *type,
			    enum shape *ret)
{
	uint64_t known;
	int err;

	*ret = SHAPE_NONE;
	if (!obj || obj % 8)
		return 0;
	if (memcache__read(owners->reading->census->cache,
			   obj + owners->reading->mem.layout->ob_type, type, sizeof(*type)) ||
	    !*type || *type % 8)
		return 0;
	if (!map64__get(owners->types, *type, &known)) {
		err = add_type(owners, *type, &known);
		if (err)
			return err;
	}
	*ret = known & 0xff; /* without the index */
	if (*ret == SHAPE_ARRAY && holds_objects(owners, obj))
		*ret = SHAPE_OBJECTS;
	else if (*ret == SHAPE_ARRAY && !owners->reading->opts->memory)
		*ret = SHAPE_NONE;
	return 0;
}

const struct owner_type *census_owners__type(const struct census_owners *owners, uint64_t type)
{
	static const struct owner_type none;
	uint64_t known;

	return map64__get(owners->types, type, &known) && known >> 8 < owners->nkinds
		       ? &owners->kinds[known >> 8]
		       : &none;
}

bool census_owners__is_container(void *ctx, uint64_t obj)
{
	struct census_owners *owners = ctx;
	enum shape shape;
	uint64_t type;

	return !census_owners__shape_of(owners, obj, &type, &shape) && shape != SHAPE_NONE &&
	       shape < SHAPE_TENSOR;
}
