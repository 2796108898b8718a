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
/* Bytes of the last member of Node (torch/csrc/autograd/function.h): a SmallVector of two
 * InputMetadata. */
#define METADATA 208u

struct item { /* a node of the batch; fields as in struct pygraph_saved */
	uint64_t node, vptr, next;
	uint32_t cls, common; /* common: sizeof(Node), where the members of a derived class begin */
	bool leaf, function;  /* function: of a torch.autograd.Function, with a Python object */
};

/* Memory that belongs to a node: the node itself, or a vector's buffer. */
struct span {
	uint64_t addr;
	size_t len, at; /* at: offset in the batch's bytes */
	size_t used;	/* of a vector: bytes of its elements, after which memory is undefined */
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
	struct pytensors *tensors;
	const struct pygraph_opts *opts;
	struct pygraph *graph;
	struct map64 *seen;    /* nodes already queued */
	struct map64 *kinds;   /* vptr -> enum cxx_kind */
	struct map64 *classes; /* vptr, or hash of a Python class's name -> index */
	struct hash_seed seed;
	uint64_t *queue;
	size_t nqueue, queue_cap, saved_cap, classes_cap, edges_cap;
	struct batch batch;
};

/* True if p can be a pointer from malloc. */
static bool is_pointer(uint64_t p)
{
	return p >= 4096 && p % 16 == 0 && p < 1ull << 56;
}

/* Queues an address that may be a node, unless it was queued before. */
static int push_node(struct walk *walk, uint64_t node)
{
	uint64_t unused;
	int err;

	if (!is_pointer(node) || map64__get(walk->seen, node, &unused) || walk->nqueue >= MAX_NODES)
		return 0;
	err = array__grow(&walk->queue, &walk->queue_cap, walk->nqueue + 1, sizeof(*walk->queue))
		      ?: map64__set(walk->seen, node, 1);
	if (!err)
		walk->queue[walk->nqueue++] = node;
	return err;
}

/* As pytensors__node_kind(), cached. */
static int find_kind(struct walk *walk, uint64_t vptr, enum cxx_kind *ret)
{
	uint64_t known;
	int err;

	*ret = CXX_OTHER;
	/* not a pointer */
	if (vptr < 4096 || vptr % 8 || vptr >= 1ull << 56)
		return 0;
	if (map64__get(walk->kinds, vptr, &known)) {
		*ret = known;
		return 0;
	}
	err = pytensors__node_kind(walk->tensors, vptr, ret);
	if (!err && map64__count(walk->kinds) < MAX_VPTRS)
		err = map64__set(walk->kinds, vptr, *ret);
	return err;
}

/* ---- pieces ---- */

/* Adds a piece of memory to the batch's next read. */
static int add_piece(struct batch *batch, uint64_t addr, void *buf, size_t len)
{
	int err = array__grow(&batch->pieces, &batch->pieces_cap, batch->npieces + 1,
			      sizeof(*batch->pieces));

	if (!err)
		batch->pieces[batch->npieces++] = (struct proc_piece){ .addr = addr,
								       .buf = buf,
								       .len = len };
	return err;
}

/* Adds memory to read for the item, with room for the word before it. vectors, tight: as in struct
 * span. Does nothing if the batch is full. */
static int add_span(struct batch *batch, uint64_t addr, size_t len, uint32_t item, bool vectors,
		    bool tight)
{
	size_t room = 8 + len;
	int err;

	if (batch->nbytes + room > MAX_BATCH)
		return 0;
	err = array__grow(&batch->spans, &batch->spans_cap, batch->nspans + 1,
			  sizeof(*batch->spans));
	if (!err)
		err = array__grow(&batch->bytes, &batch->bytes_cap, batch->nbytes + room, 1);
	if (err)
		return err;
	batch->spans[batch->nspans++] = (struct span){
		.addr = addr,
		.len = len,
		.at = batch->nbytes,
		.used = len,
		.item = item,
		.vectors = vectors,
		.tight = tight,
	};
	batch->nbytes += room;
	return 0;
}

