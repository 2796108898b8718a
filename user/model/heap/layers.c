/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Layers: a module with everything inside it. "encoder.layers.0.linear1" counts for itself and for
 * "encoder.layers.0", "encoder.layers", "encoder" and the root "". Containers that are never called
 * are layers, too.
 */
#include "model/heap/layers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"
#include "model/heap/device.h"
#include "model/heap/hash_index.h"
#include "model/heap/heap.h"
#include "model/heap/state.h"
#include "record/dict.h"

/* Finds or adds the layer with the first len bytes of name. root: class of the root module, a dict
 * string. Returns 0 or -ENOMEM. */
static int layers__intern(struct model *m, uint32_t root, const char *name, size_t len,
			  uint32_t *ret)
{
	struct layers *layers = &m->layers;
	uint32_t hash = hash__bytes(m->seed, name, len) ^ root, pos = hash, id;
	char *copy;

	while ((id = hash_index__next(&layers->index, hash, &pos)) != UINT32_MAX) {
		const char *other = layers->all[id].name;

		if (layers->all[id].root == root && !strncmp(other, name, len) && !other[len]) {
			*ret = id;
			return 0;
		}
	}
	copy = strndup(name, len);
	if (!copy)
		return -ENOMEM;
	if (array__grow_zero(&layers->all, &layers->cap, (size_t)layers->n + 1,
			     sizeof(*layers->all)) ||
	    hash_index__add(&layers->index, hash, layers->n)) {
		free(copy);
		return -ENOMEM;
	}
	layers->all[layers->n] = (struct layer){ .name = copy, .root = root };
	*ret = layers->n++;
	return 0;
}

/* Looks up the layers of each prefix of a module's name: "", "a", "a.b". Beyond LAYER_DEPTH
 * components only the whole name follows. Returns 0 or -ENOMEM. */
static int layers__build_chain(struct model *m, uint32_t module, struct chain *ret)
{
	struct layers *layers = &m->layers;
	struct dict_module names = dict__get_module(m->dict, module);
	const char *name = dict__str(m->dict, names.name), *end = name;
	struct chain chain = { .known = true, .off = layers->npool };
	uint32_t id;
	int err;

	err = array__grow_zero(&layers->pool, &layers->cappool, (size_t)layers->npool + LAYER_CHAIN,
			       sizeof(*layers->pool));
	if (err)
		return err;
	err = layers__intern(m, names.root, "", 0, &id);
	while (!err) {
		if (!chain.n || layers->pool[chain.off + chain.n - 1] != id)
			layers->pool[chain.off + chain.n++] = id;
		if (!*end)
			break;
		end += strcspn(end, ".");
		if (chain.n > LAYER_DEPTH)
			end += strlen(end); /* to the whole name */
		err = layers__intern(m, names.root, name, end - name, &id);
		end += *end == '.';
	}
	if (err)
		return err;
	layers->all[layers->pool[chain.off]].cls = names.root;
	if (!layers->all[id].cls)
		layers->all[id].cls = names.cls;
	layers->npool += chain.n;
	*ret = chain;
	return 0;
}

int layers__new_chain(struct model *m, uint32_t module, struct chain *ret)
{
	struct layers *layers = &m->layers;
	int err;

	if (!module) {
		*ret = (struct chain){ .known = true };
		return 0;
	}
	if (module >= m->seen.modules) {
		m->seen.modules = dict__counts(m->dict).modules;
		if (module >= m->seen.modules)
			return layers__new_chain(m, 0, ret);
	}
	err = array__grow_zero(&layers->chains, &layers->nchains, (size_t)module + 1,
			       sizeof(*layers->chains));
	if (err)
		return err;
	err = layers__build_chain(m, module, &layers->chains[module]);
	if (err)
		return err;
	*ret = layers->chains[module];
	return 0;
}

static enum layer_part part_of(uint8_t phase)
{
	static const uint8_t parts[LIFE_NONE + 1] = {
		[PHASE_FORWARD] = PART_FORWARD, [PHASE_BACKWARD] = PART_BACKWARD
	};

	return parts[phase]; /* others: PART_OTHER */
}

/* Ends the current part (such as forward) in layers from depth on. */
static void layers__close_part(struct model *m, struct thread_state *t, uint32_t depth)
{
	for (uint32_t i = depth; i < t->open.n; i++)
		if (t->last > t->begin_part[i])
			layer_at(m, &t->open, i)->part[t->part].duration += t->last -
									    t->begin_part[i];
}

/* Ends the calls from depth on, at the thread's last allocation. */
static void layers__close_from(struct model *m, struct thread_state *t, uint32_t depth)
{
	for (uint32_t i = depth; i < t->open.n; i++)
		if (t->last > t->begin[i])
			layer_at(m, &t->open, i)->duration += t->last - t->begin[i];
	if (depth < t->open.n)
		t->open.n = depth;
}

void layers__close(struct model *m, struct thread_state *t)
{
	layers__close_part(m, t, 0);
	layers__close_from(m, t, 0);
}

