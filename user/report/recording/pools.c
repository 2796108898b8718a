/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/recording/pools.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/grid.h"
#include "base/text.h"
#include "model/words.h"
#include "report/doc.h"

#define FIGURE 10
#define MOST 20		 /* pools in a text */
#define TAKEN_COLUMNS 40 /* of the line that made a pool */
#define HELD_MIN 24

/* By pool, then the oldest segment first. Segments from before attach are older than all others. */
static int compare_pool(const void *a, const void *b)
{
	const struct report_pool *x = a, *y = b;
	int by = memcmp(x->id, y->id, sizeof(x->id));

	if (by)
		return by;
	if (x->first->seen != y->first->seen)
		return x->first->seen ? 1 : -1;
	if (x->first->time != y->first->time)
		return x->first->time < y->first->time ? -1 : 1;
	return x->first->addr < y->first->addr ? -1 : x->first->addr > y->first->addr;
}

static int compare_size(const void *a, const void *b)
{
	const struct report_pool *x = a, *y = b;

	if (x->size != y->size)
		return x->size > y->size ? -1 : 1;
	return memcmp(x->id, y->id, sizeof(x->id));
}

int report_pools__of(const struct model_segments *s, struct report_pool **ret, size_t *n)
{
	struct report_pool *all = calloc(s->n + 1, sizeof(*all));
	size_t k = 0;

	*n = 0;
	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < s->n; i++) {
		const struct segment *g = &s->all[i];

		if (segment__private_pool(g) >= 0)
			all[k++] = (struct report_pool){ .id = { g->pool[0], g->pool[1] },
							 .size = g->size,
							 .allocated = g->allocated,
							 .free = g->free,
							 .empty = g->blocks || g->pending ? 0
											  : g->size,
							 .kind = segment__private_pool(g),
							 .segments = 1,
							 .first = g,
							 .most = g->npins ? g->pins : NULL };
	}
	qsort(all, k, sizeof(*all), compare_pool);
	for (size_t i = 0; i < k; i++) {
		struct report_pool *p = *n ? &all[*n - 1] : NULL;

		if (!p || memcmp(p->id, all[i].id, sizeof(p->id))) {
			all[(*n)++] = all[i];
			continue;
		}
		p->size += all[i].size;
		p->allocated += all[i].allocated;
		p->free += all[i].free;
		p->empty += all[i].empty;
		p->segments++;
		if (all[i].most && (!p->most || all[i].most->bytes > p->most->bytes))
			p->most = all[i].most;
	}
	qsort(all, *n, sizeof(*all), compare_size);
	*ret = all;
	return 0;
}

const char *report_pool__kind(enum private_pool kind)
{
	return kind == PRIVATE_GRAPH ? "CUDA graph" : "MemPool";
}

const char *report_pools__say_free(const struct model_segments *s, enum private_pool kind,
				   char buf[REPORT_POOLS_TEXT])
{
	char bytes[24], n[32];
	int len = snprintf(buf, REPORT_POOLS_TEXT, "cached for %ss only", report_pool__kind(kind));

	if (s->private[kind].empties)
		snprintf(buf + len, REPORT_POOLS_TEXT - (size_t)len,
			 ", %s of it in %s segment%s without blocks",
			 text__bytes(bytes, sizeof(bytes), s->private[kind].empty),
			 text__count(n, sizeof(n), s->private[kind].empties),
			 s->private[kind].empties == 1 ? "" : "s");
	return buf;
}

enum { COL_SIZE, COL_ALLOCATED, COL_SEGMENTS, COL_KIND, COL_TAKEN, COL_HELD };

static const char *line_of(char *buf, const struct row *row, const char *cwd, size_t columns)
{
	return row ? words__location(buf, row, cwd, columns) : "(empty)";
}

static void put_pool(struct grid *t, const struct report_pool *p, const char *cwd, char *text)
{
	grid__row(t);
	grid__put(t, COL_SIZE, text__bytes(text, 24, p->size), NULL);
	grid__put(t, COL_ALLOCATED, text__bytes(text, 24, p->allocated), NULL);
	grid__put(t, COL_SEGMENTS, text__count(text, 32, p->segments), NULL);
	snprintf(text, 64, "%s %" PRIu64, report_pool__kind(p->kind),
		 p->id[0] ? p->id[0] : p->id[1]);
	grid__put(t, COL_KIND, text, NULL);
	grid__put(t, COL_TAKEN, line_of(text, &p->first->taken, cwd, TAKEN_COLUMNS), NULL);
}

int report_pools__print(FILE *out, const struct model_segments *s, const char *cwd, size_t width,
			bool bold)
{
	static const struct column columns[] = {
		[COL_SIZE] = { "Size", true, 0, FIGURE },
		[COL_ALLOCATED] = { "Allocated", true, 2, FIGURE },
		[COL_SEGMENTS] = { "Segments", true, 1, 8 },
		[COL_KIND] = { "Private pool", false, 0, 12 },
		[COL_TAKEN] = { "First taken by", false, 0, 12 },
	};
	char *text = malloc(REPORT_TEXT), count[32];
	struct report_pool *all = NULL;
	struct grid *t = NULL;
	size_t n = 0, shown, room;
	int err = text ? report_pools__of(s, &all, &n) : -ENOMEM;

	if (!err && n)
		t = grid__new(columns, COL_HELD);
	if (!err && n && !t)
		err = -ENOMEM;
	shown = n < MOST ? n : MOST;
	for (size_t i = 0; i < shown && !err; i++)
		put_pool(t, &all[i], cwd, text);
	if (!err && n)
		err = grid__error(t);
	if (!err && n) {
		room = grid__fit(t, width, HELD_MIN, 2);
		fputc('\n', out);
		grid__print_titles(t, out, bold, "Most held by");
		for (size_t i = 0; i < shown; i++)
			grid__print(t, out, i, line_of(text, all[i].most, cwd, room));
		if (shown < n)
			fprintf(out, "+ %s more pools\n",
				text__count(count, sizeof(count), n - shown));
	}
	grid__free(t);
	free(all);
	free(text);
	return err;
}