/* Reads the spans and the word before each. An unreadable span gets length 0. */
static int read_spans(struct walk *walk, size_t from)
{
	struct batch *batch = &walk->batch;
	int err = 0;

	batch->npieces = 0;
	for (size_t i = from; !err && i < batch->nspans; i++)
		err = add_piece(batch, batch->spans[i].addr - 8, batch->bytes + batch->spans[i].at,
				8 + batch->spans[i].len);
	if (!err)
		err = proc__readv(walk->tensors->proc, batch->pieces, batch->npieces);
	for (size_t i = from; !err && i < batch->nspans; i++)
		if (batch->pieces[i - from].err)
			batch->spans[i].len = 0;
	return err;
}

/* ---- nodes ---- */

/* True if the word can be the size word of a malloc chunk: a multiple of 16, with SIZE_FLAGS. */
static bool is_chunk(uint64_t size)
{
	uint64_t n = size & ~SIZE_FLAGS;

	return !(size & IS_MMAPPED) && n >= MIN_CHUNK && n % 16 == 0;
}

/* Adds a class of nodes. -E2BIG: there are too many. */
static int add_class(struct walk *walk, const char *name, uint32_t *ret)
{
	int err;

	if (walk->graph->nclasses >= MAX_CLASSES)
		return -E2BIG;
	err = array__grow(&walk->graph->classes, &walk->classes_cap, walk->graph->nclasses + 1,
			  sizeof(*walk->graph->classes));
	if (err)
		return err;
	strncpy(walk->graph->classes[walk->graph->nclasses], name, PYGRAPH_CLASS - 1);
	walk->graph->classes[walk->graph->nclasses][PYGRAPH_CLASS - 1] = '\0';
	*ret = walk->graph->nclasses++;
	return 0;
}

/* Sets *ret to the index of the class with this vtable. */
static int find_class(struct walk *walk, uint64_t vptr, uint32_t *ret)
{
	char name[PYGRAPH_CLASS];
	uint64_t known;
	int err;

	if (map64__get(walk->classes, vptr, &known)) {
		*ret = known;
		return 0;
	}
	err = autograd_node__class(walk->tensors->proc, vptr, name, sizeof(name));
	if (!err)
		err = add_class(walk, name, ret);
	return err ? err : map64__set(walk->classes, vptr, *ret);
}

/* Sets *ret to the index of the class with this name, of a torch.autograd.Function. */
static int find_named_class(struct walk *walk, const char *name, uint32_t *ret)
{
	uint64_t hash = hash__bytes(walk->seed, name, strlen(name)), known;
	int err;

	if (map64__get(walk->classes, hash, &known) && !strcmp(walk->graph->classes[known], name)) {
		*ret = known;
		return 0;
	}
	err = add_class(walk, name, ret);
	return err ? err : map64__set(walk->classes, hash, *ret);
}

static bool is_fatal(int err)
{
	return err == -ESRCH || err == -EPERM || err == -ENOMEM;
}

/* Finds out which of the n queued addresses from index `from` on are nodes, and their sizes: of the
 * chunk of malloc that begins 8 bytes before. */
static int begin_batch(struct walk *walk, size_t from, size_t n)
{
	struct batch *batch = &walk->batch;
	int err = 0;

	batch->n = batch->npieces = batch->nspans = batch->nbytes = batch->ncands = 0;
	for (size_t i = 0; !err && i < n; i++)
		err = add_piece(batch, walk->queue[from + i] - 8, batch->head[i],
				sizeof(batch->head[i]));
	if (!err)
		err = proc__readv(walk->tensors->proc, batch->pieces, batch->npieces);
	for (size_t i = 0; !err && i < n; i++) {
		struct item *it = &batch->items[batch->n];
		uint64_t size = batch->head[i][0];
		enum cxx_kind kind;

		if (batch->pieces[i].err || !is_chunk(size) || (size & ~SIZE_FLAGS) > MAX_CHUNK)
			continue;
		err = find_kind(walk, batch->head[i][1], &kind);
		if (err || (kind != CXX_NODE && kind != CXX_ACCUMULATE))
			continue;
		*it = (struct item){ .node = walk->queue[from + i],
				     .vptr = batch->head[i][1],
				     .leaf = kind == CXX_ACCUMULATE };
		/* where the next chunk's size is */
		it->next = it->node - 8 + (size & ~SIZE_FLAGS);
		err = find_class(walk, it->vptr, &it->cls);
		if (err) {
			err = is_fatal(err) ? err : 0;
			continue;
		}
		it->function = !strcmp(walk->graph->classes[it->cls], "PyNode");
		err = add_span(batch, it->node, size & ~SIZE_FLAGS, batch->n, /*vectors=*/true,
			       /*tight=*/false);
		batch->n++;
	}
	return err;
}