/* Adds bytes to a layer, and to the sums of the block's part in it. */
static void add_bytes(struct layer *layer, struct layer_sums *part, uint64_t size)
{
	layer->live += size;
	if (layer->live > layer->peak)
		layer->peak = layer->live;
	part->live += size;
	if (part->live > part->peak)
		part->peak = part->live;
}

/* Counts an allocation. frag: share of reserved memory that is not allocated. */
static void add_alloc(struct layer_sums *part, const struct dev *dev, double frag)
{
	part->allocs++;
	if (!dev->pub.has_totals)
		return;
	if (dev->pub.reserved > part->peak_reserved)
		part->peak_reserved = dev->pub.reserved;
	part->frag_sum += frag;
	part->frag_n++;
}

/* Opens the layers of c, in which the thread allocates now, and closes those of its last
 * allocation. Layers that both have in common, from the root on, stay open. */
static void layers__move(struct model *m, struct thread_state *t, struct chain c,
			 enum layer_part part, uint64_t time)
{
	const uint32_t *pool = m->layers.pool;
	uint32_t same = 0, same_part; /* number of layers that stay open; in the same part, too */

	while (same < c.n && same < t->open.n && pool[c.off + same] == pool[t->open.off + same])
		same++;
	same_part = part == t->part ? same : 0;
	layers__close_part(m, t, same_part);
	layers__close_from(m, t, same);
	for (uint32_t i = same; i < c.n; i++)
		t->begin[i] = time;
	for (uint32_t i = same_part; i < c.n; i++)
		t->begin_part[i] = time;
	t->open = c;
	t->part = part;
}

int layers__alloc(struct model *m, struct thread_state *t, const struct dev *dev,
		  const struct event *e, const struct site *s)
{
	enum layer_part part = part_of(s->phase);
	struct chain chain;
	double frag = 0;
	int err;

	err = layers__chain(m, s->module, &chain);
	if (err)
		return err;
	if (chain.off != t->open.off || chain.n != t->open.n || part != t->part)
		layers__move(m, t, chain, part, e->time);
	t->last = e->time;
	if (e->totals && e->reserved > e->allocated)
		frag = (double)(e->reserved - e->allocated) / (double)e->reserved;
	for (uint32_t i = 0; i < chain.n; i++) {
		struct layer *l = layer_at(m, &chain, i);

		add_bytes(l, &l->part[part], e->size);
		add_alloc(&l->part[part], dev, frag);
	}
	return 0;
}

void layers__free_block(struct model *m, const struct site *s, bool freed)
{
	enum layer_part part = part_of(s->phase);
	struct chain chain;

	/* layers__alloc() made the chain, so nothing is allocated here. */
	if (layers__chain(m, s->module, &chain))
		return;
	for (uint32_t i = 0; i < chain.n; i++) {
		struct layer *l = layer_at(m, &chain, i);

		l->live -= s->size;
		l->part[part].live -= s->size;
		l->part[part].frees += freed;
	}
}

int layers__add_known_block(struct model *m, const struct site *s)
{
	enum layer_part part = part_of(s->phase);
	struct chain chain;
	int err = layers__chain(m, s->module, &chain);

	if (err)
		return err;
	for (uint32_t i = 0; i < chain.n; i++) {
		struct layer *l = layer_at(m, &chain, i);

		add_bytes(l, &l->part[part], s->size);
	}
	return 0;
}

size_t model__layers(const struct model *m)
{
	return m->layers.n;
}

/* Returns the time of backward in a layer, ns. EVENT_ENTER does not show most of it; allocations
 * show the time between them. */
static uint64_t backward_time(const struct layer_sums *l)
{
	return l->inside > l->duration ? l->inside : l->duration;
}

/* What callers see of a layer's sums. */
static struct model_layer_sums sums_of(const struct layer_sums *l)
{
	return (struct model_layer_sums){
		.peak_allocated = l->peak,
		.peak_reserved = l->peak_reserved,
		.allocs = l->allocs,
		.frees = l->frees,
		.avg_fragmentation = l->frag_n ? l->frag_sum / (double)l->frag_n : 0,
		.duration = l->duration,
		.calls = l->calls,
	};
}

/* Returns the sums over a layer's parts; peak_reserved is the highest of them. */
static struct model_layer_sums sums_of_all_parts(const struct layer *l)
{
	struct layer_sums all = { .peak = l->peak, .duration = l->duration };

	for (int p = 0; p < PART_NR; p++) {
		const struct layer_sums *s = &l->part[p];

		all.peak_reserved = s->peak_reserved > all.peak_reserved ? s->peak_reserved
									 : all.peak_reserved;
		all.allocs += s->allocs;
		all.frees += s->frees;
		all.frag_sum += s->frag_sum;
		all.frag_n += s->frag_n;
		all.calls += s->calls;
	}
	return sums_of(&all);
}

