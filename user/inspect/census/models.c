/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Models: trees of modules that have tensors, each with its root. If two models that variables lead
 * to have a name in common, each variable comes before the names of its model:
 * "teacher.body.0.weight". Later readings use the same text as long as the model exists, because
 * readings of named tensors alone do not search for variables.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map64.h"
#include "base/text.h"
#include "inspect/census/internal.h"
#include "inspect/census/owners.h"
#include "inspect/proc.h"
#include "inspect/torch/nntree.h"

#define FRONTS_MAX 4096u /* models whose front is kept from reading to reading */
#define PATHS_MAX 65536u /* models whose variable is named */

int census__add_model(struct reading *r, const struct nntree *t, bool graph, uint32_t *ret)
{
	struct model_root m = { .root = t->nodes[0].addr, .type = nntree__type(t, 0) };
	int err = reading__add_text(r, nntree__root_class(t), &m.cls);
	uint64_t known;

	for (size_t i = 1; !err && !graph && i < t->n; i++)
		if (!map64__get(r->module_roots, t->nodes[i].addr, &known))
			err = map64__set(r->module_roots, t->nodes[i].addr, m.root);
	if (err)
		return err;
	err = array__grow(&r->models, &r->capmodels, r->nmodels + 1, sizeof(m))
		      ?: map64__set(r->model_at, m.root, r->nmodels);
	if (err)
		return err;
	m.first_alike = r->nmodels;
	r->models[r->nmodels++] = m;
	*ret = r->nmodels;
	return 0;
}

/* first_models: hash of a name -> index of the first model that has it. */
int census__find_alike(struct reading *r)
{
	struct map64 *first_models = map64__new();
	struct hash_seed seed = hash__seed();
	int err = first_models ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < r->nnamed; i++) {
		const struct label *l = &r->named[i].label;
		const char *name = r->text + l->name;
		struct model_root *m = l->model_no ? &r->models[l->model_no - 1] : NULL;
		uint64_t hash, first_model;

		if (!m)
			continue;
		hash = hash__bytes(seed, name, strlen(name));
		if (!map64__get(first_models, hash, &first_model))
			err = map64__set(first_models, hash, l->model_no - 1);
		else if (first_model < m->first_alike)
			m->first_alike = first_model;
		m->has_tensors = true;
	}
	map64__free(first_models);
	return err;
}

int census__reach_models(struct reading *r, const struct census_owners *l)
{
	char path[CENSUS_NAME_ROOM];
	size_t n_paths = 0;
	int err = 0;

	for (size_t i = 0; !err && i < r->nmodels && n_paths < PATHS_MAX; i++) {
		struct model_root *m = &r->models[i];
		const struct owned *o = m->has_tensors ? census_owners__find(l, m->root) : NULL;

		if (!o || !(o->root & OWNED_SAME))
			continue;
		snprintf(path, sizeof(path), "%s%s", l->text + o->path,
			 l->roots[o->root & ROOT_MASK].suffix);
		err = reading__add_text(r, path, &m->path);
		n_paths++;
	}
	r->models_reached = true;
	return err;
}

/* ---- fronts ---- */

static struct front *find_front(const struct census *c, const struct model_root *m)
{
	for (size_t i = 0; i < c->nfronts; i++)
		if (c->fronts[i].root == m->root && c->fronts[i].type == m->type)
			return &c->fronts[i];
	return NULL;
}

/* The variable in a path: "best[*]" of "global best[*]", "net" of "local net in main (a.py:3)". */
static char *variable_of(const char *path)
{
	const char *end;

	if (!strncmp(path, "global ", 7))
		return strdup(path + 7);
	if (strncmp(path, "local ", 6) != 0)
		return strdup(path);
	path += 6;
	end = strstr(path, " in ");
	return strndup(path, end ? (size_t)(end - path) : strlen(path));
}

/* Keeps the variable in a path as the front of the model's names ("net" of "net.fc.weight"), unless
 * the model has one. */
