/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/heap/extents.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map64.h"

#define NOTES_MIN 4096 /* notes before the first compaction */

struct extent_node {
	struct extent e;
	/* Children. In a free node, left_no is the next free one. */
	uint32_t left_no, right_no;
	uint32_t priority; /* random; a node's is at least that of its children */
};

struct extent_note {	      /* content of addr before its first change after the mark */
	struct extent before; /* addr is set even if there is false */
	uint8_t class;
	bool there;
};

enum extent_sum extent__sum(const struct extent *e)
{
	bool allocator = e->flags & MEM_BY_ALLOCATOR;

	if (e->listed)
		return SUM_SEGMENTS;
	switch (e->how) {
	case MEM_DEVICE:
		return allocator ? SUM_SEGMENTS : SUM_OTHERS;
	case MEM_MAPPED:
		return allocator ? SUM_SEGMENTS : SUM_NONE;
	case MEM_PHYSICAL: /* the allocator's physical memory is counted where it is mapped */
		return allocator ? SUM_NONE : SUM_OTHERS;
	case MEM_ASYNC:
		return SUM_OTHERS;
	case MEM_MANAGED:
		return SUM_MANAGED;
	case MEM_HOST:
		return SUM_HOST;
	case MEM_REGISTERED:
		return SUM_REGISTERED;
	}
	return SUM_NONE;
}

void extents__init(struct extents *x, uint64_t random)
{
	*x = (struct extents){ .random = random | 1, .limit = NOTES_MIN };
}

void extents__free(struct extents *x)
{
	free(x->nodes);
	free(x->notes);
}

void extents__mark(struct extents *x)
{
	x->marked = true;
	x->nnotes = 0;
	x->limit = NOTES_MIN;
	memcpy(x->mark_sums, x->sums, sizeof(x->mark_sums));
}

/* --- the treap */

static struct extent_node *node(const struct extents *x, uint32_t node_no)
{
	return &x->nodes[node_no - 1];
}

/* Splits a tree: extents that start before addr go to *left, the rest to *right. */
static void split_tree(struct extents *x, uint32_t tree, uint64_t addr, uint32_t *left,
		       uint32_t *right)
{
	while (tree) {
		if (node(x, tree)->e.addr < addr) {
			*left = tree;
			left = &node(x, tree)->right_no;
			tree = *left;
		} else {
			*right = tree;
			right = &node(x, tree)->left_no;
			tree = *right;
		}
	}
	*left = *right = 0;
}

/* Joins two trees; all extents of a lie before those of b. Returns the root. */
static uint32_t join_trees(struct extents *x, uint32_t a, uint32_t b)
{
	uint32_t root, *at = &root;

	while (a && b) {
		if (node(x, a)->priority >= node(x, b)->priority) {
			*at = a;
			at = &node(x, a)->right_no;
			a = *at;
		} else {
			*at = b;
			at = &node(x, b)->left_no;
			b = *at;
		}
	}
	*at = a ? a : b;
	return root;
}

/* Nodes with random priorities make a balanced tree (treap). */
static uint32_t draw_priority(struct extents *x)
{
	/* xorshift64*: the random, secret seed is enough */
	x->random ^= x->random >> 12;
	x->random ^= x->random << 25;
	x->random ^= x->random >> 27;
	return x->random * UINT64_C(0x2545f4914f6cdd1d) >> 32;
}

/* Returns the extent with the largest start <= addr; 0: none. */
static uint32_t floor_of(const struct extents *x, enum extent_class c, uint64_t addr)
{
	uint32_t tree = x->root_no[c], best = 0;

	while (tree) {
		if (node(x, tree)->e.addr <= addr) {
			best = tree;
			tree = node(x, tree)->right_no;
		} else {
			tree = node(x, tree)->left_no;
		}
	}
	return best;
}

/* Returns the extent with the smallest start >= addr; 0: none. */
static uint32_t ceiling_of(const struct extents *x, enum extent_class c, uint64_t addr)
{
	uint32_t tree = x->root_no[c], best = 0;

	while (tree) {
		if (node(x, tree)->e.addr >= addr) {
			best = tree;
			tree = node(x, tree)->left_no;
		} else {
			tree = node(x, tree)->right_no;
		}
	}
	return best;
}

