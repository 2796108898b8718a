/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Combines many small reads into few large ones, and reads the C++ containers that the allocator
 * uses. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "inspect/proc.h"
#include "inspect/torch/cudaalloc_internal.h"

#define PAGE 4096u
/* Offsets in the header of a ska::flat_hash_map, after the address of its entries. */
#define TABLE_MASK 8u
#define TABLE_LOOKUPS 17u
#define TABLE_LOAD 20u
#define TABLE_COUNT 24u
#define HALF_FLOAT 0x3f000000u /* 0.5f */
#define MOST_LOOKUPS 64u
/* Offsets in the header of a std::set; its node from the color on. */
#define TREE_NODE 8u
#define TREE_ROOT 16u
#define TREE_LEFT 24u
#define TREE_RIGHT 32u
#define TREE_COUNT 40u
/* Offsets in a node of a std::set, after its color. */
#define NODE_PARENT 8u
#define NODE_LEFT 16u
#define NODE_RIGHT 24u
#define NODE_VALUE 32u

/* ---- reading ---- */

long cudaalloc_mem__read_window(const struct proc *proc, uint64_t addr, uint8_t *buf, size_t len)
{
	size_t done = 0, n;
	int err;

	if (!len || addr > UINT64_MAX - len)
		return 0;
	err = proc__read(proc, addr, buf, len);
	if (!err)
		return (long)len;
	/* Part of it cannot be read: reads page by page up to that part. */
	while (err == -EFAULT && done < len) {
		n = PAGE - (addr + done) % PAGE;
		if (n > len - done)
			n = len - done;
		if (proc__read(proc, addr + done, buf + done, n))
			break;
		done += n;
	}
	return err == -EFAULT ? (long)done : err;
}

#define RUN_MAX (64u << 10) /* maximum bytes of one piece */
#define RUN_GAP 1024u /* less than a page, so the gap between two readable items is readable */
#define BATCH_BYTES (1u << 20)
#define BATCH_PIECES 1024u

/* Items [first, end) that one system call reads. */
struct batch {
	const struct proc *proc;
	const uint64_t *addrs;
	size_t len;
	uint8_t *scratch;
	struct proc_piece pieces[BATCH_PIECES];
	size_t npieces, bytes;
	size_t first, end;
};

/* The address of item i. Those in the upper half, where no memory of a process is, become one whose
 * read fails and whose end does not wrap around. */
static uint64_t item_addr(const struct batch *batch, size_t i)
{
	return batch->addrs[i] < UINT64_MAX / 2 ? batch->addrs[i] : UINT64_MAX / 2;
}

/* Fills the batch with items from `first` on, as many as fit, and sets batch->end. Near items share
 * a piece, whose buffer is the last one in batch->scratch while it grows. */
static void batch_fill(struct batch *batch, size_t first, size_t n)
{
	struct proc_piece *piece = NULL;
	uint64_t stop = 0; /* where the piece ends */
	size_t item;

	batch->npieces = batch->bytes = 0;
	batch->first = first;
	for (item = first; item < n; item++) {
		uint64_t addr = item_addr(batch, item), end = addr + batch->len;
		uint64_t more = end > stop ? end - stop : 0;

		if (piece && addr >= piece->addr && addr <= stop + RUN_GAP &&
		    end - piece->addr <= RUN_MAX && batch->bytes + more <= BATCH_BYTES) {
			batch->bytes += more;
			piece->len += more;
			stop += more;
			continue;
		}
		if (batch->npieces == BATCH_PIECES || batch->bytes + batch->len > BATCH_BYTES)
			break;
		piece = &batch->pieces[batch->npieces++];
		*piece = (struct proc_piece){ .addr = addr,
					      .buf = batch->scratch + batch->bytes,
					      .len = batch->len };
		batch->bytes += batch->len;
		stop = end;
	}
	batch->end = item;
}

/* Passes the batch's items to fn. If a piece failed, reads its items one by one. */
static int batch_deliver(struct batch *batch, item_fn fn, void *ctx)
{
	const struct proc_piece *piece = batch->pieces;
	uint8_t one[BLOCK_WINDOW > 256 ? BLOCK_WINDOW : 256];
	int err = 0;

	for (size_t i = batch->first; i < batch->end && !err; i++) {
		uint64_t addr = item_addr(batch, i);

		while (addr < piece->addr || addr + batch->len > piece->addr + piece->len)
			piece++;
		if (!piece->err) {
			err = fn(ctx, i, (uint8_t *)piece->buf + (addr - piece->addr));
			continue;
		}
		if (piece->len == batch->len || batch->len > sizeof(one)) {
			err = fn(ctx, i, NULL);
			continue;
		}
		err = proc__read(batch->proc, addr, one, batch->len);
		if (!err || err == -EFAULT)
			err = fn(ctx, i, err ? NULL : one);
	}
	return err;
}