/*
 * Returns sizeof(Node) of a node, in bytes. bytes: its memory, len bytes. Node ends with a
 * c10::SmallVector of the metadata of inputs: {begin, two counts, room for two elements}. If it has
 * no more than two, its begin points to that room, and tells the size. Otherwise the size is not
 * known, and the smallest one is returned.
 */
static uint32_t find_common(const uint8_t *bytes, uint64_t node, size_t len)
{
	static const uint32_t sizes[] = { 464, 472 }; /* since PyTorch 2.13; since 2.0 */

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		uint32_t vector = sizes[i] - METADATA;

		if (sizes[i] <= len && proc__word(bytes + vector) == node + vector + 16)
			return sizes[i];
	}
	return 392; /* in PyTorch 1.13 */
}

/* Drops nodes that changed meanwhile or whose chunk does not match the next one. */
static void check_nodes(struct batch *batch)
{
	for (size_t i = 0; i < batch->nspans; i++) {
		struct span *span = &batch->spans[i];
		const uint8_t *chunk = batch->bytes + span->at;
		uint64_t next;

		if (!span->len)
			continue;
		/* The span's last word is the size word of the next chunk. */
		next = proc__word(chunk + span->len);
		if ((proc__word(chunk) & ~SIZE_FLAGS) != span->len ||
		    proc__word(chunk + 8) != batch->items[span->item].vptr ||
		    !(next & PREV_INUSE) || (next & ~SIZE_FLAGS) < MIN_CHUNK ||
		    (next & 8 /* sizes are multiples of 16 */))
			span->len = 0;
		else
			span->len -= 8; /* the next chunk's size word is not part of the node */
		batch->items[span->item].common = find_common(chunk + 8, span->addr, span->len);
	}
}

/* ---- words ---- */

/* True if three words can be a std::vector: begin, end, end of storage. */
static bool is_vector(const uint64_t values[3])
{
	return is_pointer(values[0]) && values[1] % 8 == 0 && values[2] % 8 == 0 &&
	       values[0] < values[1] && values[1] <= values[2] &&
	       values[2] - values[0] <= MAX_VECTOR;
}

/* Adds the buffer of a vector, {begin, end, end of storage}: all of it, whose size tells whether it
 * is one. */
static int add_vector(struct batch *batch, const uint64_t values[3], uint32_t item)
{
	size_t n = batch->nspans;
	int err = add_span(batch, values[0], values[2] - values[0], item, /*vectors=*/false,
			   /*tight=*/true);

	if (batch->nspans > n)
		batch->spans[n].used = values[1] - values[0];
	return err;
}

/* Adds the words of a span that may be pointers to the candidates, and the buffers of vectors in it
 * to the spans. */
static int find_pointers(struct batch *batch, uint32_t span)
{
	const struct span in = batch->spans[span];
	uint64_t values[3];
	int err = 0;

	for (size_t off = 0; !err && off + 8 <= in.len && off + 8 <= in.used; off += 8) {
		values[0] = proc__word(batch->bytes + in.at + 8 + off);
		if (!is_pointer(values[0]) || values[0] - in.addr < in.len ||
		    batch->ncands >= MAX_CANDS)
			continue;
		err = array__grow(&batch->cands, &batch->cands_cap, batch->ncands + 1,
				  sizeof(*batch->cands));
		if (!err)
			batch->cands[batch->ncands++] = (struct cand){ .addr = values[0],
								       .span = span,
								       .off = off };
		if (err || !in.vectors || off + 24 > in.len)
			continue;
		values[1] = proc__word(batch->bytes + in.at + 16 + off);
		values[2] = proc__word(batch->bytes + in.at + 24 + off);
		if (is_vector(values))
			err = add_vector(batch, values, in.item);
	}
	return err;
}

