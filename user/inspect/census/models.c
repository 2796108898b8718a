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

int census__add_model(struct reading *reading, const struct nntree *tree, bool graph, uint32_t *ret)
{
	struct model_root model = { .root = tree->nodes[0].addr, .type = nntree__type(tree, 0) };
	int err = reading__add_text(reading, nntree__root_class(tree), &model.cls);
	uint64_t known;

	/* The first model that has a module is its root. */
	for (size_t i = 1; !err && !graph && i < tree->n; i++)
		if (!map64__get(reading->module_roots, tree->nodes[i].addr, &known))
			err = map64__set(reading->module_roots, tree->nodes[i].addr, model.root);
	if (err)
		return err;
	err = array__grow(&reading->models, &reading->capmodels, reading->nmodels + 1,
			  sizeof(model))
		      ?: map64__set(reading->model_at, model.root, reading->nmodels);
	if (err)
		return err;
	model.first_alike = reading->nmodels;
	reading->models[reading->nmodels++] = model;
	*ret = reading->nmodels;
	return 0;
}

/* first_models: hash of a name -> index of the first model that has it. */
int census__find_alike(struct reading *reading)
{
	struct map64 *first_models = map64__new();
	struct hash_seed seed = hash__seed();
	int err = first_models ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < reading->nnamed; i++) {
		const struct label *label = &reading->named[i].label;
		const char *name = reading->text + label->name;
		struct model_root *model = label->model_no ? &reading->models[label->model_no - 1]
							   : NULL;
		uint64_t hash, first_model;

		if (!model)
			continue;
		hash = hash__bytes(seed, name, strlen(name));
		if (!map64__get(first_models, hash, &first_model))
			err = map64__set(first_models, hash, label->model_no - 1);
		else if (first_model < model->first_alike)
			model->first_alike = first_model;
		model->has_tensors = true;
	}
	map64__free(first_models);
	return err;
}

int census__reach_models(struct reading *reading, struct census_owners *owners)
{
	char path[CENSUS_NAME_ROOM];
	size_t n_paths = 0;
	int err = 0;

	for (size_t i = 0; !err && i < reading->nmodels && n_paths < PATHS_MAX; i++) {
		struct model_root *model = &reading->models[i];
		const uint32_t *owned = model->has_tensors
						? census_owners__find(owners, model->root)
						: NULL;

		/* Both searches have to find the model at the same place. */
		if (!owned || !(*owned & OWNED_SAME))
			continue;
		census_owners__say(owners, census_owners__place(owners, *owned), path,
				   sizeof(path));
		err = reading__add_text(reading, path, &model->path);
		n_paths++;
	}
	reading->models_reached = true;
	return err;
}

/* ---- fronts ---- */

/* NULL: the model has no front so far. */
static struct front *find_front(const struct census *census, const struct model_root *model)
{
	for (size_t i = 0; i < census->nfronts; i++)
		if (census->fronts[i].root == model->root && census->fronts[i].type == model->type)
			return &census->fronts[i];
	return NULL;
}

/* The variable in a path: "best[*]" of "global best[*]", "net" of "local net in main (a.py:3)". */
static char *variable_of(const char *path)
{
	const char *end;

	if (text__starts(path, "global "))
		return strdup(path + 7);
	if (!text__starts(path, "local "))
		return strdup(path);
	path += 6;
	end = strstr(path, " in ");
	return strndup(path, end ? (size_t)(end - path) : strlen(path));
}

/* Keeps the variable in a path as the front of the model's names ("net" of "net.fc.weight"), unless
 * the model has one. */
static int keep_front(struct census *census, const struct model_root *model, const char *path)
{
	struct front front = { .root = model->root, .type = model->type };
	int err;

	if (census->nfronts >= FRONTS_MAX || find_front(census, model))
		return 0;
	err = array__grow(&census->fronts, &census->capfronts, census->nfronts + 1, sizeof(front));
	front.text = err ? NULL : variable_of(path);
	if (!front.text)
		return -ENOMEM;
	census->fronts[census->nfronts++] = front;
	return 0;
}

/* Drops the fronts of models that are gone. */
static void drop_fronts(struct reading *reading)
{
	struct census *census = reading->census;
	size_t n_kept = 0;
	uint64_t i;

	for (size_t k = 0; k < census->nfronts; k++) {
		if (map64__get(reading->model_at, census->fronts[k].root, &i) &&
		    reading->models[i].type == census->fronts[k].type)
			census->fronts[n_kept++] = census->fronts[k];
		else
			free(census->fronts[k].text);
	}
	census->nfronts = n_kept;
}

/* Gives a front to each model that a variable leads to, if another such model has the same first
 * alike model. alike: number of these, by the index of that model. 0 or -ENOMEM. */
static int choose_fronts(struct reading *reading)
{
	uint32_t *alike = calloc(reading->nmodels + 1, sizeof(*alike));
	int err = alike ? 0 : -ENOMEM;

	if (!reading->torn)
		drop_fronts(reading);
	for (size_t i = 0; !err && i < reading->nmodels; i++)
		alike[reading->models[i].first_alike] += reading->models[i].path != 0;
	for (size_t i = 0; !err && i < reading->nmodels; i++) {
		const struct model_root *model = &reading->models[i];

		if (model->path && alike[model->first_alike] > 1)
			err = keep_front(reading->census, model, reading->text + model->path);
	}
	free(alike);
	return err;
}

/* Sets the fronts of this reading's models to those that were kept. */
static int set_fronts(struct reading *reading)
{
	int err = 0;

	for (size_t i = 0; !err && i < reading->census->nfronts; i++) {
		uint64_t k;

		if (map64__get(reading->model_at, reading->census->fronts[i].root, &k) &&
		    reading->models[k].type == reading->census->fronts[i].type)
			err = reading__add_text(reading, reading->census->fronts[i].text,
						&reading->models[k].front);
	}
	return err;
}