int cudaalloc_mem__read_items(const struct proc *proc, const uint64_t *addrs, size_t n, size_t len,
			      item_fn fn, void *ctx)
{
	struct batch *batch;
	size_t done = 0;
	int err = 0;

	if (!n)
		return 0;
	if (!len || len > RUN_MAX)
		return -EINVAL;
	batch = malloc(sizeof(*batch));
	if (!batch)
		return -ENOMEM;
	batch->proc = proc;
	batch->addrs = addrs;
	batch->len = len;
	batch->scratch = malloc(BATCH_BYTES);
	if (!batch->scratch)
		err = -ENOMEM;
	while (!err && done < n) {
		batch_fill(batch, done, n);
		err = proc__readv(proc, batch->pieces, batch->npieces);
		if (!err)
			err = batch_deliver(batch, fn, ctx);
		done = batch->end;
	}
	free(batch->scratch);
	free(batch);
	return err;
}

/* ---- addresses ---- */

int addrs__add(struct addrs *addrs, uint64_t addr)
{
	if (addrs->n >= MAX_BLOCKS)
		return -EFBIG;
	if (array__grow(&addrs->v, &addrs->cap, addrs->n + 1, sizeof(*addrs->v)))
		return -ENOMEM;
	addrs->v[addrs->n++] = addr;
	return 0;
}

void addrs__sort(struct addrs *addrs)
{
	size_t kept = 0;

	if (addrs->n)
		qsort(addrs->v, addrs->n, sizeof(*addrs->v), array__compare_u64);
	for (size_t i = 0; i < addrs->n; i++) {
		if (!kept || addrs->v[kept - 1] != addrs->v[i])
			addrs->v[kept++] = addrs->v[i];
	}
	addrs->n = kept;
}

void addrs__free(struct addrs *addrs)
{
	free(addrs->v);
	memset(addrs, 0, sizeof(*addrs));
}

/* ---- ska::flat_hash_map ---- */

/* Header: entries, number of slots - 1 (slots are a power of two), shift, max_lookups, load factor
 * 0.5f, number of elements. An entry begins with its distance from its place, negative in a free
 * slot. max_lookups extra slots follow; the last one ends the iteration. */
bool table__parse(const uint8_t *h, struct table *ret)
{
	uint64_t entries = proc__word(h);
	uint64_t mask = proc__word(h + TABLE_MASK);
	uint64_t count = proc__word(h + TABLE_COUNT);
	uint8_t lookups = h[TABLE_LOOKUPS];
	uint32_t load;

	memcpy(&load, h + TABLE_LOAD, sizeof(load));
	if (load != HALF_FLOAT || !pointer_like(entries) || (mask & (mask + 1)) ||
	    mask >= MAX_BLOCKS * 4ull)
		return false;
	if (!lookups || lookups > MOST_LOOKUPS || count > mask + 1 || (!mask && count))
		return false;
	ret->entries = entries;
	ret->slots = mask + lookups;
	ret->count = count;
	ret->lookups = lookups;
	return true;
}

int table__each(const struct proc *proc, const struct table *table, size_t width, entry_fn fn,
		void *ctx, uint64_t *seen)
{
	uint64_t done = 0, n, at_once = RUN_MAX * 4 / width; /* entries of one read: 256 KiB */
	uint8_t *buf;
	int err = 0;

	*seen = 0;
	if (!table->count)
		return 0;
	buf = malloc((table->slots < at_once ? table->slots : at_once) * width);
	if (!buf)
		return -ENOMEM;
	while (!err && done < table->slots) {
		n = table->slots - done < at_once ? table->slots - done : at_once;
		err = proc__read(proc, table->entries + done * width, buf, n * width);
		for (uint64_t i = 0; i < n && !err; i++) {
			int8_t distance = (int8_t)buf[i * width];

			if (distance < 0)
				continue;
			if (distance > table->lookups)
				continue; /* not such a table: the count will not match */
			(*seen)++;
			err = fn(ctx, buf + i * width);
		}
		done += n;
	}
	free(buf);
	return err;
}

