/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/ranks/ranks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COMPARED 64	/* most groups that others are compared with */
#define LEAST_COMMON 50 /* least percent of equal memory with which a group joins another */

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

/* True if the bytes of a line differ by more than both limits of outliers. */
static bool line_differs(uint64_t a, uint64_t b)
{
	uint64_t difference = distance(a, b), most = a > b ? a : b;

	return difference > OUTLIER_BYTES && difference > most / 100 * OUTLIER_PERCENT;
}

/* An iteration over the lines that at least one of two recordings has. */
struct pair {
	const struct profile *a, *b;
	size_t at_a, at_b;   /* positions of the next line */
	uint64_t of_a, of_b; /* bytes of the line at hand */
};

/* Goes to the next line. Returns false at the end. */
static bool next_line(struct pair *p)
{
	bool in_a = p->at_a < p->a->n, in_b = p->at_b < p->b->n;

	if (!in_a && !in_b)
		return false;
	if (in_a && in_b) {
		uint32_t line_a = p->a->cells[p->at_a].line;
		uint32_t line_b = p->b->cells[p->at_b].line;

		in_a = line_a <= line_b;
		in_b = line_b <= line_a;
	}
	p->of_a = in_a ? p->a->cells[p->at_a++].bytes : 0;
	p->of_b = in_b ? p->b->cells[p->at_b++].bytes : 0;
	return true;
}

/* True if the lines that differ are at most RANK_GROUPS_PERCENT of the memory. */
static bool are_alike(const struct profile *a, const struct profile *b)
{
	uint64_t limit = (a->bytes > b->bytes ? a->bytes : b->bytes) / 100 * RANK_GROUPS_PERCENT;
	uint64_t differing = 0;
	struct pair pair = { .a = a, .b = b };

	while (next_line(&pair)) {
		if (line_differs(pair.of_a, pair.of_b))
			differing += distance(pair.of_a, pair.of_b);
		if (differing > limit && differing > OUTLIER_BYTES)
			return false;
	}
	return true;
}

/* Returns the bytes that both have at the same lines, in percent of the smaller recording's
 * bytes. */
static unsigned percent_common(const struct profile *a, const struct profile *b)
{
	uint64_t smaller = a->bytes < b->bytes ? a->bytes : b->bytes, common = 0;
	struct pair pair = { .a = a, .b = b };

	while (next_line(&pair))
		common += pair.of_a < pair.of_b ? pair.of_a : pair.of_b;
	return smaller ? (unsigned)((unsigned __int128)common * 100 / smaller) : 0;
}

/* Returns the cells sorted by recording, then by line, for free(), without those of out_lines, and
 * sets the profiles of the n recordings to them. NULL if memory is short. */
static struct rank_cell *sort_cells(const struct rank_cell *cells, size_t n_cells,
				    const bool *out_lines, size_t n, struct profile *profiles)
{
	struct rank_cell *sorted = malloc((n_cells + 1) * sizeof(*sorted));
	size_t *next = calloc(n + 1, sizeof(*next)), sum = 0;

	if (!sorted || !next) {
		free(sorted);
		free(next);
		return NULL;
	}
	for (size_t i = 0; i < n_cells; i++)
		next[cells[i].recording] += !out_lines[cells[i].line];
	for (size_t i = 0; i < n; i++) {
		size_t count = next[i];

		profiles[i] = (struct profile){ .cells = sorted + sum, .n = count };
		next[i] = sum;
		sum += count;
	}
	for (size_t i = 0; i < n_cells; i++) {
		if (out_lines[cells[i].line])
			continue;
		sorted[next[cells[i].recording]++] = cells[i];
		profiles[cells[i].recording].bytes += cells[i].bytes;
	}
	free(next);
	return sorted;
}

/* Adds a recording to the first group whose first member is like it; otherwise to a new group.
 * leaders: first members of the groups. leader: the next free entry of leaders. */
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

/* Lists the members of each group in g->members, for n recordings. */
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

/* Returns the least size of a group that others are compared with. If there are many groups, only
 * the largest COMPARED ones count. sizes: a buffer with an entry for each group. */
static uint32_t least_size(const struct rank_groups *g, uint32_t *sizes)
{
	for (size_t i = 0; i < g->n; i++)
		sizes[i] = g->all[i].n;
	qsort(sizes, g->n, sizeof(*sizes), cmp_size);
	if (g->n > COMPARED && sizes[COMPARED] >= 2)
		return sizes[COMPARED] + 1;
	return 2;
}

/* Joins small groups to the group that they resemble most. leaders, sizes: as above. */
static void find_families(struct rank_groups *g, const struct profile *profiles,
			  const uint32_t *leaders, uint32_t *sizes)
{
	uint32_t least = least_size(g, sizes);

	for (size_t i = 0; i < g->n; i++) {
		unsigned best = LEAST_COMMON - 1;

		for (size_t other = 0; other < g->n; other++) {
			unsigned percent;

			if (g->all[other].n < least || g->all[other].n < 2 * g->all[i].n)
				continue;
			percent = percent_common(&profiles[leaders[i]], &profiles[leaders[other]]);
			if (percent > best) {
				best = percent;
				g->all[i].family = (uint32_t)other;
			}
		}
	}
	/* If a group's family is compared with another group itself, take that group. */
	for (size_t i = 0; i < g->n; i++)
		for (size_t steps = 0; steps < g->n; steps++)
			g->all[i].family = g->all[g->all[i].family].family;
}

/* If no two recordings are alike, compares all with each other: makes one family of them. */
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
	struct rank_cell *sorted = profiles ? sort_cells(cells, n_cells, out_lines, n, profiles)
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
