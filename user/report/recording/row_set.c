/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/recording/row_set.h"

#include <errno.h>
#include <string.h>

int row_set__init(struct row_set *s)
{
	s->texts = strings__new();
	s->ids = strings__new();
	return s->texts && s->ids ? 0 : -ENOMEM;
}

void row_set__drop(struct row_set *s)
{
	strings__free(s->texts);
	strings__free(s->ids);
}

int row_set__keep(struct strings *texts, struct row *row)
{
	const char **all[] = { &row->file,	  &row->func,	  &row->module, &row->module_class,
			       &row->module_root, &row->category, &row->name,	&row->source,
			       &row->node_class,  &row->thread,	  &row->scope };

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (strings__keep(texts, all[i]))
			return -ENOMEM;
	return 0;
}

int row_set__number(struct row_set *s, const struct row *words, const char *kind, const char *stack,
		    uint32_t *ret)
{
	struct {
		const char *kind, *stack, *file, *func, *source, *node_class, *module,
			*module_class, *module_root, *category, *name, *thread, *scope;
		uint32_t line, phase;
		uint64_t flags;
	} id;

	memset(&id, 0, sizeof(id)); /* compared as bytes: no padding may differ */
	id.kind = kind;
	id.stack = stack;
	id.file = words->file;
	id.func = words->func;
	id.source = words->source;
	id.node_class = words->node_class;
	id.module = words->module;
	id.module_class = words->module_class;
	id.module_root = words->module_root;
	id.category = words->category;
	id.name = words->name;
	id.thread = words->thread;
	id.scope = words->scope;
	id.line = words->line;
	id.phase = words->phase;
	id.flags = words->before_attach | (uint64_t)words->filtered << 1;
	return strings__number(s->ids, &id, sizeof(id), ret);
}
