/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The search for containers that hold tensors and other memory: owners.c. owners_names.c
 * names them. */
#include "inspect/census/internal.h"

enum shape {
	SHAPE_NONE,
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
	/* Objects whose memory is looked at if the reading asks for it. */
	SHAPE_MEMORY,
	SHAPE_BYTES = SHAPE_MEMORY,
	SHAPE_STR,
	SHAPE_BYTEARRAY,
	SHAPE_ARRAY, /* numpy.ndarray */
	SHAPE_MMAP   /* mmap.mmap */
};

#define TYPE_HEAP (1ul << 9) /* of tp_flags */

#define OWNER_WORDS_MAX 126u
/* Addresses of objects. */
#define LOWEST 0x10000u
#define HIGHEST (1ull << 56)

/* A type of object that the search looks into. */
struct owner_type {
	uint8_t shape;
	bool attrs;	/* objects have a dictionary of attributes */
	bool items;	/* pointers to other objects may follow the words */
	uint16_t words; /* that may point to other objects, after the head */
	uint16_t nslots;
	uint32_t slots; /* index in slots of the search */
	uint32_t dict;	/* offset of the dictionary, which is no word; 0: not known */
};

struct owner_slot {
	uint64_t name; /* address of its text */
	uint32_t offset;
};

struct node {
	uint64_t obj, type;
	uint32_t path; /* offset in text */
	uint32_t root;
	uint32_t from; /* items of it examined before */
	uint8_t shape, depth;
	bool state; /* the value of a parameter in a dict, or in one */
};

struct root {
	char *suffix; /* end of the name: " in main (train.py:31)", "" */
};

struct owned {
	uint64_t obj;
	uint32_t path, root; /* root: with the bits below */
};

#define ROOT_MASK (UINT32_MAX >> 3)
#define OWNED_STATE (1u << 29) /* state of a parameter: see struct node */
#define OWNED_AGAIN (1u << 30) /* the second search found the tensor */
#define OWNED_SAME (1u << 31)  /* and at the same place */

/* Memory of an object that is no tensor, such as a bytes object. */
struct owned_memory {
	uint64_t addr, size;
	uint64_t in; /* the container; 0: a variable */
	uint32_t path, root;
};

struct census_owners {
	struct reading *r;
	struct census_owners *before; /* the first search; NULL: this is the first */
	struct map64 *types;	      /* type object -> enum shape, and index in kinds << 8 */
	struct owner_type *kinds;
	size_t nkinds, capkinds;
	struct owner_slot *slots;
	size_t nslots, capslots;
	uint64_t python_dealloc; /* tp_dealloc of classes in Python */
	struct map64 *visited;	 /* containers, and objects with memory */
	struct node *nodes;	 /* queue of containers to examine */
	size_t nnodes, capnodes;
	struct root *roots;
	size_t nroots, caproots;
	struct owned *owned; /* of the first search; then by object, each once */
	size_t nowned, capowned;
	/* Nodes of autograd's graph, of tensors that only the second search found. */
	struct owned *fresh;
	size_t nfresh, capfresh;
	struct owned_memory *memory; /* if the reading asks for it */
	size_t nmemory, capmemory;
	char *text;
	size_t text_len, text_cap;
	uint32_t globals; /* root of globals */
	uint64_t items;
	unsigned frames;
	uint64_t deadline, cpu_end; /* CLOCK_MONOTONIC, CPU time of this thread; ns */
	uint64_t first_key;	    /* the first key of the last dict */
	bool is_parameter;	    /* first_key is a parameter */
	unsigned looks;		    /* at the limits */
	bool cut;  /* a limit ended the search before all containers were examined */
	bool full; /* some containers were not queued: there are too many */
	struct pyitems it;
};

/* Searches all containers once. before: the first search, in which the tensors get OWNED_SAME that
 * are where they were; NULL: this is it. 0 or an error that ends the reading; unreadable objects
 * are left out. The caller calls census_owners__fini() in any case. */
int census_owners__search(struct reading *r, struct census_owners *l, struct census_owners *before);
/* The place of a tensor that the first search found; NULL: it did not. */
struct owned *census_owners__find(const struct census_owners *l, uint64_t obj);
void census_owners__fini(struct census_owners *l);

/* ---- owners_found.c ---- */

/* Whether an error ends the search. */
static inline bool census_owners__fatal(int err)
{
	return err && !reading__is_local(err) && err != -ENOTSUP && err != -EINVAL;
}

/* Whether a limit has ended the search. */
bool census_owners__over_limit(struct census_owners *l);
/* Adds a path. *ret: its offset in text. 0 or -ENOMEM. */
int census_owners__add_text(struct census_owners *l, const char *s, uint32_t *ret);

/* A child of a node. Its path is made on first use and shared by all children with the same
 * word. */
struct child {
	const struct node *of;
	char word[96];
	uint32_t path; /* offset in text, 0: not made yet */
	bool state;    /* a parameter is its key */
};

/* Handles an object found in a container: records a tensor or memory, or queues a container. 0 or
 * an error that ends the search. */
int census_owners__add_found(struct census_owners *l, struct child *c, uint64_t obj);
/* Queues a container once more if its turn ended at item `end` of n. */
int census_owners__add_rest(struct census_owners *l, const struct node *of, uint64_t end,
			    uint64_t n);
int census_owners__open_root(struct census_owners *l, const char *suffix, uint32_t *ret);
/* Adds a variable of a function. suffix: text after the path. */
int census_owners__add_local(struct census_owners *l, const char *name, const char *suffix,
			     uint64_t obj);

/* owners_types.c. The shape of an object, SHAPE_NONE if it cannot be read. 0 or an error that ends
 * the search. */
int census_owners__shape_of(struct census_owners *l, uint64_t obj, uint64_t *type, enum shape *ret);
/* Facts about a type that has a shape. */
const struct owner_type *census_owners__type(const struct census_owners *l, uint64_t type);
/* Whether an object may hold others. ctx: the search. */
bool census_owners__is_container(void *ctx, uint64_t obj);

/* owners_edges.c. Finds what a container holds. */
int census_owners__examine(struct census_owners *l, const struct node *n);
/* A field of an object: the n-th word after its head. */
static inline uint64_t census_owners__field(const struct census_owners *l, const struct node *of,
					    unsigned n)
{
	return of->obj + l->r->m.l->ob_type + 8 + 8ul * n;
}

/* Adds an object if it is an exception. word: its name after that of `of`. */
int census_owners__add_exception(struct census_owners *l, const struct node *of, uint64_t obj,
				 const char *word);
/* Reads a dictionary into l->it. 0 or as pydict__items(). */
int census_owners__read_dict(struct census_owners *l, uint64_t dict);
/* Adds the entries in l->it whose keys begin with `only`. The name of one: path, before, key. */
int census_owners__add_globals(struct census_owners *l, const char *path, const char *before,
			       const char *only);
