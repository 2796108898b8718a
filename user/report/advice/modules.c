/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Groups of repeated modules: modules whose name is a number, as in nn.ModuleList and nn.Sequential
 * ("blocks.3"). A group has one class and one number of numeric name parts: "layer1.0" and
 * "layer4.2" are both a Bottleneck.
 */
#include "report/advice/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define LEVELS 2
#define GROUPS 32
#define INSTANCES 65536
#define PATTERN_MAX 200

struct named {
	const char *root, *name;
	uint32_t module;
};

struct search {
	const struct dict *d;
	struct instances *s;
	struct named *by_name;
	uint32_t n;
	/* Name of an instance. */
	struct prefix {
		const char *root, *name;
		size_t len;
		uint32_t instance;
		/* Latest instance per level. Modules come in order of their names, so those of one
		 * instance are adjacent. */
	} last[LEVELS];
	size_t capall, capgroups;
};

static int cmp_named(const void *x, const void *y)
{
	const struct named *a = x, *b = y;
	int c = strcmp(a->root, b->root);

	return c ? c : strcmp(a->name, b->name);
}

/* Length of the part of name up to its level-th number; 0: too few numbers. */
static size_t prefix_length(const char *name, uint32_t level)
{
	const char *p = name;

	for (;;) {
		size_t n = strcspn(p, ".");
		size_t digits = strspn(p, "0123456789");

		if (n && digits == n && !level--)
			return (size_t)(p + n - name);
		if (!p[n])
			return 0;
		p += n + 1;
	}
}

/* Returns the module of that name; 0: not in the recording. */
static uint32_t module_named(const struct search *s, const char *root, const char *name, size_t len)
{
	size_t lo = 0, hi = s->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = strcmp(s->by_name[mid].root, root);

		if (!c)
			c = strncmp(s->by_name[mid].name, name, len);
		if (!c && s->by_name[mid].name[len])
			c = 1;
		if (!c)
			return s->by_name[mid].module;
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return 0;
}

/* Makes "blocks.*" from "blocks.3". NULL if memory is short. */
static char *pattern_of(const char *name, size_t len)
{
	char *p = malloc(len + 1), *out = p;
	size_t i = 0;

	while (p && i < len) {
		size_t n = strcspn(name + i, ".");
		size_t digits = strspn(name + i, "0123456789");

		if (n > len - i)
			n = len - i;
		if (digits == n && n) {
			*out++ = '*';
		} else {
			memcpy(out, name + i, n);
			out += n;
		}
		i += n;
		if (i < len) {
			*out++ = '.';
			i++;
		}
	}
	if (p)
		*out = '\0';
	return p;
}

/* Adds a name's pattern to those of the group ("layer1.*, layer2.*") while the list is short. */
static int add_pattern(struct instance_group *g, const char *name, size_t len)
{
	char *one = pattern_of(name, len), *all;

	if (!one)
		return -ENOMEM;
	if (!g->pattern) {
		g->pattern = one;
		return 0;
	}
	if (strstr(g->pattern, one) || strlen(g->pattern) + strlen(one) > PATTERN_MAX) {
		free(one);
		return 0;
	}
	if (asprintf(&all, "%s, %s", g->pattern, one) < 0)
		all = NULL;
	free(one);
	if (!all)
		return -ENOMEM;
	free(g->pattern);
	g->pattern = all;
	return 0;
}

/* Returns UINT32_MAX if the table is full, or with -ENOMEM in *err. */
static uint32_t group_of(struct search *s, const char *cls, uint32_t level, const char *name,
			 size_t len, int *err)
{
	struct instances *r = s->s;
	uint32_t i;

	for (i = 0; i < r->ngroups; i++)
		if (r->groups[i].level == level && !strcmp(r->groups[i].cls, cls))
			break;
	if (i == GROUPS)
		return UINT32_MAX;
	if (i == r->ngroups) {
		*err = array__grow(&r->groups, &s->capgroups, (size_t)i + 1, sizeof(*r->groups));
		if (*err)
			return UINT32_MAX;
		r->groups[r->ngroups++] = (struct instance_group){ .cls = cls, .level = level };
	}
	*err = add_pattern(&r->groups[i], name, len);
	r->groups[i].n++;
	return i;
}

/* Finds or adds the instance named by the first len characters of a module's name. *ret: its number
 * from 1, or 0: none. Returns 0 or -ENOMEM. */
static int instance_of(struct search *s, const struct named *m, size_t len, uint32_t level,
		       uint32_t *ret)
{
	struct instances *r = s->s;
	struct prefix *last = &s->last[level];
	uint32_t module, group;
	int err = 0;

	*ret = 0;
	if (last->instance && last->len == len && !strncmp(last->name, m->name, len) &&
	    !strcmp(last->root, m->root)) {
		*ret = last->instance;
		return 0;
	}
	module = module_named(s, m->root, m->name, len);
	if (!module || r->n >= INSTANCES)
		return 0;
	group = group_of(s, dict__str(s->d, dict__get_module(s->d, module).cls), level, m->name,
			 len, &err);
	if (err || group == UINT32_MAX)
		return err;
	if (array__grow(&r->all, &s->capall, (size_t)r->n + 1, sizeof(*r->all)))
		return -ENOMEM;
	r->all[r->n++] = (struct instance){ .module = module, .group = group };
	*ret = r->n;
	*last = (struct prefix){ m->root, m->name, len, r->n };
	return 0;
}

int instances__find(const struct dict *d, struct instances *ret)
{
	struct search s = { .d = d, .s = ret };
	int err = -ENOMEM;

	*ret = (struct instances){ .nmodules = dict__counts(d).modules, .levels = LEVELS };
	ret->no_of = calloc((size_t)LEVELS * (ret->nmodules + 1), sizeof(*ret->no_of));
	s.by_name = calloc((size_t)ret->nmodules + 1, sizeof(*s.by_name));
	if (!ret->no_of || !s.by_name)
		goto out;
	for (uint32_t i = 1; i < ret->nmodules; i++) {
		struct dict_module m = dict__get_module(d, i);

		s.by_name[s.n++] = (struct named){ dict__str(d, m.root), dict__str(d, m.name), i };
	}
	qsort(s.by_name, s.n, sizeof(*s.by_name), cmp_named);
	for (uint32_t i = 0; i < s.n; i++)
		for (uint32_t level = 0; level < LEVELS; level++) {
			const struct named *m = &s.by_name[i];
			size_t len = prefix_length(m->name, level);

			if (!len)
				continue;
			err = instance_of(&s, m, len, level,
					  &ret->no_of[(size_t)level * ret->nmodules + m->module]);
			if (err)
				goto out;
		}
	err = 0;
out:
	free(s.by_name);
	return err;
}

void instances__free(struct instances *s)
{
	free(s->no_of);
	free(s->all);
	for (uint32_t i = 0; i < s->ngroups; i++)
		free(s->groups[i].pattern);
	free(s->groups);
}