/* ---- std::set ---- */

#define NODE_SIZE 40u /* colour, parent, left, right, value */

bool tree__parse(const uint8_t *h, uint64_t addr, struct tree *ret)
{
	uint64_t root = proc__word(h + TREE_ROOT);
	uint64_t left = proc__word(h + TREE_LEFT);
	uint64_t right = proc__word(h + TREE_RIGHT);
	uint64_t count = proc__word(h + TREE_COUNT);
	uint64_t head = addr + TREE_NODE; /* the root's parent, and the ends of an empty set */
	uint32_t colour;

	/* the colour's four padding bytes are not initialized */
	memcpy(&colour, h + TREE_NODE, sizeof(colour));
	if (colour)
		return false;
	if (!root && (left != head || right != head || count))
		return false;
	if (root && (!pointer_like(root) || !pointer_like(left) || !pointer_like(right) || !count ||
		     count > MAX_BLOCKS))
		return false;
	if (root == head || (root && (left == head || right == head)))
		return false;
	ret->root = root;
	ret->head = head;
	ret->count = count;
	return true;
}

/* Nodes of one level of all trees, each with its expected parent. */
struct level {
	struct node_ref {
		uint64_t addr, parent;
	} * v;
	size_t n, cap;
};

/* Queues a node for the next level. parent: what its own pointer must lead to. */
static int level_add(struct level *level, uint64_t addr, uint64_t parent)
{
	if (array__grow(&level->v, &level->cap, level->n + 1, sizeof(*level->v)))
		return -ENOMEM;
	level->v[level->n++] = (struct node_ref){ addr, parent };
	return 0;
}

struct walk {
	struct level now, next;
	struct addrs *out;
	uint64_t nodes_left; /* limit of further nodes */
	uint64_t found;
	bool torn;
};

/* Takes the value of a tree's node and queues its children for the next level. */
static int on_node(void *ctx, size_t i, const uint8_t *data)
{
	struct walk *walk = ctx;
	const struct node_ref *ref = &walk->now.v[i];
	uint64_t left, right, value;
	int err = 0;

	if (!data || proc__word(data + NODE_PARENT) != ref->parent) {
		walk->torn = true;
		return 0;
	}
	if (!walk->nodes_left) {
		/* more nodes than the sets' counts: a cycle, or a set that grew */
		walk->torn = true;
		return 0;
	}
	walk->nodes_left--;
	walk->found++;
	left = proc__word(data + NODE_LEFT);
	right = proc__word(data + NODE_RIGHT);
	value = proc__word(data + NODE_VALUE);
	if (pointer_like(value))
		err = addrs__add(walk->out, value);
	else
		walk->torn = true;
	if (left)
		err = err ?: level_add(&walk->next, left, ref->addr);
	if (right && right != left)
		err = err ?: level_add(&walk->next, right, ref->addr);
	return err;
}

ARRAY_COMPARE(by_addr, struct node_ref, addr)

/* Reads the nodes of one level; on_node() collects those of the next. */
static int read_level(const struct proc *proc, struct walk *walk)
{
	uint64_t *addrs = malloc(walk->now.n * sizeof(*addrs));
	int err;

	if (!addrs)
		return -ENOMEM;
	qsort(walk->now.v, walk->now.n, sizeof(*walk->now.v), by_addr);
	for (size_t i = 0; i < walk->now.n; i++)
		addrs[i] = walk->now.v[i].addr;
	walk->next.n = 0;
	err = cudaalloc_mem__read_items(proc, addrs, walk->now.n, NODE_SIZE, on_node, walk);
	free(addrs);
	return err;
}

int cudaalloc_mem__tree_values(const struct proc *proc, const struct tree *t, size_t n,
			       uint64_t most, struct addrs *out, bool *torn)
{
	struct walk walk = { .out = out };
	uint64_t total = 0;
	struct level swap;
	int err = 0;

	for (size_t i = 0; i < n && !err; i++) {
		total += t[i].count;
		if (t[i].root)
			err = level_add(&walk.now, t[i].root, t[i].head);
	}
	/* 64: nodes that were added since the counts were read */
	walk.nodes_left = total < most ? total + 64 : most;
	while (!err && walk.now.n) {
		err = read_level(proc, &walk);
		swap = walk.now;
		walk.now = walk.next;
		walk.next = swap;
	}
	if (!err && (walk.torn || walk.found != total))
		*torn = true;
	free(walk.now.v);
	free(walk.next.v);
	return err;
}