const struct extent *extents__at(const struct extents *x, enum extent_class c, uint64_t addr)
{
	uint32_t t = floor_of(x, c, addr);

	return t && node(x, t)->e.addr == addr ? &node(x, t)->e : NULL;
}

const struct extent *extents__over(const struct extents *x, enum extent_class c, uint64_t addr)
{
	uint32_t t = floor_of(x, c, addr);

	return t && addr - node(x, t)->e.addr < node(x, t)->e.size ? &node(x, t)->e : NULL;
}

/* --- notes */

/* Drops all notes except the first of each address. Returns 0 or -ENOMEM. */
static int compact_notes(struct extents *x)
{
	struct map64 *seen[EXTENT_CLASSES] = { 0 };
	uint32_t kept = 0;
	int err = -ENOMEM;

	for (int c = 0; c < EXTENT_CLASSES; c++) {
		seen[c] = map64__new();
		if (!seen[c])
			goto out;
	}
	for (uint32_t i = 0; i < x->nnotes; i++) {
		struct extent_note *note = &x->notes[i];
		uint64_t unused;

		if (map64__get(seen[note->class], note->before.addr, &unused))
			continue;
		if (map64__set(seen[note->class], note->before.addr, 1))
			goto out; /* duplicate notes remain, which does no harm */
		x->notes[kept++] = *note;
	}
	x->nnotes = kept;
	x->limit = kept > NOTES_MIN / 2 ? 2 * kept : NOTES_MIN;
	err = 0;
out:
	for (int c = 0; c < EXTENT_CLASSES; c++)
		map64__free(seen[c]);
	return err;
}

/* Notes what starts at addr, before a change after the mark. Returns 0 or -ENOMEM. */
static int note_before(struct extents *x, enum extent_class c, uint64_t addr)
{
	const struct extent *old = extents__at(x, c, addr);

	if (!x->marked)
		return 0;
	if (x->nnotes >= x->limit && compact_notes(x))
		return -ENOMEM;
	if (array__grow_zero(&x->notes, &x->capnotes, (size_t)x->nnotes + 1, sizeof(*x->notes)))
		return -ENOMEM;
	x->notes[x->nnotes++] = (struct extent_note){
		.before = old ? *old : (struct extent){ .addr = addr },
		.class = c,
		.there = old != NULL,
	};
	return 0;
}

/* --- changes */

int extents__del(struct extents *x, enum extent_class c, uint64_t addr, bool later)
{
	uint32_t left, mid, right;

	if (!extents__at(x, c, addr))
		return 0;
	if (later && note_before(x, c, addr))
		return -ENOMEM;
	/* Splits the tree around addr, so that mid is a tree of the one extent. */
	split_tree(x, x->root_no[c], addr, &left, &mid);
	/* addr + 1 does not overflow: an extent does not reach the last address. */
	split_tree(x, mid, addr + 1, &mid, &right);
	x->sums[extent__sum(&node(x, mid)->e)] -= node(x, mid)->e.size;
	x->count[c]--;
	if (x->changed && c == EXTENT_MEMORY)
		x->changed(x->ctx, &node(x, mid)->e, false);
	node(x, mid)->left_no = x->free_no;
	x->free_no = mid;
	x->root_no[c] = join_trees(x, left, right);
	return 0;
}

