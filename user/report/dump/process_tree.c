/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/dump/process_tree.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "base/map64.h"
#include "base/text.h"
#include "record/stream.h"
#include "model/words.h"

/* ---- facts ---- */

/* Returns a positive number; 0: it is missing or not positive. */
static uint64_t read_number(const json_t *o, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(o, key));

	return n > 0 ? (uint64_t)n : 0;
}

/* Reads the fact "ancestors": a JSON list of processes, the parent first. */
static void read_ancestors(struct process_facts *p, const char *fact)
{
	json_t *list = fact ? json_loads(fact, JSON_REJECT_DUPLICATES, NULL) : NULL, *o;
	size_t i;

	json_array_foreach(list, i, o) {
		struct process_id *id = &p->ancestors[p->n_ancestors];
		const char *title = json_string_value(json_object_get(o, "title"));

		if (i >= PROCESS_ANCESTORS)
			break;
		*id = (struct process_id){ .pid = read_number(o, "pid"),
					   .started = read_number(o, "started") };
		if (!id->pid || !id->started)
			break; /* the rest is above a process that is not known */
		if (title)
			text__clean(id->title, sizeof(id->title), title, strlen(title));
		p->n_ancestors++;
	}
	json_decref(list);
}

void process_facts__read(struct process_facts *ret, const struct facts *f, const char *command)
{
	const char *name = facts__get(f, "process_name");

	memset(ret, 0, sizeof(*ret));
	ret->own.pid = words__fact_number(f, "pid");
	ret->own.started = words__fact_number(f, "process_started");
	text__clean(ret->own.title, sizeof(ret->own.title), command, strlen(command));
	if (name)
		text__clean(ret->name, sizeof(ret->name), name, strlen(name));
	if (ret->own.started)
		read_ancestors(ret, facts__get(f, "ancestors"));
}

/* Returns the script in a command line of Python, without its folder; *len: its length. NULL: there
 * is none, as with -m and -c. */
static const char *script_of(const char *title, size_t *len)
{
	const char *word = title, *slash;
	size_t len_word;

	if (!text__starts(title, "python"))
		return NULL;
	for (word += strcspn(word, " "); *word; word += len_word) {
		word += strspn(word, " ");
		len_word = strcspn(word, " ");
		if (len_word == 2 && (text__starts(word, "-m") || text__starts(word, "-c")))
			return NULL; /* the rest says more */
		if (*word != '-' && len_word)
			break;
	}
	if (!*word)
		return NULL;
	slash = memrchr(word, '/', len_word);
	*len = slash ? len_word - (size_t)(slash + 1 - word) : len_word;
	return slash ? slash + 1 : word;
}

char *process_id__name(const struct process_id *p, const char *name, char buf[PROCESS_NAME])
{
	static const struct {
		const char *code, *name;
	} helpers[] = {
		{ "from multiprocessing.forkserver import", "fork server" },
		{ "from multiprocessing.spawn import", "spawned process" },
	};
	const char *script;
	size_t len = strlen(p->title);

	if (*name) {
		snprintf(buf, PROCESS_NAME, "%s", name);
		return buf;
	}
	for (size_t i = 0; i < sizeof(helpers) / sizeof(*helpers); i++)
		if (strstr(p->title, helpers[i].code)) {
			snprintf(buf, PROCESS_NAME, "%s", helpers[i].name);
			return buf;
		}
	while (len && p->title[len - 1] == ' ') /* setproctitle pads */
		len--;
	script = script_of(p->title, &len);
	text__clean(buf, PROCESS_NAME, script ? script : p->title, len);
	if (!*buf)
		snprintf(buf, PROCESS_NAME, "process");
	return words__cut(buf, PROCESS_NAME - 8);
}

/* ---- the tree ---- */

void process_tree__free(struct process_tree *t)
{
	free(t->all);
	map64__free(t->places);
	*t = (struct process_tree){ 0 };
}

/* Returns a key for t->places. Different processes may have the same key. */
static uint64_t key_of(const struct process_id *id)
{
	return id->pid * UINT64_C(0x9e3779b97f4a7c15) ^ id->started;
}

/* True if the process at this index is the one with this identity. */
static bool is_at(const struct process_tree *t, uint64_t index, const struct process_id *id)
{
	return t->all[index].id.pid == id->pid && t->all[index].id.started == id->started;
}

/* Returns the index of a process; PROCESS_NONE: it is not in the tree. */
static uint32_t find_process(const struct process_tree *t, const struct process_id *id)
{
	uint64_t index;

	if (!map64__get(t->places, key_of(id), &index))
		return PROCESS_NONE;
	if (is_at(t, index, id))
		return (uint32_t)index;
	for (size_t i = 0; i < t->n; i++)
		if (is_at(t, i, id))
			return (uint32_t)i;
	return PROCESS_NONE;
}

/* Finds or adds a process. Returns its index; PROCESS_NONE: no memory. */
static uint32_t add_process(struct process_tree *t, const struct process_id *id)
{
	uint32_t index;

	t->places = t->places ? t->places : map64__new();
	if (!t->places)
		return PROCESS_NONE;
	index = find_process(t, id);
	if (index != PROCESS_NONE)
		return index;
	if (t->n >= PROCESS_NONE || array__grow(&t->all, &t->room, t->n + 1, sizeof(*t->all)) ||
	    map64__set(t->places, key_of(id), t->n))
		return PROCESS_NONE;
	t->all[t->n] = (struct process_node){ .id = *id,
					      .recording = PROCESS_NONE,
					      .parent = PROCESS_NONE };
	process_id__name(id, "", t->all[t->n].name);
	return (uint32_t)t->n++;
}

