/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/grid.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"

#define GAP 2 /* spaces between two columns */

struct grid {
	const struct column *c; /* n columns, without the last one */
	size_t n, rows, room;	/* room: of cells */
	size_t *width;
	bool *hidden;
	struct cell {
		char *text; /* NULL: empty */
		const char *colour;
	} * cells; /* rows of n cells */
	int last_goes, err;
	bool last_hidden;
};

struct grid *grid__new(const struct column *c, size_t n)
{
	struct grid *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->c = c;
	t->n = n;
	t->width = calloc(n + 1, sizeof(*t->width));
	t->hidden = calloc(n + 1, sizeof(*t->hidden));
	if (!t->width || !t->hidden) {
		grid__free(t);
		errno = ENOMEM;
		return NULL;
	}
	for (size_t i = 0; i < n; i++) {
		t->width[i] = text__width(c[i].title);
		t->width[i] = t->width[i] > c[i].least ? t->width[i] : c[i].least;
	}
	return t;
}

void grid__free(struct grid *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->rows * t->n; i++)
		free(t->cells[i].text);
	free(t->cells);
	free(t->width);
	free(t->hidden);
	free(t);
}

void grid__show(struct grid *t, size_t column, bool on)
{
	t->hidden[column] = !on;
}

bool grid__shown(const struct grid *t, size_t column)
{
	return !t->hidden[column];
}

void grid__row(struct grid *t)
{
	size_t first = t->rows * t->n;

	if (!t->err)
		t->err = array__grow(&t->cells, &t->room, first + t->n, sizeof(*t->cells));
	if (t->err)
		return;
	memset(t->cells + first, 0, t->n * sizeof(*t->cells));
	t->rows++;
}

void grid__put(struct grid *t, size_t column, const char *text, const char *colour)
{
	size_t width = text__width(text);
	struct cell *c;

	if (t->err)
		return;
	c = &t->cells[(t->rows - 1) * t->n + column];
	c->colour = colour;
	free(c->text);
	c->text = strdup(text);
	if (!c->text)
		t->err = -ENOMEM;
	t->width[column] = width > t->width[column] ? width : t->width[column];
}

int grid__error(const struct grid *t)
{
	return t->err;
}

static size_t used_width(const struct grid *t)
{
	size_t sum = 0;

	for (size_t i = 0; i < t->n; i++)
		sum += t->hidden[i] ? 0 : t->width[i] + GAP;
	return sum;
}

void grid__last_goes(struct grid *t, int goes)
{
	t->last_goes = goes;
}

size_t grid__fit(struct grid *t, size_t width, size_t wanted, int goes)
{
	for (int next = 1; used_width(t) + wanted > width && next <= goes; next++) {
		for (size_t i = 0; i < t->n; i++)
			if (t->c[i].goes == next)
				t->hidden[i] = true;
		if (t->last_goes == next) {
			t->last_hidden = true;
			wanted = 0;
			width += GAP; /* no gap after the last remaining column */
		}
	}
	return used_width(t) < width && !t->last_hidden ? width - used_width(t) : 0;
}

/* Prints cell c of column i. *gap: spaces to print before the next cell that has text; they are
 * not printed at the end of a line. */
static void print_cell(const struct grid *t, FILE *out, size_t i, const struct cell *c, int *gap)
{
	const char *text = c->text ? c->text : "";
	size_t width = text__width(text);
	int pad = t->width[i] > width ? (int)(t->width[i] - width) : 0;

	if (t->hidden[i])
		return;
	if (!*text) {
		*gap += (int)t->width[i] + GAP;
		return;
	}
	fprintf(out, "%*s", *gap + (t->c[i].right ? pad : 0), "");
	if (c->colour)
		fprintf(out, "%s%s\033[0m", c->colour, text);
	else
		fputs(text, out);
	*gap = GAP + (t->c[i].right ? 0 : pad);
}

static void print_last(const struct grid *t, FILE *out, const char *last, int gap)
{
	if (!t->last_hidden)
		fprintf(out, "%*s%s", gap, "", last);
}

void grid__print(const struct grid *t, FILE *out, size_t row, const char *last)
{
	int gap = 0;

	for (size_t i = 0; i < t->n; i++)
		print_cell(t, out, i, &t->cells[row * t->n + i], &gap);
	print_last(t, out, last, gap);
	fputc('\n', out);
}

void grid__print_titles(const struct grid *t, FILE *out, bool bold, const char *last)
{
	int gap = 0;

	if (bold)
		fputs("\033[1m", out);
	for (size_t i = 0; i < t->n; i++)
		print_cell(t, out, i, &(struct cell){ .text = (char *)t->c[i].title }, &gap);
	print_last(t, out, last, gap);
	fputs(bold ? "\033[0m\n" : "\n", out);
}