static int keep_front(struct census *c, const struct model_root *m, const char *path)
{
	struct front f = { .root = m->root, .type = m->type };
	int err;

	if (c->nfronts >= FRONTS_MAX || find_front(c, m))
		return 0;
	err = array__grow(&c->fronts, &c->capfronts, c->nfronts + 1, sizeof(f));
	f.text = err ? NULL : variable_of(path);
	if (!f.text)
		return -ENOMEM;
	c->fronts[c->nfronts++] = f;
	return 0;
}

/* Drops the fronts of models that are gone. */
static void drop_fronts(struct reading *r)
{
	struct census *c = r->c;
	size_t n_kept = 0;
	uint64_t i;

	for (size_t k = 0; k < c->nfronts; k++) {
		if (map64__get(r->model_at, c->fronts[k].root, &i) &&
		    r->models[i].type == c->fronts[k].type)
			c->fronts[n_kept++] = c->fronts[k];
		else
			free(c->fronts[k].text);
	}
	c->nfronts = n_kept;
}

/* Gives a front to each model that a variable leads to, if another such model has the same first
 * alike model. alike: number of these, by the index of that model. 0 or -ENOMEM. */
static int choose_fronts(struct reading *r)
{
	uint32_t *alike = calloc(r->nmodels + 1, sizeof(*alike));
	int err = alike ? 0 : -ENOMEM;

	if (!r->torn)
		drop_fronts(r);
	for (size_t i = 0; !err && i < r->nmodels; i++)
		alike[r->models[i].first_alike] += r->models[i].path != 0;
	for (size_t i = 0; !err && i < r->nmodels; i++) {
		const struct model_root *m = &r->models[i];

		if (m->path && alike[m->first_alike] > 1)
			err = keep_front(r->c, m, r->text + m->path);
	}
	free(alike);
	return err;
}

/* Sets the fronts of this reading's models to those that were kept. */
static int set_fronts(struct reading *r)
{
	int err = 0;

	for (size_t i = 0; !err && i < r->c->nfronts; i++) {
		uint64_t k;

		if (map64__get(r->model_at, r->c->fronts[i].root, &k) &&
		    r->models[k].type == r->c->fronts[i].type)
			err = reading__add_text(r, r->c->fronts[i].text, &r->models[k].front);
	}
	return err;
}

/* Puts the front before the name that begins at `at` in a text. */
static int put_front(struct reading *r, const char *front, uint32_t at, uint32_t *text)
{
	const char *old = r->text + *text;
	char name[CENSUS_NAME_ROOM];

	if (at > strlen(old))
		return 0;
	snprintf(name, sizeof(name), "%.*s%s%s%s", (int)at, old, front, old[at] ? "." : "",
		 old + at);
	return reading__add_text(r, name, text);
}

/* Puts the fronts of models into the names of their tensors and modules. */
int census__front_names(struct reading *r, struct census_list *l)
{
	struct map64 *modules = map64__new(); /* text of a module -> the same with its front */
	char *front = NULL;
	uint64_t known;
	int err;

	if (!modules)
		return -ENOMEM;
	err = choose_fronts(r) ?: set_fronts(r);
	for (size_t i = 0; !err && r->c->nfronts && i < l->n; i++) {
		struct label *x = &l->labels[i];
		const struct model_root *m = x->model_no ? &r->models[x->model_no - 1] : NULL;

		if (!m || !m->front || !x->name)
			continue;
		free(front);
		front = strdup(r->text + m->front); /* texts move */
		if (!front) {
			err = -ENOMEM;
			break;
		}
		err = put_front(r, front, x->front_at, &x->name);
		if (err || !x->cls)
			continue;
		if (!x->module) {
			x->module = m->front;
		} else if (map64__get(modules, x->module, &known)) {
			x->module = (uint32_t)known;
		} else {
			uint32_t was = x->module;

			err = put_front(r, front, 0, &x->module)
				      ?: map64__set(modules, was, x->module);
		}
	}
	free(front);
	map64__free(modules);
	return err;
}

