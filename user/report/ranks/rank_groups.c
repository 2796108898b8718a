/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/ranks/ranks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COMPARED 64 /* groups that others are compared with, at most */

/* The lines of one recording. */
struct profile {
	const struct rank_cell *cells; /* sorted by line */
	size_t n;
	uint64_t bytes;
};

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

static bool line_differs(uint64_t a, uint64_t b)
{
	uint64_t d = distance(a, b), most = a > b ? a : b;

	return d > OUTLIER_BYTES && d > most / 100 * OUTLIER_PERCENT;
}

/* Goes through the lines of both, and through those that only one has. */
struct pair {
	const struct profile *a, *b;
	size_t i, k;
	uint64_t of_a, of_b;
};

static bool next_line(struct pair *p)
{
	bool in_a = p->i < p->a->n, in_b = p->k < p->b->n;

	if (!in_a && !in_b)
		return false;
	if (in_a && in_b) {
		uint32_t x = p->a->cells[p->i].line, y = p->b->cells[p->k].line;

		in_a = x <= y;
		in_b = y <= x;
	}
	p->of_a = in_a ? p->a->cells[p->i++].bytes : 0;
	p->of_b = in_b ? p->b->cells[p->k++].bytes : 0;
	return true;
}

static bool are_alike(const struct profile *a, const struct profile *b)
{
	uint64_t most = (a->bytes > b->bytes ? a->bytes : b->bytes) / 100 * RANK_GROUPS_PERCENT,
		 sum = 0;
	struct pair p = { .a = a, .b = b };

	while (next_line(&p)) {
		if (line_differs(p.of_a, p.of_b))
			sum += distance(p.of_a, p.of_b);
		if (sum > most && sum > OUTLIER_BYTES)
			return false;
	}
	return true;
}

/* The bytes that both have at the same lines, in percent of the smaller one's. */
static unsigned percent_common(const struct profile *a, const struct profile *b)
{
	uint64_t least = a->bytes < b->bytes ? a->bytes : b->bytes, sum = 0;
	struct pair p = { .a = a, .b = b };

	while (next_line(&p))
		sum += p.of_a < p.of_b ? p.of_a : p.of_b;
	return least ? (unsigned)((unsigned __int128)sum * 100 / least) : 0;
}

/* Sorts the cells by recording, keeping the order of lines. */
static struct rank_cell *by_recording(const struct rank_cell *cells, size_t n_cells,
				      const bool *out_lines, size_t n, struct profile *profiles)
{
	struct rank_cell *sorted = malloc((n_cells + 1) * sizeof(*sorted));
	size_t *at = calloc(n + 1, sizeof(*at)), sum = 0;

	if (!sorted || !at) {
		free(sorted);
		free(at);
		return NULL;
	}
	for (size_t i = 0; i < n_cells; i++)
		at[cells[i].recording] += !out_lines[cells[i].line];
	for (size_t i = 0; i < n; i++) {
		size_t count = at[i];

		profiles[i] = (struct profile){ .cells = sorted + sum, .n = count };
		at[i] = sum;
		sum += count;
	}
	for (size_t i = 0; i < n_cells; i++) {
		if (out_lines[cells[i].line])
			continue;
		sorted[at[cells[i].recording]++] = cells[i];
		profiles[cells[i].recording].bytes += cells[i].bytes;
	}
	free(at);
	return sorted;
}

/* Adds the recording to the first group whose first member is like it, or to a new one. */
static void add_recording(struct rank_groups *g, const struct profile *profiles,
			  const uint32_t *leaders, size_t recording, uint32_t *leader)
{
	for (size_t i = 0; i < g->n; i++) {
		if (!are_alike(&profiles[leaders[i]], &profiles[recording]))
			continue;
		g->of[recording] = (uint32_t)i;
		g->all[i].n++;
		return;
	}
	*leader = (uint32_t)recording;
	g->of[recording] = (uint32_t)g->n;
	g->all[g->n] = (struct rank_group){ .n = 1, .family = (uint32_t)g->n };
	g->n++;
}

static void list_members(struct rank_groups *g, size_t n)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < g->n; i++) {
		g->all[i].first = sum;
		sum += g->all[i].n;
		g->all[i].n = 0;
	}
	for (size_t i = 0; i < n; i++)
		if (g->of[i] != RANK_GROUPS_NONE) {
			struct rank_group *own = &g->all[g->of[i]];

			g->members[own->first + own->n++] = (uint32_t)i;
		}
}

static int cmp_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x > y ? -1 : x < y;
}

/* The least size of a group that others are compared with: of many groups, only the largest ones
 * count. sizes: room for a size of each group. */
static uint32_t least_size(const struct rank_groups *g, uint32_t *sizes)
{
	for (size_t i = 0; i < g->n; i++)
		sizes[i] = g->all[i].n;
	qsort(sizes, g->n, sizeof(*sizes), cmp_size);
	if (g->n > COMPARED && sizes[COMPARED] >= 2)
		return sizes[COMPARED] + 1;
	return 2;
}

/* Joins small groups to the group that they resemble most. */
static void find_families(struct rank_groups *g, const struct profile *profiles,
			  const uint32_t *leaders, uint32_t *sizes)
{
	uint32_t least = least_size(g, sizes);

	for (size_t i = 0; i < g->n; i++) {
		unsigned best = 49;

		for (size_t k = 0; k < g->n; k++) {
			unsigned percent;

			if (g->all[k].n < least || g->all[k].n < 2 * g->all[i].n)
				continue;
			percent = percent_common(&profiles[leaders[i]], &profiles[leaders[k]]);
			if (percent > best) {
				best = percent;
				g->all[i].family = (uint32_t)k;
			}
		}
	}
	/* A group that is compared with one that is itself compared with another. */
	for (size_t i = 0; i < g->n; i++)
		for (size_t steps = 0; steps < g->n; steps++)
			g->all[i].family = g->all[g->all[i].family].family;
}

/* If no two recordings are alike, nothing says which of them should be equal: all. */
static void join_all(struct rank_groups *g)
{
	for (size_t i = 0; i < g->n; i++)
		if (g->all[i].n > 1)
			return;
	for (size_t i = 0; i < g->n; i++)
		g->all[i].family = 0;
}

int rank_groups__make(const struct rank_cell *cells, size_t n_cells, const bool *out_lines,
		      const bool *out, size_t n, struct rank_groups *ret)
{
	struct profile *profiles = calloc(n + 1, sizeof(*profiles));
	uint32_t *leaders = calloc(n + 1, 2 * sizeof(*leaders));
	struct rank_cell *sorted = profiles ? by_recording(cells, n_cells, out_lines, n, profiles)
					    : NULL;

	*ret = (struct rank_groups){ .all = calloc(n + 1, sizeof(*ret->all)),
				     .members = calloc(n + 1, sizeof(*ret->members)),
				     .of = malloc((n + 1) * sizeof(*ret->of)) };
	if (!sorted || !leaders || !ret->all || !ret->members || !ret->of) {
		free(sorted);
		free(leaders);
		free(profiles);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		ret->of[i] = RANK_GROUPS_NONE;
		if (!out[i])
			add_recording(ret, profiles, leaders, i, &leaders[ret->n]);
	}
	list_members(ret, n);
	find_families(ret, profiles, leaders, leaders + n + 1);
	join_all(ret);
	free(sorted);
	free(leaders);
	free(profiles);
	return 0;
}

void rank_groups__free(struct rank_groups *g)
{
	free(g->all);
	free(g->members);
	free(g->of);
	*g = (struct rank_groups){ 0 };
}
