/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "export/formats/flametree.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "assets/dom.js.h"
#include "assets/flamediff.js.h"
#include "assets/flamegraph.css.h"
#include "assets/flamegraph.html.h"
#include "assets/flamegraph.js.h"
#include "assets/flames.js.h"
#include "assets/words.js.h"
#include "base/array.h"
#include "base/json.h"
#include "base/map64.h"
#include "export/formats/template.h"

/* Most nodes of the tree, because browsers draw more of them slowly. Rows come in descending order
 * of size; the small ones that do not fit share one frame. */
#define MAX_NODES 100000

struct node {
	uint32_t frame, parent;
};

struct flametree {
	struct map64 *children; /* child_key() -> node */
	struct node *nodes;
	size_t used, room;
};

struct flametree *flametree__new(void)
{
	struct flametree *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->children = map64__new();
	if (!t->children) {
		free(t);
		errno = ENOMEM;
		return NULL;
	}
	return t;
}

void flametree__free(struct flametree *t)
{
	if (!t)
		return;
	map64__free(t->children);
	free(t->nodes);
	free(t);
}

#define NO_NODE UINT32_MAX

/* Adds a node under its child_key(). Returns 0 or -ENOMEM. */
static int add_node(struct flametree *t, uint64_t key, struct node node)
{
	if (array__grow(&t->nodes, &t->room, t->used + 1, sizeof(*t->nodes)))
		return -ENOMEM;
	t->nodes[t->used] = node;
	return map64__set(t->children, key, t->used++);
}

/* The parent is in the high half, as its number + 1, so that NO_NODE becomes 0. */
static uint64_t child_key(uint32_t parent, uint32_t frame)
{
	uint32_t parent_no = parent + 1; /* NO_NODE wraps */

	return (uint64_t)parent_no << 32 | frame;
}

int flametree__find(struct flametree *t, const uint32_t *frames, uint32_t n, uint32_t *ret)
{
	bool full = t->used >= MAX_NODES;
	uint32_t parent = NO_NODE;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t key = child_key(parent, frames[i]), found;
		int err;

		if (!map64__get(t->children, key, &found)) {
			/* `full` is of the beginning: a path is added as a whole or not at all. */
			if (full)
				return -ENOENT;
			found = t->used;
			err = add_node(t, key,
				       (struct node){ .frame = frames[i], .parent = parent });
			if (err)
				return err;
		}
		parent = found;
	}
	*ret = parent;
	return 0;
}

void flametree__put_nodes(const struct flametree *t, struct json *j)
{
	json__open_object(j, "nodes");
	json__open_array(j, "frame");
	for (size_t i = 0; i < t->used; i++)
		json__uint(j, NULL, t->nodes[i].frame);
	json__close_array(j);
	json__open_array(j, "parent");
	for (size_t i = 0; i < t->used; i++)
		json__int(j, NULL,
			  t->nodes[i].parent == NO_NODE ? -1 : (int64_t)t->nodes[i].parent);
	json__close_array(j);
	json__close_object(j);
}

/* Equal strings have the same address, because the dict stores them once. So an address stands for
 * the string. */
int flametree__put_frames(struct json *j, size_t n,
			  const struct frame *(*at)(const void *ctx, uint32_t i), const void *ctx)
{
	struct map64 *numbers = map64__new();
	uint64_t number;
	int err = numbers ? 0 : -ENOMEM;

	json__open_array(j, "strings");
	for (size_t i = 0; i < 2 * n && !err; i++) { /* name and file of each frame */
		const struct frame *f = at(ctx, (uint32_t)(i / 2));
		const char *s = i % 2 ? f->file : f->name;

		if (!s || map64__get(numbers, (uintptr_t)s, &number))
			continue;
		err = map64__set(numbers, (uintptr_t)s, map64__count(numbers));
		json__string(j, NULL, s);
	}
	json__close_array(j);
	json__open_array(j, "frames"); /* name, file (-1: none), line and kind of each frame */
	for (size_t i = 0; i < n && !err; i++) {
		const struct frame *f = at(ctx, (uint32_t)i);

		json__uint(j, NULL, map64__get(numbers, (uintptr_t)f->name, &number) ? number : 0);
		json__int(j, NULL,
			  f->file && map64__get(numbers, (uintptr_t)f->file, &number)
				  ? (int64_t)number
				  : -1);
		json__uint(j, NULL, f->line);
		json__uint(j, NULL, f->kind);
	}
	json__close_array(j);
	map64__free(numbers);
	return err;
}

int flametree__put_page(FILE *out, int (*data)(void *ctx), void *ctx)
{
	struct packed *scripts[] = { &asset_words_js, &asset_dom_js, &asset_flames_js,
				     &asset_flamediff_js, &asset_flamegraph_js };
	const char *html = packed__unpack(&asset_flamegraph_html), *end;
	int err;

	if (!html)
		return -ENOMEM;
	end = html + asset_flamegraph_html.full;
	html = template__until(out, html, end, "@@STYLE@@");
	err = packed__write(&asset_flamegraph_css, out);
	html = template__until(out, html, end, "@@DATA@@");
	if (!err)
		err = data(ctx);
	html = template__until(out, html, end, "@@SCRIPT@@");
	for (size_t i = 0; !err && i < sizeof(scripts) / sizeof(*scripts); i++)
		err = packed__write(scripts[i], out);
	fwrite(html, 1, end - html, out);
	return err;
}
