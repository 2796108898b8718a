/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The table of --by segment: the memory in each segment, and the blocks that keep it from
 * being returned to CUDA. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/grid.h"
#include "base/text.h"
#include "model/words.h"
#include "report/doc.h"
#include "report/recording/pools.h"
#include "report/text.h"

/* ---- private pools ---- */

#define FIGURE 10
#define MOST 20		 /* pools in a text */
#define TAKEN_COLUMNS 40 /* of the line that made a pool */
#define POOL_HELD_MIN 24

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

enum { POOL_SIZE, POOL_ALLOCATED, POOL_SEGMENTS, POOL_KIND, POOL_TAKEN, POOL_HELD };

static const char *line_of(char *buf, const struct row *row, const char *cwd, size_t columns)
{
	return row ? words__location(buf, row, cwd, columns) : "(empty)";
}

static void put_pool(struct grid *t, const struct report_pool *p, const char *cwd, char *text)
{
	grid__row(t);
	grid__put(t, POOL_SIZE, text__bytes(text, 24, p->size), NULL);
	grid__put(t, POOL_ALLOCATED, text__bytes(text, 24, p->allocated), NULL);
	grid__put(t, POOL_SEGMENTS, text__count(text, 32, p->segments), NULL);
	snprintf(text, 64, "%s %" PRIu64, report_pool__kind(p->kind),
		 p->id[0] ? p->id[0] : p->id[1]);
	grid__put(t, POOL_KIND, text, NULL);
	grid__put(t, POOL_TAKEN, line_of(text, &p->first->taken, cwd, TAKEN_COLUMNS), NULL);
}

