/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/options.h"

#include <string.h>

#include "capture/capture_args.h"

/* True for the entry that ends a table of options. */
static bool is_end(const struct argp_option *o)
{
	return !o->key && !o->name && !o->doc;
}

void options_list__fill(struct options_list *list, const struct argp *argp)
{
	for (const struct argp_option *o = argp->options; o && !is_end(o); o++)
		if (list->n < OPTIONS_MAX)
			list->v[list->n++] = o;
	for (const struct argp_child *c = argp->children; c && c->argp; c++)
		options_list__fill(list, c->argp);
}

const struct argp_option *options_list__named(const struct options_list *list, const char *name,
					      size_t len)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct argp_option *o = list->v[i];

		if (o->name && strlen(o->name) == len && !strncmp(o->name, name, len))
			return o;
	}
	return NULL;
}

const struct argp_option *options_list__short(const struct options_list *list, int key)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->v[i]->key == key)
			return list->v[i];
	return NULL;
}

bool options_list__suggests(const struct argp_option *o)
{
	return o->name && !(o->flags & OPTION_HIDDEN);
}

bool options_list__shows(const struct argp_option *o)
{
	return options_list__suggests(o) && !(o->flags & OPTION_COMMON);
}

bool options_list__takes_next(const struct argp_option *o)
{
	return o && o->arg && !(o->flags & OPTION_ARG_OPTIONAL);
}