/* Drops vectors whose buffer is not a chunk of malloc that fits: their bytes and the header,
 * rounded up to 16, or 16 more, where a rest was too small to split off. */
static void check_vectors(struct batch *batch, size_t from)
{
	for (size_t i = from; i < batch->nspans; i++) {
		uint64_t size = proc__word(batch->bytes + batch->spans[i].at),
			 need = (batch->spans[i].len + 8 + 15) & ~15ull;

		need = need < MIN_CHUNK ? MIN_CHUNK : need;
		if (!is_chunk(size) ||
		    ((size & ~SIZE_FLAGS) != need && (size & ~SIZE_FLAGS) != need + 16))
			batch->spans[i].len = 0;
	}
}

/* Adds the Python object of a torch.autograd.Function's node: the tensors it saved are in vectors
 * of that object. */
static int find_objects(struct walk *walk)
{
	struct batch *batch = &walk->batch;
	size_t n = batch->nspans;
	int err = 0;

	for (size_t i = 0; !err && walk->opts->object && i < n; i++) {
		struct span span = batch->spans[i];

		if (!batch->items[span.item].function)
			continue;
		for (size_t off = span.len; !err && off >= 8; off -= 8) {
			uint64_t obj = proc__word(batch->bytes + span.at + off), size;
			char name[PYGRAPH_CLASS];

			if (!is_pointer(obj) || obj - span.addr < span.len)
				continue;
			err = walk->opts->object(walk->opts->ctx, obj, name, sizeof(name), &size);
			if (err == -ENOENT) {
				err = 0;
				continue;
			}
			err = err ?: find_named_class(walk, name, &batch->items[span.item].cls);
			if (!err && size <= MAX_CHUNK)
				err = add_span(batch, obj, size, span.item, /*vectors=*/true,
					       /*tight=*/false);
			break;
		}
	}
	return err == -E2BIG ? 0 : err;
}

/* Reads what the candidates point to, and sets their kinds. */
static int find_kinds(struct walk *walk)
{
	struct batch *batch = &walk->batch;
	int err = 0;

	batch->npieces = 0;
	for (size_t i = 0; !err && i < batch->ncands; i++)
		err = add_piece(batch, batch->cands[i].addr, batch->cands[i].head,
				sizeof(batch->cands[i].head));
	if (!err)
		err = proc__readv(walk->tensors->proc, batch->pieces, batch->npieces);
	for (size_t i = 0; !err && i < batch->ncands; i++) {
		batch->cands[i].kind = CXX_OTHER;
		if (!batch->pieces[i].err)
			err = find_kind(walk, batch->cands[i].head[0], &batch->cands[i].kind);
	}
	return err;
}

/* Adds a saved tensor. Leaves out pointers in memory that the node does not use: the end of its
 * chunk, and what all nodes begin with, since only derived classes hold tensors. There, the unused
 * room for the metadata of inputs may have what an earlier object left. */
static int add_saved(struct walk *walk, const struct cand *candidate)
{
	const struct span *span = &walk->batch.spans[candidate->span];
	const struct item *it = &walk->batch.items[span->item];
	struct pygraph_saved *saved;
	int err;

	if (walk->graph->nsaved >= MAX_SAVED ||
	    /* what all nodes begin with, or the end of the chunk */
	    (span->addr == it->node && candidate->off < it->common) ||
	    (!span->tight && !it->leaf && candidate->off + SLACK + 8 > span->len))
		return 0;
	err = array__grow(&walk->graph->saved, &walk->saved_cap, walk->graph->nsaved + 1,
			  sizeof(*walk->graph->saved));
	if (err)
		return err;
	saved = &walk->graph->saved[walk->graph->nsaved++];
	*saved = (struct pygraph_saved){
		.impl = candidate->addr,
		.slot = span->addr + candidate->off,
		.node = it->node,
		.vptr = it->vptr,
		.next = it->next,
		.cls = it->cls,
		.leaf = it->leaf,
		.has_after = candidate->off + 8 + PYGRAPH_AFTER <= span->len,
	};
	if (saved->has_after)
		memcpy(saved->after, walk->batch.bytes + span->at + 8 + candidate->off + 8,
		       PYGRAPH_AFTER);
	return 0;
}

