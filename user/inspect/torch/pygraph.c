/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reads nodes level by level, many at once. Everything is checked: a malloc chunk by its size word
 * and the next chunk's, a vector by a buffer chunk of exactly its size, an object by its vtable. */
#include "inspect/torch/pygraph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map64.h"
#include "inspect/proc.h"
#include "inspect/pytensor.h"
#include "inspect/torch/pytensor_internal.h"

#define MAX_NODES (1u << 20)
#define MAX_SAVED (1u << 20)
#define MAX_EDGES (1u << 22)
#define MAX_CLASSES 65536u
#define MAX_VPTRS (1u << 20)
#define AT_ONCE 256u /* nodes in a batch */
/* malloc_chunk: a header of 16 bytes, whose first word the previous chunk may use. */
#define MIN_CHUNK 32u
#define MAX_CHUNK 16384u /* bytes; a larger chunk is not an autograd node */
#define MAX_VECTOR (1u << 20)
#define MAX_BATCH (64u << 20) /* bytes of a batch's vectors */
#define MAX_CANDS (1u << 20)  /* pointers in a batch */
#define SIZE_FLAGS 7ull	      /* PREV_INUSE, IS_MMAPPED, NON_MAIN_ARENA */
#define PREV_INUSE 1ull
#define IS_MMAPPED 2ull
#define SLACK 24u /* malloc's maximum of extra bytes, whose content is undefined */

struct item { /* a node of the batch; fields as in struct pygraph_saved */
	uint64_t node, vptr, next;
	uint32_t cls;
	bool leaf, function; /* function: of a torch.autograd.Function, with a Python object */
};

/* Memory that belongs to a node: the node itself, or a vector's buffer. */
struct span {
	uint64_t addr;
	size_t len, at; /* at: offset in the batch's bytes */
	uint32_t item;
	bool vectors; /* search the memory for vectors, too */
	bool tight;   /* no extra bytes follow the last element */
};

/* A word that may be a pointer. */
struct cand {
	uint64_t addr;
	uint64_t head[2]; /* vptr; in c10 objects the reference count, in the lower half */
	uint32_t span;
	uint32_t off;
	enum cxx_kind kind;
};

struct batch {
	struct item items[AT_ONCE];
	uint64_t head[AT_ONCE][2];
	size_t n;
	uint8_t *bytes;
	struct span *spans;
	struct cand *cands;
	size_t nbytes, bytes_cap, nspans, spans_cap, ncands, cands_cap;
	struct proc_piece *pieces;
	size_t npieces, pieces_cap;
};

struct walk {
	struct pytensors *t;
	const struct pygraph_opts *o;
	struct pygraph *g;
	struct map64 *seen;    /* nodes already queued */
	struct map64 *kinds;   /* vptr -> enum cxx_kind */
	struct map64 *classes; /* vptr, or hash of a Python class's name -> index */
	struct hash_seed seed;
	uint64_t *queue;
	size_t nqueue, queue_cap, saved_cap, classes_cap, edges_cap;
	struct batch b;
};

/* Whether p can be a pointer from malloc. */
static bool is_pointer(uint64_t p)
{
	return p >= 4096 && p % 16 == 0 && p < 1ull << 56;
}

/* Queues an address that may be a node, unless it was queued before. */
static int push_node(struct walk *w, uint64_t node)
{
	uint64_t unused;
	int err;

	if (!is_pointer(node) || map64__get(w->seen, node, &unused) || w->nqueue >= MAX_NODES)
		return 0;
	err = array__grow(&w->queue, &w->queue_cap, w->nqueue + 1, sizeof(*w->queue))
		      ?: map64__set(w->seen, node, 1);
	if (!err)
		w->queue[w->nqueue++] = node;
	return err;
}

/* As pytensors__node_kind(), cached. */
static int find_kind(struct walk *w, uint64_t vptr, enum cxx_kind *ret)
{
	uint64_t known;
	int err;

	*ret = CXX_OTHER;
	if (vptr < 4096 || vptr % 8 || vptr >= 1ull << 56)
		return 0;
	if (map64__get(w->kinds, vptr, &known)) {
		*ret = known;
		return 0;
	}
	err = pytensors__node_kind(w->t, vptr, ret);
	if (!err && map64__count(w->kinds) < MAX_VPTRS)
		err = map64__set(w->kinds, vptr, *ret);
	return err;
}

