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

#define LEVELS 2	/* numeric parts of a name that count: "layers.0.experts.3" has two */
#define GROUPS 32	/* most groups */
#define INSTANCES 65536 /* most instances */
#define PATTERN_MAX 200 /* most characters of a group's patterns */

struct named {
	const char *root, *name;
	uint32_t module;
};

struct search {
	const struct dict *d;
	struct instances *s;
	struct named *by_name; /* all modules, sorted by root and name */
	uint32_t n;
	/* Latest instance of each level: the first len characters of name. Modules come in order of
	 * their names, so those of one instance are adjacent. */
	struct prefix {
		const char *root, *name;
		size_t len;
		uint32_t instance; /* its number from 1; 0: none yet */
	} last[LEVELS];
	size_t capall, capgroups;
};

static int cmp_named(const void *x, const void *y)
{
	const struct named *a = x, *b = y;
	int order = strcmp(a->root, b->root);

	return order ? order : strcmp(a->name, b->name);
}

/* Returns the length of the start of name that ends with its numeric part number `level`, counted
 * from 0; 0: it has too few numeric parts. */
static size_t prefix_length(const char *name, uint32_t level)
{
	const char *part = name;

	for (;;) {
		size_t len = strcspn(part, ".");
		size_t digits = strspn(part, "0123456789");

		if (len && digits == len && !level--)
			return (size_t)(part + len - name);
		if (!part[len])
			return 0;
		part += len + 1;
	}
}

/* Returns the number of the module whose name is the first len characters of name; 0: the recording
 * has no such module. */
static uint32_t find_module(const struct search *s, const char *root, const char *name, size_t len)
{
	size_t low = 0, high = s->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int order = strcmp(s->by_name[mid].root, root);

		if (!order)
			order = strncmp(s->by_name[mid].name, name, len);
		if (!order && s->by_name[mid].name[len])
			order = 1;
		if (!order)
			return s->by_name[mid].module;
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return 0;
}

/* Returns "blocks.*" for "blocks.3", for free(). NULL if memory is short. */
static char *make_pattern(const char *name, size_t len)
{
	char *pattern = malloc(len + 1), *out = pattern;
	size_t i = 0;

	while (pattern && i < len) {
		size_t part_len = strcspn(name + i, ".");
		size_t digits = strspn(name + i, "0123456789");

		if (part_len > len - i)
			part_len = len - i;
		if (digits == part_len && part_len) {
			*out++ = '*';
		} else {
			memcpy(out, name + i, part_len);
			out += part_len;
		}
		i += part_len;
		if (i < len) {
			*out++ = '.';
			i++;
		}
	}
	if (pattern)
		*out = '\0';
	return pattern;
}

/* Adds a name's pattern to those of the group ("layer1.*, layer2.*") while the list is short.
 * Returns 0 or -ENOMEM. */
static int add_pattern(struct instance_group *g, const char *name, size_t len)
{
	char *pattern = make_pattern(name, len), *all;

	if (!pattern)
		return -ENOMEM;
	if (!g->pattern) {
		g->pattern = pattern;
		return 0;
	}
	if (strstr(g->pattern, pattern) || strlen(g->pattern) + strlen(pattern) > PATTERN_MAX) {
		free(pattern);
		return 0;
	}
	if (asprintf(&all, "%s, %s", g->pattern, pattern) < 0)
		all = NULL;
	free(pattern);
	if (!all)
		return -ENOMEM;
	free(g->pattern);
	g->pattern = all;
	return 0;
}

/* Finds or adds the group for a new instance, and adds the instance's pattern to it. Returns its
 * index; UINT32_MAX if the table is full, or with -ENOMEM in *err. */
static uint32_t group_instance(struct search *s, const char *cls, uint32_t level, const char *name,
			       size_t len, int *err)
{
	struct instances *found = s->s;
	uint32_t i;

	for (i = 0; i < found->ngroups; i++)
		if (found->groups[i].level == level && !strcmp(found->groups[i].cls, cls))
			break;
	if (i == GROUPS)
		return UINT32_MAX;
	if (i == found->ngroups) {
		*err = array__grow(&found->groups, &s->capgroups, (size_t)i + 1,
				   sizeof(*found->groups));
		if (*err)
			return UINT32_MAX;
		found->groups[found->ngroups++] = (struct instance_group){ .cls = cls,
									   .level = level };
	}
	*err = add_pattern(&found->groups[i], name, len);
	found->groups[i].n++;
	return i;
}

/* Finds or adds the instance named by the first len characters of a module's name. *ret: its number
 * from 1, or 0: none. s->last remembers the last one of each level. Returns 0 or -ENOMEM. */
static int find_instance(struct search *s, const struct named *named, size_t len, uint32_t level,
			 uint32_t *ret)
{
	struct instances *found = s->s;
	struct prefix *last = &s->last[level];
	uint32_t module, group;
	int err = 0;

	*ret = 0;
	if (last->instance && last->len == len && !strncmp(last->name, named->name, len) &&
	    !strcmp(last->root, named->root)) {
		*ret = last->instance;
		return 0;
	}
	module = find_module(s, named->root, named->name, len);
	if (!module || found->n >= INSTANCES)
		return 0;
	group = group_instance(s, dict__str(s->d, dict__get_module(s->d, module).cls), level,
			       named->name, len, &err);
	if (err || group == UINT32_MAX)
		return err;
	if (array__grow(&found->all, &s->capall, (size_t)found->n + 1, sizeof(*found->all)))
		return -ENOMEM;
	found->all[found->n++] = (struct instance){ .module = module, .group = group };
	*ret = found->n;
	*last = (struct prefix){ named->root, named->name, len, found->n };
	return 0;
}

int instances__find(const struct dict *d, struct instances *ret)
{
	struct search search = { .d = d, .s = ret };
	int err = -ENOMEM;

	*ret = (struct instances){ .nmodules = dict__counts(d).modules, .levels = LEVELS };
	ret->no_of = calloc((size_t)LEVELS * (ret->nmodules + 1), sizeof(*ret->no_of));
	search.by_name = calloc((size_t)ret->nmodules + 1, sizeof(*search.by_name));
	if (!ret->no_of || !search.by_name)
		goto out;
	for (uint32_t i = 1; i < ret->nmodules; i++) {
		struct dict_module m = dict__get_module(d, i);

		search.by_name[search.n++] = (struct named){ dict__str(d, m.root),
							     dict__str(d, m.name), i };
	}
	qsort(search.by_name, search.n, sizeof(*search.by_name), cmp_named);
	for (uint32_t i = 0; i < search.n; i++)
		for (uint32_t level = 0; level < LEVELS; level++) {
			const struct named *m = &search.by_name[i];
			size_t len = prefix_length(m->name, level);

			if (!len)
				continue;
			err = find_instance(&search, m, len, level,
					    &ret->no_of[(size_t)level * ret->nmodules + m->module]);
			if (err)
				goto out;
		}
	err = 0;
out:
	free(search.by_name);
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