/* Puts the front before the name that begins at `at` in a text. */
static int put_front(struct reading *reading, const char *front, uint32_t at, uint32_t *text)
{
	const char *old = reading->text + *text;
	char name[CENSUS_NAME_ROOM];

	if (at > strlen(old))
		return 0;
	snprintf(name, sizeof(name), "%.*s%s%s%s", (int)at, old, front, old[at] ? "." : "",
		 old + at);
	return reading__add_text(reading, name, text);
}

/* Puts the fronts of models into the names of their tensors and modules. */
int census__front_names(struct reading *reading, struct census_list *list)
{
	struct map64 *modules = map64__new(); /* text of a module -> the same with its front */
	char *front = NULL;
	uint64_t known;
	int err;

	if (!modules)
		return -ENOMEM;
	err = choose_fronts(reading) ?: set_fronts(reading);
	for (size_t i = 0; !err && reading->census->nfronts && i < list->n; i++) {
		/* Tensors that share a label have no model. */
		struct label *label = &list->labels[list->v[i].label];
		const struct model_root *model = label->model_no
							 ? &reading->models[label->model_no - 1]
							 : NULL;

		if (!model || !model->front || !label->name)
			continue;
		free(front);
		front = strdup(reading->text + model->front); /* texts move */
		if (!front) {
			err = -ENOMEM;
			break;
		}
		err = put_front(reading, front, label->front_at, &label->name);
		/* not in a module */
		if (err || !label->cls)
			continue;
		if (!label->module) {
			label->module = model->front;
		} else if (map64__get(modules, label->module, &known)) {
			label->module = (uint32_t)known;
		} else {
			uint32_t was = label->module;

			err = put_front(reading, front, 0, &label->module)
				      ?: map64__set(modules, was, label->module);
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

/* Reads whether the garbage collector is on. */
static enum census_gc read_gc(struct reading *reading)
{
	uint32_t enabled;

	if (!reading->census->gc.enabled ||
	    proc__read(reading->census->proc, reading->census->gc.enabled, &enabled,
		       sizeof(enabled)) ||
	    enabled > 1)
		return CENSUS_GC_UNKNOWN;
	return enabled ? CENSUS_GC_ON : CENSUS_GC_OFF;
}

/* Copies the fronts of this reading's models to the result. */
static int take_fronts(const struct reading *reading, struct census_state *state)
{
	state->fronts = calloc(reading->census->nfronts + 1, sizeof(*state->fronts));
	if (!state->fronts)
		return -ENOMEM;
	for (size_t i = 0; i < reading->nmodels && state->nfronts < reading->census->nfronts; i++)
		if (reading->models[i].front)
			state->fronts[state->nfronts++] = (struct census_front){
				.root = reading->models[i].root,
				.type = reading->models[i].type,
				.text = reading->text + reading->models[i].front
			};
	return 0;
}

/* Combines the models with the same class and path. */
int census__take_models(struct reading *reading, struct census_state *state)
{
	struct census_model *models = calloc(reading->nmodels + 1, sizeof(*models));
	size_t n = 0, n_combined = 0;

	if (!models)
		return -ENOMEM;
	for (size_t i = 0; i < reading->nmodels; i++) {
		const struct model_root *model = &reading->models[i];

		if (model->bytes)
			models[n++] = (struct census_model){ .cls = reading->text + model->cls,
							     .held_by = reading->text + model->path,
							     .count = 1,
							     .bytes = model->bytes,
							     .least = model->bytes,
							     .most = model->bytes };
	}
	qsort(models, n, sizeof(*models), by_class_and_path);
	for (size_t i = 0; i < n; i++) {
		struct census_model *to = n_combined ? &models[n_combined - 1] : NULL;

		if (!to || by_class_and_path(to, &models[i])) {
			models[n_combined++] = models[i];
			continue;
		}
		to->count++;
		to->bytes += models[i].bytes;
		to->least = models[i].least < to->least ? models[i].least : to->least;
		to->most = models[i].most > to->most ? models[i].most : to->most;
	}
	qsort(models, n_combined, sizeof(*models), by_bytes);
	state->models = models;
	state->nmodels = n_combined;
	state->models_reached = reading->models_reached;
	state->gc = read_gc(reading);
	return take_fronts(reading, state);
}

char *census_model__say(const struct census_state *state, const struct census_model *model,
			char *buf, size_t size)
{
	static const char *const garbage[] = {
		[CENSUS_GC_UNKNOWN] = "no variable leads to them",
		[CENSUS_GC_ON] = "no variable leads to them; reference cycles stay until the "
				 "garbage collector runs",
		[CENSUS_GC_OFF] = "no variable leads to them; reference cycles stay, because the "
				  "garbage collector is off",
	};
	const char *holder = state->holders_cut ? "the holder is not known" : garbage[state->gc];
	const char *each = model->count == 1 ? "" : " each";
	char count[32], sizes[64], most[24], cls[256], held[512];

	text__counted(count, sizeof(count), model->count, "model");
	text__clean(cls, sizeof(cls), model->cls, strlen(model->cls));
	text__clean(held, sizeof(held), model->held_by, strlen(model->held_by));
	text__bytes(sizes, sizeof(sizes), model->least);
	if (model->least != model->most) {
		strcat(sizes, " to ");
		strcat(sizes, text__bytes(most, sizeof(most), model->most));
	}
	snprintf(buf, size, "%s of class %s, %s%s: %s%s", count, cls, sizes, each,
		 *held ? "held by " : holder, held);
	return buf;
}