/* ---- pieces ---- */

static int add_piece(struct batch *b, uint64_t addr, void *buf, size_t len)
{
	int err = array__grow(&b->pieces, &b->pieces_cap, b->npieces + 1, sizeof(*b->pieces));

	if (!err)
		b->pieces[b->npieces++] = (struct proc_piece){ .addr = addr,
							       .buf = buf,
							       .len = len };
	return err;
}

/* Adds a span to read, with room for the word before it. */
static int add_span(struct batch *b, uint64_t addr, size_t len, uint32_t item, bool vectors,
		    bool tight)
{
	size_t room = 8 + len;
	int err;

	if (b->nbytes + room > MAX_BATCH)
		return 0;
	err = array__grow(&b->spans, &b->spans_cap, b->nspans + 1, sizeof(*b->spans));
	if (!err)
		err = array__grow(&b->bytes, &b->bytes_cap, b->nbytes + room, 1);
	if (err)
		return err;
	b->spans[b->nspans++] = (struct span){
		.addr = addr,
		.len = len,
		.at = b->nbytes,
		.item = item,
		.vectors = vectors,
		.tight = tight,
	};
	b->nbytes += room;
	return 0;
}

/* Reads the spans and the word before each. An unreadable span gets length 0. */
static int read_spans(struct walk *w, size_t from)
{
	struct batch *b = &w->b;
	int err = 0;

	b->npieces = 0;
	for (size_t i = from; !err && i < b->nspans; i++)
		err = add_piece(b, b->spans[i].addr - 8, b->bytes + b->spans[i].at,
				8 + b->spans[i].len);
	if (!err)
		err = proc__readv(w->t->proc, b->pieces, b->npieces);
	for (size_t i = from; !err && i < b->nspans; i++)
		if (b->pieces[i - from].err)
			b->spans[i].len = 0;
	return err;
}

/* ---- nodes ---- */

/* True if the word can be the size word of a malloc chunk: a multiple of 16, with SIZE_FLAGS. */
static bool is_chunk(uint64_t size)
{
	uint64_t n = size & ~SIZE_FLAGS;

	return !(size & IS_MMAPPED) && n >= MIN_CHUNK && n % 16 == 0;
}

static int add_class(struct walk *w, const char *name, uint32_t *ret)
{
	int err;

	if (w->g->nclasses >= MAX_CLASSES)
		return -E2BIG;
	err = array__grow(&w->g->classes, &w->classes_cap, w->g->nclasses + 1,
			  sizeof(*w->g->classes));
	if (err)
		return err;
	strncpy(w->g->classes[w->g->nclasses], name, PYGRAPH_CLASS - 1);
	w->g->classes[w->g->nclasses][PYGRAPH_CLASS - 1] = '\0';
	*ret = w->g->nclasses++;
	return 0;
}

/* Sets *ret to the index of the class with this vtable. */
static int find_class(struct walk *w, uint64_t vptr, uint32_t *ret)
{
	char name[PYGRAPH_CLASS];
	uint64_t known;
	int err;

	if (map64__get(w->classes, vptr, &known)) {
		*ret = known;
		return 0;
	}
	err = autograd_node__class(w->t->proc, vptr, name, sizeof(name));
	if (!err)
		err = add_class(w, name, ret);
	return err ? err : map64__set(w->classes, vptr, *ret);
}

/* Sets *ret to the index of the class with this name, of a torch.autograd.Function. */
static int find_named_class(struct walk *w, const char *name, uint32_t *ret)
{
	uint64_t hash = hash__bytes(w->seed, name, strlen(name)), known;
	int err;

	if (map64__get(w->classes, hash, &known) && !strcmp(w->g->classes[known], name)) {
		*ret = known;
		return 0;
	}
	err = add_class(w, name, ret);
	return err ? err : map64__set(w->classes, hash, *ret);
}

static bool is_fatal(int err)
{
	return err == -ESRCH || err == -EPERM || err == -ENOMEM;
}

