/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The table of --by segment: what each segment holds, and what keeps it from going back to CUDA. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "labels/words.h"
#include "lib/text.h"
#include "report/text.h"

#define GAP 2
#define HELD_MIN 28    /* columns for the last one, or other columns go */
#define HELD_WANTED 52 /* before those that say who, where and what kind are shown */
#define TAKEN_MAX 36

/* Numbers stand right, words left; the last column takes what room there is. */
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
	COL_NR
};

static const char *const titles[COL_NR] = {
	"Stuck",   "Size", "Allocated", "Largest gap", "Blocks",
	"Address", "Kind", "Stream",	"Taken by",    "Held by"
};

struct table {
	FILE *out;
	const char *cwd;
	const struct model_segments *s;
	size_t shown;
	bool has[COL_NR];
	size_t width[COL_NR];
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

static const char *cell(struct table *t, const struct segment *s, int col, size_t columns)
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
	case COL_TAKEN:
		return words__location(t->text, &s->taken, t->cwd, columns);
	}
	return held(t, s, columns);
}

static size_t used(const struct table *t)
{
	size_t sum = 0;

	for (int c = 0; c < COL_HELD; c++)
		if (t->has[c])
			sum += t->width[c] + GAP;
	return sum;
}

static void choose_columns(struct table *t, size_t width)
{
	static const int order[] = { COL_ADDRESS, COL_STREAM,	 COL_TAKEN, COL_KIND,
				     COL_BLOCKS,  COL_ALLOCATED, COL_GAP };
	bool streams = false, taken = false;

	for (size_t i = 0; i < t->s->n; i++) {
		streams |= t->s->all[i].stream_known && t->s->all[i].cuda_stream;
		taken |= t->s->all[i].seen;
	}
	for (int c = 0; c < COL_NR; c++) {
		t->has[c] = true;
		t->width[c] = text__width(titles[c]);
		for (size_t i = 0; i < t->shown; i++) {
			size_t w = text__width(
				cell(t, &t->s->all[i], c, c == COL_TAKEN ? TAKEN_MAX : 200));

			t->width[c] = w > t->width[c] ? w : t->width[c];
		}
	}
	t->has[COL_STREAM] = streams; /* a column that says nothing is none */
	t->has[COL_TAKEN] = taken;
	for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++) {
		size_t most = order[i] > COL_BLOCKS && order[i] != COL_KIND ? HELD_WANTED
									    : HELD_MIN;

		if (used(t) + (t->width[COL_HELD] < most ? t->width[COL_HELD] : most) > width)
			t->has[order[i]] = false;
	}
	t->width[COL_HELD] = width > used(t) ? width - used(t) : 8;
}

static void print_cell(const struct table *t, int col, const char *s)
{
	size_t pad = text__width(s) < t->width[col] ? t->width[col] - text__width(s) : 0;

	if (col == COL_HELD)
		fputs(s, t->out);
	else if (col <= COL_BLOCKS)
		fprintf(t->out, "%*s%s%*s", (int)pad, "", s, GAP, "");
	else
		fprintf(t->out, "%s%*s", s, (int)pad + GAP, "");
}

static void print_rows(struct table *t, const struct report_text_opts *o)
{
	bool colour = report_text__colour(t->out, o);
	char bytes[24], count[32];
	uint64_t rest = 0;

	fputs(colour ? "\033[1m" : "", t->out);
	for (int c = 0; c < COL_NR; c++)
		if (t->has[c])
			print_cell(t, c, titles[c]);
	fputs(colour ? "\033[0m\n" : "\n", t->out);
	for (size_t i = 0; i < t->shown; i++) {
		for (int c = 0; c < COL_NR; c++)
			if (t->has[c])
				print_cell(t, c, cell(t, &t->s->all[i], c, t->width[c]));
		fputc('\n', t->out);
	}
	for (size_t i = t->shown; i < t->s->n; i++)
		rest += t->s->all[i].size;
	if (t->shown < t->s->n)
		fprintf(t->out, "(%s more of %s)\n",
			text__count(count, sizeof(count), t->s->n - t->shown),
			text__bytes(bytes, sizeof(bytes), rest));
}

/* What the segments add up to; the lines are short enough for any terminal. */
static void print_sums(FILE *out, const struct model_segments *s)
{
	uint64_t reserved = s->has_totals ? s->reserved : s->known;
	uint64_t cached = reserved > s->allocated ? reserved - s->allocated : 0;
	char a[24], b[24], c[24], n[32];

	fprintf(out, "Reserved: %s in %s segment%s\n", text__bytes(a, sizeof(a), reserved),
		text__count(n, sizeof(n), s->n), s->n == 1 ? "" : "s");
	fprintf(out, "  allocated %s\n", text__bytes(a, sizeof(a), s->allocated));
	fprintf(out, "  cached    %s\n", text__bytes(a, sizeof(a), cached));
	fprintf(out, "    %s can go back to CUDA (%s empty segment%s)\n",
		text__bytes(a, sizeof(a), s->releasable), text__count(n, sizeof(n), s->empties),
		s->empties == 1 ? "" : "s");
	fprintf(out, "    %s stuck beside blocks\n", text__bytes(b, sizeof(b), s->stuck));
	if (s->pending)
		fprintf(out, "    %s waits for a stream\n", text__bytes(b, sizeof(b), s->pending));
	fprintf(out, "    largest gap %s\n", text__bytes(c, sizeof(c), s->largest_gap));
	if (cached && !s->pending_known)
		fputs("    (may include blocks freed with record_stream that still wait for a "
		      "stream)\n",
		      out);
}

/* What is not known has a name and a size. */
static void print_unknown(FILE *out, const struct model_segments *s)
{
	struct report_below b = words__below(s);
	char x[24], n[32];

	if (b.missing > 0)
		fprintf(out, "%s in segments not known\n", text__bytes(x, sizeof(x), b.missing));
	if (b.missing < 0)
		fprintf(out, "%s too much: a segment went unseen\n",
			text__bytes(x, sizeof(x), 0 - (uint64_t)b.missing));
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
		err = model__segments(m, device, o->when, o->innermost, &s);
	if (err == -EINVAL) {
		fputs("The CPU's allocator has no segments.\n", out);
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
		choose_columns(t, report_text__width(out, o));
		print_rows(t, o);
	}
	print_unknown(out, &s);
	model__free_segments(&s);
	free(t);
	return 0;
}