void model__layer(const struct model *m, size_t i, struct model_layer *ret)
{
	const struct layer *layer;

	*ret = (struct model_layer){ .name = "", .cls = "", .root = "" };
	if (i >= m->layers.n)
		return;
	layer = &m->layers.all[i];
	*ret = (struct model_layer){
		.name = layer->name,
		.cls = dict__str(m->dict, layer->cls),
		.root = dict__str(m->dict, layer->root),
		.all = sums_of_all_parts(layer),
		.forward = sums_of(&layer->part[PART_FORWARD]),
		.backward = sums_of(&layer->part[PART_BACKWARD]),
	};
	ret->calls_known = m->layers.entered;
	if (!ret->calls_known)
		return;
	ret->forward.duration = layer->part[PART_FORWARD].inside;
	ret->backward.duration = backward_time(&layer->part[PART_BACKWARD]);
	ret->all.duration = ret->forward.duration + ret->backward.duration;
}

void layers__free(struct layers *l)
{
	for (uint32_t i = 0; i < l->n; i++)
		free(l->all[i].name);
	free(l->all);
	free(l->index.slots);
	free(l->chains);
	map64__free(l->open);
	free(l->pool);
}

/* ---- calls of modules ---- */

/* Nested calls on a thread; deeper ones are ignored. */
#define ENTERED_DEPTH 256

static uint64_t key_of(uint32_t thread, uint32_t layer)
{
	return (uint64_t)thread << 32 | layer;
}

/* Starts the clock of those layers of the call that the thread was not in yet, and notes them in
 * in->begun. Returns 0 or -ENOMEM. */
static int begin_call(struct model *m, const struct event *e, struct entered *in)
{
	const struct chain *c = &in->chain;
	uint64_t since;

	for (uint32_t i = 0; i < c->n; i++) {
		uint64_t key = key_of(e->thread, m->layers.pool[c->off + i]);
		struct layer_sums *s = &layer_at(m, c, i)->part[in->part];

		if (map64__get(m->layers.open, key, &since))
			continue;
		if (map64__set(m->layers.open, key, e->time))
			return -ENOMEM;
		in->begun |= UINT64_C(1) << i;
		for (uint32_t d = 0; d < m->ndevs; d++)
			if (m->devs[d]->pub.has_totals &&
			    m->devs[d]->pub.reserved > s->peak_reserved)
				s->peak_reserved = m->devs[d]->pub.reserved;
	}
	return 0;
}

/* Adds the time since begin_call() to the layers in in->begun. */
static void end_call(struct model *m, uint32_t thread, const struct entered *in, uint64_t time)
{
	const struct chain *c = &in->chain;
	uint64_t since;

	for (uint32_t i = 0; i < c->n; i++)
		if (in->begun >> i & 1 &&
		    map64__del(m->layers.open, key_of(thread, m->layers.pool[c->off + i]),
			       &since) &&
		    time > since)
			layer_at(m, c, i)->part[in->part].inside += time - since;
}

/* True if the call is of a module inside a wrapper. Both have one name, and so one innermost layer,
 * and count as one call. */
static bool is_wrapped(const struct model *m, const struct thread_state *t,
		       const struct entered *in)
{
	const struct entered *outer = t->nentered ? &t->entered[t->nentered - 1] : NULL;

	return outer && outer->chain.n && in->chain.n && outer->module != in->module &&
	       m->layers.pool[outer->chain.off + outer->chain.n - 1] ==
		       m->layers.pool[in->chain.off + in->chain.n - 1];
}

int layers__enter(struct model *m, struct thread_state *t, const struct event *e)
{
	const struct entered *outer = t->nentered ? &t->entered[t->nentered - 1] : NULL;
	struct entered in = { .module = e->module, .part = PART_FORWARD };

	m->layers.entered = true;
	if (t->nentered == ENTERED_DEPTH)
		return 0;
	if (!m->layers.open)
		m->layers.open = map64__new();
	if (!m->layers.open)
		return -ENOMEM;
	if (e->node || (outer && outer->part == PART_BACKWARD))
		in.part = PART_BACKWARD;
	if (layers__chain(m, e->module, &in.chain) || begin_call(m, e, &in) ||
	    array__grow_zero(&t->entered, &t->capentered, (size_t)t->nentered + 1,
			     sizeof(*t->entered)))
		return -ENOMEM;
	if (in.chain.n && !is_wrapped(m, t, &in))
		layer_at(m, &in.chain, in.chain.n - 1)->part[in.part].calls++;
	t->entered[t->nentered++] = in;
	return 0;
}

/* Ends the call of e's module and the calls inside it, whose own EVENT_LEAVE was lost. */
void layers__leave(struct model *m, struct thread_state *t, const struct event *e)
{
	uint32_t call_no = t->nentered;

	while (call_no && t->entered[call_no - 1].module != e->module)
		call_no--;
	if (!call_no)
		return; /* entered before the first event */
	while (t->nentered >= call_no)
		end_call(m, e->thread, &t->entered[--t->nentered], e->time);
}

void layers__leave_all(struct model *m, struct thread_state *t, uint32_t thread, uint64_t time)
{
	while (t->nentered)
		end_call(m, thread, &t->entered[--t->nentered], time);
}

bool model__sees_calls(const struct model *m)
{
	return m->layers.entered;
}