/* Finds out which queued addresses are nodes, and their sizes. */
static int begin_batch(struct walk *w, size_t from, size_t n)
{
	struct batch *b = &w->b;
	int err = 0;

	b->n = b->npieces = b->nspans = b->nbytes = b->ncands = 0;
	for (size_t i = 0; !err && i < n; i++)
		err = add_piece(b, w->queue[from + i] - 8, b->head[i], sizeof(b->head[i]));
	if (!err)
		err = proc__readv(w->t->proc, b->pieces, b->npieces);
	for (size_t i = 0; !err && i < n; i++) {
		struct item *it = &b->items[b->n];
		uint64_t size = b->head[i][0];
		enum cxx_kind kind;

		if (b->pieces[i].err || !is_chunk(size) || (size & ~SIZE_FLAGS) > MAX_CHUNK)
			continue;
		err = find_kind(w, b->head[i][1], &kind);
		if (err || (kind != CXX_NODE && kind != CXX_ACCUMULATE))
			continue;
		*it = (struct item){ .node = w->queue[from + i],
				     .vptr = b->head[i][1],
				     .leaf = kind == CXX_ACCUMULATE };
		it->next = it->node - 8 + (size & ~SIZE_FLAGS);
		err = find_class(w, it->vptr, &it->cls);
		if (err) {
			err = is_fatal(err) ? err : 0;
			continue;
		}
		it->function = !strcmp(w->g->classes[it->cls], "PyNode");
		err = add_span(b, it->node, size & ~SIZE_FLAGS, b->n, true, false);
		b->n++;
	}
	return err;
}

/* Drops nodes that changed meanwhile or whose chunk does not match the next one. */
static void check_nodes(struct batch *b)
{
	for (size_t i = 0; i < b->nspans; i++) {
		struct span *s = &b->spans[i];
		const uint8_t *p = b->bytes + s->at;
		uint64_t next;

		if (!s->len)
			continue;
		/* The span's last word is the size word of the next chunk. */
		next = proc__word(p + s->len);
		if ((proc__word(p) & ~SIZE_FLAGS) != s->len ||
		    proc__word(p + 8) != b->items[s->item].vptr || !(next & PREV_INUSE) ||
		    (next & ~SIZE_FLAGS) < MIN_CHUNK || (next & 8))
			s->len = 0;
		else
			s->len -= 8; /* the next chunk's size word is not part of the node */
	}
}

/* ---- words ---- */

/* Whether three words can be a std::vector: begin, end, end of storage. */
static bool is_vector(const uint64_t v[3])
{
	return is_pointer(v[0]) && v[1] % 8 == 0 && v[2] % 8 == 0 && v[0] < v[1] && v[1] <= v[2] &&
	       v[2] - v[0] <= MAX_VECTOR;
}

/* Adds the words of a span that may be pointers to the candidates, and the buffers of vectors in it
 * to the spans. */
static int find_pointers(struct batch *b, uint32_t span)
{
	const struct span s = b->spans[span];
	uint64_t v[3];
	int err = 0;

	for (size_t off = 0; !err && off + 8 <= s.len; off += 8) {
		v[0] = proc__word(b->bytes + s.at + 8 + off);
		if (!is_pointer(v[0]) || v[0] - s.addr < s.len || b->ncands >= MAX_CANDS)
			continue;
		err = array__grow(&b->cands, &b->cands_cap, b->ncands + 1, sizeof(*b->cands));
		if (!err)
			b->cands[b->ncands++] = (struct cand){ .addr = v[0],
							       .span = span,
							       .off = off };
		if (err || !s.vectors || off + 24 > s.len)
			continue;
		v[1] = proc__word(b->bytes + s.at + 16 + off);
		v[2] = proc__word(b->bytes + s.at + 24 + off);
		/* Read up to the vector's capacity. */
		if (is_vector(v))
			err = add_span(b, v[0], v[2] - v[0], s.item, false, true);
	}
	return err;
}

/* Drops vectors whose buffer is not a chunk of exactly their size. */
static void check_vectors(struct batch *b, size_t from)
{
	for (size_t i = from; i < b->nspans; i++) {
		uint64_t size = proc__word(b->bytes + b->spans[i].at),
			 need = (b->spans[i].len + 8 + 15) & ~15ull;

		need = need < MIN_CHUNK ? MIN_CHUNK : need;
		if (!is_chunk(size) ||
		    ((size & ~SIZE_FLAGS) != need && (size & ~SIZE_FLAGS) != need + 16))
			b->spans[i].len = 0;
	}
}

