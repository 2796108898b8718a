/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The search for containers that hold tensors and other memory (owners.c). owners_names.c names the
 * tensors and the memory by these containers. */
#include "inspect/census/internal.h"

/* Layout of an object, by which owners_edges.c finds the objects that it holds. */
enum shape {
	SHAPE_NONE, /* holds nothing that matters */
	SHAPE_LIST,
	SHAPE_TUPLE,
	SHAPE_DICT,
	SHAPE_DEQUE,
	SHAPE_FUNCTION,
	SHAPE_CELL,
	SHAPE_METHOD,
	SHAPE_INSTANCE,	    /* has a class in Python, or one in C that has no shape here */
	SHAPE_THREAD_LOCAL, /* threading.local, or a class based on it */
	SHAPE_CONTEXT_VAR,
	SHAPE_SET,   /* set, frozenset */
	SHAPE_CACHE, /* functools.lru_cache, functools.cache */
	SHAPE_LINK,  /* an entry of a functools.lru_cache with a limit */
	SHAPE_PARTIAL,
	SHAPE_CLASS,
	SHAPE_GENERATOR, /* also a coroutine */
	SHAPE_FRAME,
	SHAPE_TRACEBACK,
	SHAPE_QUEUE,   /* queue.SimpleQueue */
	SHAPE_TEE,     /* items that an itertools.tee has read */
	SHAPE_OBJECTS, /* numpy.ndarray of objects */
	SHAPE_TENSOR,
	/* Objects that hold no others. Their own memory counts with census_opts.memory. */
	SHAPE_MEMORY,
	SHAPE_BYTES = SHAPE_MEMORY,
	SHAPE_STR,
	SHAPE_BYTEARRAY,
	SHAPE_ARRAY, /* numpy.ndarray */
	SHAPE_MMAP   /* mmap.mmap */
};

#define TYPE_HEAP (1ul << 9) /* Py_TPFLAGS_HEAPTYPE of tp_flags */

#define OWNER_WORDS_MAX 126u
/* Bounds of a word that may be an object's address. */
#define LOWEST 0x10000u
#define HIGHEST (1ull << 56)

/* A type of object that the search looks into. */
struct owner_type {
	uint8_t shape;
	bool attrs;	/* objects have a dictionary of attributes */
	bool items;	/* pointers to other objects may follow the words */
	uint16_t words; /* number of words after the head that may point to other objects */
	uint16_t nslots;
	uint32_t slots; /* index of the first one in census_owners.slots */
	uint32_t dict;	/* offset of the attributes' dictionary; 0: not known */
};

/* An attribute that a class declares in __slots__. */
struct owner_slot {
	uint64_t name; /* address of the name's text */
	uint32_t offset;
};

/* A container in the queue of the search. */
struct node {
	uint64_t obj, type;
	uint32_t path;	   /* offset in census_owners.text */
	uint32_t root;	   /* index in census_owners.roots */
	uint32_t examined; /* number of items that were examined in earlier turns */
	uint8_t shape, depth;
	bool is_state; /* its key in a dict is a parameter, or it is inside such a value */
};

/* A place where paths begin. The variables of a function share a root, and all globals share one. */
struct root {
	char *suffix; /* end of the names: " in main (train.py:31)"; "" for globals */
};

/* A place where the search found tensors or the root modules of models. */
struct place {
	uint32_t path, root; /* as in struct node */
	bool is_state;	     /* as in struct node */
};

/* The place of an object: the number of the place, from 1 on, and these bits. 0: the search did not
 * find the object. */
#define PLACE_MASK (UINT32_MAX >> 2)
#define OWNED_AGAIN (1u << 30) /* the second search found the tensor */
#define OWNED_SAME (1u << 31)  /* the second search found the tensor at the same place */

/* A tensor that only the second search found. */
struct fresh {
	uint64_t grad_fn;
	struct place place;
};

/* Memory of an object that is no tensor, such as a bytes object. */
struct owned_memory {
	uint64_t addr, size;
	uint64_t container; /* 0: a variable holds the object */
	uint32_t path, root;
};