/* Adds an edge from the candidate's node to the node that it points to. */
static int add_edge(struct walk *walk, const struct cand *candidate)
{
	struct pygraph *graph = walk->graph;
	int err;

	if (graph->nedges >= MAX_EDGES)
		return 0;
	err = array__grow(&graph->edges, &walk->edges_cap, graph->nedges + 1,
			  sizeof(*graph->edges));
	if (!err)
		graph->edges[graph->nedges++] = (struct pygraph_edge){
			walk->batch.items[walk->batch.spans[candidate->span].item].node,
			candidate->addr
		};
	return err;
}

/* Adds the tensors and nodes among the candidates to the graph, and queues the nodes. */
static int add_candidates(struct walk *walk)
{
	struct batch *batch = &walk->batch;
	int err = find_kinds(walk);

	for (size_t i = 0; !err && i < batch->ncands; i++) {
		switch (batch->cands[i].kind) {
		case CXX_TENSOR:
			/* A reference count of 0 means that the object was freed. */
			if ((int32_t)batch->cands[i].head[1] > 0)
				err = add_saved(walk, &batch->cands[i]);
			break;
		case CXX_NODE:
		case CXX_ACCUMULATE:
			err = add_edge(walk, &batch->cands[i])
				      ?: push_node(walk, batch->cands[i].addr);
			break;
		default:
			break;
		}
	}
	batch->ncands = 0;
	return err;
}

/* Makes candidates of the pointers in the spans from `begin` to `end`. Vectors in them become spans
 * behind the others, not read yet. */
static int find_pointers_in(struct batch *batch, size_t begin, size_t end)
{
	int err = 0;

	for (size_t i = begin; !err && i < end; i++)
		err = find_pointers(batch, i);
	return err;
}

/*
 * Reads n queued nodes from index `from` on, their Python objects and vectors. Nodes lead to their
 * objects, and both to vectors, so the batch's spans are filled and read in three rounds.
 */
static int read_batch(struct walk *walk, size_t from, size_t n)
{
	struct batch *batch = &walk->batch;
	size_t nodes_end, objects_end, vectors_end; /* indices in the spans */
	int err = begin_batch(walk, from, n);

	nodes_end = batch->nspans;
	err = err ?: read_spans(walk, /*from=*/0);
	if (err)
		return err;
	check_nodes(batch);
	err = find_objects(walk);
	objects_end = batch->nspans;
	err = err ?: read_spans(walk, nodes_end);
	err = err ?: find_pointers_in(batch, 0, objects_end);
	vectors_end = batch->nspans;
	err = err ?: read_spans(walk, objects_end);
	if (err)
		return err;
	check_vectors(batch, objects_end);
	err = find_pointers_in(batch, objects_end, vectors_end);
	walk->graph->nodes += batch->n;
	return err ?: add_candidates(walk);
}

/* Makes the tables of a walk. 0 or -ENOMEM; walk__free() must follow. */
static int walk__init(struct walk *walk)
{
	walk->seen = map64__new();
	walk->kinds = map64__new();
	walk->classes = map64__new();
	walk->seed = hash__seed();
	return walk->seen && walk->kinds && walk->classes ? 0 : -ENOMEM;
}

static void walk__free(struct walk *walk)
{
	map64__free(walk->seen);
	map64__free(walk->kinds);
	map64__free(walk->classes);
	free(walk->queue);
	free(walk->batch.bytes);
	free(walk->batch.spans);
	free(walk->batch.cands);
	free(walk->batch.pieces);
	free(walk);
}

