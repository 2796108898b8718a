/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The table: sites of a device put together by line, stack, module ... */
#include "model/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct bucket {
	uint64_t key[3];
	struct row row;
	uint64_t largest; /* bytes of the largest part so far */
	size_t pattern;	  /* 1 + place in the table's patterns; 0: the row's own module will do */
	uint64_t asked;	  /* blocks of which it is known what was asked for */
};

struct site_ask { /* of a site's blocks */
	uint64_t requested, blocks;
};

struct part { /* blocks of one size and module in a group */
	uint64_t size, count;
	uint32_t group, module;
};

struct table {
	struct model *m;
	const struct row_opts *opts;
	struct bucket *groups;
	uint32_t n, cap;
	struct part *parts;
	uint32_t nparts, capparts;
	struct hidx index;
	char *patterns; /* of modules, one behind the other; groups know their places */
	size_t npatterns, cappatterns;
};

static const char *row__source(uint8_t walk, bool has_line)
{
	if (has_line)
		return "frame";
	return walk == MT_WALK_NO_THREAD ? "native" : "untraced";
}

static void row__set_line(const struct model *m, bool innermost, uint32_t stack, struct row *r)
{
	struct row_frame f;

	if (model__stack_line(m, stack, innermost, &f)) {
		r->file = f.file;
		r->func = f.func;
		r->line = f.line;
	}
}

static void row__set_module(const struct model *m, uint32_t module, struct row *r)
{
	struct dict_module mod = dict__get_module(m->dict, module);

	r->module = dict__str(m->dict, mod.name);
	r->module_class = dict__str(m->dict, mod.cls);
	r->module_root = dict__str(m->dict, mod.root);
}

static void row__set_before_attach(struct row *r)
{
	r->before_attach = true;
	r->module = r->module_class = r->module_root = "";
	r->phase = PHASE_OTHER;
	r->source = "census";
}

void row__line(const struct model *m, bool innermost, uint32_t stack, uint32_t thread, uint8_t walk, struct row *r)
{
	struct stack_words w;

	*r = (struct row){ .stack = stack, .category = "unknown" };
	if (walk == WALK_CENSUS) {
		row__set_before_attach(r);
		return;
	}
	w = words__stack(m->words, stack);
	r->phase = words__phase(m->words, stack, thread, walk);
	r->source = row__source(walk, w.has_line);
	row__set_line(m, innermost, stack, r);
	row__set_module(m, w.module, r);
	r->modules = w.module != 0;
}

static void bucket__set_thread(const struct table *t, struct row *r, uint32_t thread)
{
	struct dict_thread th = dict__get_thread(t->m->dict, thread);

	r->thread = dict__str(t->m->dict, th.name);
	r->tid = th.tid;
}

static void bucket__set_layer(const struct table *t, struct row *r, uint32_t layer)
{
	const struct layer *l;

	if (layer == UINT32_MAX) /* outside of any module */
		return;
	l = &t->m->layers.all[layer];
	r->module = l->name;
	r->module_class = dict__str(t->m->dict, l->cls);
	r->module_root = dict__str(t->m->dict, l->root);
}

/* The words of a group, from the largest of its parts. */
static void bucket__describe(struct table *t, struct row *r, const struct site *s, uint32_t layer)
{
	struct stack_words w = words__stack(t->m->words, s->stack);

	r->stack = s->stack;
	if (s->walk == WALK_CENSUS) {
		row__set_before_attach(r);
		return;
	}
	r->phase = words__phase(t->m->words, s->stack, s->thread, s->walk);
	r->source = row__source(s->walk, w.has_line);
	r->module = r->module_class = r->module_root = "";
	switch (t->opts->by) {
	case BY_STACK:
		bucket__set_thread(t, r, s->thread);
		/* fall through */
	case BY_LINE:
		row__set_line(t->m, t->opts->innermost, s->stack, r);
		row__set_module(t->m, s->module, r);
		break;
	case BY_MODULE:
		row__set_module(t->m, s->module, r);
		break;
	case BY_LAYER:
		bucket__set_layer(t, r, layer);
		break;
	case BY_THREAD:
		bucket__set_thread(t, r, s->thread);
		break;
	case BY_PHASE:
	case BY_NR:
		break;
	}
}