int report_pools__print(FILE *out, const struct model_segments *s, const char *cwd, size_t width,
			bool bold)
{
	static const struct column columns[] = {
		[POOL_SIZE] = { "Size", true, 0, FIGURE },
		[POOL_ALLOCATED] = { "Allocated", true, 2, FIGURE },
		[POOL_SEGMENTS] = { "Segments", true, 1, 8 },
		[POOL_KIND] = { "Private pool", false, 0, 12 },
		[POOL_TAKEN] = { "First taken by", false, 0, 12 },
	};
	char *text = malloc(REPORT_TEXT), count[32];
	struct report_pool *all = NULL;
	struct grid *t = NULL;
	size_t n = 0, shown, room;
	int err = text ? report_pools__of(s, &all, &n) : -ENOMEM;

	if (!err && n)
		t = grid__new(columns, POOL_HELD);
	if (!err && n && !t)
		err = -ENOMEM;
	shown = n < MOST ? n : MOST;
	for (size_t i = 0; i < shown && !err; i++)
		put_pool(t, &all[i], cwd, text);
	if (!err && n)
		err = grid__error(t);
	if (!err && n) {
		room = grid__fit(t, width, POOL_HELD_MIN, 2);
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

/* ---- segments ---- */

#define HELD_MIN 28    /* least columns of the last one: others are left out first */
#define HELD_WANTED 52 /* the same while Address, Stream or Taken by is shown */
#define TAKEN_MAX 36

enum {
	COL_STUCK,
	COL_SIZE,
	COL_ALLOCATED,
	COL_GAP,
	COL_BLOCKS,
	COL_ADDRESS,
	COL_KIND,
	COL_STREAM,
	COL_TAKEN,
	COL_HELD,
};

/* The last column names the blocks in the segment. */
static const struct column all_columns[COL_HELD] = {
	[COL_STUCK] = { "Unreturnable", true, 0 },  [COL_SIZE] = { "Size", true, 0 },
	[COL_ALLOCATED] = { "Allocated", true, 6 }, [COL_GAP] = { "Largest gap", true, 7 },
	[COL_BLOCKS] = { "Blocks", true, 5 },	    [COL_ADDRESS] = { "Address", false, 1 },
	[COL_KIND] = { "Kind", false, 4 },	    [COL_STREAM] = { "Stream", false, 2 },
	[COL_TAKEN] = { "Taken by", false, 3 },
};

struct table {
	FILE *out;
	const char *cwd;
	const struct model_segments *s;
	size_t shown;
	struct grid *grid;
	size_t room; /* columns of the last one */
	char text[REPORT_TEXT];
};

static const char *kind(struct table *t, const struct segment *s)
{
	snprintf(t->text, sizeof(t->text), "%s%s%s%s",
		 s->kind == SEGMENT_ANY ? "" : words__segment_kind(s),
		 s->expandable ? " expandable" : "", s->foreign ? " foreign" : "",
		 s->pool[0] || s->pool[1] ? " private pool" : "");
	return t->text + (t->text[0] == ' ');
}

static const char *stream(struct table *t, const struct segment *s)
{
	if (!s->stream_known)
		return "?";
	if (!s->cuda_stream)
		return "default";
	snprintf(t->text, sizeof(t->text), "0x%" PRIx64, s->cuda_stream);
	return t->text;
}

static const char *held(struct table *t, const struct segment *s, size_t columns)
{
	char more[64] = "", bytes[24], count[32];
	size_t room;

	if (!s->blocks)
		return s->pending ? "blocks that wait for a stream" : "(empty)";
	if (s->npins + s->more_pins > 1)
		snprintf(more, sizeof(more), " %s + %s more",
			 text__bytes(bytes, sizeof(bytes), s->pins[0].bytes),
			 text__count(count, sizeof(count), s->npins - 1 + s->more_pins));
	room = columns > text__width(more) + 20 ? columns - text__width(more) : columns;
	words__location(t->text, &s->pins[0], t->cwd, room);
	if (room < columns)
		strcat(t->text, more);
	return t->text;
}

static const char *cell(struct table *t, const struct segment *s, int col)
{
	switch (col) {
	case COL_STUCK:
		return s->stuck ? text__bytes(t->text, 24, s->stuck) : "-";
	case COL_SIZE:
		return text__bytes(t->text, 24, s->size);
	case COL_ALLOCATED:
		return s->allocated ? text__bytes(t->text, 24, s->allocated) : "-";
	case COL_GAP:
		return s->largest_gap ? text__bytes(t->text, 24, s->largest_gap) : "-";
	case COL_BLOCKS:
		return text__count(t->text, 32, s->blocks);
	case COL_ADDRESS:
		snprintf(t->text, sizeof(t->text), "0x%" PRIx64, s->addr);
		return t->text;
	case COL_KIND:
		return kind(t, s);
	case COL_STREAM:
		return stream(t, s);
	}
	return words__location(t->text, &s->taken, t->cwd, TAKEN_MAX);
}

static int fill(struct table *t, size_t width)
{
	bool streams = false, taken = false;
	size_t held_width = text__width("Held by");

	t->grid = grid__new(all_columns, COL_HELD);
	if (!t->grid)
		return -ENOMEM;
	for (size_t i = 0; i < t->s->n; i++) {
		streams |= t->s->all[i].stream_known && t->s->all[i].cuda_stream;
		taken |= t->s->all[i].seen;
	}
	grid__show(t->grid, COL_STREAM, streams); /* hide columns without information */
	grid__show(t->grid, COL_TAKEN, taken);
	for (size_t i = 0; i < t->shown; i++) {
		size_t w = text__width(held(t, &t->s->all[i], 200));

		held_width = w > held_width ? w : held_width;
		grid__row(t->grid);
		for (int c = 0; c < COL_HELD; c++)
			grid__put(t->grid, c, cell(t, &t->s->all[i], c), NULL);
	}
	grid__fit(t->grid, width, held_width < HELD_WANTED ? held_width : HELD_WANTED, 3);
	t->room = grid__fit(t->grid, width, held_width < HELD_MIN ? held_width : HELD_MIN, 7);
	t->room = t->room ? t->room : 8;
	return grid__error(t->grid);
}

static void print_rows(struct table *t, const struct report_text_opts *o)
{
	char bytes[24], count[32];
	uint64_t rest = 0;

	grid__print_titles(t->grid, t->out, report_text__colour(t->out, o), "Held by");
	for (size_t i = 0; i < t->shown; i++)
		grid__print(t->grid, t->out, i, held(t, &t->s->all[i], t->room));
	for (size_t i = t->shown; i < t->s->n; i++)
		rest += t->s->all[i].size;
	if (t->shown < t->s->n)
		fprintf(t->out, "+ %s more segments, %s\n",
			text__count(count, sizeof(count), t->s->n - t->shown),
			text__bytes(bytes, sizeof(bytes), rest));
}

/* Prints the sums of all segments, in short lines. */
static void print_sums(FILE *out, const struct model_segments *s)
{
	uint64_t reserved = s->has_totals ? s->reserved : s->known;
	uint64_t cached = reserved > s->allocated ? reserved - s->allocated : 0;
	char a[24], b[24], c[24], n[32], pool[REPORT_POOLS_TEXT];

	fprintf(out, "Reserved: %s in %s segment%s\n", text__bytes(a, sizeof(a), reserved),
		text__count(n, sizeof(n), s->n), s->n == 1 ? "" : "s");
	fprintf(out, "  allocated %s\n", text__bytes(a, sizeof(a), s->allocated));
	fprintf(out, "  cached    %s\n", text__bytes(a, sizeof(a), cached));
	fprintf(out, "    %s can be returned to CUDA (%s empty segment%s)\n",
		text__bytes(a, sizeof(a), s->releasable), text__count(n, sizeof(n), s->empties),
		s->empties == 1 ? "" : "s");
	fprintf(out, "    %s cannot be returned: its segments have blocks in use\n",
		text__bytes(b, sizeof(b), s->stuck));
	for (int k = 0; k < PRIVATE_NR; k++)
		if (s->private[k].free)
			fprintf(out, "    %s %s\n", text__bytes(b, sizeof(b), s->private[k].free),
				report_pools__say_free(s, k, pool));
	if (s->pending)
		fprintf(out, "    %s waits for a stream\n", text__bytes(b, sizeof(b), s->pending));
	fprintf(out, "    largest gap %s\n", text__bytes(c, sizeof(c), s->largest_gap));
	if (cached && !s->pending_known)
		fputs("    (may include blocks freed with record_stream that still wait for a "
		      "stream)\n",
		      out);
}

/* Prints the sizes of unknown parts. */
static void print_unknown(FILE *out, const struct model_segments *s)
{
	struct report_below b = words__below(s);
	char x[24], y[24], n[32];

	if (b.missing > 0)
		fprintf(out, "%s in segments not known\n", text__bytes(x, sizeof(x), b.missing));
	if (b.missing < 0)
		fprintf(out, "%s too much: a segment went unseen\n",
			text__bytes(x, sizeof(x), 0 - (uint64_t)b.missing));
	if (s->unmapped)
		fprintf(out,
			"%s has no memory now, with %s in %s block%s: other code unmapped it "
			"(sleep mode)\n",
			text__bytes(y, sizeof(y), s->unmapped),
			text__bytes(x, sizeof(x), s->unmapped_inside),
			text__count(n, sizeof(n), s->unmapped_blocks),
			s->unmapped_blocks == 1 ? "" : "s");
	if (s->outside)
		fprintf(out, "%s in %s blocks in no known segment\n",
			text__bytes(x, sizeof(x), s->outside),
			text__count(n, sizeof(n), s->outside_blocks));
	if (b.nameless > 0)
		fprintf(out, "%s in blocks not known\n", text__bytes(x, sizeof(x), b.nameless));
}

int report_text__segments(FILE *out, const struct model *m, size_t device, const struct facts *f,
			  const struct report_text_opts *o)
{
	struct table *t = calloc(1, sizeof(*t));
	struct model_segments s;
	int err = t ? 0 : -ENOMEM;

	if (!err)
		err = model__segments(m, device, o->when, o->which_line, &s);
	if (err == -EINVAL) {
		fputs("The CPU allocator has no segments.\n", out);
		free(t);
		return 0;
	}
	if (err) {
		free(t);
		return err;
	}
	*t = (struct table){ .out = out, .cwd = facts__get(f, "cwd"), .s = &s };
	t->shown = o->top && o->top < s.n ? o->top : s.n;
	print_sums(out, &s);
	if (s.n) {
		err = fill(t, report_text__width(out, o));
		if (!err)
			print_rows(t, o);
		if (!err)
			err = report_pools__print(out, &s, t->cwd, report_text__width(out, o),
						  report_text__colour(out, o));
	}
	print_unknown(out, &s);
	model__free_segments(&s);
	grid__free(t->grid);
	free(t);
	return err;
}