/* Breadth first: each batch appends the nodes that it finds to the queue. */
int pygraph__read(struct pytensors *tensors, const uint64_t *roots, size_t n,
		  const struct pygraph_opts *o, struct pygraph *ret)
{
	struct walk *walk = calloc(1, sizeof(*walk));
	int err = walk ? walk__init(walk) : -ENOMEM;

	memset(ret, 0, sizeof(*ret));
	if (walk) {
		walk->tensors = tensors;
		walk->opts = o;
		walk->graph = ret;
	}
	for (size_t i = 0; !err && i < n; i++)
		err = push_node(walk, roots[i]);
	for (size_t from = 0, k; !err && from < walk->nqueue; from += k) {
		k = walk->nqueue - from < AT_ONCE ? walk->nqueue - from : AT_ONCE;
		err = o->go_on ? o->go_on(o->ctx) : 0;
		if (!err)
			err = read_batch(walk, from, k);
	}
	if (walk)
		walk__free(walk);
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
static bool is_held(const struct pygraph_saved *s, const struct proc_piece *pieces,
		    const uint64_t *words)
{
	for (size_t i = 0; i < CHECKS; i++)
		if (pieces[i].err)
			return false;
	return words[SLOT] == s->impl && words[NODE] == s->vptr && (words[NEXT] & PREV_INUSE) &&
	       (int32_t)words[IMPL] > 0;
}

int pygraph__check(const struct proc *proc, const struct pygraph *graph, bool *holds)
{
	struct proc_piece *pieces = calloc(CHECKS * graph->nsaved + 1, sizeof(*pieces));
	uint64_t *words = calloc(CHECKS * graph->nsaved + 1, sizeof(*words));
	int err = pieces && words ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < graph->nsaved; i++) {
		const struct pygraph_saved *s = &graph->saved[i];
		uint64_t at[CHECKS] = {
			[SLOT] = s->slot, [NODE] = s->node, [NEXT] = s->next, [IMPL] = s->impl + 8
		};

		for (size_t k = 0; k < CHECKS; k++)
			pieces[CHECKS * i + k] = (struct proc_piece){ .addr = at[k],
								      .buf = &words[CHECKS * i + k],
								      .len = 8 };
	}
	if (!err)
		err = proc__readv(proc, pieces, CHECKS * graph->nsaved);
	for (size_t i = 0; !err && i < graph->nsaved; i++)
		holds[i] = is_held(&graph->saved[i], &pieces[CHECKS * i], &words[CHECKS * i]);
	free(pieces);
	free(words);
	return err;
}

