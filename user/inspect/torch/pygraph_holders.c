/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A tensor keeps all nodes that lead to it. Searches from all tensors mark nodes. A search that
 * reaches the node of another tensor takes over what that one keeps, so that the last tensor of a
 * chain has all of it. */
#include <errno.h>
#include <stdlib.h>

#include "base/map64.h"
#include "inspect/torch/pygraph.h"

struct holders {
	struct map64 *index; /* node -> index */
	uint32_t *first;     /* of its edges in to; one more at the end */
	uint32_t *to;
	uint32_t *mark;	 /* of a node: 1 + tensor; 0: none */
	uint32_t *over;	 /* of a tensor: 1 + the one that took over; 0: none */
	uint32_t *roots; /* of a tensor: its node */
	uint32_t *stack;
	uint32_t nodes;
};

static int index_of(struct holders *h, uint64_t node, uint32_t *ret)
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

static int index_edges(struct holders *h, const struct pygraph *g, const uint64_t *roots, size_t n)
{
	uint32_t from, to;
	int err = index_of(h, 0, &from); /* no node */

	for (size_t i = 0; !err && i < n; i++)
		err = index_of(h, roots[i], &h->roots[i]);
	for (size_t i = 0; !err && i < g->nedges; i++)
		err = index_of(h, g->edges[i].from, &from) ?: index_of(h, g->edges[i].to, &to);
	if (err)
		return err;
	h->first = calloc(h->nodes + 2ul, sizeof(*h->first));
	h->mark = calloc(h->nodes + 1ul, sizeof(*h->mark));
	h->stack = calloc(h->nodes + 1ul, sizeof(*h->stack));
	if (!h->first || !h->mark || !h->stack)
		return -ENOMEM;
	for (size_t i = 0; !err && i < g->nedges; i++) {
		err = index_of(h, g->edges[i].from, &from);
		h->first[from + 2]++;
	}
	for (uint32_t i = 2; i < h->nodes + 2; i++)
		h->first[i] += h->first[i - 1];
	for (size_t i = 0; !err && i < g->nedges; i++) {
		err = index_of(h, g->edges[i].from, &from) ?: index_of(h, g->edges[i].to, &to);
		h->to[h->first[from + 1]++] = to;
	}
	return err;
}

/* The tensor, as 1 + its number, that has taken over what this one keeps. */
static uint32_t last(struct holders *h, uint32_t tensor)
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

static void mark_from(struct holders *h, uint32_t tensor)
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
			} else if (h->roots[other - 1] == to && last(h, other) != tensor) {
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
		mark_from(&h, i + 1);
	for (size_t i = 0; !err && i < g->nsaved; i++)
		ret[i] = map64__get(h.index, g->saved[i].node, &at) ? last(&h, h.mark[at]) : 0;
	map64__free(h.index);
	free(h.first);
	free(h.to);
	free(h.mark);
	free(h.over);
	free(h.roots);
	free(h.stack);
	return err;
}