/* Adds the Python object of a torch.autograd.Function's node: the tensors it saved are in vectors
 * of that object. */
static int find_objects(struct walk *w)
{
	struct batch *b = &w->b;
	size_t n = b->nspans;
	int err = 0;

	for (size_t i = 0; !err && w->o->object && i < n; i++) {
		struct span s = b->spans[i];

		if (!b->items[s.item].function)
			continue;
		for (size_t off = s.len; !err && off >= 8; off -= 8) {
			uint64_t obj = proc__word(b->bytes + s.at + off), size;
			char name[PYGRAPH_CLASS];

			if (!is_pointer(obj) || obj - s.addr < s.len)
				continue;
			err = w->o->object(w->o->ctx, obj, name, sizeof(name), &size);
			if (err == -ENOENT) {
				err = 0;
				continue;
			}
			err = err ?: find_named_class(w, name, &b->items[s.item].cls);
			if (!err && size <= MAX_CHUNK)
				err = add_span(b, obj, size, s.item, true, false);
			break;
		}
	}
	return err == -E2BIG ? 0 : err;
}

/* Reads what the candidates point to, and sets their kinds. */
static int find_kinds(struct walk *w)
{
	struct batch *b = &w->b;
	int err = 0;

	b->npieces = 0;
	for (size_t i = 0; !err && i < b->ncands; i++)
		err = add_piece(b, b->cands[i].addr, b->cands[i].head, sizeof(b->cands[i].head));
	if (!err)
		err = proc__readv(w->t->proc, b->pieces, b->npieces);
	for (size_t i = 0; !err && i < b->ncands; i++) {
		b->cands[i].kind = CXX_OTHER;
		if (!b->pieces[i].err)
			err = find_kind(w, b->cands[i].head[0], &b->cands[i].kind);
	}
	return err;
}

/* Adds a saved tensor, unless the pointer may be in the undefined end of a node's chunk. */
static int add_saved(struct walk *w, const struct cand *c)
{
	const struct span *s = &w->b.spans[c->span];
	const struct item *it = &w->b.items[s->item];
	struct pygraph_saved *x;
	int err;

	if (w->g->nsaved >= MAX_SAVED || (!s->tight && !it->leaf && c->off + SLACK + 8 > s->len))
		return 0;
	err = array__grow(&w->g->saved, &w->saved_cap, w->g->nsaved + 1, sizeof(*w->g->saved));
	if (err)
		return err;
	x = &w->g->saved[w->g->nsaved++];
	*x = (struct pygraph_saved){
		.impl = c->addr,
		.slot = s->addr + c->off,
		.node = it->node,
		.vptr = it->vptr,
		.next = it->next,
		.cls = it->cls,
		.leaf = it->leaf,
		.has_after = c->off + 8 + PYGRAPH_AFTER <= s->len,
	};
	if (x->has_after)
		memcpy(x->after, w->b.bytes + s->at + 8 + c->off + 8, PYGRAPH_AFTER);
	return 0;
}

static int add_edge(struct walk *w, const struct cand *c)
{
	struct pygraph *g = w->g;
	int err;

	if (g->nedges >= MAX_EDGES)
		return 0;
	err = array__grow(&g->edges, &w->edges_cap, g->nedges + 1, sizeof(*g->edges));
	if (!err)
		g->edges[g->nedges++] = (struct pygraph_edge){
			w->b.items[w->b.spans[c->span].item].node, c->addr
		};
	return err;
}

/* Adds the tensors and nodes among the candidates to the graph, and queues the nodes. */
static int add_candidates(struct walk *w)
{
	struct batch *b = &w->b;
	int err = find_kinds(w);

	for (size_t i = 0; !err && i < b->ncands; i++) {
		switch (b->cands[i].kind) {
		case CXX_TENSOR:
			/* A reference count of 0 means that the object was freed. */
			if ((int32_t)b->cands[i].head[1] > 0)
				err = add_saved(w, &b->cands[i]);
			break;
		case CXX_NODE:
		case CXX_ACCUMULATE:
			err = add_edge(w, &b->cands[i]) ?: push_node(w, b->cands[i].addr);
			break;
		default:
			break;
		}
	}
	b->ncands = 0;
	return err;
}

