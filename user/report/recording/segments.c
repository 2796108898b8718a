/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The table of --by segment: the memory in each segment, and the blocks that keep it from being
 * returned to CUDA. And the list of the memory below blocks. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/grid.h"
#include "base/text.h"
#include "model/words.h"
#include "record/stream.h"
#include "report/doc.h"
#include "report/recording/pools.h"
#include "report/text.h"

/* ---- private pools ---- */

#define FIGURE 10	 /* columns of a number of bytes */
#define MOST 20		 /* most pools in a text */
#define TAKEN_COLUMNS 40 /* most columns of the line that made a pool */
#define POOL_HELD_MIN 24

/* Orders by pool, then the oldest segment first. Segments from before attach are the oldest. */
static int cmp_pool(const void *a, const void *b)
{
	const struct report_pool *x = a, *y = b;
	int order = memcmp(x->id, y->id, sizeof(x->id));

	if (order)
		return order;
	if (x->first->seen != y->first->seen)
		return x->first->seen ? 1 : -1;
	if (x->first->time != y->first->time)
		return x->first->time < y->first->time ? -1 : 1;
	return x->first->addr < y->first->addr ? -1 : x->first->addr > y->first->addr;
}

static int cmp_size(const void *a, const void *b)
{
	const struct report_pool *x = a, *y = b;

	if (x->size != y->size)
		return x->size > y->size ? -1 : 1;
	return memcmp(x->id, y->id, sizeof(x->id));
}

int report_pools__of(const struct model_segments *s, struct report_pool **ret, size_t *n)
{
	struct report_pool *all = calloc(s->n + 1, sizeof(*all));
	size_t n_segments = 0;

	*n = 0;
	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < s->n; i++) {
		const struct segment *segment = &s->all[i];
		bool empty = !segment->blocks && !segment->pending;

		if (segment__private_pool(segment) < 0)
			continue;
		all[n_segments++] = (struct report_pool){ .id = { segment->pool[0],
								  segment->pool[1] },
							  .size = segment->size,
							  .allocated = segment->allocated,
							  .free = segment->free,
							  .empty = empty ? segment->size : 0,
							  .kind = segment__private_pool(segment),
							  .segments = 1,
							  .first = segment };
		if (segment->npins)
			all[n_segments - 1].most = segment->pins;
	}
	qsort(all, n_segments, sizeof(*all), cmp_pool);
	for (size_t i = 0; i < n_segments; i++) {
		struct report_pool *last = *n ? &all[*n - 1] : NULL;

		if (!last || memcmp(last->id, all[i].id, sizeof(last->id))) {
			all[(*n)++] = all[i];
			continue;
		}
		last->size += all[i].size;
		last->allocated += all[i].allocated;
		last->free += all[i].free;
		last->empty += all[i].empty;
		last->segments++;
		if (all[i].most && (!last->most || all[i].most->bytes > last->most->bytes))
			last->most = all[i].most;
	}
	qsort(all, *n, sizeof(*all), cmp_size);
	*ret = all;
	return 0;
}

const char *report_pools__say_free(const struct model_segments *s, enum private_pool kind,
				   char buf[REPORT_POOLS_TEXT])
{
	char bytes[24], count[48];
	int len = snprintf(buf, REPORT_POOLS_TEXT, "cached for %ss only",
			   words__private_pool(kind));

	if (s->private[kind].empties)
		snprintf(buf + len, REPORT_POOLS_TEXT - (size_t)len,
			 ", %s of it in %s without blocks",
			 text__bytes(bytes, sizeof(bytes), s->private[kind].empty),
			 text__counted(count, sizeof(count), s->private[kind].empties, "segment"));
	return buf;
}

enum { POOL_SIZE, POOL_ALLOCATED, POOL_SEGMENTS, POOL_KIND, POOL_TAKEN, POOL_HELD };

/* Returns the row's place; NULL is no block: "(empty)". */
static const char *line_of(char *buf, const struct row *row, const char *cwd, size_t columns)
{
	return row ? words__location(buf, row, cwd, columns) : "(empty)";
}