/* ---- result ---- */

static int by_class_and_path(const void *a, const void *b)
{
	const struct census_model *x = a, *y = b;
	int c = strcmp(x->cls, y->cls);

	return c ? c : strcmp(x->held_by, y->held_by);
}

static int by_bytes(const void *a, const void *b)
{
	const struct census_model *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return by_class_and_path(a, b);
}

static enum census_gc read_gc(struct reading *r)
{
	uint32_t enabled;

	if (!r->c->gc.enabled ||
	    proc__read(r->c->proc, r->c->gc.enabled, &enabled, sizeof(enabled)) || enabled > 1)
		return CENSUS_GC_UNKNOWN;
	return enabled ? CENSUS_GC_ON : CENSUS_GC_OFF;
}

/* Combines the models with the same class and path. */
int census__take_models(struct reading *r, struct census_state *s)
{
	struct census_model *v = calloc(r->nmodels + 1, sizeof(*v));
	size_t n = 0, n_combined = 0;

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < r->nmodels; i++) {
		const struct model_root *m = &r->models[i];

		if (m->bytes)
			v[n++] = (struct census_model){ .cls = r->text + m->cls,
							.held_by = r->text + m->path,
							.count = 1,
							.bytes = m->bytes,
							.least = m->bytes,
							.most = m->bytes };
	}
	qsort(v, n, sizeof(*v), by_class_and_path);
	for (size_t i = 0; i < n; i++) {
		struct census_model *to = n_combined ? &v[n_combined - 1] : NULL;

		if (!to || by_class_and_path(to, &v[i])) {
			v[n_combined++] = v[i];
			continue;
		}
		to->count++;
		to->bytes += v[i].bytes;
		to->least = v[i].least < to->least ? v[i].least : to->least;
		to->most = v[i].most > to->most ? v[i].most : to->most;
	}
	qsort(v, n_combined, sizeof(*v), by_bytes);
	s->models = v;
	s->nmodels = n_combined;
	s->models_reached = r->models_reached;
	s->gc = read_gc(r);
	s->fronts = calloc(r->c->nfronts + 1, sizeof(*s->fronts));
	for (size_t i = 0; s->fronts && i < r->nmodels && s->nfronts < r->c->nfronts; i++)
		if (r->models[i].front)
			s->fronts[s->nfronts++] = (struct census_front){
				.root = r->models[i].root,
				.type = r->models[i].type,
				.text = r->text + r->models[i].front
			};
	return s->fronts ? 0 : -ENOMEM;
}

char *census_model__say(const struct census_state *s, const struct census_model *m, char *buf,
			size_t size)
{
	static const char *const garbage[] = {
		[CENSUS_GC_UNKNOWN] = "no variable leads to them",
		[CENSUS_GC_ON] = "no variable leads to them; reference cycles stay until the "
				 "garbage collector runs",
		[CENSUS_GC_OFF] = "no variable leads to them; reference cycles stay, because the "
				  "garbage collector is off",
	};
	const char *holder = s->holders_cut ? "the holder is not known" : garbage[s->gc];
	const char *each = m->count == 1 ? "" : " each";
	char n[32], sizes[64], most[24], cls[256], held[512];

	text__counted(n, sizeof(n), m->count, "model");
	text__clean(cls, sizeof(cls), m->cls, strlen(m->cls));
	text__clean(held, sizeof(held), m->held_by, strlen(m->held_by));
	text__bytes(sizes, sizeof(sizes), m->least);
	if (m->least != m->most) {
		strcat(sizes, " to ");
		strcat(sizes, text__bytes(most, sizeof(most), m->most));
	}
	snprintf(buf, size, "%s of class %s, %s%s: %s%s", n, cls, sizes, each,
		 *held ? "held by " : holder, held);
	return buf;
}