/* Reads n queued nodes from index `from` on, their Python objects and vectors. */
static int read_batch(struct walk *w, size_t from, size_t n)
{
	struct batch *b = &w->b;
	size_t nodes, objects, vectors;
	int err = begin_batch(w, from, n);

	nodes = b->nspans;
	err = err ?: read_spans(w, 0);
	if (err)
		return err;
	check_nodes(b);
	err = find_objects(w);
	objects = b->nspans;
	err = err ?: read_spans(w, nodes);
	for (size_t i = 0; !err && i < objects; i++)
		err = find_pointers(b, i);
	vectors = b->nspans;
	err = err ?: read_spans(w, objects);
	if (err)
		return err;
	check_vectors(b, objects);
	for (size_t i = objects; !err && i < vectors; i++)
		err = find_pointers(b, i);
	w->g->nodes += b->n;
	return err ?: add_candidates(w);
}

static int walk__init(struct walk *w)
{
	w->seen = map64__new();
	w->kinds = map64__new();
	w->classes = map64__new();
	w->seed = hash__seed();
	return w->seen && w->kinds && w->classes ? 0 : -ENOMEM;
}

static void walk__free(struct walk *w)
{
	map64__free(w->seen);
	map64__free(w->kinds);
	map64__free(w->classes);
	free(w->queue);
	free(w->b.bytes);
	free(w->b.spans);
	free(w->b.cands);
	free(w->b.pieces);
	free(w);
}

/* Breadth first: each batch appends the nodes that it finds to the queue. */
int pygraph__read(struct pytensors *t, const uint64_t *roots, size_t n,
		  const struct pygraph_opts *o, struct pygraph *ret)
{
	struct walk *w = calloc(1, sizeof(*w));
	int err = w ? walk__init(w) : -ENOMEM;

	memset(ret, 0, sizeof(*ret));
	if (w) {
		w->t = t;
		w->o = o;
		w->g = ret;
	}
	for (size_t i = 0; !err && i < n; i++)
		err = push_node(w, roots[i]);
	for (size_t from = 0, k; !err && from < w->nqueue; from += k) {
		k = w->nqueue - from < AT_ONCE ? w->nqueue - from : AT_ONCE;
		err = o->go_on ? o->go_on(o->ctx) : 0;
		if (!err)
			err = read_batch(w, from, k);
	}
	if (w)
		walk__free(w);
	if (err)
		pygraph__free(ret);
	return err;
}

/* Words that are read again for each saved tensor: the pointer to it, the node's vtable, the next
 * chunk's size word, the tensor's reference count. */
enum { SLOT, NODE, NEXT, IMPL, CHECKS };

/*
 * Whether the node still holds the tensor. Freed memory mostly stays unchanged, with three
 * exceptions. malloc overwrites the first words of a chunk, or merges it and clears PREV_INUSE in
 * the next one. A freed tensor has a reference count of 0.
 */
static bool is_held(const struct pygraph_saved *s, const struct proc_piece *v, const uint64_t *w)
{
	for (size_t i = 0; i < CHECKS; i++)
		if (v[i].err)
			return false;
	return w[SLOT] == s->impl && w[NODE] == s->vptr && (w[NEXT] & PREV_INUSE) &&
	       (int32_t)w[IMPL] > 0;
}

int pygraph__check(const struct proc *p, const struct pygraph *g, bool *holds)
{
	struct proc_piece *v = calloc(CHECKS * g->nsaved + 1, sizeof(*v));
	uint64_t *w = calloc(CHECKS * g->nsaved + 1, sizeof(*w));
	int err = v && w ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < g->nsaved; i++) {
		const struct pygraph_saved *s = &g->saved[i];
		uint64_t at[CHECKS] = {
			[SLOT] = s->slot, [NODE] = s->node, [NEXT] = s->next, [IMPL] = s->impl + 8
		};

		for (size_t k = 0; k < CHECKS; k++)
			v[CHECKS * i + k] = (struct proc_piece){ .addr = at[k],
								 .buf = &w[CHECKS * i + k],
								 .len = 8 };
	}
	if (!err)
		err = proc__readv(p, v, CHECKS * g->nsaved);
	for (size_t i = 0; !err && i < g->nsaved; i++)
		holds[i] = is_held(&g->saved[i], &v[CHECKS * i], &w[CHECKS * i]);
	free(v);
	free(w);
	return err;
}