static void site__key(struct table *t, const struct site *s, uint32_t layer, uint64_t key[3])
{
	struct words *w = t->m->words;
	struct stack_words sw = words__stack(w, s->stack);
	struct dict_loc loc = dict__get_loc(t->m->dict, t->opts->innermost ? sw.inner_loc : sw.user_loc);
	uint64_t phase = words__phase(w, s->stack, s->thread, s->walk);
	bool native = !sw.has_line && s->walk == MT_WALK_NO_THREAD;

	key[0] = key[1] = key[2] = 0;
	if (s->walk == WALK_CENSUS) { /* one row for all, whatever the group */
		key[0] = key[1] = key[2] = UINT64_MAX;
		return;
	}
	switch (t->opts->by) {
	case BY_LINE:
		key[0] = (uint64_t)loc.file << 32 | loc.func;
		key[1] = (uint64_t)loc.line << 32 | (t->opts->any_module ? 0 : s->module);
		key[2] = (t->opts->any_phase ? 0 : phase << 2) | (uint64_t)sw.has_line << 1 | native;
		break;
	case BY_STACK:
		key[0] = s->stack;
		key[1] = phase << 8 | (s->stack ? 0 : s->walk);
		break;
	case BY_MODULE:
		key[0] = s->module;
		break;
	case BY_LAYER:
		key[0] = layer;
		break;
	case BY_PHASE:
		key[0] = phase;
		break;
	case BY_THREAD:
		key[0] = s->thread;
		break;
	case BY_NR:
		break;
	}
}

static int table__group(struct table *t, const uint64_t key[3], uint32_t *ret)
{
	uint32_t hash = hash__bytes(t->m->seed, key, 3 * sizeof(*key)), pos = hash, id;

	while ((id = hidx__next(&t->index, hash, &pos)) != UINT32_MAX) {
		if (!memcmp(t->groups[id].key, key, 3 * sizeof(*key))) {
			*ret = id;
			return 0;
		}
	}
	if (array__reserve(&t->groups, &t->cap, sizeof(*t->groups), (uint64_t)t->n + 1) ||
	    hidx__add(&t->index, hash, t->n))
		return -ENOMEM;
	memset(&t->groups[t->n], 0, sizeof(*t->groups));
	memcpy(t->groups[t->n].key, key, 3 * sizeof(*key));
	*ret = t->n++;
	return 0;
}

static int table__add(struct table *t, const struct site *s, uint64_t count, const struct site_ask *ask, uint32_t layer)
{
	uint64_t key[3], bytes = s->size * count;
	struct bucket *g;
	uint32_t id;

	site__key(t, s, layer, key);
	if (table__group(t, key, &id) ||
	    array__reserve(&t->parts, &t->capparts, sizeof(*t->parts), (uint64_t)t->nparts + 1))
		return -ENOMEM;
	g = &t->groups[id];
	if (!g->row.count || bytes > g->largest) {
		bucket__describe(t, &g->row, s, layer);
		g->largest = bytes;
	}
	g->row.bytes += bytes;
	g->row.count += count;
	g->row.requested += ask ? ask->requested : 0;
	g->asked += ask ? ask->blocks : 0;
	t->parts[t->nparts++] = (struct part){ .size = s->size, .count = count, .group = id, .module = s->module };
	return 0;
}

static int table__add_site(struct table *t, const struct site *s, uint64_t count, const struct site_ask *ask)
{
	struct chain c;
	int err;

	if (t->opts->by != BY_LAYER || s->walk == WALK_CENSUS)
		return table__add(t, s, count, ask, UINT32_MAX);
	err = layers__chain(t->m, s->module, &c);
	if (!err && !c.n)
		err = table__add(t, s, count, ask, UINT32_MAX);
	for (uint32_t i = 0; i < c.n && !err; i++)
		err = table__add(t, s, count, ask, t->m->layers.pool[c.off + i]);
	return err;
}

