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

static uint64_t read_number(const json_t *o, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(o, key));

	return n > 0 ? (uint64_t)n : 0;
}

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
	size_t n;

	if (strncmp(title, "python", 6))
		return NULL;
	for (word += strcspn(word, " "); *word; word += n) {
		word += strspn(word, " ");
		n = strcspn(word, " ");
		if (n == 2 && (!strncmp(word, "-m", 2) || !strncmp(word, "-c", 2)))
			return NULL; /* the rest says more */
		if (*word != '-' && n)
			break;
	}
	if (!*word)
		return NULL;
	slash = memrchr(word, '/', n);
	*len = slash ? n - (size_t)(slash + 1 - word) : n;
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

static bool is_at(const struct process_tree *t, uint64_t i, const struct process_id *id)
{
	return t->all[i].id.pid == id->pid && t->all[i].id.started == id->started;
}

static uint32_t find_process(const struct process_tree *t, const struct process_id *id)
{
	uint64_t at;

	if (!map64__get(t->places, key_of(id), &at))
		return PROCESS_NONE;
	if (is_at(t, at, id))
		return (uint32_t)at;
	for (size_t i = 0; i < t->n; i++)
		if (is_at(t, i, id))
			return (uint32_t)i;
	return PROCESS_NONE;
}

/* Finds or adds a process. Returns its index; PROCESS_NONE: no memory. */
static uint32_t add_process(struct process_tree *t, const struct process_id *id)
{
	uint32_t at;

	t->places = t->places ? t->places : map64__new();
	if (!t->places)
		return PROCESS_NONE;
	at = find_process(t, id);
	if (at != PROCESS_NONE)
		return at;
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
	uint32_t at, above;

	if (!f->own.pid || !f->own.started)
		return 0;
	at = add_process(t, &f->own);
	if (at == PROCESS_NONE)
		return -ENOMEM;
	t->recordings++;
	t->all[at].own += bytes;
	/* A process has several recordings if it executes other programs. */
	if (t->all[at].recording == PROCESS_NONE) {
		t->all[at].recording = recording;
		t->all[at].id = f->own;
		process_id__name(&f->own, f->name, t->all[at].name);
	}
	for (size_t i = 0; i < f->n_ancestors; i++, at = above) {
		above = add_process(t, &f->ancestors[i]);
		if (above == PROCESS_NONE)
			return -ENOMEM;
		if (t->all[at].parent == PROCESS_NONE && !descends(t, above, at))
			t->all[at].parent = above;
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
	uint32_t at = root, depth = 0;

	while (at != PROCESS_NONE) {
		l->place[at] = (uint32_t)t->n;
		t->all[t->n] = old[at];
		t->all[t->n].depth = depth;
		t->all[t->n].all = old[at].own;
		if (depth)
			t->all[t->n].parent = l->place[old[at].parent];
		t->n++;
		if (l->child[at] != PROCESS_NONE) {
			at = l->child[at];
			depth++;
			continue;
		}
		while (at != root && l->next[at] == PROCESS_NONE) {
			at = old[at].parent;
			depth--;
		}
		at = at == root ? PROCESS_NONE : l->next[at];
	}
}

int process_tree__finish(struct process_tree *t)
{
	size_t n = t->n;
	uint32_t *v = calloc(n + 1, 4 * sizeof(*v));
	struct process_node *old = calloc(n + 1, sizeof(*old));
	struct links l = { v, v + n, v + 2 * n, v + 3 * n };

	if (!v || !old) {
		free(v);
		free(old);
		return -ENOMEM;
	}
	if (n)
		memcpy(old, t->all, n * sizeof(*old));
	for (uint32_t i = 0; i < n; i++) {
		l.order[i] = i;
		l.child[i] = l.next[i] = PROCESS_NONE;
	}
	qsort_r(l.order, n, sizeof(*l.order), cmp_start, old);
	for (size_t i = n; i--;) { /* from the last one on, so that lists are in order */
		uint32_t at = l.order[i], above = old[at].parent;

		if (above == PROCESS_NONE)
			continue;
		l.next[at] = l.child[above];
		l.child[above] = at;
	}
	t->n = t->roots = 0;
	for (size_t i = 0; i < n; i++)
		if (old[l.order[i]].parent == PROCESS_NONE) {
			order_tree(t, old, &l, l.order[i]);
			t->roots++;
		}
	for (size_t i = t->n; i--;)
		if (t->all[i].parent != PROCESS_NONE)
			t->all[t->all[i].parent].all += t->all[i].all;
	free(v);
	free(old);
	return 0;
}

void process_tree__json(struct json *j, const struct process_tree *t)
{
	json__open_array(j, "processes");
	for (size_t i = 0; i < t->n; i++) {
		const struct process_node *p = &t->all[i];
		bool root = p->parent == PROCESS_NONE, none = p->recording == PROCESS_NONE;

		json__open_object(j, NULL);
		json__uint(j, "pid", p->id.pid);
		json__uint_or_null(j, "parent", !root, p->parent);
		json__uint_or_null(j, "recording", !none, p->recording);
		json__string(j, "name", p->name);
		json__string(j, "command", *p->id.title ? p->id.title : NULL);
		json__uint_or_null(j, "allocated", !none, p->own);
		json__uint(j, "allocated_with_children", p->all);
		json__close_object(j);
	}
	json__close_array(j);
}
