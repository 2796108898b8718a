/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "inspect/machine.h"

#define GROUPS (sizeof(((struct machine_groups *)0)->v) / sizeof(struct machine_group))

/* Figures of both headers are unknown by the same value. */
_Static_assert(MACHINE_NONE == MEMCG_NONE, "unknown figures");

static int by_use(const void *a, const void *b)
{
	const struct machine_group *x = a, *y = b;

	return x->used < y->used ? 1 : -(x->used > y->used);
}

/* Adds the group with this name below root. False: there is no room. */
static bool add_group(struct machine_groups *g, const struct memcg *root, const char *name)
{
	struct memcg m = *root;
	struct memcg_figures f;
	struct machine_group *to = &g->v[g->n];
	size_t len = strlen(root->dir);
	int n = snprintf(m.dir + len, sizeof(m.dir) - len, "/%s", name);

	if (n < 0 || (size_t)n >= sizeof(m.dir) - len)
		return true;
	memcg__read(&m, &f);
	if (f.usage == MEMCG_NONE || !f.usage)
		return true;
	if (g->n == GROUPS)
		return false;
	*to = (struct machine_group){ .used = f.usage,
				      .limit = f.limit,
				      .anon = f.anon,
				      .cache = f.cache,
				      .kernel = f.kernel,
				      .swap = f.swap };
	text__clean(to->path, sizeof(to->path), name, strlen(name));
	g->n++;
	return true;
}

void machine_groups__read(struct machine_groups *ret)
{
	struct memcg *root = malloc(sizeof(*root));
	struct dirent *e;
	DIR *d = NULL;

	*ret = (struct machine_groups){ 0 };
	if (root && !memcg__find(getpid(), root)) {
		root->dir[root->top] = '\0';
		d = opendir(root->dir);
	}
	while (d && !ret->left_out && (e = readdir(d)))
		if (e->d_type == DT_DIR && e->d_name[0] != '.')
			ret->left_out = !add_group(ret, root, e->d_name);
	if (d) {
		closedir(d);
		ret->version = root->v2 ? 2 : 1;
	}
	free(root);
	qsort(ret->v, ret->n, sizeof(*ret->v), by_use);
}