int extents__put(struct extents *x, enum extent_class c, const struct extent *e, bool later)
{
	struct extent copy = *e;
	uint32_t node_no, left, right;

	/* An extent is not empty and does not reach the last address. */
	if (!copy.size || copy.size > UINT64_MAX - copy.addr)
		return 0;
	if (later && note_before(x, c, copy.addr))
		return -ENOMEM;
	(void)extents__del(x, c, copy.addr, /*later=*/false); /* without a note, it cannot fail */
	if (!x->free_no &&
	    array__grow_zero(&x->nodes, &x->cap, (size_t)x->n + 1, sizeof(*x->nodes)))
		return -ENOMEM;
	node_no = x->free_no;
	if (node_no)
		x->free_no = node(x, node_no)->left_no;
	else
		node_no = ++x->n;
	*node(x, node_no) = (struct extent_node){ .e = copy, .priority = draw_priority(x) };
	x->sums[extent__sum(&copy)] += copy.size;
	x->count[c]++;
	x->pools |= copy.pool[0] || copy.pool[1];
	split_tree(x, x->root_no[c], copy.addr, &left, &right);
	x->root_no[c] = join_trees(x, join_trees(x, left, node_no), right);
	if (x->changed && c == EXTENT_MEMORY)
		x->changed(x->ctx, &copy, true);
	return 0;
}

int extents__cut(struct extents *x, enum extent_class c, uint64_t addr, uint64_t size)
{
	uint64_t end = size > UINT64_MAX - addr ? UINT64_MAX : addr + size;
	const struct extent *over = extents__over(x, c, addr);
	uint32_t node_no = over ? floor_of(x, c, addr) : ceiling_of(x, c, addr);

	/* Each extent that overlaps is removed, and what lies outside is added again. */
	while (node_no && node(x, node_no)->e.addr < end) {
		struct extent old = node(x, node_no)->e, part = old;

		if (extents__del(x, c, old.addr, /*later=*/true))
			return -ENOMEM;
		part.size = addr - old.addr;
		if (old.addr < addr && extents__put(x, c, &part, /*later=*/true))
			return -ENOMEM;
		part.addr = end;
		part.size = old.addr + old.size - end;
		if (old.addr + old.size > end && extents__put(x, c, &part, /*later=*/true))
			return -ENOMEM;
		/* an extent up to the end of the address space is the last one */
		if (end == UINT64_MAX && old.addr + old.size == end)
			break;
		node_no = ceiling_of(x, c, old.addr + 1);
	}
	return 0;
}

/* --- lists */

ARRAY_COMPARE(cmp_extent, struct extent, addr)

int extents__list(const struct extents *x, enum extent_class c, bool at_mark, struct extent **ret,
		  size_t *n)
{
	struct extent *all = malloc(((size_t)x->count[c] + x->nnotes + 1) * sizeof(*all));
	struct map64 *noted = at_mark ? map64__new() : NULL;
	uint64_t unused;
	size_t count = 0;

	if (!all || (at_mark && !noted))
		goto nomem;
	for (uint32_t i = 0; at_mark && i < x->nnotes; i++) {
		const struct extent_note *note = &x->notes[i];

		if (note->class != c || map64__get(noted, note->before.addr, &unused))
			continue;
		if (map64__set(noted, note->before.addr, 1))
			goto nomem;
		if (note->there)
			all[count++] = note->before;
	}
	/* All extents of now, except those at addresses that changed after the mark. Searching the
	 * next start needs no recursion. */
	for (uint32_t node_no = ceiling_of(x, c, 0); node_no;) {
		const struct extent *e = &node(x, node_no)->e;

		if (!at_mark || !map64__get(noted, e->addr, &unused))
			all[count++] = *e;
		node_no = ceiling_of(x, c, e->addr + 1);
	}
	map64__free(noted);
	qsort(all, count, sizeof(*all), cmp_extent);
	*ret = all;
	*n = count;
	return 0;
nomem:
	map64__free(noted);
	free(all);
	return -ENOMEM;
}

bool extent__is_expandable(const struct extent *e)
{
	return e->how == MEM_MAPPED || (e->listed && (e->flags & SEGMENT_EXPANDABLE));
}

enum segment_size extent__kind(const struct extent *e)
{
	if (e->listed)
		return e->flags & SEGMENT_SMALL ? SEGMENT_OF_SMALL : SEGMENT_OF_LARGE;
	if (e->flags & MEM_BY_ALLOCATOR)
		return e->size == SMALL_BUFFER ? SEGMENT_OF_SMALL : SEGMENT_OF_LARGE;
	return SEGMENT_ANY;
}