struct census_owners {
	struct reading *reading;
	struct census_owners *before; /* the first search; NULL: this is the first */
	struct map64 *types;	      /* type object -> enum shape, and index in kinds << 8 */
	struct owner_type *kinds;
	size_t nkinds, capkinds;
	struct owner_slot *slots;
	size_t nslots, capslots;
	uint64_t python_dealloc; /* tp_dealloc of classes in Python */
	struct map64 *visited; /* containers in the queue, and objects whose memory was recorded */
	struct node *nodes;    /* queue of containers to examine */
	size_t nnodes, capnodes;
	struct root *roots;
	size_t nroots, caproots;
	struct place *places; /* of the first search; many objects share one */
	size_t nplaces, capplaces;
	uint32_t *owned; /* where the first search found an object, by its number in the reading */
	size_t nowned;
	size_t expected; /* number that follows that of the object looked up last */
	struct fresh *fresh;
	size_t nfresh, capfresh;
	struct owned_memory *memory; /* with census_opts.memory */
	size_t nmemory, capmemory;
	char *text;
	size_t text_len, text_cap;
	uint32_t globals;	    /* root of globals */
	uint64_t items;		    /* items of containers examined so far */
	unsigned frames;	    /* frames of generators and tracebacks examined so far */
	uint64_t deadline, cpu_end; /* CLOCK_MONOTONIC, CPU time of this thread; ns */
	uint64_t first_key;	    /* the first key of the dict that was examined last */
	bool is_parameter;	    /* first_key is a parameter */
	unsigned limit_checks;	    /* calls of census_owners__over_limit() */
	bool cut;	   /* a limit ended the search before all containers were examined */
	bool full;	   /* some containers were not examined, because there are too many */
	struct pyitems it; /* entries of the dict that was read last */
};

/* Searches all containers once. before: NULL for the first search, and its result for the second
 * one, which sets OWNED_SAME of each tensor in it that is still at its place. 0 or an error that
 * ends the reading; unreadable objects are left out. The caller calls census_owners__fini() in any
 * case. */
int census_owners__search(struct reading *reading, struct census_owners *owners,
			  struct census_owners *before);
/* The place and bits of a tensor or a model. NULL: the first search did not find it. */
uint32_t *census_owners__find(struct census_owners *owners, uint64_t obj);
static inline const struct place *census_owners__place(const struct census_owners *owners,
						       uint32_t owned)
{
	return &owners->places[(owned & PLACE_MASK) - 1];
}

/* Writes the name of a place: its path and the end of its root. */
void census_owners__say(const struct census_owners *owners, const struct place *place, char *buf,
			size_t size);
void census_owners__fini(struct census_owners *owners);

/* ---- owners_found.c ---- */

/* True if an error ends the search. */
static inline bool census_owners__fatal(int err)
{
	return err && !reading__is_local(err) && err != -ENOTSUP && err != -EINVAL;
}

/* Whether a limit has ended the search. */
bool census_owners__over_limit(struct census_owners *owners);
/* Adds a path. *ret: its offset in census_owners.text. 0 or -ENOMEM. */
int census_owners__add_text(struct census_owners *owners, const char *s, uint32_t *ret);

/* An object in a container, or all its objects with the same word. Their path, which is the
 * container's and the word, is made on first use. */
struct child {
	const struct node *holder;
	char word[96];
	uint32_t path; /* offset in text, 0: not made yet */
	bool is_state; /* its key is a parameter */
};

/* Handles an object found in a container: records a tensor or memory, or queues a container. 0 or
 * an error that ends the search. */
int census_owners__add_found(struct census_owners *owners, struct child *child, uint64_t obj);
/* Queues a container of n items again if its turn ended before item `end`, which is not the last. */
int census_owners__add_rest(struct census_owners *owners, const struct node *holder, uint64_t end,
			    uint64_t n);
/* Adds a root. *ret: its index. 0, -ENOMEM or -E2BIG. */
int census_owners__open_root(struct census_owners *owners, const char *suffix, uint32_t *ret);
/* Adds a variable of a function. suffix: end of the names, as in struct root. */
int census_owners__add_local(struct census_owners *owners, const char *name, const char *suffix,
			     uint64_t obj);

/* owners_types.c. The shape of an object, SHAPE_NONE if it cannot be read. 0 or an error that ends
 * the search. */
int census_owners__shape_of(struct census_owners *owners, uint64_t obj, uint64_t *type,
			    enum shape *ret);
/* Facts about a type. Never NULL: a type without a shape has no facts. */
const struct owner_type *census_owners__type(const struct census_owners *owners, uint64_t type);
/* Whether an object may hold other objects. ctx: the struct census_owners. */
bool census_owners__is_container(void *ctx, uint64_t obj);

/* owners_edges.c. Adds the objects that a container holds. 0 or an error, which ends the search if
 * it is census_owners__fatal(). */
int census_owners__examine(struct census_owners *owners, const struct node *n);
/* Address of a field of an object: the n-th word after its head, from 0. */
static inline uint64_t census_owners__field(const struct census_owners *owners,
					    const struct node *holder, unsigned n)
{
	return holder->obj + owners->reading->mem.layout->ob_type + 8 + 8ul * n;
}

/* Adds an object if it is an exception. word: its name after the path of holder. */
int census_owners__add_exception(struct census_owners *owners, const struct node *holder,
				 uint64_t obj, const char *word);
/* Reads the entries of a dictionary into l->it. 0 or as pydict__items(). */
int census_owners__read_dict(struct census_owners *owners, uint64_t dict);
/* Adds the entries in l->it whose keys begin with prefix. The path of an entry is path, separator
 * and key. */
int census_owners__add_globals(struct census_owners *owners, const char *path,
			       const char *separator, const char *prefix);