/* Adds a row. text: a buffer of REPORT_TEXT bytes. */
static void put_pool(struct grid *grid, const struct report_pool *p, const char *cwd, char *text)
{
	grid__row(grid);
	grid__put(grid, POOL_SIZE, text__bytes(text, 24, p->size), NULL);
	grid__put(grid, POOL_ALLOCATED, text__bytes(text, 24, p->allocated), NULL);
	grid__put(grid, POOL_SEGMENTS, text__count(text, 32, p->segments), NULL);
	snprintf(text, 64, "%s %" PRIu64, words__private_pool(p->kind),
		 p->id[0] ? p->id[0] : p->id[1]);
	grid__put(grid, POOL_KIND, text, NULL);
	grid__put(grid, POOL_TAKEN, line_of(text, &p->first->taken, cwd, TAKEN_COLUMNS), NULL);
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
	char text[REPORT_TEXT], count[32];
	struct report_pool *all = NULL;
	struct grid *grid = NULL;
	size_t n, shown, room;
	int err = report_pools__of(s, &all, &n);

	if (err || !n)
		goto out;
	err = -ENOMEM;
	grid = grid__new(columns, POOL_HELD);
	if (!grid)
		goto out;
	shown = n < MOST ? n : MOST;
	for (size_t i = 0; i < shown; i++)
		put_pool(grid, &all[i], cwd, text);
	err = grid__error(grid);
	if (err)
		goto out;
	room = grid__fit(grid, width, POOL_HELD_MIN, /*goes=*/2);
	fputc('\n', out);
	grid__print_titles(grid, out, bold, "Most held by");
	for (size_t i = 0; i < shown; i++)
		grid__print(grid, out, i, line_of(text, all[i].most, cwd, room));
	if (shown < n)
		fprintf(out, "+ %s more pools\n", text__count(count, sizeof(count), n - shown));
out:
	grid__free(grid);
	free(all);
	return err;
}

/* ---- at an out-of-memory event ---- */

enum { OOM_FREE, OOM_LARGEST, OOM_PIECES, OOM_PENDING, OOM_ALLOCATED, OOM_RESERVED, OOM_POOL };

#define OOM_POOL_MIN 32

/* Returns the bytes as text, "-" for 0. */
static const char *say_bytes(char *buf, uint64_t bytes)
{
	return bytes ? text__bytes(buf, 24, bytes) : "-";
}

static void put_oom_pool(struct grid *grid, const struct model_oom_pool *p)
{
	char text[48];

	grid__row(grid);
	grid__put(grid, OOM_FREE, say_bytes(text, p->free), NULL);
	grid__put(grid, OOM_LARGEST, say_bytes(text, p->largest_gap), NULL);
	grid__put(grid, OOM_PIECES, text__count(text, 32, p->gaps), NULL);
	grid__put(grid, OOM_PENDING, say_bytes(text, p->pending), NULL);
	grid__put(grid, OOM_ALLOCATED, say_bytes(text, p->allocated), NULL);
	grid__put(grid, OOM_RESERVED, say_bytes(text, p->size), NULL);
}

int report_pools__print_oom(FILE *out, const struct model_oom *o, size_t width, bool bold)
{
	static const struct column columns[] = {
		[OOM_FREE] = { "Free", true, 0, FIGURE },
		[OOM_LARGEST] = { "Largest", true, 0, FIGURE },
		[OOM_PIECES] = { "Pieces", true, 2, 6 },
		[OOM_PENDING] = { "Awaits free", true, 3, FIGURE },
		[OOM_ALLOCATED] = { "Allocated", true, 0, FIGURE },
		[OOM_RESERVED] = { "Reserved", true, 1, FIGURE },
	};
	struct grid *grid = grid__new(columns, OOM_POOL);
	char text[WORDS_OOM];
	bool pending = false;
	int err;

	if (!grid)
		return -ENOMEM;
	for (size_t i = 0; i < o->npools; i++) {
		put_oom_pool(grid, &o->pools[i]);
		pending |= o->pools[i].pending;
	}
	grid__show(grid, OOM_PENDING, pending);
	err = grid__error(grid);
	if (!err) {
		grid__fit(grid, width, OOM_POOL_MIN, /*goes=*/3);
		grid__print_titles(grid, out, bold, "Pool and stream");
		for (size_t i = 0; i < o->npools; i++)
			grid__print(grid, out, i, words__oom_pool(text, &o->pools[i]));
	}
	grid__free(grid);
	return err;
}

