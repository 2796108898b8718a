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
static bool add_group(struct machine_groups *groups, const struct memcg *root, const char *name)
{
	struct memcg memcg = *root;
	struct memcg_figures figures;
	struct machine_group *to = &groups->v[groups->n];
	size_t len = strlen(root->dir);
	int n = snprintf(memcg.dir + len, sizeof(memcg.dir) - len, "/%s", name);

	if (n < 0 || (size_t)n >= sizeof(memcg.dir) - len)
		return true;
	memcg__read(&memcg, &figures);
	if (figures.usage == MEMCG_NONE || !figures.usage)
		return true;
	if (groups->n == GROUPS)
		return false;
	*to = (struct machine_group){ .used = figures.usage,
				      .limit = figures.limit,
				      .anon = figures.anon,
				      .cache = figures.cache,
				      .kernel = figures.kernel,
				      .swap = figures.swap };
	text__clean(to->path, sizeof(to->path), name, strlen(name));
	groups->n++;
	return true;
}

void machine_groups__read(struct machine_groups *ret)
{
	struct memcg *root = malloc(sizeof(*root));
	struct dirent *entry;
	DIR *dir = NULL;

	*ret = (struct machine_groups){ 0 };
	if (root && !memcg__find(getpid(), root)) {
		root->dir[root->top] = '\0';
		dir = opendir(root->dir);
	}
	while (dir && !ret->left_out && (entry = readdir(dir)))
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
			ret->left_out = !add_group(ret, root, entry->d_name);
	if (dir) {
		closedir(dir);
		ret->version = root->v2 ? 2 : 1;
	}
	free(root);
	qsort(ret->v, ret->n, sizeof(*ret->v), by_use);
}