void pygraph__free(struct pygraph *g)
{
	free(g->saved);
	free(g->edges);
	free(g->classes);
	memset(g, 0, sizeof(*g));
}

/*
 * torch/csrc/autograd/saved_variable.h: after data_ come pointers, version and output number, then
 * five bools: was_default_constructed_, is_inplace_on_view_, saved_original_, is_leaf_, is_output_.
 * The original is saved unless it is an output and not a leaf. A saved original is a leaf if it has
 * no node.
 */

#define FIRST 24u /* lowest offset of the flags: at least three pointers precede them */
#define STEP 8u
/* Number of saved tensors whose flags must fit: that five bytes agree with one another and with the
 * tensor is hardly a coincidence. */
#define MATCHES_NEEDED 4u
#define MAX_NUMBER 4096u /* maximum of output numbers of a node */

enum { DEFAULT, INPLACE, ORIGINAL, LEAF, OUTPUT, FLAGS };

/* Whether the bytes at f can be the flags of a saved tensor. known, grad_fn: see pygraph__use(). */
static bool flags_fit(const uint8_t *f, bool known, bool grad_fn)
{
	uint32_t number;

	memcpy(&number, f - sizeof(number), sizeof(number));
	if (number > MAX_NUMBER)
		return false;
	for (size_t k = 0; k < FLAGS; k++)
		if (f[k] > 1)
			return false;
	if (f[DEFAULT] || f[ORIGINAL] != (!f[OUTPUT] || f[LEAF]))
		return false;
	return !known || !f[ORIGINAL] || f[LEAF] != grad_fn;
}

size_t pygraph__find_flags(const struct pygraph *g, const bool *grad_fn, const bool *known)
{
	size_t found = 0;

	for (size_t at = FIRST; at + FLAGS <= PYGRAPH_AFTER; at += STEP) {
		size_t good = 0, bad = 0, outputs = 0, others = 0;

		for (size_t i = 0; i < g->nsaved; i++) {
			const uint8_t *f = g->saved[i].after + at;

			if (g->saved[i].leaf || !g->saved[i].has_after)
				continue;
			if (!flags_fit(f, known[i], grad_fn[i])) {
				bad++;
				continue;
			}
			good++;
			outputs += f[OUTPUT] && (f[LEAF] || !f[ORIGINAL]);
			others += !f[OUTPUT] && !f[LEAF] && known[i] && grad_fn[i];
		}
		/* Needs outputs and others, so that zeroed memory does not match. Uninitialized
		 * words may hold any value. */
		if (!outputs || !others || good < MATCHES_NEEDED || bad * 2 > good)
			continue;
		if (found)
			return 0;
		found = at;
	}
	return found;
}

enum pygraph_use pygraph__use(const struct pygraph_saved *s, size_t flags, bool known, bool grad_fn)
{
	const uint8_t *f = s->after + flags;

	if (s->leaf || !flags || !s->has_after || !flags_fit(f, known, grad_fn))
		return PYGRAPH_HELD;
	return f[OUTPUT] || (known && grad_fn) ? PYGRAPH_MADE : PYGRAPH_SAVED;
}

/* A tensor keeps all nodes that can be reached from its own node. A search from each tensor marks
 * them. A search that reaches the node of another tensor takes over what that tensor keeps, so the
 * last tensor of a chain keeps all of it. */

struct holders {
	struct map64 *index; /* node -> index */
	uint32_t *first;     /* node i has the edges to[first[i]] to to[first[i + 1] - 1] */
	uint32_t *to;
	uint32_t *mark;	 /* by node: 1 + the tensor that keeps it; 0: none */
	uint32_t *over;	 /* by tensor: 1 + the tensor that took over what it keeps; 0: none */
	uint32_t *roots; /* by tensor: its own node */
	uint32_t *stack;
	uint32_t nodes;
};