/* ---- segments ---- */

#define HELD_MIN 28    /* least width of the last column: others are hidden first */
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

/* All columns but the last one, COL_HELD, which names the line that holds most of the segment. The
 * numbers are column.goes. */
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
	size_t room; /* width of the last column */
	char text[REPORT_TEXT];
};

/* Returns the kind of blocks in the segment, and what is special about it: "large expandable". */
static const char *say_kind(struct table *t, const struct segment *s)
{
	*t->text = '\0';
	if (s->kind != SEGMENT_ANY)
		strcpy(t->text, words__segment_kind(s));
	if (s->expandable)
		strcat(t->text, " expandable");
	if (s->foreign)
		strcat(t->text, " foreign");
	if (s->pool[0] || s->pool[1])
		strcat(t->text, " private pool");
	return t->text + (t->text[0] == ' ');
}

/* Returns the segment's stream: "default", its handle "0x7f12...", or "?" if it is not known. */
static const char *say_stream(struct table *t, const struct segment *s)
{
	if (!s->stream_known)
		return "?";
	if (!s->cuda_stream)
		return "default";
	snprintf(t->text, sizeof(t->text), "0x%" PRIx64, s->cuda_stream);
	return t->text;
}

/* Returns the line that holds most of the segment, and with room for it " 2.00 MiB + 3 more": that
 * line's bytes, and the number of other lines. */
static const char *say_held(struct table *t, const struct segment *s, size_t columns)
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

/* Returns the text of a cell, but for the last column. */
static const char *say_cell(struct table *t, const struct segment *s, int col)
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
		return say_kind(t, s);
	case COL_STREAM:
		return say_stream(t, s);
	}
	return words__location(t->text, &s->taken, t->cwd, TAKEN_MAX);
}

/* Fills the grid, and hides columns that have no information or no room. Returns 0 or -ENOMEM. */
static int fill_table(struct table *t, size_t width)
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
		size_t columns = text__width(say_held(t, &t->s->all[i], /*columns=*/200));

		held_width = columns > held_width ? columns : held_width;
		grid__row(t->grid);
		for (int col = 0; col < COL_HELD; col++)
			grid__put(t->grid, col, say_cell(t, &t->s->all[i], col), NULL);
	}
	grid__fit(t->grid, width, held_width < HELD_WANTED ? held_width : HELD_WANTED, /*goes=*/3);
	t->room = grid__fit(t->grid, width, held_width < HELD_MIN ? held_width : HELD_MIN,
			    /*goes=*/7);
	t->room = t->room ? t->room : 8;
	return grid__error(t->grid);
}

static void print_rows(struct table *t, const struct report_text_opts *o)
{
	char bytes[24], count[32];
	uint64_t rest = 0;

	grid__print_titles(t->grid, t->out, report_text__colour(t->out, o), "Held by");
	for (size_t i = 0; i < t->shown; i++)
		grid__print(t->grid, t->out, i, say_held(t, &t->s->all[i], t->room));
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
	char bytes[24], count[48], pool[REPORT_POOLS_TEXT];

	fprintf(out, "Reserved: %s in %s\n", text__bytes(bytes, sizeof(bytes), reserved),
		text__counted(count, sizeof(count), s->n, "segment"));
	fprintf(out, "  allocated %s\n", text__bytes(bytes, sizeof(bytes), s->allocated));
	fprintf(out, "  cached    %s\n", text__bytes(bytes, sizeof(bytes), cached));
	fprintf(out, "    %s can be returned to CUDA (%s)\n",
		text__bytes(bytes, sizeof(bytes), s->releasable),
		text__counted(count, sizeof(count), s->empties, "empty segment"));
	fprintf(out, "    %s cannot be returned: its segments have blocks in use\n",
		text__bytes(bytes, sizeof(bytes), s->stuck));
	for (int kind = 0; kind < PRIVATE_NR; kind++)
		if (s->private[kind].free)
			fprintf(out, "    %s %s\n",
				text__bytes(bytes, sizeof(bytes), s->private[kind].free),
				report_pools__say_free(s, kind, pool));
	if (s->pending)
		fprintf(out, "    %s waits for a stream\n",
			text__bytes(bytes, sizeof(bytes), s->pending));
	fprintf(out, "    largest gap %s\n", text__bytes(bytes, sizeof(bytes), s->largest_gap));
	if (cached && !s->pending_known)
		fputs("    (may include blocks freed with record_stream that still wait for a "
		      "stream)\n",
		      out);
}