/* What was asked for, by site: a sum over the blocks there are or were at the mark. NULL in *ret: of none it is known. */
static int site__asks(const struct model *m, const struct dev *dev, enum row_when when, struct site_ask **ret)
{
	struct site_ask *asks;
	struct block *blocks;
	size_t n;
	int err;

	*ret = NULL;
	if (!dev->asked || when == ROWS_TOTAL || dev->pub.device.type == DEVICE_CPU)
		return 0;
	asks = calloc(m->nsites + 1, sizeof(*asks));
	if (!asks)
		return -ENOMEM;
	err = blocks__list(dev, when == ROWS_AT_MARK, &blocks, &n);
	if (err) {
		free(asks);
		return err;
	}
	for (size_t i = 0; i < n; i++) {
		uint32_t ask1 = block__ask1(blocks[i].value);
		struct site_ask *a = &asks[block__site(blocks[i].value)];

		a->requested += ask1 ? m->asks[ask1 - 1].requested : 0;
		a->blocks += ask1 != 0;
	}
	free(blocks);
	*ret = asks;
	return 0;
}

static uint64_t site__count(const struct site *s, const struct dev *dev, enum row_when when)
{
	switch (when) {
	case ROWS_AT_MARK:
		return s->epoch == dev->epoch ? s->mark : s->live;
	case ROWS_NOW:
		return s->live;
	case ROWS_TOTAL:
		break;
	}
	return s->total;
}

static int cmp_part(const void *a, const void *b)
{
	const struct part *x = a, *y = b;

	if (x->group != y->group)
		return x->group < y->group ? -1 : 1;
	return x->size < y->size ? -1 : x->size > y->size;
}

static void table__medians(struct table *t)
{
	uint64_t seen = 0;

	if (t->nparts)
		qsort(t->parts, t->nparts, sizeof(*t->parts), cmp_part);
	for (uint32_t i = 0; i < t->nparts; i++) {
		const struct part *p = &t->parts[i];
		struct row *r = &t->groups[p->group].row;

		if (!i || p[-1].group != p->group)
			seen = 0;
		if (seen <= r->count / 2 && r->count / 2 < seen + p->count)
			r->median = p->size;
		seen += p->count;
	}
}

static int cmp_module(const void *a, const void *b)
{
	const struct part *x = a, *y = b;

	if (x->group != y->group)
		return x->group < y->group ? -1 : 1;
	return x->module < y->module ? -1 : x->module > y->module;
}

static size_t components(const char *s)
{
	size_t n = 1;

	for (; *s; s++)
		n += *s == '.';
	return n;
}

/*
 * Makes pattern cover name too: components that differ become "*"; names of different depth keep what they begin
 * with. pattern only ever gets shorter or gains a "*" in place of a component, so that its room suffices.
 */
static void pattern__cover(char *pattern, const char *name)
{
	bool same_depth = components(pattern) == components(name), more = true;
	char *out = pattern, *in = pattern;

	if (!*pattern) { /* the outermost module: "" has nothing in common with any other */
		strcpy(pattern, "*");
		return;
	}
	while (more) {
		size_t a = strcspn(in, "."), b = strcspn(name, ".");
		bool equal = a == b && !memcmp(in, name, a);

		more = in[a] && name[b];
		if (equal) {
			memmove(out, in, a);
			out += a;
		} else if (a) {
			*out++ = '*'; /* an empty component has no room for it, and no module's name has one */
		}
		if (!same_depth && (!equal || !more)) {
			if (equal) {
				*out++ = '.';
				*out++ = '*';
			}
			break;
		}
		in += a + more;
		name += b + more;
		if (more)
			*out++ = '.';
	}
	*out = '\0';
}

/* How many modules each group has, and what they have in common. */
static int table__modules(struct table *t)
{
	if (t->nparts)
		qsort(t->parts, t->nparts, sizeof(*t->parts), cmp_module);
	for (uint32_t i = 0; i < t->nparts; i++) {
		const struct part *p = &t->parts[i];
		struct bucket *g = &t->groups[p->group];
		const char *name = dict__str(t->m->dict, dict__get_module(t->m->dict, p->module).name);
		size_t len = strlen(name) + 4; /* an empty or short component may become "*", or gain ".*" */

		if (i && p[-1].group == p->group && p[-1].module == p->module)
			continue;
		g->row.modules += p->module != 0;
		if (g->row.modules == 1 && p->module) {
			if (t->npatterns + len > t->cappatterns) {
				size_t cap = (t->npatterns + len) * 2;
				char *v = realloc(t->patterns, cap);

				if (!v)
					return -ENOMEM;
				t->patterns = v;
				t->cappatterns = cap;
			}
			memcpy(t->patterns + t->npatterns, name, len - 3);
			g->pattern = t->npatterns + 1;
			t->npatterns += len;
		} else if (p->module) {
			pattern__cover(t->patterns + g->pattern - 1, name);
		}
	}
	return 0;
}