/* Sets *ret to the number of a node; a new node gets the next number. */
static int number_node(struct holders *h, uint64_t node, uint32_t *ret)
{
	uint64_t known;
	int err;

	if (map64__get(h->index, node, &known)) {
		*ret = known;
		return 0;
	}
	err = map64__set(h->index, node, h->nodes);
	*ret = h->nodes++;
	return err;
}

/* Numbers all nodes and sorts the edges by their start. */
static int index_edges(struct holders *h, const struct pygraph *g, const uint64_t *roots, size_t n)
{
	uint32_t from, to;
	int err = number_node(h, 0, &from); /* no node */

	for (size_t i = 0; !err && i < n; i++)
		err = number_node(h, roots[i], &h->roots[i]);
	for (size_t i = 0; !err && i < g->nedges; i++)
		err = number_node(h, g->edges[i].from, &from)
			      ?: number_node(h, g->edges[i].to, &to);
	if (err)
		return err;
	h->first = calloc(h->nodes + 2ul, sizeof(*h->first));
	h->mark = calloc(h->nodes + 1ul, sizeof(*h->mark));
	h->stack = calloc(h->nodes + 1ul, sizeof(*h->stack));
	if (!h->first || !h->mark || !h->stack)
		return -ENOMEM;
	for (size_t i = 0; !err && i < g->nedges; i++) {
		err = number_node(h, g->edges[i].from, &from);
		h->first[from + 2]++;
	}
	/* first[i + 1] becomes the start of node i's edges; filling `to` advances it to their end,
	 * which is the start of the edges of node i + 1. */
	for (uint32_t i = 2; i < h->nodes + 2; i++)
		h->first[i] += h->first[i - 1];
	for (size_t i = 0; !err && i < g->nedges; i++) {
		err = number_node(h, g->edges[i].from, &from)
			      ?: number_node(h, g->edges[i].to, &to);
		h->to[h->first[from + 1]++] = to;
	}
	return err;
}

/* The tensor, as 1 + its number, that has taken over what this one keeps. */
static uint32_t last_keeper(struct holders *h, uint32_t tensor)
{
	uint32_t end = tensor, next;

	while (end && h->over[end - 1])
		end = h->over[end - 1];
	for (; tensor != end; tensor = next) { /* shortens the way for the next search */
		next = h->over[tensor - 1];
		h->over[tensor - 1] = end;
	}
	return end;
}

/* Searches from a tensor's node; tensor: 1 + its number. */
static void mark_reachable(struct holders *h, uint32_t tensor)
{
	uint32_t n = 0, start = h->roots[tensor - 1];

	if (!start || h->mark[start])
		return; /* another tensor's graph has it already */
	h->mark[start] = tensor;
	h->stack[n++] = start;
	while (n) {
		uint32_t at = h->stack[--n];

		for (uint32_t i = h->first[at]; i < h->first[at + 1]; i++) {
			uint32_t to = h->to[i], other = h->mark[to];

			if (!other) {
				h->mark[to] = tensor;
				h->stack[n++] = to;
			} else if (h->roots[other - 1] == to && last_keeper(h, other) != tensor) {
				h->over[other - 1] = tensor;
			}
		}
	}
}

int pygraph__holders(const struct pygraph *g, const uint64_t *roots, size_t n, uint32_t *ret)
{
	struct holders h = {
		.index = map64__new(),
		.to = calloc(g->nedges + 1, sizeof(*h.to)),
		.over = calloc(n + 1, sizeof(*h.over)),
		.roots = calloc(n + 1, sizeof(*h.roots)),
	};
	int err = h.index && h.to && h.over && h.roots ? index_edges(&h, g, roots, n) : -ENOMEM;
	uint64_t at;

	for (uint32_t i = 0; !err && i < n; i++)
		mark_reachable(&h, i + 1);
	for (size_t i = 0; !err && i < g->nsaved; i++)
		ret[i] = map64__get(h.index, g->saved[i].node, &at) ? last_keeper(&h, h.mark[at])
								    : 0;
	map64__free(h.index);
	free(h.first);
	free(h.to);
	free(h.mark);
	free(h.over);
	free(h.roots);
	free(h.stack);
	return err;
}