/* Prints the memory that is in no known segment or block. */
static void print_unknown(FILE *out, const struct model_segments *s)
{
	struct report_below below = words__below(s);
	char bytes[24], without_memory[24], count[48];

	if (below.missing > 0)
		fprintf(out, "%s in segments not known\n",
			text__bytes(bytes, sizeof(bytes), below.missing));
	if (below.missing < 0)
		fprintf(out, "%s too much: a segment went unseen\n",
			text__bytes(bytes, sizeof(bytes), 0 - (uint64_t)below.missing));
	if (s->unmapped)
		fprintf(out,
			"%s has no memory now, with %s in %s: other code unmapped it (sleep "
			"mode)\n",
			text__bytes(without_memory, sizeof(without_memory), s->unmapped),
			text__bytes(bytes, sizeof(bytes), s->unmapped_inside),
			text__counted(count, sizeof(count), s->unmapped_blocks, "block"));
	if (s->outside)
		fprintf(out, "%s in %s blocks in no known segment\n",
			text__bytes(bytes, sizeof(bytes), s->outside),
			text__count(count, sizeof(count), s->outside_blocks));
	if (below.nameless > 0)
		fprintf(out, "%s in blocks not known\n",
			text__bytes(bytes, sizeof(bytes), below.nameless));
}

int report_text__segments(FILE *out, const struct model *m, size_t device, const struct facts *f,
			  const struct report_text_opts *o)
{
	struct table *table = calloc(1, sizeof(*table));
	struct model_segments segments;
	int err;

	if (!table)
		return -ENOMEM;
	err = model__segments(m, device, o->when, o->which_line, &segments);
	if (err) {
		free(table);
		if (err != -EINVAL)
			return err;
		fputs("The CPU allocator has no segments.\n", out);
		return 0;
	}
	*table = (struct table){ .out = out, .cwd = facts__get(f, "cwd"), .s = &segments };
	table->shown = o->top && o->top < segments.n ? o->top : segments.n;
	print_sums(out, &segments);
	if (segments.n) {
		err = fill_table(table, report_text__width(out, o));
		if (err)
			goto out;
		print_rows(table, o);
		err = report_pools__print(out, &segments, table->cwd, report_text__width(out, o),
					  report_text__colour(out, o));
		if (err)
			goto out;
	}
	print_unknown(out, &segments);
out:
	model__free_segments(&segments);
	grid__free(table->grid);
	free(table);
	return err;
}

/* ---- from the driver's figure for the process down to the bytes that tensors requested ---- */

#define FIGURE_WIDTH 12 /* columns of a number and its unit */
#define OTHERS_SHOWN 10

struct lines {
	FILE *out;
	size_t width;
	char text[REPORT_TEXT];
};

/* Prints "  15.00 GiB  words", cut to the width; "unknown" if the figure is not known. */
static __attribute__((format(printf, 4, 5))) void print_line(struct lines *l, bool known,
							     uint64_t bytes, const char *fmt, ...)
{
	char figure[24];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(l->text, sizeof(l->text), fmt, ap);
	va_end(ap);
	fprintf(l->out, "%*s  %s\n", FIGURE_WIDTH,
		known ? text__bytes(figure, sizeof(figure), bytes) : "unknown",
		words__cut(l->text, l->width - FIGURE_WIDTH - 2));
}

/* Returns "now", "at the peak", "at the end" or "at 1.20 s". */
static const char *say_moment(char *buf, size_t size, const struct report_text_opts *o,
			      const struct model_device *d)
{
	char time[24];

	if (o->when == ROWS_NOW)
		return "now";
	if (o->at == AT_PEAK || o->at == AT_END)
		return o->at == AT_PEAK ? "at the peak" : "at the end";
	snprintf(buf, size, "at %s",
		 text__time(time, sizeof(time), o->at == AT_OOM ? d->mark_time : o->at_time));
	return buf;
}