void pygraph__free(struct pygraph *graph)
{
	free(graph->saved);
	free(graph->edges);
	free(graph->classes);
	memset(graph, 0, sizeof(*graph));
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

/* True if the bytes at f can be the flags of a saved tensor. known, grad_fn: see pygraph__use(). */
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

size_t pygraph__find_flags(const struct pygraph *graph, const bool *grad_fn, const bool *known)
{
	size_t found = 0;

	for (size_t at = FIRST; at + FLAGS <= PYGRAPH_AFTER; at += STEP) {
		size_t good = 0, bad = 0; /* saved tensors whose flags are possible, or not */
		size_t outputs = 0, others = 0;

		for (size_t i = 0; i < graph->nsaved; i++) {
			const uint8_t *flags = graph->saved[i].after + at;

			if (graph->saved[i].leaf || !graph->saved[i].has_after)
				continue;
			if (!flags_fit(flags, known[i], grad_fn[i])) {
				bad++;
				continue;
			}
			good++;
			outputs += flags[OUTPUT] && (flags[LEAF] || !flags[ORIGINAL]);
			others += !flags[OUTPUT] && !flags[LEAF] && known[i] && grad_fn[i];
		}
		/* Needs outputs and others, so that zeroed memory does not match. Uninitialized
		 * words may hold any value. */
		if (!outputs || !others || good < MATCHES_NEEDED || bad * 2 > good)
			continue;
		if (found) /* two places match: neither is certain */
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
static int number_node(struct holders *holders, uint64_t node, uint32_t *ret)
{
	uint64_t known;
	int err;

	if (map64__get(holders->index, node, &known)) {
		*ret = known;
		return 0;
	}
	err = map64__set(holders->index, node, holders->nodes);
	*ret = holders->nodes++;
	return err;
}

/* Numbers all nodes and sorts the edges by their start. */
static int index_edges(struct holders *holders, const struct pygraph *graph, const uint64_t *roots,
		       size_t n)
{
	uint32_t from, to;
	int err = number_node(holders, 0, &from); /* no node has number 0 */

	for (size_t i = 0; !err && i < n; i++)
		err = number_node(holders, roots[i], &holders->roots[i]);
	for (size_t i = 0; !err && i < graph->nedges; i++)
		err = number_node(holders, graph->edges[i].from, &from)
			      ?: number_node(holders, graph->edges[i].to, &to);
	if (err)
		return err;
	holders->first = calloc(holders->nodes + 2ul, sizeof(*holders->first));
	holders->mark = calloc(holders->nodes + 1ul, sizeof(*holders->mark));
	holders->stack = calloc(holders->nodes + 1ul, sizeof(*holders->stack));
	if (!holders->first || !holders->mark || !holders->stack)
		return -ENOMEM;
	for (size_t i = 0; !err && i < graph->nedges; i++) {
		err = number_node(holders, graph->edges[i].from, &from);
		holders->first[from + 2]++;
	}
	/* first[i + 1] becomes the start of node i's edges; filling `to` advances it to their end,
	 * which is the start of the edges of node i + 1. */
	for (uint32_t i = 2; i < holders->nodes + 2; i++)
		holders->first[i] += holders->first[i - 1];
	for (size_t i = 0; !err && i < graph->nedges; i++) {
		err = number_node(holders, graph->edges[i].from, &from)
			      ?: number_node(holders, graph->edges[i].to, &to);
		holders->to[holders->first[from + 1]++] = to;
	}
	return err;
}

/* The tensor, as 1 + its number, that has taken over what this one keeps. */
static uint32_t last_keeper(struct holders *holders, uint32_t tensor)
{
	uint32_t end = tensor, next;

	while (end && holders->over[end - 1])
		end = holders->over[end - 1];
	for (; tensor != end; tensor = next) { /* shortens the way for the next search */
		next = holders->over[tensor - 1];
		holders->over[tensor - 1] = end;
	}
	return end;
}

/* Marks with the tensor's number all nodes that its own node leads to. tensor: 1 + its index. Where
 * another tensor's node is reached, notes that this tensor keeps it, too. */
static void mark_reachable(struct holders *holders, uint32_t tensor)
{
	uint32_t n = 0, start = holders->roots[tensor - 1];

	if (!start || holders->mark[start])
		return; /* another tensor's graph has it already */
	holders->mark[start] = tensor;
	holders->stack[n++] = start;
	while (n) {
		uint32_t at = holders->stack[--n];

		for (uint32_t i = holders->first[at]; i < holders->first[at + 1]; i++) {
			uint32_t to = holders->to[i], other = holders->mark[to];

			if (!other) {
				holders->mark[to] = tensor;
				holders->stack[n++] = to;
			} else if (holders->roots[other - 1] == to &&
				   last_keeper(holders, other) != tensor) {
				holders->over[other - 1] = tensor;
			}
		}
	}
}

int pygraph__holders(const struct pygraph *graph, const uint64_t *roots, size_t n, uint32_t *ret)
{
	struct holders holders = {
		.index = map64__new(),
		.to = calloc(graph->nedges + 1, sizeof(*holders.to)),
		.over = calloc(n + 1, sizeof(*holders.over)),
		.roots = calloc(n + 1, sizeof(*holders.roots)),
	};
	int err = holders.index && holders.to && holders.over && holders.roots
			  ? index_edges(&holders, graph, roots, n)
			  : -ENOMEM;
	uint64_t at;

	for (uint32_t i = 0; !err && i < n; i++)
		mark_reachable(&holders, i + 1);
	for (size_t i = 0; !err && i < graph->nsaved; i++)
		ret[i] = map64__get(holders.index, graph->saved[i].node, &at)
				 ? last_keeper(&holders, holders.mark[at])
				 : 0;
	map64__free(holders.index);
	free(holders.first);
	free(holders.to);
	free(holders.mark);
	free(holders.over);
	free(holders.roots);
	free(holders.stack);
	return err;
}