static int cmp_text(const char *a, const char *b)
{
	return strcmp(a ? a : "", b ? b : "");
}

/* Largest first; then by words, so that two captures of one program come out alike. */
static int cmp_row(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int c;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	c = cmp_text(x->file, y->file);
	if (!c && x->line != y->line)
		c = x->line < y->line ? -1 : 1;
	if (!c)
		c = cmp_text(x->func, y->func);
	if (!c)
		c = cmp_text(x->module, y->module);
	if (!c)
		c = cmp_text(x->module_class, y->module_class);
	if (!c)
		c = cmp_text(x->thread, y->thread);
	if (!c)
		c = (int)x->phase - (int)y->phase;
	if (!c && x->stack != y->stack)
		c = x->stack < y->stack ? -1 : 1;
	return c;
}

static int table__rows(struct table *t, uint64_t before, struct row **ret, size_t *n)
{
	struct row *rows = calloc(1, ((size_t)t->n + 1) * sizeof(*rows) + t->npatterns);
	uint64_t sum = 0;
	size_t nr = 0;
	char *text;

	if (!rows)
		return -ENOMEM;
	text = (char *)(rows + t->n + 1); /* one allocation, so that one free() does */
	if (t->npatterns)
		memcpy(text, t->patterns, t->npatterns);
	for (uint32_t i = 0; i < t->n; i++) {
		struct row *r = &rows[nr++];

		*r = t->groups[i].row;
		if (r->modules > 1 && t->opts->any_module)
			r->module = text + t->groups[i].pattern - 1;
		if (t->groups[i].asked != r->count || (r->before_attach && before))
			r->requested = 0;
		if (r->before_attach) {
			r->anonymous = before;
			r->bytes += before;
			before = 0;
		}
	}
	if (before) {
		rows[nr].bytes = rows[nr].anonymous = before;
		row__set_before_attach(&rows[nr++]);
	}
	qsort(rows, nr, sizeof(*rows), cmp_row);
	for (size_t i = 0; i < nr; i++) {
		sum += rows[i].bytes;
		rows[i].cumulative = sum;
		rows[i].category = "unknown";
	}
	*ret = rows;
	*n = nr;
	return 0;
}

int model__rows(const struct model *m, size_t device, const struct row_opts *opts, struct row **ret, size_t *n)
{
	struct table t = { .m = (struct model *)(uintptr_t)m, .opts = opts }; /* only caches are written to */
	struct site_ask *asks = NULL;
	uint64_t before = 0;
	const struct dev *dev;
	uint32_t number;
	int err = 0;

	if (device >= m->ndevs)
		return -ENOENT;
	number = m->order[device];
	dev = m->devs[number];
	if (opts->when == ROWS_AT_MARK && !dev->pub.marked)
		return -ENOENT;
	err = site__asks(m, dev, opts->when, &asks);
	for (uint32_t i = 0; i < m->nsites && !err; i++) {
		const struct site *s = &m->sites[i];
		uint64_t count = s->dev == number ? site__count(s, dev, opts->when) : 0;

		if (count)
			err = table__add_site(&t, s, count, asks ? &asks[i] : NULL);
	}
	if (opts->when == ROWS_AT_MARK)
		before = dev->mark_outside;
	else if (opts->when == ROWS_NOW)
		before = (int64_t)dev->outside > 0 ? dev->outside : 0;
	if (!err) {
		table__medians(&t);
		err = table__modules(&t);
	}
	if (!err) {
		err = table__rows(&t, before, ret, n);
	}
	free(asks);
	free(t.groups);
	free(t.parts);
	free(t.patterns);
	free(t.index.slots);
	return err;
}