/* Prints the driver's figure for the process, and how much of it memtrace-bpf did not see. */
static void print_used(struct lines *l, const struct model_segments *s,
		       const struct report_below *b)
{
	char time[24];

	if (!s->used_known) {
		print_line(l, false, 0, "used by the process: no figure from the driver");
		return;
	}
	print_line(l, true, s->used, "used by the process, as the driver reported at %s",
		   text__time(time, sizeof(time), s->used_time));
	if (b->not_seen >= 0)
		print_line(l, true, b->not_seen,
			   "not seen by memtrace-bpf (CUDA context, libraries)");
}

/* Prints the allocated bytes of a process without PyTorch's native allocator: each block is a call
 * of another allocator, or of the program into CUDA. */
static void print_blocks_are_calls(struct lines *l, const struct model_segments *s,
				   const struct facts *f, const char *allocator)
{
	char tensors[24];

	if (!strcmp(allocator, "none"))
		print_line(l, true, s->allocated, "allocated: blocks are calls into CUDA");
	else
		print_line(l, true, s->allocated, "allocated: blocks are %s calls",
			   !strcmp(allocator, "pluggable") ? "the pluggable allocator's"
							   : "cudaMallocAsync");
	if (facts__get(f, "allocator_block"))
		print_line(l, true, words__fact_number(f, "allocator_block"),
			   "in the largest block, and %s in all tensors found: the allocator hands "
			   "out parts of blocks",
			   text__bytes(tensors, sizeof(tensors),
				       words__fact_number(f, "allocator_tensors")));
}

/* Prints the reserved memory, and what can and cannot be returned of the cached part. */
static void print_cached(struct lines *l, const struct model_segments *s)
{
	uint64_t cached = s->reserved > s->allocated ? s->reserved - s->allocated : 0;
	char allocated[24], other[24], pool[REPORT_POOLS_TEXT];

	print_line(l, true, s->reserved, "reserved = %s allocated + %s cached",
		   text__bytes(allocated, sizeof(allocated), s->allocated),
		   text__bytes(other, sizeof(other), cached));
	if (s->unmapped)
		print_line(
			l, true, s->unmapped,
			"of this without memory: other code unmapped it, last at %s (sleep mode)",
			text__time(allocated, sizeof(allocated), s->unmapped_time));
	if (s->n) {
		print_line(l, true, s->releasable, "cached, can be returned to CUDA");
		print_line(l, true, s->stuck,
			   "cached, cannot be returned (blocks in use), largest gap %s",
			   text__bytes(allocated, sizeof(allocated), s->largest_gap));
	}
	for (int kind = 0; kind < PRIVATE_NR; kind++)
		if (s->private[kind].free)
			print_line(l, true, s->private[kind].free, "%s",
				   report_pools__say_free(s, kind, pool));
}

/* Prints the allocator's memory. */
static void print_reserved(struct lines *l, const struct model_segments *s, const struct facts *f)
{
	const char *allocator = facts__get(f, "allocator") ?: "";

	/* Only the native allocator reserves memory. It may have had no event yet. */
	if (s->has_totals)
		print_cached(l, s);
	else if (s->allocated && strcmp(allocator, "native") != 0)
		print_blocks_are_calls(l, s, f, allocator);
}

/* Returns the number of entries of s->others except managed memory, which has a line for all. */
static size_t count_unmanaged(const struct model_segments *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->nothers; i++)
		n += s->others[i].how != MEM_MANAGED;
	return n;
}

/* Prints the largest memory of other code, by function. */
static void print_others_by_function(struct lines *l, const struct model_segments *s,
				     const char *cwd)
{
	char where[REPORT_TEXT], count[32];
	uint64_t rest = s->others_bytes;
	size_t shown = 0;

	for (size_t i = 0; i < s->nothers && shown < OTHERS_SHOWN; i++) {
		if (s->others[i].how == MEM_MANAGED)
			continue;
		words__location(where, &s->others[i].row, cwd, /*columns=*/60);
		print_line(l, true, s->others[i].row.bytes, "taken by other code: %s, %s", where,
			   facts__how_name(s->others[i].how));
		rest -= s->others[i].row.bytes;
		shown++;
	}
	if (rest)
		print_line(l, true, rest, "taken by other code: + %s more",
			   text__count(count, sizeof(count), count_unmanaged(s) - shown));
}

