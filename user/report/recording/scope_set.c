/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/recording/scope_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/json.h"
#include "record/stream.h"

int scope_set__init(struct scope_set *s)
{
	*s = (struct scope_set){ .names = strings__new(), .ids = strings__new() };
	return s->names && s->ids ? 0 : -ENOMEM;
}

void scope_set__drop(struct scope_set *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->all[i].cells);
	free(s->all);
	strings__free(s->names);
	strings__free(s->ids);
	*s = (struct scope_set){ 0 };
}

/* Finds or adds the entry of a scope. Returns 0 or -ENOMEM. */
static int find_entry(struct scope_set *s, const struct model_scope *scope,
		      struct scope_entry **ret)
{
	struct scope_id {
		const char *name;
		uint64_t source;
	} id = { scope->path, scope->source };
	struct scope_entry *e;
	uint32_t number;

	if (strings__keep(s->names, &id.name) ||
	    strings__number(s->ids, &id, sizeof(id), &number) ||
	    array__grow_zero(&s->all, &s->cap, (size_t)number + 1, sizeof(*s->all)))
		return -ENOMEM;
	e = *ret = &s->all[number];
	if (number < s->n)
		return 0;
	*e = (struct scope_entry){ .name = id.name, .source = scope->source };
	s->n++;
	return 0;
}

static void read_cell(struct scope_cell *c, const struct model *m, size_t scope, size_t device)
{
	struct model_scope_medians medians;
	struct model_scope_level l = { 0 };
	struct model_scope s;

	model__scope(m, scope, &s);
	*c = (struct scope_cell){ .runs = s.runs,
				  .time = s.time,
				  .median_time = model__scope_median_time(m, scope) };
	c->level_known = model__scope_highest(m, scope, device, &l) ||
			 model__scope_idle(m, scope, device, &l);
	c->start_known = c->level_known && l.start_known;
	c->start = l.start;
	c->peak = l.peak;
	c->reserved = l.peak_reserved;
	model__scope_medians(m, scope, device, &medians);
	c->kept_known = medians.kept_known;
	c->kept = medians.kept;
}

int scope_set__add(struct scope_set *s, size_t recording, const struct model *m, size_t device)
{
	struct model_scope scope;
	struct scope_entry *e;
	struct scope_cell cell;

	for (size_t i = 0; i < model__scopes(m); i++) {
		model__scope(m, i, &scope);
		if (!scope.runs)
			continue;
		if (find_entry(s, &scope, &e) ||
		    array__grow_zero(&e->cells, &e->ncells, recording + 1, sizeof(*e->cells)))
			return -ENOMEM;
		read_cell(&cell, m, i, device);
		/* Two deep scopes may have one name, whose outer part is cut. */
		if (!e->cells[recording].runs || cell.peak > e->cells[recording].peak)
			e->cells[recording] = cell;
		e->peak = cell.peak > e->peak ? cell.peak : e->peak;
	}
	return 0;
}

static int by_peak(const void *a, const void *b)
{
	const struct scope_entry *x = a, *y = b;

	if (x->peak != y->peak)
		return x->peak > y->peak ? -1 : 1;
	return strcmp(x->name, y->name);
}

void scope_set__sort(struct scope_set *s)
{
	if (s->n)
		qsort(s->all, s->n, sizeof(*s->all), by_peak);
}

void scope_cell__put(struct json *j, const struct scope_cell *c)
{
	json__uint(j, "runs", c->runs);
	json__seconds(j, "time", c->time, /*decimals=*/9);
	json__seconds(j, "median_time", c->median_time, /*decimals=*/9);
	json__uint_or_null(j, "start", c->start_known, c->start);
	json__uint_or_null(j, "peak_allocated", c->level_known, c->peak);
	json__uint_or_null(j, "peak_reserved", c->reserved, c->reserved);
	json__uint_or_null(j, "median_kept", c->kept_known, c->kept);
}

void scope_cell__json(struct json *j, const char *key, const struct scope_cell *c)
{
	if (!c->runs) {
		json__null(j, key);
		return;
	}
	json__open_object(j, key);
	scope_cell__put(j, c);
	json__close_object(j);
}