/* True if process `from` is `ancestor` or descends from it. Asked before a parent is set: damaged
 * facts could form a circle. */
static bool descends(const struct process_tree *t, uint32_t from, uint32_t ancestor)
{
	for (; from != PROCESS_NONE; from = t->all[from].parent)
		if (from == ancestor)
			return true;
	return false;
}

int process_tree__add(struct process_tree *t, const struct process_facts *f, uint32_t recording,
		      uint64_t bytes)
{
	uint32_t index, above;

	if (!f->own.pid || !f->own.started)
		return 0;
	index = add_process(t, &f->own);
	if (index == PROCESS_NONE)
		return -ENOMEM;
	t->recordings++;
	t->all[index].own += bytes;
	/* A process has several recordings if it executes other programs. */
	if (t->all[index].recording == PROCESS_NONE) {
		t->all[index].recording = recording;
		t->all[index].id = f->own;
		process_id__name(&f->own, f->name, t->all[index].name);
	}
	for (size_t i = 0; i < f->n_ancestors; i++, index = above) {
		above = add_process(t, &f->ancestors[i]);
		if (above == PROCESS_NONE)
			return -ENOMEM;
		if (t->all[index].parent == PROCESS_NONE && !descends(t, above, index))
			t->all[index].parent = above;
	}
	return 0;
}

/* Returns the length of a name without the number at its end. */
static size_t without_number(const char *name)
{
	size_t len = strlen(name);

	while (len && name[len - 1] >= '0' && name[len - 1] <= '9')
		len--;
	return len;
}

bool process_node__is_like(const struct process_node *a, const struct process_node *b)
{
	size_t len = without_number(a->name);

	return a->parent == b->parent && len == without_number(b->name) &&
	       !memcmp(a->name, b->name, len);
}

/* Orders siblings by their starts. */
static int cmp_start(const void *a, const void *b, void *ctx)
{
	const struct process_node *all = ctx, *x = &all[*(const uint32_t *)a],
				  *y = &all[*(const uint32_t *)b];

	if (x->id.started != y->id.started)
		return x->id.started < y->id.started ? -1 : 1;
	return x->id.pid < y->id.pid ? -1 : x->id.pid > y->id.pid;
}

/* Arrays by old index, while the tree is put in order. order: old indices by start; child: first
 * child; next: next sibling; place: new index. */
struct links {
	uint32_t *order, *child, *next, *place;
};

/* Puts the nodes in order, parents first: a walk without recursion, which a hostile depth could
 * exhaust. */
static void order_tree(struct process_tree *t, const struct process_node *old,
		       const struct links *l, uint32_t root)
{
	uint32_t index = root, depth = 0;

	while (index != PROCESS_NONE) {
		l->place[index] = (uint32_t)t->n;
		t->all[t->n] = old[index];
		t->all[t->n].depth = depth;
		t->all[t->n].all = old[index].own;
		if (depth)
			t->all[t->n].parent = l->place[old[index].parent];
		t->n++;
		if (l->child[index] != PROCESS_NONE) {
			index = l->child[index];
			depth++;
			continue;
		}
		while (index != root && l->next[index] == PROCESS_NONE) {
			index = old[index].parent;
			depth--;
		}
		index = index == root ? PROCESS_NONE : l->next[index];
	}
}

int process_tree__finish(struct process_tree *t)
{
	size_t n = t->n;
	uint32_t *buf = calloc(n + 1, 4 * sizeof(*buf));
	struct process_node *old = calloc(n + 1, sizeof(*old));
	struct links links = { buf, buf + n, buf + 2 * n, buf + 3 * n };

	if (!buf || !old) {
		free(buf);
		free(old);
		return -ENOMEM;
	}
	if (n)
		memcpy(old, t->all, n * sizeof(*old));
	for (uint32_t i = 0; i < n; i++) {
		links.order[i] = i;
		links.child[i] = links.next[i] = PROCESS_NONE;
	}
	qsort_r(links.order, n, sizeof(*links.order), cmp_start, old);
	for (size_t i = n; i--;) { /* from the last one on, so that lists are in order */
		uint32_t at = links.order[i], above = old[at].parent;

		if (above == PROCESS_NONE)
			continue;
		links.next[at] = links.child[above];
		links.child[above] = at;
	}
	t->n = t->roots = 0;
	for (size_t i = 0; i < n; i++)
		if (old[links.order[i]].parent == PROCESS_NONE) {
			order_tree(t, old, &links, links.order[i]);
			t->roots++;
		}
	for (size_t i = t->n; i--;)
		if (t->all[i].parent != PROCESS_NONE)
			t->all[t->all[i].parent].all += t->all[i].all;
	free(buf);
	free(old);
	return 0;
}

void process_tree__json(struct json *j, const struct process_tree *t)
{
	json__open_array(j, "processes");
	for (size_t i = 0; i < t->n; i++) {
		const struct process_node *node = &t->all[i];
		bool root = node->parent == PROCESS_NONE, none = node->recording == PROCESS_NONE;

		json__open_object(j, NULL);
		json__uint(j, "pid", node->id.pid);
		json__uint_or_null(j, "parent", !root, node->parent);
		json__uint_or_null(j, "recording", !none, node->recording);
		json__string(j, "name", node->name);
		json__string(j, "command", *node->id.title ? node->id.title : NULL);
		json__uint_or_null(j, "allocated", !none, node->own);
		json__uint(j, "allocated_with_children", node->all);
		json__close_object(j);
	}
	json__close_array(j);
}