/* Prints the memory that other code than the allocator took: by function for FRAMES_NATIVE,
 * otherwise on one line with the largest place. */
static void print_others(struct lines *l, const struct model_segments *s, const char *cwd,
			 enum frame_choice which_line)
{
	char where[REPORT_TEXT], more[48] = "", count[32];
	size_t first = 0, unmanaged = count_unmanaged(s);

	while (first < s->nothers && s->others[first].how == MEM_MANAGED)
		first++;
	if (which_line == FRAMES_NATIVE) {
		print_others_by_function(l, s, cwd);
		first = s->nothers;
	}
	if (unmanaged > 1)
		snprintf(more, sizeof(more), ", %s more",
			 text__count(count, sizeof(count), unmanaged - 1));
	if (first < s->nothers) {
		words__location(where, &s->others[first].row, cwd, /*columns=*/40);
		print_line(l, true, s->others_bytes, "taken by other code (%s, %s%s)",
			   facts__how_name(s->others[first].how), where, more);
	}
	if (s->managed)
		print_line(l, true, s->managed, "managed, on the device or on the host");
}

static void print_requested(struct lines *l, const struct model_segments *s)
{
	char requested[24], rounding[24];

	if (s->requested && s->requested <= s->allocated)
		print_line(l, true, s->allocated, "allocated = %s asked for + %s rounding",
			   text__bytes(requested, sizeof(requested), s->requested),
			   text__bytes(rounding, sizeof(rounding), s->allocated - s->requested));
}

static void print_pinned(struct lines *l, const struct model_segments *s)
{
	if (s->unknown_device)
		print_line(l, true, s->unknown_device, "taken on an unknown device");
	if (s->host || s->registered)
		print_line(l, true, s->host + s->registered,
			   "pinned host memory, not of the device");
}

/* Prints differences between sums that should be equal. */
static void print_check(struct lines *l, const struct report_below *b)
{
	if (b->segments_known && b->missing > 0)
		print_line(l, true, b->missing, "reserved memory in unknown segments");
	if (b->missing < 0)
		print_line(l, true, 0 - (uint64_t)b->missing,
			   "too much in segments: some frees were missed");
	if (b->segments_known && b->nameless > 0)
		print_line(l, true, b->nameless, "allocated memory in unknown blocks");
	if (b->nameless < 0)
		print_line(l, true, 0 - (uint64_t)b->nameless,
			   "too much in blocks: frees were missed");
	if (b->not_seen < 0)
		print_line(l, true, 0 - (uint64_t)b->not_seen,
			   "more than the driver reports: segments without memory (vLLM sleep "
			   "mode), or "
			   "missed frees");
}

int report_text__reconcile(FILE *out, const struct model *m, size_t device, const struct facts *f,
			   const struct report_text_opts *o)
{
	struct lines *lines = malloc(sizeof(*lines));
	struct model_segments segments;
	struct model_device dev;
	struct report_below below;
	char when[48];
	int err = lines ? model__segments(m, device, o->when, o->which_line, &segments) : -ENOMEM;

	if (err) {
		free(lines);
		/* no segments on the CPU, or the device never had this moment */
		return err == -ENOMEM ? err : 0;
	}
	lines->out = out;
	lines->width = report_text__width(out, o);
	model__device(m, device, &dev);
	below = words__below(&segments);
	if (below.any) {
		fprintf(out, "%s %s:\n", dev.name, say_moment(when, sizeof(when), o, &dev));
		print_used(lines, &segments, &below);
		print_others(lines, &segments, facts__get(f, "cwd"), o->which_line);
		print_reserved(lines, &segments, f);
		print_requested(lines, &segments);
		print_pinned(lines, &segments);
		print_check(lines, &below);
	}
	model__free_segments(&segments);
	free(lines);
	return 0;
}
